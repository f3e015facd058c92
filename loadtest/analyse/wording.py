"""Numbers and ranges of load in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loadtest import loads
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import BreakEven


def load(value: float) -> str:
    """Return a load without needless digits, as every sentence, chart and table writes it: 41, 2.5, 1.

    Users have one digit below 10, where half a user is a twentieth of the answer or more; rates keep three digits.
    """
    if loads.is_rate():
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return f"{value:.0f}" if round(value, 1) >= 10 or value == int(value) else f"{value:.1f}"


def form_of(at: Estimate) -> Callable[[float], str]:
    """Return how the figures of an interval of loads are written: one narrower than two users keeps its tenths."""
    if loads.is_rate() or at.low is None or at.high is None or at.high - at.low >= 2:
        return load
    return lambda value: f"{value:.1f}" if value != int(value) else f"{value:.0f}"


def with_unit(value: float) -> str:
    """Return a load with its unit."""
    return loads.said(load(value))


def listed(levels: Sequence[float]) -> str:
    """Return several loads with their unit, once: '16, 32 users'."""
    return with_unit(levels[0]) if len(levels) == 1 else f"{', '.join(map(load, levels))} {loads.unit()}"


def rounded_down(value: float) -> float:
    """Return a load that does not promise more: whole users, or a rate of two digits."""
    if not loads.is_rate() or value <= 0:
        return math.floor(value)
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / step + 1e-9) * step


def percent(share: float) -> str:
    """Return a share as per cent: 3 %, 0.5 %, 31 %."""
    return f"{100 * share:.3g} %"


def tested(levels: Sequence[float]) -> str:
    """Name the tested loads: '1 to 64 users'."""
    if not levels:
        return "no load"
    return with_unit(levels[0]) if len(levels) == 1 else f"{load(levels[0])} to {with_unit(levels[-1])}"


def spans(levels: Sequence[float], tested_levels: Sequence[float]) -> str:
    """Name some of the tested loads, neighbours joined: '1 to 8 and 32 users'."""
    runs: list[list[float]] = []
    for place, level in enumerate(tested_levels):
        if level in levels:
            joined = runs and place and runs[-1][-1] == tested_levels[place - 1]
            runs[-1:] = [[*runs[-1], level]] if joined else [*runs[-1:], [level]]
    parts = [load(run[0]) if len(run) == 1 else f"{load(run[0])} to {load(run[-1])}" for run in runs]
    return loads.said(" and ".join(parts))


def ranges(regions: Sequence[tuple[float, float]]) -> str:
    """Name ranges of load: 'from 4 to 24 users and from 48 to 64 users'."""
    parts = [f"at {with_unit(a)}" if load(a) == load(b) else f"from {load(a)} to {with_unit(b)}" for a, b in regions]
    return " and ".join(parts)


def ratio(estimate: Estimate) -> str:
    """Return a ratio with its interval: '1.04 [0.97, 1.12]'."""
    if estimate.value is None:
        return "unknown"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def bounded(at: Estimate, levels: Sequence[float]) -> str:
    """Return a load with its interval; a missing bound lies outside the tested loads."""
    if at.value is not None and at.low is not None and at.high is not None:
        if at.low == at.high:
            return with_unit(at.value)
        value, low, high = map(form_of(at), (at.value, at.low, at.high))
        return f"{value} [{low}, {high}] {loads.unit()}"
    if at.low is not None:
        return f"at least {with_unit(at.low)} (where it ends is not settled up to {load(levels[-1])})"
    if at.high is not None:
        return f"at most {with_unit(at.high)} (where it begins is not settled from {load(levels[0])})"
    return "an unknown load"


def up_to(limit: BreakEven, levels: Sequence[float]) -> str:
    """Return the load of a limit with its interval; one that a guard sets, or data that are missing, has none."""
    if limit.at.value == limit.at.low != limit.at.high:
        return with_unit(limit.at.low or levels[0])
    return bounded(limit.at, levels)


def in_flight(result: BreakEven) -> str:
    """Return ' (≈ 38 in flight)' where that differs from the users, else nothing."""
    there, at = result.in_flight, result.at
    value, reference = (there.value, at.value) if at.value is not None else (there.low, at.low)
    if value is None or reference is None or (not loads.is_rate() and load(value) == load(reference)):
        return ""
    return f" (≈ {load(value)} in flight)"


def break_even(result: BreakEven, label: str, levels: Sequence[float]) -> str:
    """Return one sentence on a break-even."""
    above = "beats the baseline" if result.threshold == 1 else f"gains {percent(result.threshold - 1)}"
    subject = f"By {label} the candidate {above}"
    where = bounded(result.at, levels)
    match result.form:
        case Crossing.PAYS_UP_TO:
            return f"{subject} up to {where}{in_flight(result)}."
        case Crossing.PAYS_FROM:
            return f"{subject} from {where} on{in_flight(result)}."
        case Crossing.PAYS_EVERYWHERE:
            return f"{subject} at every tested load ({tested(levels)})."
        case Crossing.BAND:
            return f"{subject} {ranges(result.regions)}; elsewhere it is not, or cannot be told."
        case Crossing.NEVER_PAYS:
            below = "falls behind the baseline" if result.threshold == 1 else f"never {above}"
            return f"By {label} the candidate {below} ({tested(levels)})."
        case Crossing.CANNOT_TELL:
            return f"By {label} it cannot be told at which loads the candidate {above}, if at any."
        case Crossing.NO_DATA:
            return f"By {label} nothing can be said: no interval exists."
