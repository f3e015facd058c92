"""From a reduced run to what a reader looks at behind its answer."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from loadtest.analyse.classes import classes
from loadtest.analyse.detail_results import Detail, PairSpread
from loadtest.analyse.explain import ByCell
from loadtest.analyse.over_time import instants
from loadtest.analyse.slowest import slowest
from loadtest.analyse.table import Requests
from loadtest.record import CellRecord

QUANTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.50, "p75": 0.75, "p95": 0.95}
PAIR = ["level", "block", "session", "turn"]


def detail(
    requests: Requests, cells: Sequence[CellRecord], valid: Sequence[CellRecord], scrapes: ByCell,
    arms: Sequence[str], *, restarted: bool, confidence: float,
) -> Detail:  # fmt: skip
    """Return the detail of a run; `cells` are all of them, `valid` those that count."""
    numbers = [c.cell for c in valid]
    compared = len(arms) > 1
    return Detail(
        classes=classes(requests, valid, arms[0], arms[1], restarted=restarted, confidence=confidence)
        if compared else (),
        slowest=slowest(requests.frame, numbers, arms),
        spreads=spreads(requests.frame, numbers, arms[0], arms[1]) if compared else (),
        instants=instants(requests, cells, scrapes),
    )  # fmt: skip


def spreads(frame: pd.DataFrame, cells: Sequence[int], baseline: str, candidate: str) -> tuple[PairSpread, ...]:
    """Return how the same requests compare, by level; descriptive, since requests of a cell are not independent."""
    chosen = frame.loc[frame["in_window"] & frame["ok"] & frame["cell"].isin(list(cells)), [*PAIR, "arm", "e2e_s"]]
    base, cand = (chosen[chosen["arm"] == arm].drop(columns="arm") for arm in (baseline, candidate))
    joined = base.drop_duplicates(PAIR).merge(cand.drop_duplicates(PAIR), on=PAIR, suffixes=("_b", "_c"))
    joined["ratio"] = joined["e2e_s_b"] / joined["e2e_s_c"]
    found = []
    for level, ratios in joined.groupby("level", observed=True)["ratio"]:
        present = ratios[ratios.notna()]
        if len(present):
            figures = {name: float(present.quantile(q)) for name, q in QUANTILES.items()}
            found.append(PairSpread(level=float(str(level)), pairs=len(present), **figures))
    return tuple(found)
