"""What the rules for a run and for its comparison look at, and the requests that both arms answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from loadtest.analyse.counters import Deltas
from loadtest.analyse.explain import ByCell
from loadtest.analyse.results import ArmLevel
from loadtest.analyse.summary import Measured
from loadtest.analyse.table import Requests
from loadtest.record import CellRecord
from loadtest.settings import Experiment

KEYS = ["level", "block", "session", "turn"]
KEPT = ["output_tokens", "finish_reason", "cached_tokens", "prompt_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the rules for a run look at."""

    run: Mapping[str, Any]
    baseline: str
    candidate: str | None
    cells: Sequence[CellRecord]
    valid: Sequence[CellRecord]
    measured: Mapping[int, Measured]
    arm_levels: Sequence[ArmLevel]
    counters: Mapping[str, Deltas]  # arm → growth inside the windows of its valid cells
    bodies_differ: int = 0
    pairs: int = 0
    damage: tuple[str, ...] = ()  # sentences on records that contradict each other
    requests: Requests | None = None
    scrapes: ByCell = field(default_factory=dict)
    experiment: Experiment = field(default_factory=Experiment)
    twins: pd.DataFrame | None = None  # of `twin_requests`

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms, baseline first."""
        return (self.baseline, self.candidate) if self.candidate else (self.baseline,)

    def of(self, arm: str) -> list[Measured]:
        """Return the cells of an arm, valid or not."""
        return [self.measured[c.cell] for c in self.cells if c.arm == arm]


def twin_requests(frame: pd.DataFrame, valid: Sequence[CellRecord], baseline: str, candidate: str) -> pd.DataFrame:
    """Return the requests that both arms were sent and answered well in valid cells, a row each.

    Columns are level, and for each of output_tokens, finish_reason, cached_tokens and prompt_tokens one with `_b`
    (baseline) and one with `_c` (candidate). Their answers should be alike whatever the arms' speeds are.
    """
    good = frame["in_window"] & frame["ok"] & frame["cell"].isin([c.cell for c in valid])
    chosen = frame.loc[good, [*KEYS, *KEPT, "arm"]]
    own = [chosen[chosen["arm"] == arm].drop(columns="arm").drop_duplicates(KEYS) for arm in (baseline, candidate)]
    return own[0].merge(own[1], on=KEYS, suffixes=("_b", "_c"))
