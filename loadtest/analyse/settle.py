"""How much more would settle an open objective, if the noise stays the same."""

from __future__ import annotations

import math

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.gate_results import IDENTICAL, GateOutcome, SloAt
from loadtest.analyse.percentiles import DEEP, QUANTILES, bound_needs, each_block_needs
from loadtest.slo import Ask, Slo

OUT_OF_REACH = 30  # times what there is: more is not proposed


def sentence(slo: Slo, at: SloAt, limit: float, *, lower: bool, blocks: int = 0) -> str:
    """Return what would settle an objective at a load; empty when it is settled, or nothing can be said.

    `blocks`: how many there are at that load, 0 where it is none that was tested.
    """
    if at.outcome is GateOutcome.NO_DATA:
        return "" if at.says == IDENTICAL else _no_bound(slo, at.observed)
    if at.outcome is not GateOutcome.INCONCLUSIVE:
        return ""
    times = factor(at.observed, limit, lower=lower)
    if times is None:
        return ""
    if times > OUT_OF_REACH:
        return "It is too near its limit to be settled by more of the same."
    # More requests of the same blocks say no more of how blocks differ.
    there, noun = (blocks, "block") if blocks > 1 else (at.observed.n, _noun(slo))
    more = max(1, math.ceil(there * times) - there)
    plural = "" if more == 1 else "s"
    return f"About {more:,} more {noun}{plural} would settle it if the noise stays the same."


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


def _noun(slo: Slo) -> str:
    if slo.ask is not Ask.ABSOLUTE or slo.statistic not in QUANTILES:
        return "request" if slo.metric in ("error_ratio", "goodput") else "block"
    return value_noun(slo)


def _no_bound(slo: Slo, observed: Estimate) -> str:
    if observed.low is not None and observed.high is not None:  # it is for another reason that it is not judged
        return ""
    if slo.ask is Ask.ABSOLUTE and slo.statistic in QUANTILES and observed.n:
        q, noun = QUANTILES[slo.statistic], value_noun(slo)
        there = f"more where blocks differ; there are {observed.n:,}"
        if q > DEEP:
            return f"A {slo.statistic} needs at least {each_block_needs(q):,} {noun}s in each block, {there} in all."
        needed = bound_needs(q)
        if observed.n >= needed:
            return f"More blocks: they differ so much that {observed.n:,} values are worth fewer than {needed:,}."
        return f"At least {needed:,} {noun}s bound a {slo.statistic}, {there}."
    return "At least 2 blocks, better 6." if observed.value is not None else ""


def value_noun(slo: Slo) -> str:
    """Return what a pooled percentile is one of."""
    return {"token_gap": "token", "chunk_gap": "chunk"}.get(slo.metric, "request")
