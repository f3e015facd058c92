"""What a server tells of itself, in one form whichever kind it is, and how values of unknown shape are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.errors import printable

LARGEST = 2**53  # beyond it a figure is none
LONGEST_NAME = 200
_PLACE = re.compile(r" at 0x[0-9a-f]+")  # another one in every process
LABELS = "labels of /metrics"  # where a few settings stand that are told nowhere else
EXTRACTING = "no speculation, data extraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one kind's own endpoints say; what is not told is None or empty."""

    config: dict[str, Any] = field(default_factory=dict)  # flattened settings
    config_from: str = ""  # where they were read
    speculates: bool | None = None  # by its settings
    method: str | None = None
    k: int | None = None  # draft tokens per step
    drafter: str | None = None  # model that drafts
    modes: tuple[str, ...] = ()  # FAKED · LOSSY (record.py) · EXTRACTING
    version: str | None = None
    model_root: str | None = None
    max_model_len: int | None = None
    template: str | None = None  # what tells one chat template from another
    simulated_world: str | None = None


def table(value: Any) -> Mapping[str, Any]:
    """Return a table, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def text(value: Any) -> str | None:
    """Return a text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def named(value: Any) -> str | None:
    """Return a name or version on one line, fit to be shown and cut to a length that is met; None for anything else."""
    return " ".join(printable(value[: 4 * LONGEST_NAME]).split())[:LONGEST_NAME] or None if text(value) else None


def whole(value: Any) -> int | None:
    """Return a whole number of a size that is met; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST else None


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table of dotted keys; a function in it goes by its name, not by where it lies."""
    if not isinstance(value, Mapping):
        value = _PLACE.sub("", value) if isinstance(value, str) else value
        return {prefix: value} if prefix else {}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= flatten(inner, f"{prefix}.{printable(str(key))}" if prefix else printable(str(key)))
    return flat
