"""Tails of two arms against each other, and how many requests a claim on a tail needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from scipy import stats

from loadtest.analyse.estimates import Estimate, exponential
from loadtest.analyse.findings import TailRatio
from loadtest.analyse.metrics import METRICS
from loadtest.analyse.percentiles import QUANTILES, bound_needs
from loadtest.analyse.results import ArmLevel
from loadtest.analyse.stats import CONFIDENCE


def requests_needed(q: float, over: int = 0, confidence: float = CONFIDENCE) -> int:
    """Return the least number of independent requests of which `over` beyond a limit still prove it for the q-quantile.

    MLPerf Inference's early stopping with tolerance 0: the smallest h within the limit for which a server that just
    fails would look this good with probability I_q(h, over + 1) ≤ 1 − confidence; the number is h + over. It is to be
    applied at looks that were set beforehand: looking until it is met costs error.
    """
    if not 0 < q < 1 or over < 0 or not 0 < confidence < 1:
        raise ValueError("q and confidence must lie between 0 and 1, over must be at least 0")
    low, high = 0, 1
    while _looks_good(high, over, q) > 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _looks_good(middle, over, q) <= 1 - confidence else (middle, high)
    return high + over


def _looks_good(within: int, over: int, q: float) -> float:
    return float(stats.beta.cdf(q, within, over + 1))


def combined(base: Estimate, cand: Estimate, turn: Callable[[float], float]) -> tuple[float, float, float] | None:
    """Return (value, low, high) of turn(candidate) − turn(baseline) from the arms' own intervals, or None.

    The method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008): each bound goes as far
    from the value as the root of the squares of the two distances. Arms that share their blocks' luck are closer than
    it says, so that it errs to the wide side. `turn` must rise.
    """
    known = (base.value, base.low, base.high, cand.value, cand.low, cand.high)
    if any(value is None or not math.isfinite(value) for value in known):
        return None
    try:
        b, b_low, b_high, c, c_low, c_high = (turn(float(value)) for value in known if value is not None)
    except ValueError:  # the logarithm of 0
        return None
    value = c - b
    return value, value - math.hypot(c - c_low, b_high - b), value + math.hypot(c_high - c, b - b_low)


def tail_ratios(
    rows: Mapping[tuple[str, float], ArmLevel], baseline: str, candidate: str, levels: Sequence[float]
) -> tuple[TailRatio, ...]:
    """Return every percentile of every latency metric with a direction, arm against arm, level by level."""
    names = [metric.name for metric in METRICS if metric.values is not None and metric.better == "lower"]
    return tuple(
        _tail_ratio(name, level, statistic, rows[baseline, level], rows[candidate, level])
        for name in names
        for level in levels
        if (baseline, level) in rows and (candidate, level) in rows
        for statistic in QUANTILES
    )


def _tail_ratio(metric: str, level: float, statistic: str, base: ArmLevel, cand: ArmLevel) -> TailRatio:
    tails = [row.tails[metric] for row in (base, cand)]
    own: list[Estimate] = [getattr(tail, statistic) for tail in tails]
    ratio, difference = combined(own[1], own[0], math.log), combined(own[0], own[1], float)
    count = min(estimate.n for estimate in own)
    effect = max(tail.design_effect.get(statistic, 1.0) for tail in tails)
    return TailRatio(
        metric=metric,
        level=level,
        statistic=statistic,
        speedup=_estimate(ratio, exponential, count) if ratio else Estimate(value=_quotient(*own), n=count),
        difference_s=_estimate(difference, float, count) if difference else Estimate(n=count),
        requests=count,
        requests_needed=bound_needs(QUANTILES[statistic], effect, max(row.means[metric].n for row in (base, cand))),
    )


def _estimate(found: tuple[float, float, float], turn: Callable[[float], float], n: int) -> Estimate:
    value, low, high = found
    return Estimate(value=turn(value), low=turn(low), high=turn(high), n=n)


def _quotient(base: Estimate, cand: Estimate) -> float | None:
    if base.value is None or not cand.value or not (math.isfinite(base.value) and math.isfinite(cand.value)):
        return None
    return base.value / cand.value
