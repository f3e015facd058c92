"""The first stage: a coarse ladder that climbs until it is known where to measure, and the levels that it chooses.

Pure functions of the figures of the first stage alone. They decide where the second stage measures, never what it
finds: the cells of the first stage are not judged, so that choosing by them cannot bend an interval.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from loadtest import loads
from loadtest.drive.figures import CellFigure

GROWTH = 1.05  # output tokens/s that grow less than this from one level to the next have stopped growing
ERRORS = 0.01  # share of failed requests at which errors have begun
CLEAR = 1.0  # so many sd below the least gain a level is lost
LEAST_CLEAR = 0.02  # log speed-up; never less than this
GIVEN_UP = "a queue that outgrew load.max_in_flight"
LOSING_LEVELS = 4  # levels clearly lost, none of them better than the first, that end a ladder on which nothing paid
# Least, usual and largest noise: sd of a pair's log speed-up times the root of its requests. On the simulated pair 0.17
# to 0.25 at all loads; a request's own spread makes 0.7 where nothing is shared by the arms.
NOISE = (0.10, 0.30, 0.70)
SAFE = (1.0, 2.0)  # sd of a crossing between it and the judged level below, and above: a ladder that stops early is low
MARGIN = ((0.15, 1.0), (0.3, 1.0))  # least and largest distance of these levels from the crossing, in doublings
SMOOTH_LEVELS = 5  # least for a parabola
SMOOTH_NOISE = 0.35  # most noise about it: more says that the speed-up bends otherwise
TOGETHER = 2.0  # doublings: crossings closer than this are one
WIDE = 1.2  # doublings: a wider bracket gets a level in its middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One level of the coarse ladder, both arms."""

    level: float
    gain: float  # mean log speed-up of the deciding metric, above 0 when the candidate is better; NaN: none
    rates: tuple[float, ...]  # output tokens/s, by arm
    troubled: str = ""  # what began here: errors, preemption
    saturated: bool = False  # in an open load: both arms ended fewer requests than arrived
    gains: tuple[float, ...] = ()  # by block
    requests: float = 0.0  # of an arm, over the blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The levels of the second stage, and why."""

    levels: tuple[float, ...]
    why: str


def rungs(figures: Sequence[CellFigure], baseline: str, candidate: str, *, higher_is_better: bool) -> list[Rung]:
    """Return the levels that both arms have visited, in ascending order."""
    cells: dict[float, dict[tuple[str, int], CellFigure]] = defaultdict(dict)
    for one in figures:
        cells[one.level][one.arm, one.block] = one
    found = []
    for level, own in sorted(cells.items()):
        blocks = sorted({block for arm, block in own if (baseline, block) in own and (candidate, block) in own})
        if not blocks:
            continue
        pairs = [(own[baseline, b], own[candidate, b]) for b in blocks]
        gains = tuple(g for a, b in pairs if not math.isnan(g := _gain(a.figure, b.figure, higher=higher_is_better)))
        rates = tuple(statistics.fmean(pair[arm].output_tokens_per_s for pair in pairs) for arm in (0, 1))
        found.append(Rung(level=level, gain=statistics.fmean(gains) if gains else math.nan, rates=rates,
                          troubled=_trouble([one for pair in pairs for one in pair]), gains=gains,
                          saturated=all(one.saturated for pair in pairs for one in pair),
                          requests=sum(one.requests for pair in pairs for one in pair) / 2))  # fmt: skip
    return found


def _gain(baseline: float, candidate: float, *, higher: bool) -> float:
    if not (baseline > 0 and candidate > 0):
        return math.nan
    return math.log(candidate / baseline) * (1 if higher else -1)


def _trouble(cells: Sequence[CellFigure]) -> str:
    if any(cell.given_up for cell in cells):
        return GIVEN_UP
    if any(cell.error_ratio > ERRORS for cell in cells):
        return "errors"
    return "preemption" if any(cell.preempted for cell in cells) else ""


