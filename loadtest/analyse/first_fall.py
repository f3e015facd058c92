"""Where a curve over load first falls below 0, and where at the earliest and the latest it can, given its shape.

A curve is known at tested loads alone. Its value between two of them is taken as linear in the load. What that hides
is bounded by the neighbours: between two loads a curve may go on as steeply as it came, or be as steep already as it
goes on, but it does not leave the range of its two ends. A bend that no tested load shows is found by testing there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Edge = float | None  # a margin: above 0 meets the limit; None is unknown
Known = Sequence[tuple[float, float]]  # load and margin, in ascending order of load


def value_at(levels: Sequence[float], margins: Sequence[Edge]) -> float:
    """Return the load at which the straight curve first falls: 0 before the first level, inf beyond the last."""
    return _first_fall(levels, margins, _known(levels, margins), bend=0, broken="left", unknown="fails")


def earliest(levels: Sequence[float], worst: Sequence[Edge], values: Sequence[Edge]) -> float:
    """Return the least load at which a curve with these lower bounds can fall, bent as its values are."""
    return _first_fall(levels, worst, _known(levels, values), bend=-1, broken="left", unknown="fails")


def latest(levels: Sequence[float], best: Sequence[Edge], values: Sequence[Edge]) -> float:
    """Return the greatest load at which a curve with these upper bounds can fall, bent as its values are."""
    return _first_fall(levels, best, _known(levels, values), bend=1, broken="right", unknown="passes")


def _known(levels: Sequence[float], margins: Sequence[Edge]) -> list[tuple[float, float]]:
    return [(level, margin) for level, margin in zip(levels, margins, strict=True) if margin is not None]


def _first_fall(
    levels: Sequence[float], margins: Sequence[Edge], values: Known, *, bend: int, broken: str, unknown: str
) -> float:
    """Return the load of the first fall: 0 before the first level, inf beyond the last.

    A level without a figure says nothing between two that have one; beyond the last, `unknown` says what it counts as.
    Where one side is not finite there is nothing to interpolate: `broken` says which level then stands for the fall.
    """
    known = _known(levels, margins)
    if not known:
        return 0.0 if unknown == "fails" else math.inf
    falls = next((i for i, (_, margin) in enumerate(known) if margin < 0), None)
    if falls is None:
        return math.inf if known[-1][0] == levels[-1] or unknown == "passes" else known[-1][0]
    if falls == 0:
        return 0.0
    (low, before), (high, after) = known[falls - 1], known[falls]
    if not (math.isfinite(before) and math.isfinite(after)):
        return low if broken == "left" else high
    shares = [_zero(before, after)]
    if bend:
        lines = _bends(values, low, high)
        if lines is None:
            return low if bend < 0 else high
        shares += [_zero(before + at_low, after + at_high) for at_low, at_high in lines]
    return low + (high - low) * (min(shares) if bend < 0 else max(shares))


def _zero(start: float, stop: float) -> float:
    """Return at which share of the way a line falls below 0; 1 where it does not."""
    if start < 0:
        return 0.0
    return start / (start - stop) if stop < 0 else 1.0


def _bends(values: Known, low: float, high: float) -> list[tuple[float, float]] | None:
    """Return how far from straight a curve's lines are at either end; None where nothing limits them.

    The slope before and the slope after each give a line through the end that they share. Where only one of them is
    known, the curve may bend as much to either side; with neither, or one that is not finite, it may do anything.
    """
    inside = [i for i, (load, _) in enumerate(values) if low <= load <= high]
    if len(inside) != 2:  # the values have a level here that the bounds lack, or lack one
        return None
    first = inside[0]
    slopes = [(b - a) / (y - x) for (x, a), (y, b) in pairwise(values)]
    near = slopes[max(0, first - 1) : first + 2]
    if len(near) == 1 or not all(math.isfinite(slope) for slope in near):
        return None
    span = high - low
    bends = []
    if first > 0:
        bends.append((0.0, (slopes[first - 1] - slopes[first]) * span))
    if first + 1 < len(slopes):
        bends.append(((slopes[first] - slopes[first + 1]) * span, 0.0))
    return bends if len(bends) == 2 else [*bends, (-bends[0][0], -bends[0][1])]
