"""Order statistics with their binomial intervals, t intervals, and the variance of few blocks at many levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loadtest.analyse.results import Estimate

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
FIT_MIN_DOF = 5  # below this many degrees of freedom in all, one variance serves every level
FIT_MIN_LEVELS = 3
OUTLIER_P = 0.90  # a level noisier than this share of the fitted chi-square keeps its own variance


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sorted sample that may hold many zeros and some +inf without storing them."""

    finite: Floats  # ascending
    zeros: int = 0
    infinite: int = 0

    @property
    def size(self) -> int:
        """Number of values."""
        return self.zeros + len(self.finite) + self.infinite

    def at(self, rank: int) -> float:
        """Return the value of a rank, counted from 1."""
        if not 1 <= rank <= self.size:
            raise ValueError(f"rank {rank} is outside 1 to {self.size}")
        if rank <= self.zeros:
            return 0.0
        position = rank - self.zeros - 1
        return float(self.finite[position]) if position < len(self.finite) else math.inf

    def quantile(self, q: float) -> float:
        """Return the order statistic of rank ⌈q·n⌉ (nearest rank); NaN without values."""
        return self.at(nearest_rank(self.size, q)) if self.size else math.nan

    def share_up_to(self, value: float) -> float:
        """Return the share of values that are at most `value`; NaN without values."""
        if not self.size:
            return math.nan
        if math.isinf(value):
            return 1.0
        zeros = self.zeros if value >= 0 else 0
        return (zeros + int(np.searchsorted(self.finite, value, side="right"))) / self.size


def sample_of(values: Floats, zeros: int = 0, infinite: int = 0) -> Sample:
    """Sort values into a Sample; NaN (absent) is left out, +inf counted."""
    present = values[~np.isnan(values)]
    finite = np.sort(present[np.isfinite(present)])
    return Sample(finite=finite, zeros=zeros, infinite=infinite + len(present) - len(finite))


def merged(samples: Sequence[Sample]) -> Sample:
    """Pool samples into one."""
    parts = [s.finite for s in samples if len(s.finite)]
    return Sample(
        finite=np.sort(np.concatenate(parts)) if parts else np.empty(0),
        zeros=sum(s.zeros for s in samples),
        infinite=sum(s.infinite for s in samples),
    )


def nearest_rank(n: int, q: float) -> int:
    """Return ⌈q·n⌉, at least 1."""
    return max(1, math.ceil(q * n - 1e-9))


def rank_interval(n: int, q: float) -> tuple[int | None, int | None]:
    """Return the ranks whose values bound the q-quantile with 95 % confidence, two-sided; None where none does.

    Exact for independent values: a rank r lies above the quantile with the binomial probability F(r − 1; n, q).
    """
    if n < 1:
        return None, None
    low = int(stats.binom.ppf(_TAIL, n, q))
    high = int(stats.binom.ppf(1 - _TAIL, n, q)) + 1
    return low if low >= 1 else None, high if high <= n else None


def upper_rank(n: int, q: float) -> int | None:
    """Return the rank whose value is a one-sided 95 % upper bound of the q-quantile, or None."""
    if n < 1:
        return None
    high = int(stats.binom.ppf(CONFIDENCE, n, q)) + 1
    return high if high <= n else None


def quantile_estimate(sample: Sample, q: float, design_effect: float = 1.0) -> Estimate:
    """Return a quantile with its order-statistic interval; a bound that no rank gives is None.

    `design_effect` is how many times more the blocks differ than independent values would: the interval is that of
    n ÷ design_effect values, its ranks scaled back.
    """
    n = sample.size
    if not n:
        return Estimate()
    factor = max(1.0, design_effect)
    low, high = rank_interval(int(n / factor), q)
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


def half_widths(loads: Floats, samples: Sequence[Floats], *, restarted: bool = False) -> Floats:
    """Return the half-width of the 95 % t interval of each level's mean, the variance pooled over the levels.

    NaN everywhere when no level has two values. The variance function is that of `pooled_variances`. With `restarted`
    each block was a start of the servers: its levels share that start's luck, so that pooling over levels adds no
    degrees of freedom to those of the blocks.
    """
    counts = np.array([len(s) for s in samples])
    own = np.array([np.var(s, ddof=1) if len(s) > 1 else math.nan for s in samples])
    variance, dof = pooled_variances(loads, own, counts - 1)
    if restarted:
        dof = np.minimum(dof, counts - 1)
    quantile = stats.t.ppf(1 - _TAIL, np.maximum(dof, 1e-9))
    return np.asarray(quantile * np.sqrt(variance / counts), dtype=float)


def pooled_variances(loads: Floats, own: Floats, dof: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return each level's variance after pooling, and the degrees of freedom that it is worth.

    With enough levels and degrees of freedom the log-variance is a straight line in log load, fitted by maximum
    likelihood of the sample variances (gamma, log link); else one variance serves all. A level whose own variance
    the fit rejects keeps its own.
    """
    used = dof > 0
    nothing = np.full(len(loads), math.nan)
    if not used.any():
        return nothing, nothing
    own_used, dof_used = own[used], dof[used].astype(float)
    pooled = float(np.sum(own_used * dof_used) / np.sum(dof_used))
    variance = np.full(len(loads), pooled)
    worth = np.full(len(loads), float(np.sum(dof_used)))
    if pooled > 0 and used.sum() >= FIT_MIN_LEVELS and dof_used.sum() >= FIT_MIN_DOF:
        fitted = _log_linear(np.log(loads), used, own_used, dof_used)
        if fitted is not None:
            variance, worth = fitted
    limit = stats.chi2.ppf(OUTLIER_P, np.maximum(dof, 1)) / np.maximum(dof, 1)
    outlier = used & (np.nan_to_num(own) > variance * limit)
    return np.where(outlier, own, variance), np.where(outlier, dof, worth)


def _log_linear(x: Floats, used: NDArray[np.bool_], own: Floats, dof: Floats) -> tuple[Floats, Floats] | None:
    """Fit log variance = a + b·x by Fisher scoring; None when it does not converge.

    The variance of the fitted log-variance, v, is matched by 2 ÷ v degrees of freedom.
    """
    design = np.column_stack([np.ones(len(x)), x - x[used].mean()])
    rows = design[used]
    information = rows.T @ (rows * (dof / 2)[:, None])
    if np.linalg.matrix_rank(information) < 2:
        return None
    inverse = np.linalg.inv(information)
    beta = np.array([math.log(np.sum(own * dof) / np.sum(dof)), 0.0])
    for _ in range(100):
        step = inverse @ (rows.T @ (dof / 2 * (own * np.exp(-rows @ beta) - 1)))
        beta = beta + np.clip(step, -1.0, 1.0)
        if np.max(np.abs(step)) < 1e-8:
            spread = np.einsum("ij,jk,ik->i", design, inverse, design)
            return np.exp(design @ beta), 2.0 / spread
        if not np.isfinite(beta).all() or abs(beta[1]) > 20:
            return None
    return None
