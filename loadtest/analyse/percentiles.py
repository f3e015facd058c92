"""Percentiles of the requests of all blocks together, with intervals that hold what differs between blocks.

Such a percentile errs by the luck of its requests and by that of its blocks, and its interval reaches as far as either.
For the first order statistics bound it exactly. For the second there are the blocks' own percentiles: Student's t
interval of their logarithms, the variance pooled over the levels as for every mean.

Where the values of a block are alike (answers of one length that take one time), a percentile of all requests is one of
blocks, and few blocks reach too low: the upper bound then lies further out, by SKEW ÷ √blocks times as much as the
percentile of all lies above the mean of the blocks' own. Measured on simulated worlds; see docs/method.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.analyse.design_effect import quantile_effects
from loadtest.analyse.estimates import Estimate, exponential
from loadtest.analyse.stats import CONFIDENCE, Sample, half_widths, merged, quantile_estimate, rank_interval

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
SKEW = 5.2  # 3 with three blocks
DEEP, DEEP_BEYOND = 0.95, 5  # beyond this percentile a block needs so many values that lie beyond it
Blocks = Mapping[float, Sequence[Sample]]  # by level


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile of one level."""

    estimate: Estimate
    design_effect: float  # how many of its values count as one in its order statistics


def percentiles(
    blocks: Blocks, q: float, *, pooled: Mapping[float, Sample] | None = None,
    requests: Mapping[float, int] | None = None, varying: bool = False, restarted: bool = False,
    confidence: float = CONFIDENCE,
) -> dict[float, Percentile]:  # fmt: skip
    """Return the q-quantile of every level.

    `pooled`: each level's blocks as one sample, where that is at hand. `requests`: how many there are at each level,
    where one has several values (the gaps between its chunks), which are not independent. `varying`: levels differ in
    how their blocks do, as in an open load. `restarted`: each block was a start of the servers of its own.
    """
    blocks = {level: [sample for sample in samples if sample.size] for level, samples in blocks.items()}
    pooled = pooled or {level: merged(samples) for level, samples in blocks.items()}
    of_blocks = _of_blocks(blocks, q, restarted=restarted, confidence=confidence)
    effects: dict[float, float] = {}
    if requests is not None or len(of_blocks) < len(pooled):
        effects = quantile_effects(blocks, pooled, q, varying=varying, restarted=restarted, confidence=confidence)
    alone = max(map(len, blocks.values()), default=0) < 2  # how blocks differ is not known: no interval, as for a mean
    found = {}
    for level, sample in pooled.items():
        effect = 1.0
        if requests is not None or level not in of_blocks:
            # One block shows nothing of how alike the values of a request are: a request then counts as one value.
            alike = sample.size / requests[level] if requests and requests[level] else 1.0
            effect = effects.get(level, alike)
        own = quantile_estimate(sample, q, effect, confidence)
        if alone or any(block.size < each_block_needs(q) for block in blocks[level]):
            own = Estimate(value=own.value, n=own.n)
        elif level in of_blocks:
            own = _widened(own, *of_blocks[level], skew=SKEW / math.sqrt(len(blocks[level])) if q > 0.5 else 0.0)
        found[level] = Percentile(estimate=own, design_effect=effect)
    return found


def bound_needs(q: float, design_effect: float = 1.0, blocks: int = 1) -> int:
    """Return how many values a two-sided 95 % interval of the q-quantile needs."""
    n = max(1, math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(max(q, 1 - q))))
    while None in rank_interval(n, q):
        n += 1
    while n > 1 and None not in rank_interval(n - 1, q):
        n -= 1
    return max(math.ceil(n * max(1.0, design_effect)), blocks * each_block_needs(q))


def each_block_needs(q: float) -> int:
    """Return how many values each block needs for an interval of the q-quantile."""
    return math.ceil(DEEP_BEYOND / (1 - q) - 1e-9) if q > DEEP else 1


def _of_blocks(blocks: Blocks, q: float, *, restarted: bool, confidence: float) -> dict[float, tuple[float, float]]:
    """Return the mean of the logarithms of the blocks' own percentiles, and the half-width of its interval, by level.

    None where a block has no percentile, or one that has no logarithm, or where no level has two blocks.
    """
    own = {level: [sample.quantile(q) for sample in samples] for level, samples in blocks.items()}
    logs = {level: np.log(values) for level, values in own.items() if values and all(0 < v < math.inf for v in values)}
    levels = sorted(logs)
    if not any(len(values) > 1 for values in logs.values()):
        return {}
    half = half_widths(np.array(levels), [logs[x] for x in levels], restarted=restarted, confidence=confidence)
    return {x: (float(np.mean(logs[x])), float(h)) for x, h in zip(levels, half, strict=True) if math.isfinite(h)}


def _widened(own: Estimate, mean: float, half: float, *, skew: float) -> Estimate:
    """Return a percentile whose interval also holds what its blocks tell."""
    if own.value is None or (own.low is None and own.high is None):
        return own
    above = max(0.0, math.log(own.value) - mean)
    low, high = own.value * math.exp(-half), own.value * exponential(half + skew * above)
    return Estimate(
        value=own.value, n=own.n, low=None if own.low is None else min(own.low, low),
        high=None if own.high is None or math.isinf(high) else max(own.high, high),
    )  # fmt: skip
