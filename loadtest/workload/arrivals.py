"""When sessions arrive in an open load: absolute times, drawn by a key that both arms share, whatever a server does.

A process without memory of the clock (how gaps are spread) runs at rate 1; a shape (how the rate moves over the window)
stretches its time. By the time-change theorem the result has the shape's rate at every moment.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from loadtest.workload.seeds import rng

TRACE = "trace"
SPIKE_RATIO = 0.1  # share of the window that a spike lasts, in its middle
BEFORE = 20.0  # mean gaps, times 1 + CV², that a process runs unseen, so that it has forgotten where it began

Draw = Callable[[random.Random], float]


class Trace(Protocol):
    """Where recorded arrivals come from."""

    def arrivals(self, seed: int, level: float, block: int, sessions_per_s: float | None = None) -> Iterator[float]:
        """Yield ascending times in seconds without end, at this mean rate."""


def _gamma(cv: float) -> Draw:
    shape = cv**-2
    return lambda generator: generator.gammavariate(shape, 1 / shape)


def _weibull(cv: float) -> Draw:
    shape = weibull_shape(cv)
    scale = 1 / math.gamma(1 + 1 / shape)
    return lambda generator: generator.weibullvariate(scale, shape)


# Name → draws of gaps with mean 1, by their coefficient of variation where the process has a choice of it.
PROCESSES: dict[str, Callable[[float], Draw]] = {
    "poisson": lambda _: lambda generator: generator.expovariate(1.0),
    "constant": lambda _: lambda _: 1.0,
    "gamma": _gamma,
    "weibull": _weibull,
}
ARRIVALS = (*PROCESSES, TRACE)


def weibull_shape(cv: float) -> float:
    """Return the shape k of the Weibull distribution with this CV: Γ(1 + 2/k) ÷ Γ(1 + 1/k)² = 1 + CV²."""
    low, high = 0.05, 100.0  # CV of 4e5 and of 0.013
    wanted = math.log1p(cv * cv)
    for _ in range(200):
        middle = math.sqrt(low * high)
        if math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle) > wanted:
            low = middle
        else:
            high = middle
    return middle


def cv_of(arrivals: str, cv: float) -> float:
    """Return the coefficient of variation that the gaps of a process have; `cv` is the one asked for."""
    return {"poisson": 1.0, "constant": 0.0}.get(arrivals, cv)


# Name → rates at shares of the window, straight lines between them; `factor` is peak ÷ base.
SHAPES: dict[str, Callable[[float], tuple[tuple[float, float], ...]]] = {
    "steady": lambda _: ((0.0, 1.0), (1.0, 1.0)),
    "ramp": lambda factor: ((0.0, 1.0), (1.0, factor)),
    "step": lambda factor: ((0.0, 1.0), (1 / 3, 1.0), (1 / 3, factor), (2 / 3, factor), (2 / 3, 1.0), (1.0, 1.0)),
    "spike": lambda factor: (
        (0.0, 1.0), (0.5 - SPIKE_RATIO / 2, 1.0), (0.5 - SPIKE_RATIO / 2, factor),
        (0.5 + SPIKE_RATIO / 2, factor), (0.5 + SPIKE_RATIO / 2, 1.0), (1.0, 1.0),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """How sessions arrive, apart from how many."""

    arrivals: str = "poisson"  # a process, or trace
    cv: float = 2.0  # standard deviation ÷ mean of the gaps, of gamma and weibull
    shape: str = "steady"
    factor: float = 3.0  # highest ÷ lowest rate of a shape


@dataclass(frozen=True, slots=True)
class _Piece:
    """A straight stretch of the rate, which is 1 on average over the window."""

    start_s: float
    length_s: float
    first: float  # rate at its beginning
    last: float

    @property
    def area(self) -> float:
        return self.length_s * (self.first + self.last) / 2

    def reached_s(self, area: float) -> float:
        """Return when so much of its area has passed."""
        slope = (self.last - self.first) / self.length_s
        root = math.sqrt(max(0.0, self.first**2 + 2 * slope * area))
        return self.start_s + 2 * area / (self.first + root)


class Profile:
    """The rate over the time of a cell, relative to its mean over the window."""

    def __init__(self, shape: str, factor: float, opens_s: float, window_s: float) -> None:
        """Let the shape begin at `opens_s` and last `window_s`; before and after, its first and last rate holds."""
        points = SHAPES[shape](factor)
        stretches = list(pairwise(points))
        mean = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in stretches)
        self._before, self._after = points[0][1] / mean, points[-1][1] / mean
        self._opens_s = opens_s
        self._pieces = [
            _Piece(opens_s + a[0] * window_s, (b[0] - a[0]) * window_s, a[1] / mean, b[1] / mean)
            for a, b in stretches if b[0] > a[0]
        ]  # fmt: skip

    def rate(self, at_s: float) -> float:
        """Return the rate at a time, as a multiple of the mean over the window."""
        if at_s < self._opens_s:
            return self._before
        for piece in self._pieces:
            passed = (at_s - piece.start_s) / piece.length_s
            if passed < 1:
                return piece.first + (piece.last - piece.first) * passed
        return self._after

    def reached_s(self, area: float) -> float:
        """Return when the integral of the rate from 0 comes to `area`, in seconds at the mean rate."""
        warm = self._before * self._opens_s
        if area < warm:
            return area / self._before
        area -= warm
        for piece in self._pieces:
            if area < piece.area:
                return piece.reached_s(area)
            area -= piece.area
        end_s = self._pieces[-1].start_s + self._pieces[-1].length_s
        return end_s + area / self._after


def schedule(pattern: Pattern, rate: float, *, seed: int, level: float, block: int, opens_s: float = 0.0,
             window_s: float = 1.0, trace: Trace | None = None) -> Iterator[float]:  # fmt: skip
    """Yield the arrivals of a cell without end, in seconds from its start; `rate` is their mean over the window.

    The window opens `opens_s` after the start of the cell. Equal seed, level and block give equal arrivals.
    """
    profile = Profile(pattern.shape, pattern.factor, opens_s, window_s)
    if pattern.arrivals == TRACE:
        assert trace is not None
        ticks = trace.arrivals(seed, level, block, 1.0)
    else:
        ticks = _drawn(pattern, rng("arrivals", seed, f"{level:g}", block))
    for passed in ticks:
        yield profile.reached_s(passed / rate)


def _drawn(pattern: Pattern, generator: random.Random) -> Iterator[float]:
    """Yield a stationary process of rate 1, from 0 on."""
    draw = PROCESSES[pattern.arrivals](pattern.cv)
    passed = -BEFORE * (1 + cv_of(pattern.arrivals, pattern.cv) ** 2) - generator.random()
    while True:
        passed += draw(generator)
        if passed >= 0:
            yield passed
