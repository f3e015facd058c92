"""Percentiles of an open load: blocks that differ more at high loads, against the truth that they were drawn from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadtest.analyse.design_effect import by_level
from loadtest.analyse.objectives import design_effect
from loadtest.analyse.stats import Sample, quantile_estimate, sample_of

LEVELS = (10.0, 20.0, 40.0, 60.0, 80.0)
SHIFT = (0.02, 0.03, 0.06, 0.12, 0.25)  # sd of a block's log times; of a request within it 0.5


def drawn(rng: np.random.Generator, blocks: int = 6, requests: int = 150) -> dict[float, list[Sample]]:
    return {
        level: [sample_of(np.exp(rng.normal(rng.normal(0, shift), 0.5, requests))) for _ in range(blocks)]
        for level, shift in zip(LEVELS, SHIFT, strict=True)
    }


def test_one_pair_of_blocks_by_hand() -> None:
    """Shares 60 and 40 of 100 below the median of both: chi-square 2 · 10² ÷ 25 = 8, times (12.706 ÷ 1.960)²."""
    low, high = np.linspace(0.0, 1.0, 100), np.linspace(1.5, 2.5, 100)
    blocks = [sample_of(np.concatenate([low[:60], high[:40]])), sample_of(np.concatenate([low[60:], high[40:]]))]
    assert by_level({4.0: blocks}, 0.5)[4.0] == pytest.approx(8 * (12.7062 / 1.95996) ** 2, rel=1e-4)
    later = by_level({4.0: blocks}, 0.5, confidence=0.985)[4.0]  # t(1) and normal at 99.25 %
    assert later == pytest.approx(8 * (42.4334 / 2.43238) ** 2, rel=1e-4)


def test_blocks_that_agree_and_single_ones() -> None:
    same = sample_of(np.arange(100.0))
    assert by_level({4.0: [same, same]}, 0.5) == {4.0: 1.0}
    assert by_level({4.0: [same]}, 0.5) == {}
    assert by_level({4.0: [same, same], 8.0: [same]}, 0.5) == {4.0: 1.0, 8.0: 1.0}  # the others' where it has none
    assert by_level({}, 0.5) == {}


def test_intervals_of_a_load_at_which_blocks_wander_hold_the_truth() -> None:
    rng = np.random.default_rng(5)
    held = {"own": np.zeros(len(LEVELS)), "one": np.zeros(len(LEVELS))}
    runs = 400
    for _ in range(runs):
        blocks = drawn(rng)
        own, one = by_level(blocks, 0.5), design_effect(blocks, 0.5)
        for i, level in enumerate(LEVELS):
            pooled = sample_of(np.concatenate([run for s in blocks[level] for run in s.runs]))
            for name, effect in (("own", own[level]), ("one", one)):
                found = quantile_estimate(pooled, 0.5, effect)
                inside = found.low is not None and found.high is not None and found.low <= 1.0 <= found.high
                held[name][i] += inside / runs
    # The true median is 1 at every level; 400 runs have a standard error of 1.1 points.
    assert held["own"].min() > 0.92
    assert held["one"].min() < 0.85  # one design effect for all levels is too small where blocks wander most
    assert held["own"].mean() >= 0.95
    assert math.isclose(held["one"][0], 1.0, abs_tol=0.01)  # and far too large where they do not
