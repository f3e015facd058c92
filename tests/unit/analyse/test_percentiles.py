"""Percentiles of pooled requests: their intervals by hand, where they are none, and against the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from loadtest.analyse.compare import fit_curve
from loadtest.analyse.design_effect import quantile_effects
from loadtest.analyse.estimates import exponential
from loadtest.analyse.percentiles import SKEW, percentiles
from loadtest.analyse.stats import Sample, half_widths, merged, quantile_estimate, sample_of

TIGHT = np.linspace(-1e-6, 1e-6, 101)  # log times of a block whose requests take nearly one time


def of_logs(*blocks: np.ndarray) -> list[Sample]:
    return [sample_of(np.exp(block)) for block in blocks]


def test_blocks_of_one_time_each_bound_it_by_students_t() -> None:
    """Log medians −0.1, 0 and 0.1: t(2) is 4.302653, and the half-width that times 0.1 ÷ √3."""
    blocks = {8.0: of_logs(TIGHT - 0.1, TIGHT, TIGHT + 0.1)}
    found = percentiles(blocks, 0.5)[8.0]
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found.design_effect == 1.0
    assert found.estimate.value == pytest.approx(1.0, abs=1e-5)
    assert found.estimate.low == pytest.approx(math.exp(-half), rel=1e-5)
    assert found.estimate.high == pytest.approx(math.exp(half), rel=1e-5)
    # The 90th percentile of all is that of the slowest block, 0.1 above the mean of the blocks' own.
    deep = percentiles(blocks, 0.9)[8.0].estimate
    assert deep.low == pytest.approx(math.exp(0.1 - half), rel=1e-5)
    assert deep.high == pytest.approx(math.exp(0.1 + half + SKEW / math.sqrt(3) * 0.1), rel=1e-5)


def test_requests_that_differ_more_than_blocks_are_bounded_by_order_statistics() -> None:
    rng = np.random.default_rng(3)
    values = np.sort(rng.normal(0, 1, 101))
    blocks = {8.0: of_logs(values, values, values)}  # blocks that agree to the last digit
    found = percentiles(blocks, 0.5)[8.0].estimate
    exact = quantile_estimate(merged(blocks[8.0]), 0.5)
    assert (found.low, found.high) == (exact.low, exact.high)


def test_levels_share_their_variance_and_starts_their_luck() -> None:
    """Two levels of three blocks: 4 degrees of freedom, t = 2.776445; where blocks are starts 2, t = 4.302653."""
    blocks = {x: of_logs(TIGHT - 0.1, TIGHT, TIGHT + 0.1) for x in (4.0, 8.0)}
    for restarted, t in ((False, 2.776445), (True, 4.302653)):
        high = percentiles(blocks, 0.5, restarted=restarted)[8.0].estimate.high
        assert high is not None
        assert math.log(high) == pytest.approx(t * 0.1 / math.sqrt(3), rel=1e-4)


def test_one_block_has_no_interval() -> None:
    """How much blocks differ is not known, whatever the number of its requests."""
    blocks = {8.0: of_logs(np.linspace(0, 1, 200))}
    found = percentiles(blocks, 0.9)[8.0].estimate
    assert (found.value, found.low, found.high, found.n) == (blocks[8.0][0].quantile(0.9), None, None, 200)
    assert percentiles({8.0: []}, 0.9)[8.0].estimate.value is None
    assert percentiles({}, 0.9) == {}


def test_where_failures_reach_a_blocks_percentile_order_statistics_answer_for_the_blocks() -> None:
    fine, failing = sample_of(np.linspace(1, 2, 100)), sample_of(np.append(np.linspace(1, 2, 88), [math.inf] * 12))
    blocks = {8.0: [fine, failing, fine]}
    pooled = {8.0: merged(blocks[8.0])}
    found, effect = percentiles(blocks, 0.9)[8.0], quantile_effects(blocks, pooled, 0.9)[8.0]
    assert found.design_effect == effect > 1
    assert found.estimate == quantile_estimate(pooled[8.0], 0.9, effect)
    none = percentiles({8.0: [failing, failing]}, 0.9)[8.0].estimate
    assert (none.value, none.high) == (math.inf, math.inf)


def test_values_of_one_request_do_not_count_as_independent_ones() -> None:
    one = {8.0: of_logs(np.linspace(0, 1, 400))}
    assert percentiles(one, 0.5, requests={8.0: 20})[8.0].design_effect == 20.0
    rng = np.random.default_rng(4)
    blocks = {8.0: of_logs(*(rng.normal(shift, 0.1, 400) for shift in (-0.1, 0.0, 0.1)))}
    effect = percentiles(blocks, 0.5, requests={8.0: 60})[8.0].design_effect
    assert effect == quantile_effects(blocks, {8.0: merged(blocks[8.0])}, 0.5)[8.0]


def test_a_level_of_one_start_has_no_interval_of_starts() -> None:
    blocks = {4.0: of_logs(TIGHT, TIGHT + 0.1), 8.0: of_logs(TIGHT)}
    found = percentiles(blocks, 0.5, restarted=True)
    assert found[4.0].estimate.high is not None
    assert found[8.0].design_effect > 1  # that of the level which has two
    assert math.isnan(half_widths(np.array([4.0, 8.0]), [np.array([0.0, 0.1]), np.array([0.0])], restarted=True)[1])


def test_an_interval_that_no_float_holds_has_no_upper_bound() -> None:
    """Two blocks a factor of 10 apart, 99.95 % confidence: t(1) is 1,273, and half the width 1,466 in logarithms."""
    found = percentiles({8.0: of_logs(TIGHT, TIGHT + math.log(10))}, 0.5, confidence=0.9995)[8.0].estimate
    assert found.high is None
    assert found.low == 0.0
    assert exponential(710.0) == math.inf
    assert fit_curve({8.0: [0.0, 9.0]}, confidence=0.9999).ratio(8.0).high == math.inf


def test_blocks_without_a_value_say_nothing() -> None:
    two = of_logs(TIGHT, TIGHT + 0.1)
    empty = sample_of(np.empty(0))
    assert percentiles({8.0: [*two, empty]}, 0.9)[8.0] == percentiles({8.0: two}, 0.9)[8.0]


def test_a_p99_of_uneven_blocks_is_bounded_by_none() -> None:
    rng = np.random.default_rng(7)
    found = percentiles({8.0: of_logs(*(rng.normal(0, 0.1, n) for n in (3000, 499, 600)))}, 0.99)[8.0].estimate
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize(("each", "bounded"), [(499, False), (500, True)])
def test_a_p99_needs_five_values_beyond_it_in_every_block(each: int, bounded: bool) -> None:
    rng = np.random.default_rng(5)
    found = percentiles({8.0: of_logs(*(rng.normal(0, 0.1, each) for _ in range(3)))}, 0.99)[8.0].estimate
    assert (found.low is not None, found.high is not None) == (bounded, bounded)
    assert found.value is not None
    assert found.n == 3 * each


def test_a_percentile_among_answers_of_one_length_holds_the_truth() -> None:
    """A quarter of the answers are as long as they may be and take one time, which differs from block to block.

    The 90th percentile of all requests is then the 60th of the blocks' own time: a median of blocks does not reach it,
    and order statistics take 300 requests of three blocks for 300 values.
    """
    rng, spread = np.random.default_rng(6), 0.05
    truth = math.exp(spread * stats.norm.ppf(0.6))
    held = {"all": 0, "order statistics": 0}
    runs = 400
    for _ in range(runs):
        blocks = {
            x: of_logs(*(
                np.append(rng.uniform(-1.5, -0.5, 75), np.full(25, rng.normal(0, spread))) for _ in range(3)
            ))
            for x in (4.0, 8.0, 16.0, 32.0, 48.0)
        }  # fmt: skip
        found, exact = percentiles(blocks, 0.9)[16.0].estimate, quantile_estimate(merged(blocks[16.0]), 0.9)
        held["all"] += (found.low or 0.0) <= truth <= (found.high or math.inf)
        held["order statistics"] += (exact.low or 0.0) <= truth <= (exact.high or math.inf)
    assert held["all"] / runs >= 0.91  # 0.95 less what three values of a wider quantile cost; three standard errors
    assert held["order statistics"] / runs < 0.85
