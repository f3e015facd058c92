"""The bootstrap over blocks: intervals that do not lean on the blocks' ratios being normal.

The interval is the symmetric studentized one: the mean ± the 95 % quantile of |mean* − mean| ÷ standard error*, times
the standard error. Of the usual forms it errs least with few values: its coverage is off by O(n⁻²), that of the
equal-tailed bootstrap-t and of BCa by O(n⁻¹) (P. Hall, "On symmetric bootstrap confidence intervals", JRSS B 50, 1988),
and BCa, like the percentile interval, is too short at n = 8, because it corrects neither for n − 1 nor for a standard
error that is itself estimated (T. Hesterberg, "What teachers should know about the bootstrap", 2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loadtest.analyse.stats import CONFIDENCE, Floats, half_widths, pooled_variances

LEAST_BLOCKS = 8  # below it the blocks drawn are too often nearly the same ones
DRAWS = 1999
SEED = 1988  # the same draws for every metric, so that their intervals belong together


def block_half_widths(
    loads: Floats, samples: Sequence[Floats], *, restarted: bool = False, confidence: float = CONFIDENCE
) -> Floats:
    """Return the half-width of the interval of each level's mean: bootstrap from 8 blocks on, else Student's t.

    NaN where no interval exists. `restarted`: each block was a start of the servers; where some level then lacks a
    block the draws cannot keep what a start gives to all its levels, and the t interval stands.
    """
    counts = np.array([len(sample) for sample in samples])
    alike = bool((counts == counts[0]).all()) if len(counts) else False
    if not len(counts) or counts.min() < LEAST_BLOCKS or (restarted and not alike):
        return half_widths(loads, samples, restarted=restarted, confidence=confidence)
    width = studentized_half_widths(loads, samples, joint=alike, confidence=confidence)
    if np.isfinite(width).all():
        return width
    # Blocks that are nearly all equal are drawn without any spread, which says nothing: Student's t stands there.
    return np.where(np.isfinite(width), width, half_widths(loads, samples, restarted=restarted, confidence=confidence))


def studentized_half_widths(
    loads: Floats, samples: Sequence[Floats], *, joint: bool, confidence: float = CONFIDENCE, draws: int = DRAWS
) -> Floats:
    """Return the half-widths of the symmetric studentized bootstrap, the variance pooled over levels in every draw.

    What is drawn are a level's deviations from its mean, scaled to its pooled variance: with their own, each level's
    quantile would follow the luck of its own few blocks, which pooling has just evened out. `joint` draws whole
    blocks, so that what a block gives to all its levels stays together.
    """
    rng = np.random.default_rng(SEED)
    counts = np.array([len(sample) for sample in samples])
    own = np.array([np.var(sample, ddof=1) for sample in samples])
    variance, _ = pooled_variances(loads, own, counts - 1)
    drawn = _draw(rng, int(counts[0]), draws) if joint else None
    means, own_drawn = np.empty((draws, len(loads))), np.empty((draws, len(loads)))
    for i, sample in enumerate(samples):
        times = drawn if drawn is not None else _draw(rng, len(sample), draws)
        deviation = sample - sample.mean()
        if own[i] > 0:
            deviation = deviation * math.sqrt(variance[i] / own[i])
        means[:, i] = times @ deviation / len(sample)
        squares = times @ deviation**2 - len(sample) * means[:, i] ** 2
        own_drawn[:, i] = np.maximum(squares, 0.0) / (len(sample) - 1)
    drawn_variance, _ = pooled_variances(loads, own_drawn, counts - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(means == 0, 0.0, np.abs(means) / np.sqrt(drawn_variance / counts))
    quantile = np.sort(t, axis=0)[min(draws, math.ceil(confidence * (draws + 1))) - 1]
    return np.asarray(np.where(variance > 0, quantile * np.sqrt(variance / counts), 0.0), dtype=float)


def _draw(rng: np.random.Generator, blocks: int, draws: int) -> NDArray[np.float64]:
    """Return how often each block occurs in each draw."""
    return rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=draws).astype(float)
