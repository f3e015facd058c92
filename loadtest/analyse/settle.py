"""How much more would settle an open objective, if the noise stays the same."""

from __future__ import annotations

import math

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.gate_results import GateOutcome, SloAt
from loadtest.analyse.percentiles import DEEP, QUANTILES, bound_needs, each_block_needs
from loadtest.slo import Ask, Slo

OUT_OF_REACH = 30  # times what there is: more is not proposed


def sentence(slo: Slo, at: SloAt, limit: float, *, lower: bool) -> str:
    """Return what would settle an objective at a load; empty when it is settled, or nothing can be said."""
    if at.outcome is GateOutcome.NO_DATA:
        return _no_bound(slo, at.observed)
    if at.outcome is not GateOutcome.INCONCLUSIVE:
        return ""
    times = factor(at.observed, limit, lower=lower)
    if times is None:
        return ""
    if times > OUT_OF_REACH:
        return "It is too near its limit to be settled by more of the same."
    more = max(1, math.ceil(at.observed.n * times) - at.observed.n)
    return f"About {more:,} more {_what(slo, more)} would settle it if the noise stays the same."


def factor(observed: Estimate, limit: float, *, lower: bool) -> float | None:
    """Return by how much the sample must grow for its interval to leave out the limit: widths shrink with its root."""
    if observed.value is None or not math.isfinite(observed.value):
        return None
    meets = observed.value <= limit if lower else observed.value >= limit
    bound = observed.high if meets == lower else observed.low
    if bound is None or not math.isfinite(bound):
        return None
    distance = abs(limit - observed.value)
    return ((bound - observed.value) / distance) ** 2 if distance else math.inf


def _what(slo: Slo, more: int) -> str:
    pooled = slo.ask is Ask.ABSOLUTE and slo.statistic in QUANTILES
    requests = pooled or slo.metric in ("error_ratio", "goodput")
    noun = "request" if requests else "block"
    if pooled and slo.metric in ("token_gap", "chunk_gap"):
        noun = "token" if slo.metric == "token_gap" else "chunk"
    return noun + ("" if more == 1 else "s")


def _no_bound(slo: Slo, observed: Estimate) -> str:
    if slo.ask is Ask.ABSOLUTE and slo.statistic in QUANTILES and observed.n:
        q = QUANTILES[slo.statistic]
        if q > DEEP:
            return (
                f"At least {each_block_needs(q):,} requests in each block bound a {slo.statistic}; there are"
                f" {observed.n:,} in all."
            )
        needed = bound_needs(q)
        if observed.n >= needed:
            return f"More blocks: they differ so much that {observed.n:,} values are worth fewer than {needed:,}."
        return (
            f"At least {needed:,} requests bound a {slo.statistic}, more where blocks differ; there are {observed.n:,}."
        )
    return "At least 2 blocks, better 6." if observed.value is not None else ""
