"""Arrival processes against theory, over 100,000 arrivals each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from loadtest.workload.arrivals import PROCESSES, SHAPES, Pattern, Profile, schedule, weibull_shape

COUNT = 100_000
KEY = {"seed": 7, "level": 2.5, "block": 0}


def offsets(pattern: Pattern, rate: float, count: int = COUNT, **window: float) -> np.ndarray:
    return np.array(list(islice(schedule(pattern, rate, **KEY, **window), count)))


def gaps_of(arrivals: str, cv: float) -> np.ndarray:
    return np.diff(offsets(Pattern(arrivals=arrivals, cv=cv), rate=4.0))


# A mean of n gaps has a relative standard error of CV ÷ √n, and the lag-1 autocorrelation of independent ones 1 ÷ √n:
# 0.0032 at 100,000. The tolerances are four of these.
@pytest.mark.parametrize(("arrivals", "cv", "true_cv", "cv_tolerance"), [
    ("poisson", 2.0, 1.0, 0.02), ("gamma", 0.5, 0.5, 0.02), ("gamma", 3.0, 3.0, 0.06), ("weibull", 0.5, 0.5, 0.02),
    ("weibull", 2.0, 2.0, 0.06), ("constant", 2.0, 0.0, 1e-6),
])  # fmt: skip
def test_a_process_has_its_rate_its_cv_and_no_memory(
    arrivals: str, cv: float, true_cv: float, cv_tolerance: float
) -> None:
    gaps = gaps_of(arrivals, cv)
    assert gaps.mean() * 4.0 == pytest.approx(1.0, abs=max(1e-6, 4 * true_cv / COUNT**0.5))
    assert gaps.std() / gaps.mean() == pytest.approx(true_cv, rel=cv_tolerance, abs=1e-6)
    if true_cv:
        for lag in (1, 2, 5, 20):
            assert abs(np.corrcoef(gaps[:-lag], gaps[lag:])[0, 1]) < 4 / COUNT**0.5


@pytest.mark.parametrize(("arrivals", "cv", "law"), [
    ("poisson", 2.0, stats.expon(scale=0.25)),
    ("gamma", 2.0, stats.gamma(a=0.25, scale=1.0)),  # mean a · scale = 1/4, CV 1/√a = 2
    ("weibull", 5**0.5, stats.weibull_min(c=0.5, scale=0.125)),  # k = 1/2: mean 2 · scale, CV √5
])  # fmt: skip
def test_gaps_follow_their_law(arrivals: str, cv: float, law: object) -> None:
    assert stats.kstest(gaps_of(arrivals, cv), law.cdf).pvalue > 0.001


def test_a_weibull_shape_has_the_cv_asked_for() -> None:
    for cv in (0.1, 0.5227232, 1.0, 2.2360680, 8.0):
        law = stats.weibull_min(c=weibull_shape(cv))
        assert law.std() / law.mean() == pytest.approx(cv, rel=1e-6)
    assert weibull_shape(1.0) == pytest.approx(1.0, rel=1e-9)


def test_a_process_is_stationary_from_its_start() -> None:
    """A renewal process begun at a renewal would crowd its first arrivals when its gaps vary much."""
    pattern = Pattern(arrivals="gamma", cv=3.0)
    first = [next(schedule(pattern, 1.0, seed=1, level=1.0, block=b)) for b in range(1500)]
    # The mean wait for the next arrival is (1 + CV²) ÷ 2 mean gaps, and not 1.
    assert np.mean(first) == pytest.approx(5.0, abs=4 * np.std(first) / 1500**0.5)


# Share of the window → rate there, by hand, with peak ÷ base = 3: the mean over the window is 1.
RATES = {
    "steady": [(0.0, 1.0), (0.5, 1.0), (0.9, 1.0)],
    "ramp": [(0.0, 0.5), (0.5, 1.0), (0.75, 1.25)],
    "step": [(0.2, 0.6), (0.5, 1.8), (0.8, 0.6)],
    "spike": [(0.2, 1 / 1.2), (0.5, 3 / 1.2), (0.8, 1 / 1.2)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_moves_the_rate_as_it_says(shape: str) -> None:
    profile = Profile(shape, 3.0, 10.0, 60.0)
    for share, rate in RATES[shape]:
        assert profile.rate(10.0 + 60.0 * share) == pytest.approx(rate)
    assert profile.rate(0.0) == pytest.approx(RATES[shape][0][1])  # before the window as at its beginning


@pytest.mark.parametrize("shape", SHAPES)
def test_arrivals_of_a_shape_follow_its_integrated_rate(shape: str) -> None:
    rate, opens_s, window_s = 1000.0, 10.0, 60.0
    found = offsets(Pattern(shape=shape, factor=3.0), rate, opens_s=opens_s, window_s=window_s)
    inside = found[(found >= opens_s) & (found < opens_s + window_s)]
    assert len(inside) == pytest.approx(60_000, abs=4 * 60_000**0.5)  # the level is the mean over the window
    grid = np.linspace(0.0, 1.0, 2401)
    profile = Profile(shape, 3.0, opens_s, window_s)
    heights = np.array([profile.rate(opens_s + window_s * (x + 1 / 4802)) for x in grid[:-1]])
    area = np.concatenate([[0.0], np.cumsum(heights)]) / heights.sum()
    share = np.interp((inside - opens_s) / window_s, grid, area)
    assert stats.kstest(share, "uniform").pvalue > 0.001


def test_a_factor_below_one_goes_down_and_up_again() -> None:
    profile = Profile("step", 0.25, 0.0, 30.0)
    assert [profile.rate(s) for s in (5.0, 15.0, 25.0)] == pytest.approx([4 / 3, 1 / 3, 4 / 3])


@pytest.mark.parametrize("arrivals", PROCESSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_times_ascend_and_equal_keys_give_equal_ones(arrivals: str, shape: str) -> None:
    pattern = Pattern(arrivals=arrivals, shape=shape)
    window = {"opens_s": 5.0, "window_s": 20.0}
    one, again = (offsets(pattern, 30.0, 2000, **window) for _ in range(2))
    assert (one == again).all()
    assert (np.diff(one) >= 0).all()
    assert one[0] >= 0
    others = [dict(KEY, seed=8), dict(KEY, level=2.0), dict(KEY, block=1)]
    for other in others:
        assert list(islice(schedule(pattern, 30.0, **other, **window), 3)) != list(one[:3])


class Recorded:
    """A trace of four sessions in ten seconds."""

    def arrivals(self, seed: int, level: float, block: int, sessions_per_s: float | None = None) -> Iterator[float]:
        assert sessions_per_s == 1.0
        start = 0.0
        while True:
            yield from (start + offset for offset in (0.0, 0.4, 1.0, 3.9))
            start += 4.0


def test_a_trace_is_stretched_to_the_rate_asked_for() -> None:
    found = list(islice(schedule(Pattern(arrivals="trace"), 2.0, **KEY, trace=Recorded()), 6))
    assert found == pytest.approx([0.0, 0.2, 0.5, 1.95, 2.0, 2.2])
