"""The load at which a speed-up equals a threshold: typed, with its interval, and translated into other loads.

Between tested levels the log speed-up is taken as linear in log load. The break-even set is the loads whose interval
contains the threshold (inversion of the test), so it may be bounded on one side only, or fall into several parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadtest.analyse.compare import Curve
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import BreakEven

ABOVE, WITHIN, BELOW = 1, 0, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A range of loads in which the interval lies above the threshold, contains it, or lies below."""

    low: float
    high: float
    state: int  # ABOVE · WITHIN · BELOW


def zones(curve: Curve, threshold: float) -> list[Zone]:
    """Return the zones of a curve in ascending order of load; levels without an interval are left out.

    A zone above or below holds a tested level whose own interval is: between two levels the interval is narrower than
    at either, since their errors are independent, and what it alone claims was shown at no load.
    """
    known = ~np.isnan(curve.half)
    loads, mean, half = curve.levels[known], curve.mean[known] - math.log(threshold), curve.half[known]
    if not len(loads):
        return []
    if len(loads) == 1:
        return [Zone(low=float(loads[0]), high=float(loads[0]), state=_state(float(mean[0]), float(half[0])))]
    found: list[Zone] = []
    for i in range(len(loads) - 1):
        ends = (mean[i], mean[i + 1], half[i], half[i + 1])
        edges = [0.0, *(_straight_edges if curve.restarted else _edges)(*ends), 1.0]
        for start, stop in itertools.pairwise(edges):
            middle = (start + stop) / 2
            state = _state(*_between(*ends, middle, together=curve.restarted))
            low, high = _load(loads[i], loads[i + 1], start), _load(loads[i], loads[i + 1], stop)
            if found and found[-1].state == state:
                found[-1] = replace(found[-1], high=high)
            else:
                found.append(Zone(low=low, high=high, state=state))
    states = [_state(float(m), float(h)) for m, h in zip(mean, half, strict=True)]
    return _shown([float(load) for load in loads], states, found)


def _shown(loads: Sequence[float], states: Sequence[int], found: Sequence[Zone]) -> list[Zone]:
    """Return zones in which what no tested level shows is open, neighbours of one state joined."""
    kept: list[Zone] = []
    for zone in found:
        inside = [state for load, state in zip(loads, states, strict=True) if zone.low <= load <= zone.high]
        state = zone.state if zone.state in inside else WITHIN
        if kept and kept[-1].state == state:
            kept[-1] = replace(kept[-1], high=zone.high)
        else:
            kept.append(replace(zone, state=state))
    return kept


def _state(mean: float, half: float) -> int:
    return ABOVE if mean - half > 0 else BELOW if mean + half < 0 else WITHIN


def _between(m0: float, m1: float, h0: float, h1: float, w: float, *, together: bool) -> tuple[float, float]:
    """Return mean and half-width at the share w of the way.

    The errors of two levels are independent; where a start of the servers gave its luck to both they go `together`,
    and nothing cancels between the levels.
    """
    half = (1 - w) * h0 + w * h1 if together else math.hypot((1 - w) * h0, w * h1)
    return (1 - w) * m0 + w * m1, half


def _load(low: float, high: float, w: float) -> float:
    if w in (0, 1):
        return float(high if w else low)
    return math.exp((1 - w) * math.log(low) + w * math.log(high))


def _edges(m0: float, m1: float, h0: float, h1: float) -> list[float]:
    """Return where in (0, 1) the interval begins or ceases to contain 0: roots of mean² = half²."""
    a = (m1 - m0) ** 2 - h0**2 - h1**2
    b = 2 * m0 * (m1 - m0) + 2 * h0**2
    c = m0**2 - h0**2
    discriminant = b * b - 4 * a * c
    if abs(discriminant) < 1e-12 * b * b:  # a double root: an interval without width
        discriminant = 0.0
    if discriminant < 0:
        return []
    q = -(b + math.copysign(math.sqrt(discriminant), b)) / 2  # the form that does not cancel
    roots = {q / a if a else math.nan, c / q if q else math.nan}
    return sorted(float(w) for w in roots if 0 < w < 1)


