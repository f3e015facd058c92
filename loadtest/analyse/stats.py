"""Order statistics with their binomial intervals, t intervals, and the variance of few blocks at many levels."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loadtest.analyse.estimates import Estimate

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
ONE_RUN = 1_000_000  # samples of more values are pooled without being sorted again
FIT_MIN_DOF = 5  # below this many degrees of freedom in all, one variance serves every level
FIT_MIN_LEVELS = 3
OUTLIER_P = 0.90  # a level noisier than this share of the fitted chi-square keeps its own variance


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample that may hold many zeros and some +inf without storing them, and is sorted in runs, not as a whole."""

    runs: tuple[Floats, ...]  # finite values, each run ascending
    zeros: int = 0
    infinite: int = 0

    @property
    def finite(self) -> int:
        """Number of finite values that are stored."""
        return sum(len(run) for run in self.runs)

    @property
    def size(self) -> int:
        """Number of values."""
        return self.zeros + self.finite + self.infinite

    def at(self, rank: int) -> float:
        """Return the value of a rank, counted from 1; values below 0 are not expected beside `zeros`."""
        if not 1 <= rank <= self.size:
            raise ValueError(f"rank {rank} is outside 1 to {self.size}")
        if rank <= self.zeros:
            return 0.0
        place = rank - self.zeros
        if place > self.finite:
            return math.inf
        return float(self.runs[0][place - 1]) if len(self.runs) == 1 else _select(self.runs, place)

    def quantile(self, q: float) -> float:
        """Return the order statistic of rank ⌈q·n⌉ (nearest rank); NaN without values."""
        return self.at(nearest_rank(self.size, q)) if self.size else math.nan

    def share_up_to(self, value: float) -> float:
        """Return the share of values that are at most `value`; NaN without values."""
        if not self.size:
            return math.nan
        if math.isinf(value):
            return 1.0
        return ((self.zeros if value >= 0 else 0) + _count_up_to(self.runs, value)) / self.size


def _count_up_to(runs: Sequence[Floats], value: float) -> int:
    return sum(int(np.searchsorted(run, value, side="right")) for run in runs)


def _select(runs: Sequence[Floats], place: int) -> float:
    """Return the value of a place, counted from 1, among sorted runs: bisection over the order of floats' own bits."""
    low, high = _order(min(float(run[0]) for run in runs)), _order(max(float(run[-1]) for run in runs))
    while low < high:
        middle = (low + high) // 2
        if _count_up_to(runs, _unorder(middle)) >= place:
            high = middle
        else:
            low = middle + 1
    return _unorder(low)


