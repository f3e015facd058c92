"""How the speed of a server wanders while it runs: what makes the latencies of neighbouring requests alike."""

from __future__ import annotations

import math

from loadtest.simulate.draws import gauss

_WANDER = 0x3A4DE6  # purpose of the draws
_PARTS = 4  # the speed is constant over this share of its correlation time


class Wander:
    """A factor on every step cost whose logarithm is an autoregressive process of first order in time."""

    def __init__(self, seed: int, sd: float, correlation_s: float) -> None:
        """Begin in equilibrium at time 0: standard deviation `sd`, correlation exp(−t ÷ `correlation_s`)."""
        self._seed, self._sd = seed, sd
        self._span_s = correlation_s / _PARTS
        self._keeps = math.exp(-1 / _PARTS)
        self._number = 0
        self._level = sd * gauss(seed, _WANDER, 0)
        self._factor = math.exp(self._level)

    def factor(self, at_s: float) -> tuple[float, float]:
        """Return the factor at a time, and until when (seconds) it stays; times must not go back."""
        while at_s >= (self._number + 1) * self._span_s:
            self._number += 1
            fresh = self._sd * math.sqrt(1 - self._keeps**2) * gauss(self._seed, _WANDER, self._number)
            self._level = self._keeps * self._level + fresh
            self._factor = math.exp(self._level)
        return self._factor, (self._number + 1) * self._span_s
