"""Permutation tests within prompts: are the answers of two servers drawn alike?

Every prompt has a few answers of each server. If both servers answer alike, it is chance which of a prompt's answers
came from which; so the labels are dealt anew within each prompt, and the statistic of the true deal is held against
those of the others. The size is exact whatever the prompts and lengths are (Lehmann and Romano 2005, §15.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from loadtest.analyse.stats import Floats

DEALS = 4999  # beside the true one: p is at least 1/5000
AT_ONCE = 2_000_000  # numbers held while dealing
SLACK = 1e-9  # sums of the same numbers in another order count as equal


def deals(baseline: int, candidate: int) -> list[tuple[int, ...]]:
    """Return which answers of a prompt may be called the candidate's; the last is the true deal."""
    return list(combinations(range(baseline + candidate), candidate))


def energy(distances: Floats, candidate: Sequence[int]) -> float:
    """Return the energy statistic of one prompt from its matrix of distances, for one deal.

    Twice the mean distance between the two sides, less the mean within each side that has two answers (Székely and
    Rizzo 2013); with one candidate answer, the mean between less the mean within the baseline.
    """
    chosen = set(candidate)
    rest = [place for place in range(len(distances)) if place not in chosen]
    between = float(distances[np.ix_(rest, list(candidate))].mean())
    within = [np.mean([distances[a, b] for a, b in combinations(side, 2)]) for side in (rest, list(candidate))
              if len(side) > 1]  # fmt: skip
    return float(2 * between - within[0] - within[1]) if len(within) == 2 else float(between - within[0])


def shift(values: Floats, candidate: Sequence[int]) -> float:
    """Return the mean of the candidate's values less that of the others, for one deal."""
    chosen = np.zeros(len(values), dtype=bool)
    chosen[list(candidate)] = True
    return float(values[chosen].mean() - values[~chosen].mean())


def p_value(parts: NDArray[np.float64], seed: int, *, two_sided: bool) -> float:
    """Return the p-value of Σ over prompts of `parts[prompt, deal, kind]`, the largest over the kinds.

    The last deal is the true one. With `two_sided` the sums count by their size.
    """
    prompts, dealt, _ = parts.shape
    size = np.abs if two_sided else np.asarray
    true = float(np.max(size(parts[:, -1, :].sum(axis=0))))
    generator = np.random.default_rng(seed)
    beyond, left, rows = 1, DEALS, np.arange(prompts)
    while left:
        count = min(left, max(1, AT_ONCE // (prompts * parts.shape[2])))
        chosen = generator.integers(dealt, size=(count, prompts))
        sums = size(parts[rows, chosen, :].sum(axis=1)).max(axis=1)
        beyond += int((sums >= true - SLACK).sum())
        left -= count
    return beyond / (DEALS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, floor = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = floor
    return adjusted