def ladder_ends(found: Sequence[Rung], least_gain: float) -> str:
    """Return why the ladder need not climb on, or the empty string; `least_gain` is a logarithm."""
    if not found:
        return ""
    last = found[-1]
    if last.troubled:
        return f"{last.troubled} began at {_said(last.level)}"
    if last.saturated:
        return f"at {_said(last.level)} more requests arrive than either server completes"
    if _settled_against(found, least_gain):
        return f"at {_said(last.level)} it is settled against the candidate"
    if len(found) > 1 and all(b < GROWTH * a for a, b in zip(found[-2].rates, last.rates, strict=True)):
        return f"output tokens per second stopped growing at {_said(last.level)}"
    return ""


def _settled_against(found: Sequence[Rung], least_gain: float) -> bool:
    """Say whether the highest level is clearly lost, after one that paid or after several that only got worse."""
    noise = _noise(found)
    lost = [
        rung.gain < least_gain - max(LEAST_CLEAR, CLEAR * noise / math.sqrt(max(1.0, rung.requests))) for rung in found
    ]
    if not lost[-1]:
        return False
    if any(rung.gain >= least_gain for rung in found):
        return True
    below = found[-LOSING_LEVELS:]
    return len(below) == LOSING_LEVELS and all(lost[-LOSING_LEVELS:]) and below[-1].gain <= below[0].gain


def choose_levels(found: Sequence[Rung], ladder: Sequence[float], least_gain: float) -> Chosen:
    """Return the levels to judge: the lowest, and where speculation ceases (or begins) to pay a bracket around that.

    Without a crossing: the lowest, the best or middle, and the highest level that was sound.
    """
    sound = [rung for rung in found if not math.isnan(rung.gain) and rung.troubled != "errors"]
    if len(sound) < 2:
        levels = [rung.level for rung in found] or list(ladder)
        return Chosen(levels=_tidy([levels[0], levels[-1]]), why="too few levels were sound to choose by")
    noise, sound = _noise(sound), _smoothed(sound)
    above = [level for level in ladder if level > sound[-1].level]
    brackets = _brackets(sound, above[0] if above else sound[-1].level, least_gain, noise)
    lowest, highest = sound[0].level, sound[-1].level
    if not brackets:
        pays = sound[0].gain >= least_gain
        best = max(sound, key=lambda rung: rung.gain).level
        middle = _middle(lowest, highest) if pays or best in (lowest, highest) else best
        said = "it pays" if pays else "it does not pay"
        return Chosen(levels=_tidy([lowest, middle, highest]),
                      why=f"{said} at every level from {lowest:g} to {_said(highest)}")  # fmt: skip
    chosen = [lowest]
    for low, high in brackets:
        chosen += [low, high]
        if math.log2(high / low) > WIDE:
            chosen.append(_middle(low, high))
    if sound[-1].gain >= least_gain:
        chosen.append(highest)
    where = " and ".join(f"between {low:g} and {_said(high)}" for low, high in brackets)
    return Chosen(levels=_tidy(chosen), why=f"the speed-up passes what is asked for {where}")


def _smoothed(sound: Sequence[Rung]) -> list[Rung]:
    """Return the levels with gains on a parabola in log load, by their requests, where no level is far from it.

    A speed-up that bends once is told by all levels together better than by the two around the crossing.
    """
    weights = np.array([math.sqrt(max(1.0, rung.requests)) for rung in sound])
    loads = np.log2([rung.level for rung in sound])
    gains = np.array([rung.gain for rung in sound])
    if len(sound) < SMOOTH_LEVELS:
        return list(sound)
    fitted = np.polyval(np.polyfit(loads, gains, 2, w=weights), loads)
    off = weights * (gains - fitted)
    noise = math.sqrt(float(off @ off) / (len(sound) - 3))
    if noise > SMOOTH_NOISE:
        return list(sound)
    return [replace(rung, gain=float(gain)) for rung, gain in zip(sound, fitted, strict=True)]


def _middle(low: float, high: float) -> float:
    return math.sqrt(low * high)


def _said(level: float) -> str:
    return loads.said(f"{level:g}")


def _step(load: float) -> float:
    """Return the grid on which levels are chosen: whole users, rates of two digits."""
    return 10.0 ** (math.floor(math.log10(load)) - 1) if loads.is_rate() else 1.0


