"""Numbers and ranges of load in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadtest import loads
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import BreakEven


def load(value: float, *, toward: int = 0, tenths: bool = False) -> str:
    """Return a load without needless digits, as every sentence, chart and table writes it: 41, 2.5, 1.

    Users have one digit below 10, where half a user is a twentieth of the answer or more, and with `tenths` above it
    too; rates keep three digits. `toward` below or above 0 rounds down or up.
    """
    if loads.is_rate():
        step = 10.0 ** (math.floor(math.log10(value)) - 2) if 0 < value < 1000 else 1.0
        shown = _stepped(value, step, toward)
        return f"{shown:.3g}" if shown < 1000 else f"{shown:.0f}"
    if toward:
        value = _stepped(value, 0.1 if tenths or round(_stepped(value, 0.1, toward), 6) < 10 else 1.0, toward)
    if value == int(value) or (round(value, 1) >= 10 and not tenths):
        return f"{value:.0f}"
    return f"{value:.1f}"


def _stepped(value: float, step: float, toward: int) -> float:
    """Return a value rounded to a multiple of a step: down, to the nearest or up; what is within 1e-6 of one is it."""
    near = round(value / step)
    if toward == 0 or abs(value / step - near) < 1e-6:
        return near * step
    return (math.floor if toward < 0 else math.ceil)(value / step) * step


def texts(at: Estimate) -> tuple[str | None, str | None, str | None]:
    """Return value, lower and upper bound of an interval of loads as they are written; what is absent is None.

    Bounds are rounded outwards, so that nothing read off them claims more than they do; an interval that is narrower
    than two users keeps its tenths.
    """
    narrow = at.low is not None and at.high is not None and at.high - at.low < 2
    ends = ((at.value, 0), (at.low, -1), (at.high, 1))
    value, low, high = (
        None if x is None or math.isnan(x) else load(x, toward=toward, tenths=narrow) for x, toward in ends
    )
    return value, low, high


def with_unit(value: float) -> str:
    """Return a load with its unit."""
    return loads.said(load(value))


def listed(levels: Sequence[float]) -> str:
    """Return several loads with their unit, once: '4, 16 and 32 users'."""
    texts = [load(level) for level in levels]
    return loads.said(texts[0]) if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]} {loads.unit()}"


def claimed(at: Estimate) -> str:
    """Return the load up to which it is proven to pay, with its unit: '23 users'."""
    return loads.said(load(claimed_load(at)))


def claimed_load(at: Estimate) -> float:
    """Return the load up to which it is proven to pay: whole users, or a rate of three digits, rounded down."""
    proven = at.low if at.low is not None else at.value
    assert proven is not None
    return float(load(proven, toward=-1)) if loads.is_rate() else _stepped(proven, 1.0, -1)


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
    """Name ranges of load: 'from 4 to 24 users and from 48 to 64 users'; what is claimed is rounded inwards."""
    return " and ".join(_range(low, high) for low, high in regions)


def _range(low: float, high: float) -> str:
    first, last = load(low, toward=1), load(high, toward=-1)
    if float(first) > float(last):  # narrower than what is written
        first, last = load(low), load(high)
    return f"at {loads.said(first)}" if first == last else f"from {first} to {loads.said(last)}"


def ratio(estimate: Estimate, mark: float = 1.0) -> str:
    """Return a ratio with its interval, told from a mark that it is held against: '1.04 [0.97, 1.12]'."""
    if estimate.value is None:
        return "unknown"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{apart(estimate.low, mark)}, {apart(estimate.high, mark)}]"


def apart(bound: float, mark: float = 1.0) -> str:
    """Return a bound of a ratio with two digits, or with up to four where two do not tell it from its mark."""
    if not math.isfinite(bound):
        return "∞" if bound > 0 else "−∞" if bound < 0 else "–"
    places = next((n for n in (2, 3, 4) if bound == mark or f"{bound:.{n}f}" != f"{mark:.{n}f}"), 2)
    return f"{bound:.{places}f}"


def bounded(at: Estimate, levels: Sequence[float]) -> str:
    """Return a load with its interval; a missing bound lies outside the tested loads."""
    value, low, high = texts(at)
    if value is not None and low is not None and high is not None:
        return loads.said(value) if at.low == at.high else f"{value} [{low}, {high}] {loads.unit()}"
    if low is not None:
        return f"at least {loads.said(low)} (where it ends is not settled up to {load(levels[-1])})"
    if high is not None:
        return f"at most {loads.said(high)} (where it begins is not settled from {load(levels[0])})"
    return "an unknown load"


def pays_up_to(limit: BreakEven) -> str:
    """Return the load up to which it is proven to pay, translated: '23 users (≈ 21 in flight)'."""
    return f"{claimed(limit.at)}{_in_flight(limit.at.low, limit.in_flight.low, toward=-1)}"


def estimated(limit: BreakEven, levels: Sequence[float]) -> str:
    """Say where the limit itself is estimated, and what ends it where that is a guard; empty where nothing is known."""
    if limit.at.low is None:
        where = f"the limit is {bounded(limit.at, levels)}"
    elif limit.at.value == limit.at.low:  # a guard stops it at a tested load, or blocks that agree exactly
        where = ""
    elif limit.at.high is None:
        where = f"where it ends is not settled up to {load(levels[-1])}"
    else:
        where = f"the limit itself is estimated at {bounded(limit.at, levels)}"
    return "; ".join(part for part in (where, ended(limit)) if part)


def ended(limit: BreakEven) -> str:
    """Say that a guard bounds a limit above; empty where the metric does."""
    if not limit.ended_by or limit.at.high is None:
        return ""
    return f"at {with_unit(limit.at.high)} a guard ends it: {limit.ended_by}"


def in_flight(result: BreakEven) -> str:
    """Return ' (≈ 38 in flight)' where that differs from the users, else nothing."""
    there, at = result.in_flight, result.at
    return _in_flight(at.value, there.value) if at.value is not None else _in_flight(at.low, there.low)


def _in_flight(reference: float | None, value: float | None, toward: int = 0) -> str:
    if value is None or reference is None or (not loads.is_rate() and load(value) == load(reference)):
        return ""
    return f" (≈ {load(value, toward=toward)} in flight)"


def break_even(result: BreakEven, label: str, levels: Sequence[float], *, every: bool = True) -> str:
    """Return one sentence on a break-even; `levels` are those that it rests on, `every`: all that were tested."""
    above = "beats the baseline" if result.threshold == 1 else f"gains {percent(result.threshold - 1)}"
    subject = f"By {label} the candidate {above}"
    where = bounded(result.at, levels)
    match result.form:
        case Crossing.PAYS_UP_TO:
            end = f"; {ended(result)}" if ended(result) else ""
            return f"{subject} up to {where}{in_flight(result)}{end}."
        case Crossing.PAYS_FROM:
            return f"{subject} from {where} on{in_flight(result)}."
        case Crossing.PAYS_EVERYWHERE:
            which = "tested load" if every else "load that has an interval"
            return f"{subject} at every {which} ({tested(levels)})."
        case Crossing.BAND:
            return f"{subject} {ranges(result.regions)}; elsewhere it does not, or cannot be told."
        case Crossing.NEVER_PAYS:
            below = "falls behind the baseline" if result.threshold == 1 else f"never {above}"
            return f"By {label} the candidate {below} ({tested(levels)})."
        case Crossing.CANNOT_TELL:
            return f"By {label} it cannot be told at which loads the candidate {above}, if at any."
        case Crossing.NO_DATA:
            return f"By {label} nothing can be said: no interval exists."
