"""The linear law: in a closed loop without a queue, latency = C1 + C2 · requests in flight, one line per arm.

After Kong et al., "An interpretable latency model for speculative decoding in LLM serving" (arXiv 2605.15051), whose
L = C1 ÷ (1 − rate · C2) is this line once rate = in flight ÷ L. The crossing of two lines is a ratio of differences;
its interval is Fieller's (JRSS B 16, 1954), which is unbounded where the slopes cannot be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from loadtest.analyse import wording
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.findings import Law, Line, LineCrossing
from loadtest.analyse.results import BreakEven
from loadtest.analyse.stats import CONFIDENCE, Floats, pooled_variances

LACK_P = 0.01  # below it the latencies are no straight line
LEAST_LEVELS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Mean latencies of one arm, cell by cell: `x` is the level's mean in flight, `y[level]` its blocks in order."""

    arm: str
    x: Floats
    y: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Coefficients (C1, C2 of the baseline, then of the candidate), their covariance and degrees of freedom."""

    beta: Floats
    covariance: Floats
    dof: float
    lack_of_fit_p: tuple[float | None, float | None]


def fieller(above: float, below: float, var_above: float, var_below: float, cov: float, t: float) -> Estimate | None:
    """Return above ÷ below with Fieller's interval, or None where it is unbounded: `below` may be 0."""
    a = below**2 - t**2 * var_below
    if a <= 0:
        return None
    b = above * below - t**2 * cov
    c = above**2 - t**2 * var_above
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Estimate(value=above / below, low=(b - root) / a, high=(b + root) / a)


def fit_lines(base: Points, cand: Points, *, restarted: bool = False) -> Fit | None:
    """Fit both lines by weighted least squares; None without two levels of different load and two blocks.

    Weights are the inverse variances between blocks, pooled over levels. The arms' errors go together as far as their
    paired blocks do. `restarted`: a block is a start of the servers and shifts the whole line, so that the lines of
    the blocks are the sample.
    """
    counts = np.array([len(y) for y in base.y])
    alike = np.array_equal(counts, [len(y) for y in cand.y])
    if len(counts) < LEAST_LEVELS or not alike or counts.min() < 2 or min(np.ptp(base.x), np.ptp(cand.x)) <= 0:
        return None
    return _by_start(base, cand) if restarted else _pooled(base, cand)


def _pooled(base: Points, cand: Points) -> Fit:
    counts = np.array([len(y) for y in base.y])
    variances, solvers, means = [], [], []
    for arm in (base, cand):
        own = np.array([np.var(y, ddof=1) for y in arm.y])
        variance, _ = pooled_variances(np.maximum(arm.x, 1e-9), own, counts - 1)
        variances.append(np.maximum(variance, _floor(arm)))
        solvers.append(_solver(arm.x, counts / variances[-1]))
        means.append(np.array([y.mean() for y in arm.y]))
    left = [np.concatenate([y - y.mean() for y in arm.y]) for arm in (base, cand)]
    scale = [np.concatenate([np.full(n, math.sqrt(v)) for n, v in zip(counts, variance, strict=True)])
             for variance in variances]  # fmt: skip
    scaled = [r / s for r, s in zip(left, scale, strict=True)]
    norm = math.sqrt(float(np.sum(scaled[0] ** 2) * np.sum(scaled[1] ** 2)))
    together = float(np.sum(scaled[0] * scaled[1])) / norm if norm > 0 else 0.0
    covariance = np.empty((4, 4))
    for j in range(2):
        for k in range(2):
            each = np.sqrt(variances[j] * variances[k]) / counts * (1.0 if j == k else together)
            covariance[2 * j : 2 * j + 2, 2 * k : 2 * k + 2] = solvers[j] @ np.diag(each) @ solvers[k].T
    beta = np.concatenate([solver @ mean for solver, mean in zip(solvers, means, strict=True)])
    dof = int(np.sum(counts - 1))
    lack = tuple(
        _lack_of_fit(arm.x, mean, beta[2 * i : 2 * i + 2], counts / variance, float(np.sum(scaled[i] ** 2)) / dof, dof)
        for i, (arm, mean, variance) in enumerate(zip((base, cand), means, variances, strict=True))
    )
    return Fit(beta=beta, covariance=covariance, dof=dof, lack_of_fit_p=(lack[0], lack[1]))


