"""Shares of requests: their exact interval after the design effect of the blocks, and the difference of two of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scipy import stats

from loadtest.analyse.design_effect import inflated
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.stats import CONFIDENCE

Counts = Sequence[tuple[int, int]]  # by block: (requests that count, requests due)


def exact_interval(count: float, due: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of a share by Clopper and Pearson (Biometrika 26: 404-413, 1934)."""
    tail = (1 - confidence) / 2
    low = float(stats.beta.ppf(tail, count, due - count + 1)) if count > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, count + 1, due - count)) if count < due else 1.0
    return low, high


def share_effect(blocks: Mapping[float, Counts], *, restarted: bool = False, confidence: float = CONFIDENCE) -> float:
    """Return how many times more the blocks' shares vary than those of independent requests, at least 1.

    It comes out larger the fewer blocks it is estimated from, and fewer still where each block was a start of the
    servers, whose luck its levels share (`restarted`).
    """
    chi_square, dofs = 0.0, []
    for counts in blocks.values():
        present = [(count, due) for count, due in counts if due]
        total, size = sum(count for count, _ in present), sum(due for _, due in present)
        if len(present) < 2 or not 0 < total < size:
            continue
        share = total / size
        chi_square += sum((count - due * share) ** 2 / (due * share * (1 - share)) for count, due in present)
        dofs.append(len(present) - 1)
    if not dofs:
        return 1.0
    return inflated(chi_square / sum(dofs), max(dofs) if restarted else sum(dofs), confidence)


def share_estimates(
    blocks: Mapping[float, Counts], confidence: float = CONFIDENCE, *, restarted: bool = False
) -> dict[float, Estimate]:
    """Return the share of each level with its interval: that of due ÷ design effect independent requests."""
    effect = share_effect(blocks, restarted=restarted, confidence=confidence)
    found: dict[float, Estimate] = {}
    for level, counts in blocks.items():
        count, due = sum(c for c, _ in counts), sum(d for _, d in counts)
        if not due:
            found[level] = Estimate()
            continue
        low, high = exact_interval(count / effect, due / effect, confidence)
        found[level] = Estimate(value=count / due, low=low, high=high, n=due)
    return found


def difference(base: Estimate, cand: Estimate, *, lower: bool) -> Estimate:
    """Return the difference of two independent shares, above 0 better for the candidate.

    Interval by Newcombe (Statistics in Medicine 17: 873-890, 1998): the distances of both shares' bounds, squared and
    added. Pairing is not used, so that it is rather too wide.
    """
    if base.value is None or base.low is None or base.high is None:
        return Estimate()
    if cand.value is None or cand.low is None or cand.high is None:
        return Estimate()
    change = cand.value - base.value
    low = change - math.hypot(cand.value - cand.low, base.high - base.value)
    high = change + math.hypot(cand.high - cand.value, base.value - base.low)
    if lower:
        return Estimate(value=-change, low=-high, high=-low, n=cand.n)
    return Estimate(value=change, low=low, high=high, n=cand.n)
