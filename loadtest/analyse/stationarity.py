"""Was the load steady while it was measured? First half of each window against the second, block by block."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from loadtest.analyse import wording
from loadtest.analyse.rules import Mark, Unknown
from loadtest.analyse.run_facts import RunFacts
from loadtest.analyse.stats import Floats, pooled_variances
from loadtest.analyse.table import CellRows

HALVES_RATIO = 1.05  # of the second half's mean to the first's: above what min_gain asks of a claim by default
CONFIDENCE = 0.99  # over all arms, levels and metrics together
FEW_IN_HALF = 5  # requests that a mean is taken of
BATCH = 5  # requests, as in MSER-5
FEWEST_BATCHES = 10
SERIES = {"tpot_s": "time per token", "ttft_s": "time to first token"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How a metric moved from the first half of its windows to the second, as log-ratios of the blocks."""

    arm: str
    level: float
    column: str
    blocks: Floats


def mser5(series: Floats) -> float | None:
    """Return the share of a series that MSER-5 would leave out at its start, or None where it is too short.

    The cut d minimises Σ(batch − mean)² ÷ (batches left)² over means of five (White 1997). A cut beyond half means
    that no steady state was seen. It is no rule of its own: where neighbours are alike it cuts steady series too.
    """
    count = len(series) // BATCH
    if count < FEWEST_BATCHES:
        return None
    means = series[: count * BATCH].reshape(count, BATCH).mean(axis=1)
    left = count - np.arange(count - BATCH + 1)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    spread = squares[: len(left)] - sums[: len(left)] ** 2 / left
    return float(np.argmin(np.round(spread / left**2, 15)) / count)


def shifts(facts: RunFacts) -> list[Shift]:
    """Return the shifts of every arm, level and metric that two blocks or more show."""
    found = []
    for arm in facts.arms:
        for level in sorted({c.level for c in facts.valid}):
            own = list(_rows(facts, arm, level))
            for column in SERIES:
                ratios = [ratio for rows in own if (ratio := _log_ratio(rows, column)) is not None]
                if len(ratios) > 1:
                    found.append(Shift(arm=arm, level=level, column=column, blocks=np.array(ratios)))
    return found


def _rows(facts: RunFacts, arm: str, level: float) -> Iterator[CellRows]:
    assert facts.requests is not None
    for cell in facts.valid:
        if cell.arm == arm and cell.level == level:
            yield facts.requests.cell(cell)


def _log_ratio(rows: CellRows, column: str) -> float | None:
    """Return log(mean of the second half ÷ mean of the first), halves by the time at which requests fell due."""
    values = rows.column(column)
    chosen = rows.measured & rows.ok & ~np.isnan(values)
    late = rows.column("due_s")[chosen] >= (rows.open_s + rows.close_s) / 2
    if min(late.sum(), (~late).sum()) < FEW_IN_HALF:
        return None
    first, second = float(values[chosen][~late].mean()), float(values[chosen][late].mean())
    return math.log(second / first) if first > 0 and second > 0 else None


def not_steady(facts: RunFacts) -> Mark | Unknown | None:
    """Mark the widest shift whose whole interval lies beyond the limit; the blocks are what is counted."""
    if facts.experiment.load.shape != "steady":
        return None  # the load is meant to move
    found = shifts(facts) if facts.requests is not None else []
    if not found:
        return Unknown(missing="two blocks with five requests in each half of a window")
    proven = [(abs(mean), shift, mean) for shift, mean, half in _intervals(found) if _beyond(mean, half)]
    if not proven:
        return None
    _, shift, mean = max(proven, key=lambda entry: entry[0])
    assert facts.requests is not None
    cut = [mser5(_in_order(rows, shift.column)) for rows in _rows(facts, shift.arm, shift.level)]
    known = [share for share in cut if share is not None]
    return Mark(
        sentence=f"{SERIES[shift.column].capitalize()} of {shift.arm} {'rose' if mean > 0 else 'fell'} by"
        f" {100 * abs(math.expm1(mean)):.0f} % from the first half of the windows to the second at"
        f" {wording.with_unit(shift.level)} (limit {100 * (HALVES_RATIO - 1):.0f} %): not steady{_checked(known)};"
        " raise window.warmup_requests and the window."
    )


def _intervals(found: Sequence[Shift]) -> Iterator[tuple[Shift, float, float]]:
    """Yield each shift with mean and half-width; variance pooled over the levels of one arm and metric."""
    share = (1 - CONFIDENCE) / len(found)
    for key in sorted({(shift.arm, shift.column) for shift in found}):
        own = [shift for shift in found if (shift.arm, shift.column) == key]
        counts = np.array([len(shift.blocks) for shift in own])
        spread = np.array([np.var(shift.blocks, ddof=1) for shift in own])
        variance, dof = pooled_variances(np.array([shift.level for shift in own]), spread, counts - 1)
        half = stats.t.ppf(1 - share / 2, dof) * np.sqrt(variance / counts)
        yield from ((shift, float(np.mean(shift.blocks)), float(h)) for shift, h in zip(own, half, strict=True))


def _beyond(mean: float, half: float) -> bool:
    return abs(mean) - half > math.log(HALVES_RATIO)


def _in_order(rows: CellRows, column: str) -> Floats:
    chosen = rows.measured & rows.ok & ~np.isnan(rows.column(column))
    return np.asarray(rows.column(column)[chosen][np.argsort(rows.column("due_s")[chosen], kind="stable")])


def _checked(cuts: Sequence[float]) -> str:
    if not cuts:
        return ""
    cut = statistics.median(cuts)
    said = "finds no steady part" if cut > 0.5 else f"would leave out the first {100 * cut:.0f} %"
    return f" (MSER-5 {said})"
