"""Which tested levels say something of the load that an objective names; nothing is extrapolated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.analyse import wording
from loadtest.settings import Traffic
from loadtest.slo import IN_FLIGHT, TRAFFIC, USERS, Load

NEAR = 0.05  # a level whose requests in flight are this close to those asked for stands for them


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The levels that must hold. `beyond` is the next level, which proves the rest when it holds and nothing else."""

    inside: tuple[float, ...] = ()
    beyond: float | None = None
    either: bool = False  # the load lies between the two levels inside: only when they agree is it known
    missing: str = ""  # why the tested levels do not cover the load


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """The tested levels and the requests in flight measured beside them."""

    levels: tuple[float, ...]  # ascending
    unit: str  # of the levels: users · requests/s · sessions/s
    in_flight: Mapping[float, float]

    def positions(self, unit: str) -> list[tuple[float, float]] | None:
        """Return (position in a unit, level), ascending; None when the levels cannot be told in that unit."""
        if unit == self.unit:
            return [(level, level) for level in self.levels]
        if unit == IN_FLIGHT and all(level in self.in_flight for level in self.levels):
            return sorted((self.in_flight[level], level) for level in self.levels)
        return None

    def controlled(self, values: Sequence[float], unit: str) -> tuple[list[float], str]:
        """Return loads in the unit of the levels, by interpolation; and why not, where one lies outside them."""
        found = self.positions(unit)
        if not found:
            return [], self._no_unit(unit)
        here, levels = zip(*found, strict=True)
        low, high = here[0] * (1 - 1e-9), here[-1] * (1 + 1e-9)
        if min(values) < low or max(values) > high:
            tested = f"{wording.load(here[0])} to {wording.load(here[-1])} {unit}"
            asked = f"{wording.load(min(values))} to {wording.load(max(values))}"
            return [], f"the traffic goes from {asked} {unit}, and {tested} were tested"
        return [float(x) for x in np.interp(values, here, levels)], ""

    def _no_unit(self, unit: str) -> str:
        if unit == IN_FLIGHT:
            return "the requests in flight were not measured at every level"
        kind = "closed load" if self.unit == USERS else "open load"
        return f"the load is given in {unit}, and this run's levels are {self.unit} ({kind})"


def reach(load: Load, loads: Loads, traffic: Traffic) -> Reach:
    """Return the levels that say whether an objective holds at its load."""
    if not loads.levels:
        return Reach(missing="no level was measured")
    if not load.unit:
        return Reach(inside=loads.levels)
    if load.unit == TRAFFIC:
        return _over_traffic(loads, traffic)
    positions = loads.positions(load.unit)
    if positions is None:
        return Reach(missing=loads._no_unit(load.unit))
    assert load.value is not None
    tolerance = 1e-9 if load.unit != IN_FLIGHT else NEAR
    return _up_to(load, positions, tolerance) if load.up_to else _at(load, positions, tolerance)


def _at(load: Load, positions: Sequence[tuple[float, float]], tolerance: float) -> Reach:
    asked = load.value or 0.0
    nearest = min(positions, key=lambda p: abs(p[0] - asked))
    if abs(nearest[0] - asked) <= tolerance * asked:
        return Reach(inside=(nearest[1],))
    below = [level for position, level in positions if position < asked]
    above = [level for position, level in positions if position > asked]
    if not below or not above:
        return Reach(missing=_outside(load, positions))
    return Reach(inside=(below[-1], above[0]), either=True)


def _up_to(load: Load, positions: Sequence[tuple[float, float]], tolerance: float) -> Reach:
    asked = load.value or 0.0
    inside = tuple(level for position, level in positions if position <= asked * (1 + tolerance))
    beyond = [level for position, level in positions if position > asked * (1 + tolerance)]
    if inside and max(p for p, level in positions if level in inside) >= asked * (1 - tolerance):
        return Reach(inside=inside)
    if not beyond or not inside:  # a load below all that were tested is not proven by the lowest of them either
        return Reach(inside=inside, missing=_outside(load, positions))
    return Reach(inside=inside, beyond=beyond[0])


def _outside(load: Load, positions: Sequence[tuple[float, float]]) -> str:
    low, high = wording.load(positions[0][0]), wording.load(positions[-1][0])
    return f"only {low} to {high} {load.unit} were tested, and {load.value:g} is asked for"


def _over_traffic(loads: Loads, traffic: Traffic) -> Reach:
    """Return every level that the traffic passes, and those next to its ends."""
    if not traffic.loads:
        return Reach(missing="no [traffic] says what is expected")
    values, why = loads.controlled([min(traffic.loads), max(traffic.loads)], traffic.unit)
    if why:
        return Reach(missing=why)
    low, high = values
    first = max((level for level in loads.levels if level <= low * (1 + 1e-9)), default=loads.levels[0])
    last = min((level for level in loads.levels if level >= high * (1 - 1e-9)), default=loads.levels[-1])
    return Reach(inside=tuple(level for level in loads.levels if first <= level <= last))
