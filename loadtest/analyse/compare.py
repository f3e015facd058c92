"""Candidate against baseline: log-ratios of cell figures paired by block, and their interval at each level."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from loadtest.analyse.estimates import Estimate, exponential
from loadtest.analyse.metrics import METRICS, Metric
from loadtest.analyse.resample import block_half_widths
from loadtest.analyse.results import Speedup
from loadtest.analyse.stats import CONFIDENCE, Floats

SLOWER = 1.10  # a paired request counts as slower when its end-to-end time grew by more than this factor

Figures = Mapping[tuple[str, float, int], Mapping[str, float]]  # (arm, level, block) → metric → figure of the cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Paired differences (of logarithms, where a ratio is meant) over the levels that have any.

    `half` is NaN where no interval exists; levels ascend. `restarted`: each block was a start of the servers of its
    own, so that the errors of the levels go together.
    """

    levels: Floats
    mean: Floats
    half: Floats
    samples: tuple[Floats, ...]
    restarted: bool = False
    confidence: float = CONFIDENCE  # of `half`

    def at(self, level: float) -> tuple[float, float, Floats] | None:
        """Return mean, half-width and paired values at a tested level, or None."""
        found = np.flatnonzero(self.levels == level)
        if not len(found):
            return None
        i = int(found[0])
        return float(self.mean[i]), float(self.half[i]), self.samples[i]

    def ratio(self, level: float) -> Estimate:
        """Return the ratio at a level with its interval: the exponential of the mean log-ratio."""
        return _shaped(self.at(level), exponential)

    def difference(self, level: float) -> Estimate:
        """Return the difference at a level with its interval."""
        return _shaped(self.at(level), float)


def _shaped(found: tuple[float, float, Floats] | None, turn: Callable[[float], float]) -> Estimate:
    if found is None:
        return Estimate()
    mean, half, sample = found
    if math.isnan(half):
        return Estimate(value=turn(mean), n=len(sample))
    return Estimate(value=turn(mean), low=turn(mean - half), high=turn(mean + half), n=len(sample))


def fit_curve(
    samples: Mapping[float, Sequence[float]], *, restarted: bool = False, confidence: float = CONFIDENCE
) -> Curve:
    """Return mean and half-width of the paired values of each level, the variance pooled over levels.

    The interval is Student's t, and from 8 blocks on the bootstrap's. `restarted`: each block was a start of the
    servers of its own.
    """
    levels = sorted(level for level, values in samples.items() if len(values))
    arrays = tuple(np.asarray(samples[level], dtype=float) for level in levels)
    loads = np.array(levels, dtype=float)
    if not levels:
        return Curve(levels=loads, mean=np.empty(0), half=np.empty(0), samples=())
    return Curve(
        levels=loads,
        mean=np.array([np.mean(a) for a in arrays]),
        half=block_half_widths(loads, arrays, restarted=restarted, confidence=confidence),
        samples=arrays,
        restarted=restarted,
        confidence=confidence,
    )


def together(curve: Curve) -> Curve:
    """Return the curve with intervals that all hold at once with its confidence (Bonferroni over its levels)."""
    if not len(curve.levels):
        return curve
    samples = {float(level): sample.tolist() for level, sample in zip(curve.levels, curve.samples, strict=True)}
    each = 1 - (1 - curve.confidence) / len(curve.levels)
    return fit_curve(samples, restarted=curve.restarted, confidence=each)


def paired(figures: Figures, baseline: str, candidate: str, metric: str) -> dict[float, list[tuple[float, float]]]:
    """Return, by level, the figures (baseline, candidate) of the blocks where both exist."""
    pairs: dict[float, list[tuple[float, float]]] = {}
    for (arm, level, block), own in sorted(figures.items()):
        other = figures.get((candidate, level, block))
        if arm != baseline or other is None:
            continue
        pair = (own.get(metric, math.nan), other.get(metric, math.nan))
        if not any(math.isnan(value) for value in pair):
            pairs.setdefault(level, []).append(pair)
    return pairs


def log_ratios(pairs: Mapping[float, Sequence[tuple[float, float]]], better: str | None) -> dict[float, list[float]]:
    """Return log(candidate ÷ baseline) by level, turned so that above 0 is better; pairs without one are left out."""
    sign = -1.0 if better == "lower" else 1.0
    return {
        level: [sign * math.log(c / b) for b, c in values if b > 0 and c > 0 and math.isfinite(b) and math.isfinite(c)]
        for level, values in pairs.items()
    }


def curve_of(
    figures: Figures, baseline: str, candidate: str, metric: Metric, *, restarted: bool = False,
    confidence: float = CONFIDENCE,
) -> Curve:  # fmt: skip
    """Return the speed-up curve of a metric, in logarithms."""
    ratios = log_ratios(paired(figures, baseline, candidate, metric.name), metric.better)
    return fit_curve(ratios, restarted=restarted, confidence=confidence)


def curves(
    figures: Figures, baseline: str, candidate: str, *, restarted: bool = False, confidence: float = CONFIDENCE
) -> dict[str, Curve]:
    """Return the speed-up curve of every metric whose arms are compared by a ratio."""
    return {
        m.name: curve_of(figures, baseline, candidate, m, restarted=restarted, confidence=confidence)
        for m in METRICS
        if m.has_ratio
    }


def speedups(by_metric: Mapping[str, Curve]) -> tuple[Speedup, ...]:
    """Return the speed-ups of all metrics and levels."""
    return tuple(
        Speedup(
            metric=name,
            level=float(level),
            ratio=curve.ratio(float(level)),
            blocks=tuple(float(v) for v in np.exp(sample)),
        )
        for name, curve in by_metric.items()
        for level, sample in zip(curve.levels, curve.samples, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Requests that both arms were sent: same level, block, session and turn, measured and well in both."""

    median: dict[float, float]  # level → median of baseline ÷ candidate end-to-end time
    slower: dict[float, float]  # level → share slower by over 10 %
    bodies_differ: int  # pairs whose bodies were not the same
    count: int


def pair_requests(frame: pd.DataFrame, cells: Sequence[int], baseline: str, candidate: str) -> Pairs:
    """Pair the measured requests of valid cells; descriptive, since requests of a cell are not independent."""
    keys = ["level", "block", "session", "turn"]
    chosen = frame.loc[
        frame["in_window"] & frame["ok"] & frame["cell"].isin(list(cells)), [*keys, "arm", "e2e_s", "body"]
    ]
    base, cand = (chosen[chosen["arm"] == arm].drop(columns="arm") for arm in (baseline, candidate))
    joined = base.drop_duplicates(keys).merge(cand.drop_duplicates(keys), on=keys, suffixes=("_b", "_c"))
    ratio = joined["e2e_s_b"] / joined["e2e_s_c"]
    by_level = joined["level"]
    differ = (joined["body_b"] >= 0) & (joined["body_c"] >= 0) & (joined["body_b"] != joined["body_c"])
    return Pairs(
        median=_by_level(ratio.groupby(by_level, observed=True).median()),
        slower=_by_level((ratio < 1 / SLOWER).groupby(by_level, observed=True).mean()),
        bodies_differ=int(differ.sum()),
        count=len(joined),
    )


def _by_level(values: pd.Series) -> dict[float, float]:
    return dict(zip(values.index.to_numpy(float).tolist(), values.to_numpy(float).tolist(), strict=True))
