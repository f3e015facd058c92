"""Capacity: the greatest load at which an arm meets every absolute objective, typed and with its interval.

Each objective is a curve over load of how far the arm is from the limit, with one more for either bound of its
interval. Where the curve first falls below its limit is the capacity, linear in the load between tested levels as
latency is in the linear law; where its bounds first do, at the earliest and the latest that the curve's shape allows,
are the ends of its interval (inversion of the test). The objective that falls first decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadtest.analyse import first_fall, wording
from loadtest.analyse.estimates import Crossing, Estimate, exponential
from loadtest.analyse.first_fall import Edge
from loadtest.analyse.gate_results import Capacity
from loadtest.analyse.slo_levels import GateFacts, absolute
from loadtest.settings import Price
from loadtest.slo import COUNTED, Ask, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """How far one objective is from its limit at each level: by the value, at worst and at best."""

    slo: Slo
    value: tuple[Edge, ...]
    worst: tuple[Edge, ...]
    best: tuple[Edge, ...]


RATES = ("output_tokens_per_s", "requests_per_s", "goodput_per_s")  # follow the load offered: they bound no capacity


def capacity_slos(slos: Sequence[Slo]) -> list[Slo]:
    """Return the objectives that bound a capacity: limits on what users see, wherever they are to hold."""
    return [slo for slo in slos if slo.ask is Ask.ABSOLUTE and slo.metric not in (*COUNTED, *RATES)]


def capacities(slos: Sequence[Slo], facts: GateFacts, gpus: Mapping[str, int], price: Price) -> tuple[Capacity, ...]:
    """Return the capacity of every arm, baseline first; none without an absolute objective."""
    bounding = list(
        dict.fromkeys(replace(slo, arm="candidate", candidate="", source="") for slo in capacity_slos(slos))
    )
    if not bounding or facts.refused or not facts.loads.levels:
        return ()
    arms = [facts.baseline] if facts.candidate is None else [facts.baseline, facts.candidate]
    return tuple(_of_arm(bounding, arm, facts, gpus.get(arm), price) for arm in arms)


def _of_arm(slos: Sequence[Slo], arm: str, facts: GateFacts, gpus: int | None, price: Price) -> Capacity:
    margins = [margins_of(slo, arm, facts) for slo in slos]
    found = greatest_load(facts.loads.levels, margins)
    found = replace(found, arm=arm, gpus=gpus, sentence=_sentence(found, arm, facts))
    if gpus:
        found = replace(found, per_gpu=scaled(found.at, 1 / gpus))
    return _carried(found, facts, gpus, price)


def margins_of(slo: Slo, arm: str, facts: GateFacts) -> Margins:
    """Return an objective's distances from its limit for an arm; what is not to be used is unknown."""
    observed, why = absolute(slo, arm, facts)
    estimates = [Estimate() if level in why else observed.get(level, Estimate()) for level in facts.loads.levels]
    near, far = ("low", "high") if slo.lower else ("high", "low")
    ways = {name: tuple(_margin(getattr(e, name), slo) for e in estimates) for name in ("value", near, far)}
    return Margins(slo=slo, value=ways["value"], worst=ways[far], best=ways[near])


def _margin(value: float | None, slo: Slo) -> Edge:
    """Return the distance from the limit as a share of it, above 0 on the side that meets it."""
    if value is None or math.isnan(value):
        return None
    return (slo.limit - value if slo.lower else value - slo.limit) / slo.limit


def greatest_load(levels: Sequence[float], margins: Sequence[Margins]) -> Capacity:
    """Return where the first objective falls below its limit, as a capacity without an arm."""
    ends = [(first_fall.value_at(levels, m.value), m) for m in margins]
    worst = [first_fall.earliest(levels, m.worst, m.value) for m in margins]
    best = [first_fall.latest(levels, m.best, m.value) for m in margins]
    low, high = min(worst), min(best)
    value, first = min(ends, key=lambda end: end[0])
    at = Estimate(value=_inside(value, levels), low=_inside(low, levels), high=_inside(high, levels))
    if low == math.inf:
        return Capacity(arm="", form=Crossing.PAYS_EVERYWHERE, at=Estimate(low=levels[-1]))
    if high < levels[0]:
        return Capacity(
            arm="", form=Crossing.NEVER_PAYS, at=Estimate(high=levels[0]), bound_by=first.slo.sentence_of_limit
        )
    if low < levels[0] and high == math.inf:
        form = Crossing.NO_DATA if all(e is None for m in margins for e in m.worst) else Crossing.CANNOT_TELL
        return Capacity(arm="", form=form, at=at)
    named = first.slo.sentence_of_limit if value < math.inf else ""
    return Capacity(arm="", form=Crossing.PAYS_UP_TO, at=at, bound_by=named)


