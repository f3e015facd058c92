"""Does acceptance depend on the load, or drift while the server runs? It should do neither."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from loadtest.analyse.counters import Deltas
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import Trend
from loadtest.analyse.stats import CONFIDENCE, Floats
from loadtest.record import CellRecord

TREND_P, TREND_CHANGE = 0.01, 0.05  # a trend is named when it is this sure and this large over the tested range


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One cell's counters."""

    cell: CellRecord
    deltas: Deltas

    @property
    def middle_s(self) -> float:
        """The middle of the window, in seconds on the run's clock."""
        return ((self.cell.window_open_s or 0.0) + (self.cell.window_close_s or 0.0)) / 2


def trends(counted: Sequence[Counted], *, restarted: bool = False) -> tuple[Trend | None, Trend | None]:
    """Return the trend of the acceptance ratio over load and over time, each with the other taken out.

    Least squares over the cells, weighted by drafted tokens: ratio = a + b · log2 load + c · hours. Where each block
    was a start of the servers every block has an a of its own, and time counts from that start.
    """
    if len(counted) < 4:
        return None, None
    y = np.array([c.deltas.over("accepted", "drafted") or 0.0 for c in counted])
    weights = np.sqrt([c.deltas.get("drafted") for c in counted])
    blocks = np.array([c.cell.block if restarted else 0 for c in counted])
    _, group = np.unique(blocks, return_inverse=True)
    began = np.array([min(c.middle_s for c, g in zip(counted, group, strict=True) if g == own) for own in group])
    hours = (np.array([c.middle_s for c in counted]) - began) / 3600
    load = np.log2([c.cell.level for c in counted])
    own_a = (group[:, None] == np.arange(group.max() + 1)).astype(float)
    columns = {"doubling of the load": load, "hour": hours}
    used = {per: x for per, x in columns.items() if np.ptp(x) > 0}
    design = np.column_stack([*used.values(), own_a]) * weights[:, None]
    found = _slopes(design, y * weights, len(used))
    if found is None:
        return None, None
    slopes = dict(zip(used, found, strict=True))
    mean = float(np.average(y, weights=weights**2))
    life = "the life of a server" if restarted else "the run"
    made = {per: _trend(per, *slopes[per], float(np.ptp(x)), mean, life) for per, x in used.items()}
    return made.get("doubling of the load"), made.get("hour")


def _slopes(design: Floats, y: Floats, count: int) -> list[tuple[Estimate, float]] | None:
    """Return the first `count` coefficients with interval and p-value; None without degrees of freedom."""
    dof = len(y) - design.shape[1]
    if dof < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ y
    error = math.sqrt(float(np.sum((y - design @ beta) ** 2)) / dof)
    t = float(stats.t.ppf((1 + CONFIDENCE) / 2, dof))
    found = []
    for i in range(count):
        slope, spread = float(beta[i]), error * math.sqrt(float(inverse[i, i]))
        p_value = float(2 * stats.t.sf(abs(slope) / spread, dof)) if spread > 0 else float(slope == 0)
        found.append((Estimate(value=slope, low=slope - t * spread, high=slope + t * spread, n=len(y)), p_value))
    return found


def _trend(per: str, slope: Estimate, p_value: float, span: float, mean: float, life: str) -> Trend:
    change = (slope.value or 0.0) * span / mean if mean > 0 else None
    sentence = ""
    if change is not None and p_value < TREND_P and abs(change) > TREND_CHANGE:
        by = f"The acceptance ratio {'falls' if change < 0 else 'rises'} by {100 * abs(change):.0f} %"
        sentence = (
            f"{by} over {life}: it drifts while the server runs."
            if per == "hour"
            else f"{by} from the lowest to the highest load: it should be flat."
        )
    return Trend(per=per, slope=slope, p_value=p_value, change=change, sentence=sentence)