def _order(value: float) -> int:
    """Return a whole number that orders as the float does."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF)


def _unorder(order: int) -> float:
    magnitude: float = struct.unpack("<d", struct.pack("<q", abs(order)))[0]
    return magnitude if order >= 0 else -magnitude


def sample_of(values: Floats, zeros: int = 0, infinite: int = 0) -> Sample:
    """Sort values into a Sample; NaN (absent) is left out, +inf counted."""
    ordered = np.sort(values)  # NaN last, +inf before it
    present = int(np.searchsorted(ordered, math.nan)) if len(ordered) and math.isnan(ordered[-1]) else len(ordered)
    finite = int(np.searchsorted(ordered[:present], math.inf))
    return Sample(runs=(ordered[:finite],), zeros=zeros, infinite=infinite + present - finite)


def merged(samples: Sequence[Sample]) -> Sample:
    """Pool samples into one; what is large stays in its sorted runs, without a copy."""
    runs = tuple(run for s in samples for run in s.runs if len(run))
    if not runs:
        runs = (np.empty(0),)
    elif len(runs) > 1 and sum(len(run) for run in runs) <= ONE_RUN:
        runs = (np.sort(np.concatenate(runs)),)
    return Sample(runs=runs, zeros=sum(s.zeros for s in samples), infinite=sum(s.infinite for s in samples))


def nearest_rank(n: int, q: float) -> int:
    """Return ⌈q·n⌉, at least 1."""
    return max(1, math.ceil(q * n - 1e-9))


@lru_cache(maxsize=1 << 14)  # SciPy's quantiles of the binomial cost 0.2 ms, and the same are asked for again
def rank_interval(n: int, q: float, confidence: float = CONFIDENCE) -> tuple[int | None, int | None]:
    """Return the ranks whose values bound the q-quantile with a confidence, two-sided; None where none does.

    Exact for independent values: a rank r lies above the quantile with the binomial probability F(r − 1; n, q).
    """
    if n < 1:
        return None, None
    tail = (1 - confidence) / 2
    low = int(stats.binom.ppf(tail, n, q))
    high = int(stats.binom.ppf(1 - tail, n, q)) + 1
    return low if low >= 1 else None, high if high <= n else None


def quantile_estimate(sample: Sample, q: float, design_effect: float = 1.0, confidence: float = CONFIDENCE) -> Estimate:
    """Return a quantile with its order-statistic interval; a bound that no rank gives is None.

    `design_effect` is how many times more the blocks differ than independent values would: the interval is that of
    n ÷ design_effect values, its ranks scaled back.
    """
    n = sample.size
    if not n:
        return Estimate()
    factor = max(1.0, design_effect)
    low, high = rank_interval(int(n / factor), q, confidence)
    return Estimate(
        value=sample.quantile(q),
        low=None if low is None else sample.at(max(1, math.floor(low * factor))),
        high=None if high is None else sample.at(min(n, math.ceil(high * factor))),
        n=n,
    )


def dispersion(blocks: Sequence[Sample], value: float) -> tuple[float, int]:
    """Return Pearson's chi-square of the blocks' shares up to `value`, and its degrees of freedom.

    Their ratio, over enough degrees of freedom, estimates the design effect: 1 for independent values.
    """
    sizes = np.array([b.size for b in blocks if b.size], dtype=float)
    if len(sizes) < 2:
        return 0.0, 0
    counts = np.array([b.share_up_to(value) * b.size for b in blocks if b.size])
    share = counts.sum() / sizes.sum()
    if not 0 < share < 1:
        return 0.0, 0
    chi_square = float(np.sum((counts - sizes * share) ** 2 / (sizes * share * (1 - share))))
    return chi_square, len(sizes) - 1


def mean_estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of independent values (blocks) with its t interval; one value has no interval."""
    present = np.array([v for v in values if not math.isnan(v)], dtype=float)
    if not len(present):
        return Estimate()
    mean = float(np.mean(present))
    if len(present) == 1 or not np.isfinite(present).all():
        return Estimate(value=mean, n=len(present))
    half = float(stats.t.ppf(1 - _TAIL, len(present) - 1) * np.std(present, ddof=1) / math.sqrt(len(present)))
    return Estimate(value=mean, low=mean - half, high=mean + half, n=len(present))


def ratio_of_sums(above: Sequence[float] | Floats, below: Sequence[float] | Floats) -> Estimate:
    """Return Σ above ÷ Σ below over independent units (blocks, sessions) with its 95 % t interval.

    The standard error is that of a ratio estimator of clusters by linearisation (Cochran, Sampling Techniques, 1977,
    §6 and §9): of what each unit leaves over, above − ratio · below. Units without a divisor count for nothing.
    """
    a, b = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    present = ~(np.isnan(a) | np.isnan(b)) & (b > 0)
    a, b = a[present], b[present]
    if not len(a):
        return Estimate()
    ratio, n = float(a.sum() / b.sum()), len(a)
    if n == 1:
        return Estimate(value=ratio, n=1)
    error = math.sqrt(n / (n - 1) * float(np.sum((a - ratio * b) ** 2))) / float(b.sum())
    half = float(stats.t.ppf(1 - _TAIL, n - 1)) * error
    return Estimate(value=ratio, low=ratio - half, high=ratio + half, n=n)


def shared(confidence: float, comparisons: int) -> float:
    """Return the confidence of each of several intervals that are to hold together (Bonferroni)."""
    return confidence if comparisons < 2 else 1 - (1 - confidence) / comparisons


