"""What the messages hold, taken apart and put together: nothing that came over a line is used unchecked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.drive.plan import Cell
from loadtest.drive.truth import Agreement
from loadtest.drive.workers.dealing import Share
from loadtest.drive.workers.phases import Count, Word
from loadtest.experiment import as_document, from_document
from loadtest.reading import is_number, row_of
from loadtest.record import CellRecord, KeptText
from loadtest.servers.control import Arm, arm_from
from loadtest.settings import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A cell that a worker is to drive a share of."""

    attempt: int  # counts the cells that were begun
    cell: Cell
    share: Share
    arm: Arm
    model: str
    count: str  # how tokens per chunk are asked for
    asked_ratio: float
    salted: bool
    salt: str
    experiment: Experiment
    started_s: float  # on the run's clock; of an open load the moment before which no session arrives
    stagger_s: float
    timetable: dict[str, Any] | None  # of an open load
    plan_sha256: str  # of the plan that names the cell; "" for one that is not of the plan

    def message(self) -> dict[str, Any]:
        """Return it for a message."""
        return asdict(self) | {"experiment": as_document(self.experiment)}


def begin_from(data: Mapping[str, Any]) -> Begin:
    """Return what `Begin.message` gave."""
    parts = {"cell": Cell(**data["cell"]), "share": Share(**data["share"]), "arm": arm_from(data["arm"]),
             "experiment": from_document(data["experiment"])}  # fmt: skip
    return Begin(**{**data, **parts})


def word_from(data: Mapping[str, Any]) -> Word:
    """Return the word in a message. Raises TypeError or ValueError for what is none."""
    for name in ("opens_s", "closes_s"):
        if data.get(name) is not None and not isinstance(data[name], float):
            raise ValueError(data[name])
    return Word(**data)


def count_from(data: Mapping[str, Any]) -> Count:
    """Return the count in a message. Raises TypeError or ValueError for what is none."""
    for name in ("issued", "in_flight", "due_in_window", "open_in_window"):
        if not isinstance(data.get(name, 0), int) or data.get(name, 0) < 0:
            raise ValueError(data[name])
    return Count(**{**data, "heard": word_from(data["heard"])})


def number_from(value: object) -> float | None:
    """Return a finite number in a message, None where it holds none. Raises ValueError for anything else."""
    if value is not None and not is_number(value):
        raise ValueError(value)
    return None if value is None else float(value)  # type: ignore[arg-type]  # it is a number


def _rank_from(value: object) -> float:
    """Return a rank in a message, infinite of a failed request. Raises ValueError for what orders nothing."""
    if not isinstance(value, float) or math.isnan(value):
        raise ValueError(value)
    return value


def found_from(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a worker found of its cell. Raises KeyError, TypeError, ValueError or UsageError for what is none."""
    cell, texts, agreement = data["cell"], data["texts"], data["agreement"]
    if cell is not None:
        row_of(CellRecord, {**cell}, "what a worker found")
    for late_s, due_s, text in texts:
        _rank_from(late_s), _rank_from(due_s), row_of(KeptText, {**text}, "what a worker kept")
    return {
        "error": str(data["error"]), "cell": cell, "users": number_from(data["users"]) or 0.0, "texts": texts,
        "agreement": None if agreement is None else asdict(row_of(Agreement, {**agreement}, "how a worker agrees")),
        **{name: number_from(data[name]) for name in ("word_late_s", "offset_s", "bound_s")},
    }  # fmt: skip
