"""A value with its interval, and the form of a crossing: what every other result is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

LARGEST = 709.0  # above it no float holds the exponential


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; None where it does not exist, never 0."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0  # blocks, or requests for a pooled percentile


def exponential(x: float) -> float:
    """Return e^x, infinite where no float holds it: an interval of few values that differ wildly."""
    return math.exp(x) if x < LARGEST else math.inf


def within(found: Estimate, least: float, most: float) -> Estimate:
    """Return an estimate without the part of its interval where the value cannot be; it covers as before."""
    if found.low is None or found.high is None:
        return found
    return replace(found, low=min(max(found.low, least), most), high=max(min(found.high, most), least))


class Crossing(StrEnum):
    """The form of a break-even."""

    PAYS_UP_TO = "pays_up_to"  # above the threshold at the bottom, below it at the top
    PAYS_EVERYWHERE = "pays_everywhere"  # above at every tested load: the limit lies beyond
    NEVER_PAYS = "never_pays"
    PAYS_FROM = "pays_from"  # below at the bottom, above at the top
    BAND = "band"  # more than one crossing
    CANNOT_TELL = "cannot_tell"
    NO_DATA = "no_data"