def _straight_edges(m0: float, m1: float, h0: float, h1: float) -> list[float]:
    """Return where in (0, 1) a straight bound, mean ± half, passes 0."""
    ends = ((m0 - h0, m1 - h1), (m0 + h0, m1 + h1))
    roots = {start / (start - stop) for start, stop in ends if start != stop}
    return sorted(float(w) for w in roots if 0 < w < 1)


def crossings(curve: Curve, threshold: float) -> list[float]:
    """Return the loads at which the curve of the means itself crosses the threshold."""
    x, y = np.log(curve.levels), curve.mean - math.log(threshold)
    found = []
    for i in range(len(y) - 1):
        if y[i] * y[i + 1] < 0 or (y[i] != 0 and y[i + 1] == 0):
            found.append(float(math.exp(x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1]))))
    return found


def break_even(curve: Curve, metric: str, threshold: float = 1.0) -> BreakEven:
    """Return the typed break-even of a curve; loads in the unit of its levels."""
    found = zones(curve, threshold)
    form = _form([zone.state for zone in found])
    return BreakEven(
        metric=metric,
        threshold=threshold,
        form=form,
        at=_at(found, crossings(curve, threshold), form),
        regions=tuple((zone.low, zone.high) for zone in found if zone.state == ABOVE),
    )


def _form(states: list[int]) -> Crossing:
    """Name the sequence of states.

    `above, undecided` to the top of the ladder pays up to a load with no upper bound; a gap between two parts that
    pay is a band, since nothing is proven within it.
    """
    if not states:
        return Crossing.NO_DATA
    if ABOVE not in states:
        return Crossing.NEVER_PAYS if states == [BELOW] else Crossing.CANNOT_TELL
    if states == [ABOVE]:
        return Crossing.PAYS_EVERYWHERE
    if states.count(ABOVE) > 1:
        return Crossing.BAND
    if states[0] == ABOVE:
        return Crossing.PAYS_UP_TO
    return Crossing.PAYS_FROM if states[-1] == ABOVE else Crossing.BAND


def _at(found: list[Zone], means: list[float], form: Crossing) -> Estimate:
    """Return the break-even with the undecided zone around it; a bound outside the tested loads is None."""
    if form in (Crossing.PAYS_UP_TO, Crossing.PAYS_FROM):
        edge = next(i for i, zone in enumerate(found) if zone.state == ABOVE) + (form is Crossing.PAYS_UP_TO)
        # edge is the first zone that does not pay, or the first that does: the break-even lies before it
        around = found[edge] if form is Crossing.PAYS_UP_TO else found[edge - 1]
        if around.state != WITHIN:  # no width at all: the blocks agree exactly
            point = around.low if form is Crossing.PAYS_UP_TO else around.high
            return Estimate(value=point, low=point, high=point)
        low = around.low if around is not found[0] else None
        high = around.high if around is not found[-1] else None
        inside = [x for x in means if around.low <= x <= around.high]
        return Estimate(value=inside[0] if inside else None, low=low, high=high)
    if form is Crossing.CANNOT_TELL and len(found) == 2 and len(means) == 1:
        low = found[0].high if found[0].state == BELOW else None
        high = found[1].low if found[1].state == BELOW else None
        return Estimate(value=means[0], low=low, high=high)
    return Estimate()


def leading_limit(curve: Curve, threshold: float) -> Estimate:
    """Return where the first range that pays ends, for a curve that pays at its lowest load."""
    return _at(zones(curve, threshold), crossings(curve, threshold), Crossing.PAYS_UP_TO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A measured quantity by level, such as requests in flight, averaged over the arms."""

    by_level: Mapping[float, float]

    def at(self, load: float | None) -> float | None:
        """Return the quantity at a load by linear interpolation; None outside the measured levels."""
        levels = sorted(self.by_level)
        if load is None or not levels or not levels[0] <= load <= levels[-1]:
            return None
        return float(np.interp(load, levels, [self.by_level[level] for level in levels]))

    def of(self, estimate: Estimate) -> Estimate:
        """Translate value and bounds."""
        return Estimate(
            value=self.at(estimate.value), low=self.at(estimate.low), high=self.at(estimate.high), n=estimate.n
        )


def translated(result: BreakEven, in_flight: Translation, running: Translation) -> BreakEven:
    """Add the break-even in requests in flight and in requests running."""
    return replace(result, in_flight=in_flight.of(result.at), running=running.of(result.at))
