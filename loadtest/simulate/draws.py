"""Seeded draws of the engine model: counter-based hashing, per-request difficulty, accepted tokens per draft."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from loadtest.simulate.models import Acceptance

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Constants of the SplitMix64 generator (Steele, Lea and Flood 2014).
_GAMMA, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1
_U30, _U27, _U31, _U11 = (np.uint64(bits) for bits in (30, 27, 31, 11))
_M1, _M2 = np.uint64(_MIX1), np.uint64(_MIX2)
_counters = np.arange(1, 4097, dtype=np.uint64) * np.uint64(_GAMMA)


def mix(*parts: int) -> int:
    """Return a 64-bit hash of whole numbers; the order of the parts matters."""
    z = 0
    for part in parts:
        z = (z + part + _GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * _MIX1) & _MASK
        z = ((z ^ (z >> 27)) * _MIX2) & _MASK
        z ^= z >> 31
    return z


def uniform(*parts: int) -> float:
    """Return a number in (0, 1) that depends on the parts alone."""
    return ((mix(*parts) >> 11) + 0.5) * 2.0**-53


def uniforms(seed: int, count: int, skip: int = 0) -> Floats:
    """Return numbers `skip` … `skip + count − 1` of the stream in [0, 1) that a 64-bit seed names."""
    global _counters  # grows to the longest answer asked for; its content never changes
    if skip + count > _counters.size:
        _counters = np.arange(1, 2 * (skip + count) + 1, dtype=np.uint64) * np.uint64(_GAMMA)
    z = _counters[skip : skip + count] + np.uint64(seed)
    z ^= z >> _U30
    z *= _M1
    z ^= z >> _U27
    z *= _M2
    z ^= z >> _U31
    return (z >> _U11).astype(np.float64) * 2.0**-53


_NORMAL = NormalDist()
_LATENT, _STEPS = 0x1A7E27, 0x57E95


def latent(key: int) -> float:
    """Return the standard normal difficulty of a request; it is the prompt's own, equal in both arms."""
    return _NORMAL.inv_cdf(uniform(key, _LATENT))


def gauss(*parts: int) -> float:
    """Return a standard normal number that depends on the parts alone."""
    return _NORMAL.inv_cdf(uniform(*parts))


@lru_cache(maxsize=256)
def slot_logits(acceptance: Acceptance) -> tuple[float, ...]:
    """Return the logit of conditional acceptance of an average request, slot by slot.

    Solved so that the mean over requests (normal latent with sd `spread`) is the stated survival curve.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    weights = weights / weights.sum()
    reached = np.ones_like(nodes)  # share of drafts still alive before this slot, by latent
    logits = []
    for target in acceptance.survival:
        low, high = -30.0, 30.0
        for _ in range(80):
            middle = (low + high) / 2
            alive = reached / (1 + np.exp(-(middle + acceptance.spread * nodes)))
            low, high = (middle, high) if float(weights @ alive) < target else (low, middle)
        logits.append((low + high) / 2)
        reached = reached / (1 + np.exp(-(logits[-1] + acceptance.spread * nodes)))
    return tuple(logits)


def survival(logits: tuple[float, ...], shift: float) -> list[float]:
    """Return S_1 … S_k of a request whose conditional acceptance is moved by `shift` on the logit scale."""
    alive = 1.0
    curve = []
    for logit in logits:
        alive /= 1.0 + math.exp(-(logit + shift))
        curve.append(alive)
    return curve


def accepted_tokens(seed: int, key: int, curve: list[float], count: int, skip: int = 0) -> Ints:
    """Return how many draft tokens steps `skip` … `skip + count − 1` of a request accept, each in 0 … k.

    One uniform per step: j or more tokens are accepted exactly when it lies below S_j.
    """
    rising = np.array(curve[::-1])
    draws = uniforms(mix(seed, key, _STEPS), count, skip)
    return len(curve) - rising.searchsorted(draws, side="right")