def _by_start(base: Points, cand: Points) -> Fit:
    """Fit a line to every block; what is left of it, block by block, is the error that lack of fit is held against."""
    betas, lack = [], []
    blocks = len(base.y[0])
    for arm in (base, cand):
        y = np.array(arm.y)  # level × block
        own = np.var(y, axis=1, ddof=1)
        variance, _ = pooled_variances(np.maximum(arm.x, 1e-9), own, np.full(len(arm.x), blocks - 1))
        weights = 1 / np.maximum(variance, _floor(arm))
        lines = _solver(arm.x, weights) @ y
        betas.append(lines)
        residual = y - np.column_stack([np.ones(len(arm.x)), arm.x]) @ lines
        mean = residual.mean(axis=1)
        dof = (blocks - 1) * (len(arm.x) - 2)
        error = float(np.sum(weights[:, None] * (residual - mean[:, None]) ** 2)) / dof if dof else math.nan
        lack.append(_lack_of_fit(arm.x, mean, np.zeros(2), blocks * weights, error, dof) if dof else None)
    both = np.vstack(betas)
    return Fit(beta=both.mean(axis=1), covariance=np.cov(both) / blocks, dof=blocks - 1,
               lack_of_fit_p=(lack[0], lack[1]))  # fmt: skip


def _floor(arm: Points) -> float:
    """Return a variance that keeps weights finite where blocks agree exactly."""
    return float(np.mean([y.mean() for y in arm.y]) * 1e-9) ** 2 or 1e-300


def _solver(x: Floats, weights: Floats) -> Floats:
    design = np.column_stack([np.ones(len(x)), x])
    return np.asarray(np.linalg.solve(design.T @ (design * weights[:, None]), design.T * weights))


def _lack_of_fit(x: Floats, means: Floats, beta: Floats, weights: Floats, error: float, dof: int) -> float | None:
    """Return the p-value of the F test: the levels' means about the line against the error between blocks."""
    free = len(x) - 2
    if free < 1 or dof < 1 or not error > 0:
        return None
    about = float(np.sum(weights * (means - beta[0] - beta[1] * x) ** 2)) / free
    return float(stats.f.sf(about / error, free, dof))


def linear_law(
    base: Points, cand: Points, levels: Sequence[float], model_free: BreakEven | None, *, restarted: bool = False,
    confidence: float = CONFIDENCE,
) -> Law:  # fmt: skip
    """Return the law of two arms over the levels that are free of queue and preemption, beside the model-free result.

    `model_free` is the break-even of mean end-to-end time at 1, with its translation into requests in flight.
    """
    fit = fit_lines(base, cand, restarted=restarted)
    if fit is None:
        return Law(levels=tuple(levels))
    t = float(stats.t.ppf((1 + confidence) / 2, fit.dof))
    below = float(fit.beta[3] - fit.beta[1])  # C2 of the candidate − of the baseline
    above = float(fit.beta[0] - fit.beta[2])  # C1 of the baseline − of the candidate
    pick = np.array([[1.0, 0.0, -1.0, 0.0], [0.0, -1.0, 0.0, 1.0]])
    spread = pick @ fit.covariance @ pick.T
    at = fieller(above, below, float(spread[0, 0]), float(spread[1, 1]), float(spread[0, 1]), t)
    span = (max(base.x.min(), cand.x.min()), min(base.x.max(), cand.x.max()))
    crossing = LineCrossing.NOT_SHOWN if at is None else (
        LineCrossing.PAYS_BELOW if below > 0 else LineCrossing.PAYS_ABOVE)  # fmt: skip
    outside = at is not None and at.value is not None and not span[0] <= at.value <= span[1]
    law = Law(
        lines=tuple(_line(arm, fit, i, t) for i, arm in enumerate((base, cand))),
        crossing=crossing,
        at=at or Estimate(),
        outside=outside,
        levels=tuple(levels),
    )
    return _compared(law, model_free, span)