def _inside(load: float, levels: Sequence[float]) -> float | None:
    return load if levels[0] <= load < math.inf else None


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate times a factor above 0."""
    value, low, high = (None if x is None else x * factor for x in (estimate.value, estimate.low, estimate.high))
    return Estimate(value=value, low=low, high=high, n=estimate.n)


def _carried(found: Capacity, facts: GateFacts, gpus: int | None, price: Price) -> Capacity:
    """Add the output tokens per second at capacity, and with a price what a million of them costs."""
    curve = _throughput(found.arm, facts)
    at = found.at if found.at.value is not None else replace(found.at, value=found.at.low)
    tokens = Estimate(value=_interpolated(curve, at.value), low=_interpolated(curve, at.low),
                      high=_interpolated(curve, at.high))  # fmt: skip
    found = replace(found, output_tokens_per_s=tokens)
    if price.gpu_hour is None or not gpus:
        return found
    per_second = price.gpu_hour * gpus / 3600 * 1e6
    cost = Estimate(value=_over(per_second, tokens.value), low=_over(per_second, tokens.high),
                    high=_over(per_second, tokens.low))  # fmt: skip
    return replace(found, per_million_tokens=cost, currency=price.currency)


def _throughput(arm: str, facts: GateFacts) -> dict[float, float]:
    slo = Slo(metric="output_tokens_per_s", statistic="", ask=Ask.ABSOLUTE, limit=0.0)
    observed, _ = absolute(slo, arm, facts)
    return {level: e.value for level, e in observed.items() if e.value is not None and e.value > 0}


def _interpolated(curve: Mapping[float, float], load: float | None) -> float | None:
    levels = sorted(curve)
    if load is None or not levels or not levels[0] <= load <= levels[-1]:
        return None
    return float(np.exp(np.interp(math.log(load), np.log(levels), np.log([curve[x] for x in levels]))))


def _over(above: float, below: float | None) -> float | None:
    return above / below if below else None


def ratio_of(capacities: Sequence[Capacity]) -> Estimate:
    """Return candidate ÷ baseline of two capacities, the interval from the distances of both bounds in logarithms.

    MOVER (Zou and Donner, Statistics in Medicine 27: 1693-1702, 2008): the arms are taken as independent.
    """
    if len(capacities) != 2:
        return Estimate()
    base, cand = (c.at for c in capacities)
    if not base.value or not cand.value:
        return Estimate()
    middle = math.log(cand.value / base.value)
    low = _distance(cand.value, cand.low, base.value, base.high)
    high = _distance(cand.value, cand.high, base.value, base.low)
    return Estimate(value=math.exp(middle), low=None if low is None else math.exp(middle - low),
                    high=None if high is None else exponential(middle + high))  # fmt: skip


def _distance(value: float, bound: float | None, other: float, other_bound: float | None) -> float | None:
    if not bound or not other_bound:
        return None
    return math.hypot(math.log(value / bound), math.log(other / other_bound))


def _sentence(found: Capacity, arm: str, facts: GateFacts) -> str:
    levels, unit = facts.loads.levels, facts.loads.unit
    tested = f"{wording.load(levels[0])} to {wording.load(levels[-1])} {unit}"
    match found.form:
        case Crossing.PAYS_EVERYWHERE:
            return f"{arm} meets the objectives at every tested load ({tested})"
        case Crossing.NEVER_PAYS:
            return f"{arm} misses the objectives at every tested load ({tested}): {found.bound_by}"
        case Crossing.NO_DATA:
            return f"the capacity of {arm} is not known: there is no interval"
        case Crossing.CANNOT_TELL:
            return f"the capacity of {arm} cannot be told within {tested}"
    ends = f" (ended by {found.bound_by})" if found.bound_by else ""
    return f"{arm} meets them up to {bounded(found.at, levels, unit)}{ends}"


def bounded(at: Estimate, levels: Sequence[float], unit: str) -> str:
    """Return a capacity with its interval and unit; a bound that no tested load shows is said as such."""
    value, low, high = wording.texts(at)
    if at.value is None and low is not None:
        return f"{low} {unit} at least (where it ends is not shown up to {levels[-1]:g})"
    if at.value is None:
        return f"{high} {unit} at most"
    if low is not None and high is not None:
        return f"{value} [{low}, {high}] {unit}"
    shown = (
        f"at least {low} is shown" if low is not None else f"at most {high} is shown" if high else "nothing is shown"
    )
    return f"{value} {unit} ({shown})"


def sentence(capacities: Sequence[Capacity], ratio: Estimate) -> str:
    """Return the sentence that stands second in the answer; empty without a capacity."""
    if not capacities:
        return ""
    said = "; ".join(c.sentence for c in reversed(capacities))
    if ratio.value is not None:
        said += f"; candidate ÷ baseline {wording.ratio(ratio)}"
    costs = [f"{c.arm} {_cost(c)}" for c in reversed(capacities) if c.per_million_tokens.value is not None]
    return f"Capacity: {said}." + (f" A million output tokens there cost {', '.join(costs)}." if costs else "")


def _cost(found: Capacity) -> str:
    cost = found.per_million_tokens
    interval = "" if cost.low is None or cost.high is None else f" [{cost.low:.2f}, {cost.high:.2f}]"
    return f"{cost.value:.2f}{interval} {found.currency}"