def _on_grid(load: float, turn: Callable[[float], int]) -> float:
    step = _step(load)
    return float(f"{turn(round(load / step, 9)) * step:.6g}")


def _tidy(levels: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted({_on_grid(level, round) for level in levels}))


def _brackets(sound: Sequence[Rung], top: float, least_gain: float, noise: float) -> list[tuple[float, float]]:
    """Return (low, high) on the grid, at most `top`, around where the speed-up passes 1 + min_gain, or 1."""
    passed = {(x, slope) for threshold in (least_gain, 0.0) for x, slope in _crossings(sound, threshold)}
    both = sorted(passed | set(_beyond(sound, top, least_gain)))
    groups: list[list[tuple[float, float]]] = []
    for crossing in both:
        near = groups and math.log2(crossing[0] / groups[-1][-1][0]) < TOGETHER
        groups[-1:] = [[*groups[-1], crossing]] if near else [*groups[-1:], [crossing]]
    bottom, requests = sound[0].level, _requests(sound)
    found = []
    for group in groups:
        slope = max(abs(s) for _, s in group)
        sd = noise / math.sqrt(max(1.0, requests(group[-1][0])))
        below, above = (
            min(most, max(least, safe * sd / slope if slope else most))
            for safe, (least, most) in zip(SAFE, MARGIN, strict=True)
        )
        low = max(bottom, _on_grid(group[0][0] * 2**-below, math.floor))
        high = min(top, _on_grid(group[-1][0] * 2**above, math.ceil))
        found.append((low, high) if high > low else (max(bottom, high - _step(high)), high))
    return found


def _crossings(sound: Sequence[Rung], threshold: float) -> list[tuple[float, float]]:
    """Return (load, slope per doubling) where the speed-up, linear in log load, passes the threshold."""
    found = []
    for a, b in pairwise(sound):
        if (a.gain >= threshold) != (b.gain >= threshold):
            share = (a.gain - threshold) / (a.gain - b.gain)
            doublings = math.log2(b.level / a.level)
            found.append((a.level * 2 ** (share * doublings), (b.gain - a.gain) / doublings))
    return found


def _beyond(sound: Sequence[Rung], top: float, least_gain: float) -> list[tuple[float, float]]:
    """Return where the last two levels, prolonged, pass 1: the ladder may end between 1 + min_gain and 1."""
    before, last = sound[-2:]
    slope = (last.gain - before.gain) / math.log2(last.level / before.level)
    if not 0 < last.gain < least_gain or slope >= 0:
        return []
    return [(min(top, last.level * 2 ** (-last.gain / slope)), slope)]


def _noise(sound: Sequence[Rung]) -> float:
    """Return the sd of a pair's log speed-up times the root of its requests: from blocks, else from the ladder's bends.

    A bend is what a level lacks to the straight line between its neighbours, with the variance of all three.
    """
    least, usual, most = NOISE
    spreads = [statistics.variance(rung.gains) * rung.requests / len(rung.gains)
               for rung in sound if len(rung.gains) > 1]  # fmt: skip
    if not spreads:
        spreads = [
            (a.gain / 2 - b.gain + c.gain / 2) ** 2 / (0.25 / a.requests + 1 / b.requests + 0.25 / c.requests)
            for a, b, c in zip(sound, sound[1:], sound[2:], strict=False)
            if min(a.requests, b.requests, c.requests) > 0
        ]
    if len(spreads) < 3:
        return usual
    return min(most, max(least, math.sqrt(statistics.fmean(spreads))))


def _requests(sound: Sequence[Rung]) -> Callable[[float], float]:
    """Return how many requests a pair has at a load: those of the nearest level below, in proportion."""

    def at(load: float) -> float:
        below = [rung for rung in sound if rung.level <= load] or sound[:1]
        return below[-1].requests * load / below[-1].level

    return at


def told(found: Sequence[Rung]) -> Mapping[str, float]:
    """Return level → speed-up of the coarse ladder, for the protocol."""
    return {f"{rung.level:g}": round(math.exp(rung.gain), 4) for rung in found if not math.isnan(rung.gain)}
