"""Percentiles of blocks that differ, against the truth that they were drawn from: open loads, and starts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loadtest.analyse.design_effect import inflated, quantile_effects
from loadtest.analyse.shares import share_effect
from loadtest.analyse.stats import Sample, merged, quantile_estimate, sample_of

LEVELS = (10.0, 20.0, 40.0, 60.0, 80.0)
SHIFT = (0.02, 0.03, 0.06, 0.12, 0.25)  # sd of a block's log times; of a request within it 0.5


def drawn(rng: np.random.Generator, blocks: int = 6, requests: int = 150) -> dict[float, list[Sample]]:
    return {
        level: [sample_of(np.exp(rng.normal(rng.normal(0, shift), 0.5, requests))) for _ in range(blocks)]
        for level, shift in zip(LEVELS, SHIFT, strict=True)
    }


def effects(blocks: dict[float, list[Sample]], q: float = 0.5, **how: Any) -> dict[float, float]:
    return quantile_effects(blocks, {x: merged(own) for x, own in blocks.items()}, q, **how)


def test_one_pair_of_blocks_by_hand() -> None:
    """Shares 60 and 40 of 100 below the median of both: chi-square 2 · 10² ÷ 25 = 8, times (12.706 ÷ 1.960)²."""
    low, high = np.linspace(0.0, 1.0, 100), np.linspace(1.5, 2.5, 100)
    blocks = [sample_of(np.concatenate([low[:60], high[:40]])), sample_of(np.concatenate([low[60:], high[40:]]))]
    for varying in (False, True):
        found = effects({4.0: blocks}, varying=varying)[4.0]
        assert found == pytest.approx(8 * (12.7062 / 1.95996) ** 2, rel=1e-4)
    later = effects({4.0: blocks}, confidence=0.985)[4.0]  # t(1) and normal at 99.25 %
    assert later == pytest.approx(8 * (42.4334 / 2.43238) ** 2, rel=1e-4)


def test_blocks_that_agree_and_single_ones() -> None:
    same = sample_of(np.arange(100.0))
    for varying in (False, True):
        assert effects({4.0: [same, same]}, varying=varying) == {4.0: 1.0}
        assert effects({4.0: [same]}, varying=varying) == {}
        there = effects({4.0: [same, same], 8.0: [same]}, varying=varying)
        assert there == {4.0: 1.0, 8.0: 1.0}  # the others' where it has none
        assert effects({}, varying=varying) == {}


def test_levels_of_one_start_add_no_degrees_of_freedom() -> None:
    """Chi-square 8 at each of two levels: 8 on average, worth 2 degrees of freedom, or 1 where a block is a start."""
    low, high = np.linspace(0.0, 1.0, 100), np.linspace(1.5, 2.5, 100)
    blocks = [sample_of(np.concatenate([low[:60], high[:40]])), sample_of(np.concatenate([low[60:], high[40:]]))]
    counts = {4.0: [(60, 100), (40, 100)], 8.0: [(60, 100), (40, 100)]}
    for restarted, t in ((False, 4.302653), (True, 12.706205)):
        expected = pytest.approx(8 * (t / 1.959964) ** 2, rel=1e-5)
        assert effects({4.0: blocks, 8.0: blocks}, restarted=restarted)[8.0] == expected
        assert effects({4.0: blocks, 8.0: blocks}, varying=True, restarted=restarted)[8.0] == expected
        assert share_effect(counts, restarted=restarted) == expected
    assert inflated(0.1, 1) == pytest.approx(0.1 * (12.706205 / 1.959964) ** 2, rel=1e-5)
    assert inflated(0.1, 10) == 1.0


def test_intervals_over_starts_hold_the_truth_and_would_not_if_levels_were_independent() -> None:
    """Four starts of six levels: a start shifts all levels of its block alike, by far more than a request's chance."""
    rng = np.random.default_rng(11)
    held = {True: 0.0, False: 0.0}
    runs = 600
    for _ in range(runs):
        starts = rng.normal(0, 0.1, 4)
        blocks = {
            x: [sample_of(np.exp(rng.normal(shift, 0.3, 150))) for shift in starts]
            for x in (4.0, 8.0, 16.0, 32.0, 48.0, 64.0)
        }
        pooled = merged(blocks[48.0])
        for restarted in held:
            found = quantile_estimate(pooled, 0.5, effects(blocks, restarted=restarted)[48.0])
            held[restarted] += (found.low or 0.0) <= 1.0 <= (found.high or math.inf)
    assert held[True] / runs > 0.93  # 0.95 less two standard errors of 0.9 points
    assert held[True] - held[False] > 0.02 * runs, held


def test_intervals_of_a_load_at_which_blocks_wander_hold_the_truth() -> None:
    rng = np.random.default_rng(5)
    held = {"own": np.zeros(len(LEVELS)), "one": np.zeros(len(LEVELS))}
    runs = 400
    for _ in range(runs):
        blocks = drawn(rng)
        own, one = effects(blocks, varying=True), effects(blocks)
        for i, level in enumerate(LEVELS):
            pooled = sample_of(np.concatenate([run for s in blocks[level] for run in s.runs]))
            for name, effect in (("own", own[level]), ("one", one[level])):
                found = quantile_estimate(pooled, 0.5, effect)
                inside = found.low is not None and found.high is not None and found.low <= 1.0 <= found.high
                held[name][i] += inside / runs
    # The true median is 1 at every level; 400 runs have a standard error of 1.1 points.
    assert held["own"].min() > 0.92
    assert held["one"].min() < 0.85  # one design effect for all levels is too small where blocks wander most
    assert held["own"].mean() >= 0.95
    assert math.isclose(held["one"][0], 1.0, abs_tol=0.01)  # and far too large where they do not
