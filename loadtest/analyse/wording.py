"""Numbers and ranges of load in words."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import BreakEven


def load(value: float) -> str:
    """Return a load without needless digits: 41, 2.5, 1."""
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def users(value: float) -> str:
    """Return a load with its unit."""
    return f"{load(value)} user{'' if load(value) == '1' else 's'}"


def percent(share: float) -> str:
    """Return a share as per cent: 3 %, 0.5 %, 31 %."""
    return f"{100 * share:.3g} %"


def tested(levels: Sequence[float]) -> str:
    """Name the tested loads: '1 to 64 users'."""
    if not levels:
        return "no load"
    return users(levels[0]) if len(levels) == 1 else f"{load(levels[0])} to {users(levels[-1])}"


def ranges(regions: Sequence[tuple[float, float]]) -> str:
    """Name ranges of load: 'from 4 to 24 users and from 48 to 64 users'."""
    parts = [f"at {users(a)}" if load(a) == load(b) else f"from {load(a)} to {users(b)}" for a, b in regions]
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
            return users(at.value)
        digits = 0 if at.high - at.low >= 2 else 1
        return f"{at.value:.{digits}f} [{at.low:.{digits}f}, {at.high:.{digits}f}] users"
    if at.low is not None:
        return f"at least {users(at.low)} (where it ends is not settled up to {load(levels[-1])})"
    if at.high is not None:
        return f"at most {users(at.high)} (where it begins is not settled from {load(levels[0])})"
    return "an unknown load"


def in_flight(result: BreakEven) -> str:
    """Return ' (≈ 38 in flight)' where that differs from the users, else nothing."""
    there, at = result.in_flight, result.at
    value, reference = (there.value, at.value) if at.value is not None else (there.low, at.low)
    if value is None or reference is None or load(value) == load(reference):
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