def half_widths(
    loads: Floats, samples: Sequence[Floats], *, restarted: bool = False, confidence: float = CONFIDENCE
) -> Floats:
    """Return the half-width of the t interval of each level's mean, the variance pooled over the levels.

    NaN everywhere when no level has two values, and where no degree of freedom is left. The variance function is that
    of `pooled_variances`. With `restarted` each block was a start of the servers: its levels share that start's luck,
    so that pooling over levels adds no degrees of freedom to those of the blocks.
    """
    counts = np.array([len(s) for s in samples])
    own = np.array([np.var(s, ddof=1) if len(s) > 1 else math.nan for s in samples])
    variance, dof = pooled_variances(loads, own, counts - 1)
    if restarted:
        dof = np.minimum(dof, counts - 1)
    quantile = np.where(dof > 0, stats.t.ppf((1 + confidence) / 2, np.maximum(dof, 1e-9)), math.nan)
    return np.asarray(quantile * np.sqrt(variance / counts), dtype=float)


def pooled_variances(loads: Floats, own: Floats, dof: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return each level's variance after pooling, and the degrees of freedom that it is worth.

    `own` holds one variance for each level along its last axis; every row before it is pooled by itself. With enough
    levels and degrees of freedom the log-variance is a straight line in log load, fitted by maximum likelihood of the
    sample variances (gamma, log link); else one variance serves all. A level whose own variance the fit rejects keeps
    its own.
    """
    used = dof > 0
    nothing = np.full(own.shape, math.nan)
    if not used.any():
        return nothing, nothing
    table = own.reshape(-1, len(loads))
    own_used, dof_used = table[:, used], dof[used].astype(float)
    total = float(np.sum(dof_used))
    pooled = own_used @ dof_used / total
    variance = np.repeat(pooled[:, None], len(loads), axis=1)
    worth = np.full(variance.shape, total)
    if used.sum() >= FIT_MIN_LEVELS and total >= FIT_MIN_DOF:
        fitted, fit_worth, found = _log_linear(np.log(loads), used, own_used, dof_used, pooled)
        variance = np.where(found[:, None], fitted, variance)
        worth = np.where(found[:, None], fit_worth, worth)
    limit = stats.chi2.ppf(OUTLIER_P, np.maximum(dof, 1)) / np.maximum(dof, 1)
    outlier = used & (np.nan_to_num(table) > variance * limit)
    return (
        np.where(outlier, table, variance).reshape(own.shape),
        np.where(outlier, dof, worth).reshape(own.shape),
    )


def _log_linear(
    x: Floats, used: NDArray[np.bool_], own: Floats, dof: Floats, pooled: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Fit log variance = a + b·x to every row of `own` by Fisher scoring; also say which rows converged.

    The variance of the fitted log-variance, v, is matched by 2 ÷ v degrees of freedom.
    """
    design = np.column_stack([np.ones(len(x)), x - x[used].mean()])
    rows = design[used]
    information = rows.T @ (rows * (dof / 2)[:, None])
    nothing = np.full((len(own), len(x)), math.nan)
    if np.linalg.matrix_rank(information) < 2:
        return nothing, np.full(len(x), math.nan), np.zeros(len(own), dtype=bool)
    inverse = np.linalg.inv(information)
    varies = pooled > 0
    beta = np.column_stack([np.log(np.where(varies, pooled, 1.0)), np.zeros(len(own))])
    open_, found = varies.copy(), np.zeros(len(own), dtype=bool)
    for _ in range(100):
        current = beta[open_]
        step = ((own[open_] * np.exp(-current @ rows.T) - 1) * (dof / 2)) @ rows @ inverse
        current = current + np.clip(step, -1.0, 1.0)
        beta[open_] = current
        near = np.max(np.abs(step), axis=1) < 1e-8
        lost = ~np.isfinite(current).all(axis=1) | (np.abs(current[:, 1]) > 20)
        where = np.flatnonzero(open_)
        found[where[near & ~lost]] = True
        open_[where[near | lost]] = False
        if not open_.any():
            break
    spread = np.einsum("ij,jk,ik->i", design, inverse, design)
    fitted = np.where(found[:, None], np.exp(np.where(found[:, None], beta, 0.0) @ design.T), math.nan)
    return fitted, 2.0 / spread, found