def _line(arm: Points, fit: Fit, i: int, t: float) -> Line:
    values, errors = fit.beta[2 * i : 2 * i + 2], np.sqrt(np.diag(fit.covariance)[2 * i : 2 * i + 2])
    c1, c2 = (Estimate(value=float(v), low=float(v - t * e), high=float(v + t * e), n=len(arm.x))
              for v, e in zip(values, errors, strict=True))  # fmt: skip
    return Line(arm=arm.arm, c1_s=c1, c2_s=c2, lack_of_fit_p=fit.lack_of_fit_p[i],
                points=tuple((float(x), float(y.mean())) for x, y in zip(arm.x, arm.y, strict=True)))  # fmt: skip


def _compared(law: Law, model_free: BreakEven | None, span: tuple[float, float]) -> Law:
    """Add the sentence, and a note where line and model-free break-even disagree."""
    bent = [line.arm for line in law.lines if line.lack_of_fit_p is not None and line.lack_of_fit_p < LACK_P]
    agrees = _agrees(law, model_free, span) if model_free else None
    note = ""
    if bent:
        one = len(bent) == 1
        note = f"The {'latency' if one else 'latencies'} of {' and '.join(bent)}"
        note += f" {'is no straight line in its' if one else 'are no straight lines in their'} requests in flight"
        note += " (lack of fit);"
        note += " go by the break-even between tested loads, not by the linear law."
    elif agrees is False:
        note = "The linear law and the break-even between tested loads disagree; go by the latter."
    return Law(lines=law.lines, crossing=law.crossing, at=law.at, outside=law.outside, levels=law.levels,
               agrees=False if bent else agrees, sentence=_sentence(law, span), note=note)  # fmt: skip


def _sentence(law: Law, span: tuple[float, float]) -> str:
    if law.crossing is LineCrossing.NOT_SHOWN or law.at.value is None:
        return "Linear law: no crossing is demonstrated; the slopes of the two arms cannot be told apart."
    if law.at.value <= 0:
        side = "behind" if law.crossing is LineCrossing.PAYS_BELOW else "ahead"
        return f"Linear law: no crossing at any load; the candidate is {side} at each."
    value, low, high = wording.texts(law.at)
    where = f"{value} [{low}, {high}] in flight"
    beyond = f", beyond the tested {span[0]:.0f} to {span[1]:.0f}: an extrapolation" if law.outside else ""
    return f"Linear law: the two arms cross at {where}{beyond}."


def _agrees(law: Law, model_free: BreakEven, span: tuple[float, float]) -> bool | None:
    """Say whether the crossing of the lines fits the model-free form; None where either says nothing."""
    if law.crossing in (LineCrossing.NOT_SHOWN, LineCrossing.NO_DATA) or law.at.low is None or law.at.high is None:
        return None
    low, high = law.at.low, law.at.high
    match model_free.form:
        case Crossing.PAYS_UP_TO | Crossing.PAYS_FROM:
            falls = law.crossing is LineCrossing.PAYS_BELOW
            if falls is not (model_free.form is Crossing.PAYS_UP_TO):
                return False
            own = model_free.in_flight
            return low <= (math.inf if own.high is None else own.high) and high >= (own.low or -math.inf)
        case Crossing.PAYS_EVERYWHERE | Crossing.NEVER_PAYS:
            return not (span[0] < low and high < span[1])
        case Crossing.BAND:
            return False
        case _:
            return None


def points(
    arm: str, levels: Sequence[float], blocks: Mapping[float, Sequence[int]], in_flight: Mapping[float, float],
    latency: Mapping[tuple[str, float, int], Mapping[str, float]],
) -> Points:  # fmt: skip
    """Return the mean end-to-end times of an arm at the levels, block by block."""
    return Points(
        arm=arm,
        x=np.array([in_flight[level] for level in levels]),
        y=tuple(np.array([latency[arm, level, block]["e2e"] for block in blocks[level]]) for level in levels),
    )
