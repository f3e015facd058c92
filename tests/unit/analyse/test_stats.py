"""Order statistics against published ranks, intervals against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtest.analyse.stats import (
    Sample,
    dispersion,
    half_widths,
    mean_estimate,
    merged,
    nearest_rank,
    pooled_variances,
    quantile_estimate,
    rank_interval,
    sample_of,
)


@pytest.mark.parametrize(
    ("n", "ranks"), [(500, (490, 500)), (1000, (983, 997)), (2000, (1971, 1989)), (5000, (4936, 4964))]
)
def test_p99_ranks_as_published(n: int, ranks: tuple[int, int]) -> None:
    assert rank_interval(n, 0.99) == ranks


@pytest.mark.parametrize(("q", "least"), [(0.99, 368), (0.95, 72), (0.90, 36)])
def test_no_bound_below_the_published_sizes(q: float, least: int) -> None:
    assert rank_interval(least - 1, q)[1] is None
    assert rank_interval(least, q)[1] == least


def test_ranks_of_an_empty_sample() -> None:
    assert rank_interval(0, 0.5) == (None, None)


@given(st.integers(1, 3000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_ranks_cover_and_are_tight(n: int, q: float) -> None:
    low, high = rank_interval(n, q)
    if low is not None:
        assert stats.binom.cdf(low - 1, n, q) < 0.025 <= stats.binom.cdf(low, n, q)
    if high is not None:
        assert stats.binom.cdf(high - 1, n, q) >= 0.975 > stats.binom.cdf(high - 2, n, q)


@pytest.mark.parametrize(
    ("n", "q", "rank"), [(10, 0.5, 5), (10, 0.95, 10), (100, 0.9, 90), (1, 0.5, 1), (20, 0.95, 19)]
)
def test_nearest_rank(n: int, q: float, rank: int) -> None:
    assert nearest_rank(n, q) == rank


def test_failures_are_infinite_and_zeros_are_not_stored() -> None:
    sample = sample_of(np.array([3.0, 1.0, math.nan, 2.0]), zeros=4, infinite=2)
    assert sample.size == 9
    assert [sample.at(r) for r in range(1, 10)] == [0, 0, 0, 0, 1, 2, 3, math.inf, math.inf]
    assert sample.quantile(0.5) == 1.0
    assert sample.quantile(0.9) == math.inf
    assert sample.share_up_to(0) == 4 / 9
    assert sample.share_up_to(2) == 6 / 9
    assert sample.share_up_to(math.inf) == 1
    assert math.isnan(sample_of(np.empty(0)).quantile(0.5))
    with pytest.raises(ValueError, match="rank 10 is outside 1 to 9"):
        sample.at(10)


@given(st.lists(st.floats(0.001, 1e6), max_size=50), st.integers(0, 20), st.integers(0, 20), st.floats(0.01, 0.99))
def test_sample_equals_the_stored_one(values: list[float], zeros: int, infinite: int, q: float) -> None:
    sample = merged(
        [sample_of(np.array(values[::2]), zeros=zeros), sample_of(np.array(values[1::2]), infinite=infinite)]
    )
    plain = sorted([*values, *[0.0] * zeros, *[math.inf] * infinite])
    assert sample.size == len(plain)
    if plain:
        assert sample.quantile(q) == plain[nearest_rank(len(plain), q) - 1]
        assert sample.share_up_to(1.0) == sum(v <= 1.0 for v in plain) / len(plain)


@given(
    st.lists(st.lists(st.floats(-1e300, 1e300, allow_nan=False), min_size=1, max_size=20), min_size=2, max_size=5),
    st.data(),
)
def test_a_rank_among_sorted_runs_is_that_of_all_values(runs: list[list[float]], data: st.DataObject) -> None:
    sample = Sample(runs=tuple(np.sort(np.array(run)) for run in runs), infinite=1)
    plain = sorted(value for run in runs for value in run)
    rank = data.draw(st.integers(1, len(plain)))
    assert sample.at(rank) == plain[rank - 1]
    assert sample.at(len(plain) + 1) == math.inf
    assert sample.share_up_to(plain[rank - 1]) == sum(v <= plain[rank - 1] for v in plain) / (len(plain) + 1)


def test_large_samples_are_pooled_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.analyse.stats.ONE_RUN", 3)
    parts = [sample_of(np.array([3.0, 1.0])), sample_of(np.array([2.0, 2.0, 5.0]), zeros=1)]
    pooled = merged(parts)
    assert len(pooled.runs) == 2
    assert pooled.runs[1] is parts[1].runs[0]
    assert [pooled.at(r) for r in range(1, 7)] == [0.0, 1.0, 2.0, 2.0, 3.0, 5.0]


def test_design_effect_widens_and_may_take_the_bound_away() -> None:
    sample = sample_of(np.arange(1.0, 501.0))
    plain = quantile_estimate(sample, 0.99)
    assert (plain.value, plain.low, plain.high, plain.n) == (495.0, 490.0, 500.0, 500)
    assert quantile_estimate(sample, 0.99, 2.0).high is None
    wide = quantile_estimate(sample, 0.5, 4.0)
    narrow = quantile_estimate(sample, 0.5)
    assert wide.low is not None
    assert narrow.low is not None
    assert wide.low < narrow.low < 250
    assert wide.high is not None
    assert narrow.high is not None
    assert wide.high > narrow.high


def test_dispersion_is_about_one_for_alike_blocks_and_large_for_unlike_ones() -> None:
    rng = np.random.default_rng(5)
    alike = [sample_of(rng.random(200)) for _ in range(200)]
    chi_square, dof = dispersion(alike, 0.9)
    assert dof == 199
    assert 0.75 < chi_square / dof < 1.3
    unlike = [sample_of(rng.random(200) + rng.normal(0, 0.2)) for _ in range(200)]
    chi_square, dof = dispersion(unlike, 0.9)
    assert chi_square / dof > 10
    assert dispersion(alike[:1], 0.9) == (0.0, 0)
    assert dispersion(alike, 5.0) == (0.0, 0)


def test_mean_interval_equals_scipys() -> None:
    values = [1.02, 0.97, 1.11, 1.05, 0.99]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = mean_estimate(values)
    assert found.value == pytest.approx(1.028)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert mean_estimate([2.0]).low is None
    assert mean_estimate([2.0]).value == 2.0
    assert mean_estimate([math.nan]).value is None


def test_pooling_two_levels_is_the_textbook_pooled_variance() -> None:
    samples = [np.array([1.0, 2.0, 3.0]), np.array([4.0, 6.0])]
    # s² = 1 and 2, with 2 and 1 degrees of freedom: pooled 4/3 with 3
    half = half_widths(np.array([1.0, 2.0]), samples)
    t = stats.t.ppf(0.975, 3)
    assert half == pytest.approx([t * math.sqrt(4 / 3 / 3), t * math.sqrt(4 / 3 / 2)])


def test_one_block_has_no_interval() -> None:
    assert np.isnan(half_widths(np.array([1.0, 2.0]), [np.array([1.0]), np.array([2.0])])).all()


def test_variance_function_recovers_a_straight_line_in_log_load() -> None:
    loads = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    own = 0.04 * loads**-1.5
    variance, worth = pooled_variances(loads, own, np.full(5, 5))
    assert variance == pytest.approx(own)
    assert worth[2] == pytest.approx(25.0)  # the middle of the line is worth all degrees of freedom
    assert worth[0] == worth[4] == pytest.approx(2 / (2 / 25 + 4 / (2.5 * 10)))


def test_a_noisy_level_keeps_its_own_variance() -> None:
    own = np.array([1.0, 1.0, 9.0, 1.0, 1.0])
    variance, worth = pooled_variances(np.array([1.0, 2.0, 4.0, 8.0, 16.0]), own, np.full(5, 5))
    assert variance[2] == 9.0
    assert worth[2] == 5
    assert variance[0] < 9.0


def test_no_variance_at_all_is_an_interval_without_width() -> None:
    assert (half_widths(np.array([1.0, 2.0, 4.0]), [np.array([1.0, 1.0])] * 3) == 0).all()


def test_levels_that_share_a_start_add_no_degrees_of_freedom():
    loads = np.array([1.0, 4.0, 16.0])
    samples = [np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 0.1, 0.2, 0.3]), np.array([-0.1, 0.0, 0.1, 0.2])]
    free, shared = half_widths(loads, samples), half_widths(loads, samples, restarted=True)
    sd = math.sqrt(0.05 / 3)  # the same at every level
    assert shared == pytest.approx(np.full(3, 3.182446 * sd / 2), rel=1e-5)  # t with 3 degrees of freedom
    assert np.all(free < shared)
