"""The expected gain over a day: the speed-up curve weighted by what each load brings, with its interval.

A time is gained in proportion to the time that requests spend at a load, which is requests per second times their mean
there; a throughput in proportion to what is carried there. Between tested levels the log speed-up is linear in log
load, and nothing is extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.analyse.compare import Curve
from loadtest.analyse.estimates import Estimate, exponential
from loadtest.analyse.gate_results import DayLoad
from loadtest.analyse.objectives import Measurements
from loadtest.analyse.paired import compared, out_of_reach, paired_samples
from loadtest.analyse.reach import Loads
from loadtest.analyse.stats import Floats
from loadtest.settings import Traffic
from loadtest.slo import Slo, Unit


def expected_gain(slo: Slo, baseline: str, candidate: str, found: Measurements, loads: Loads,
                  traffic: Traffic) -> tuple[Estimate, str]:  # fmt: skip
    """Return the expected speed-up over the traffic by a metric's mean, and why there is none."""
    day = _day(slo, baseline, candidate, found, loads, traffic)
    if isinstance(day, str):
        return Estimate(), day
    return _combined(slo, day.at, day.weights, day.curve, day.base, restarted=found.restarted), ""


def expected_day(slo: Slo, baseline: str, candidate: str, found: Measurements, loads: Loads,
                 traffic: Traffic) -> tuple[DayLoad, ...]:  # fmt: skip
    """Return the loads of the expected day with the speed-up at each; none where no gain can be told."""
    day = _day(slo, baseline, candidate, found, loads, traffic)
    if isinstance(day, str):
        return ()
    rows = zip(day.at, traffic.hours, day.weights, strict=True)
    return tuple(
        DayLoad(level=at, hours=hours, weight=weight, speedup=_between(day.curve, at, restarted=found.restarted))
        for at, hours, weight in sorted(rows)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """What the gain over a day is made of: its loads, their shares, and the curves."""

    at: Sequence[float]
    weights: Sequence[float]
    curve: Curve
    base: Curve


def _day(slo: Slo, baseline: str, candidate: str, found: Measurements, loads: Loads, traffic: Traffic) -> _Day | str:
    """Return the day, or why nothing can be said of it."""
    if not traffic.loads:
        return "no [traffic] says what is expected"
    at, why = loads.controlled(list(traffic.loads), traffic.unit)
    if why:
        return why
    pairs = paired_samples(slo, baseline, candidate, found)
    if any(out_of_reach(own) for own in pairs.values()):
        return "at some load nothing was carried"
    curve = compared(slo, pairs, found)
    rates = _rates(slo, baseline, found)
    known = [x for x in curve.levels if x in rates]
    needed = {level for x in at for level in _around(loads.levels, x)}
    if not needed <= set(known):
        return "a level that the traffic needs has no valid pair of cells"
    base = found.fit({x: [math.log(b) for b, _ in pairs[x]] for x in known})
    weights = _weights(slo, at, traffic.hours, base, rates)
    return _Day(at=at, weights=weights, curve=curve, base=base)


def _between(curve: Curve, x: float, *, restarted: bool) -> Estimate:
    """Return the speed-up at a load, between two tested levels by the logarithms of both."""
    shares = _by_level([x], np.array([1.0]), curve.levels)
    used = shares > 0
    mean = float(shares @ curve.mean)
    parts = shares[used] * curve.half[used]
    count = min(len(sample) for sample in curve.samples)
    if np.isnan(parts).any():
        return Estimate(value=math.exp(mean), n=count)
    half = float(np.sum(parts)) if restarted else float(np.sqrt(np.sum(parts**2)))
    return Estimate(value=math.exp(mean), low=math.exp(mean - half), high=exponential(mean + half), n=count)


def _around(levels: Sequence[float], x: float) -> tuple[float, ...]:
    below = [level for level in levels if level <= x * (1 + 1e-9)]
    above = [level for level in levels if level >= x * (1 - 1e-9)]
    return (below[-1], above[0]) if below and above else ()


def _rates(slo: Slo, arm: str, found: Measurements) -> dict[float, float]:
    """Return requests per second that fell due, by level."""
    found = found.narrowed(slo.category)
    rates: dict[float, float] = {}
    for level in found.levels:
        rows = [found.requests.cell(c) for c in found.of(arm, level)]
        window = sum(r.window_s for r in rows)
        due = sum(int(r.measured.sum()) for r in rows)
        if window > 0 and due:
            rates[level] = due / window
    return rates


def _weights(
    slo: Slo, at: Sequence[float], hours: Sequence[float], base: Curve, rates: Mapping[float, float]
) -> list[float]:
    """Return each load's share of the baseline's day."""
    values = np.exp(np.interp(np.log(at), np.log(base.levels), base.mean))
    carried = np.array([rates[float(x)] for x in base.levels])
    per_s = np.exp(np.interp(np.log(at), np.log(base.levels), np.log(carried)))
    share = np.asarray(hours) * (values * per_s if slo.measure.unit is Unit.SECONDS else values)
    return [float(w) for w in share / share.sum()]


def _combined(
    slo: Slo, at: Sequence[float], weights: Sequence[float], curve: Curve, base: Curve, *, restarted: bool
) -> Estimate:
    """Return the weighted speed-up; its interval by the delta method on the levels' own.

    Levels are independent, unless every level of a block shares one start of the servers (`restarted`).
    """
    sign = -1.0 if slo.lower else 1.0  # times add up, so that their ratio is averaged, and not the speed-up
    logs = np.interp(np.log(at), np.log(curve.levels), curve.mean)
    parts = np.asarray(weights) * np.exp(sign * logs)
    total = float(parts.sum())
    shares = parts / total
    own = _by_level(at, shares, curve.levels) * curve.half
    # The weights are measured as well: where the gain varies with load, the noise of the baseline moves them.
    moved = _by_level(at, np.asarray(weights) - shares, base.levels) * np.where(np.isnan(base.half), 0.0, base.half)
    used = _by_level(at, shares, curve.levels) > 0
    if np.isnan(own[used]).any():
        return Estimate(value=total**sign, n=min(len(s) for s in curve.samples))
    terms = np.concatenate([own[used], moved])
    half = float(np.abs(terms).sum()) if restarted else float(np.sqrt(np.sum(terms**2)))
    gain = sign * math.log(total)
    return Estimate(value=math.exp(gain), low=math.exp(gain - half), high=exponential(gain + half),
                    n=min(len(s) for s in curve.samples))  # fmt: skip


def _by_level(at: Sequence[float], shares: Floats, levels: Floats) -> Floats:
    """Return how much each level contributes when loads between two levels are shared out to them."""
    found = np.zeros(len(levels))
    x = np.log(levels)
    for load, share in zip(np.log(at), shares, strict=True):
        right = int(np.clip(np.searchsorted(x, load), 0, len(x) - 1))
        left = max(0, right - 1)
        w = 1.0 if left == right else min(1.0, max(0.0, (load - x[left]) / (x[right] - x[left])))
        found[right] += share * w
        found[left] += share * (1 - w)
    return found
