"""What a rule of validity is, what it may find, and what the rules for a cell look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from loadtest.analyse.counters import Deltas
from loadtest.analyse.summary import Measured
from loadtest.analyse.table import CellRows
from loadtest.record import CellRecord
from loadtest.slo import USERS


class Level(StrEnum):
    """What a rule is about."""

    CELL = "cell"
    COMPARISON = "comparison"  # of the two arms
    RUN = "run"


class Effect(StrEnum):
    """What a broken rule does."""

    FLAG = "flag"
    INVALID = "invalid"
    EITHER = "flag, or invalid far beyond"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A sentence on the quality of a cell or a run."""

    sentence: str
    invalid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A rule could not be checked, since `missing` was not there."""

    missing: str


F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[F]):
    """One rule: `check` returns a mark where it is broken, Unknown where it has no data, None where it holds."""

    name: str
    reads: str
    level: Level
    effect: Effect
    limit: str
    check: Callable[[F], Mark | Unknown | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What the rules for a cell look at."""

    measured: Measured
    users: int
    thinks: bool  # whether users pause between requests
    closed: bool = True  # whether the load is a number of users
    unit: str = USERS  # of the level
    steady: bool = True  # whether the rate of an open load is meant to stay the same over the window
    recorded: bool = False  # whether sessions arrive as a trace says
    gap_cv: float = 1.0  # standard deviation ÷ mean of the gaps between arrivals, at least 1
    window: Deltas | None = None  # counters over the window
    whole: Deltas | None = None  # counters from idle to idle
    restarted: bool | None = None  # whether the server was started again within the cell; None: not known
    rows: CellRows | None = None  # the requests themselves

    @property
    def record(self) -> CellRecord:
        """The cell as it was run."""
        return self.measured.record
