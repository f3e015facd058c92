"""Where a curve first falls below 0: straight, and at the earliest and latest that its neighbours' slopes allow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.analyse.first_fall import Edge, earliest, latest, value_at

EVEN = (10.0, 20.0, 30.0, 40.0)
A_BEND_AT_40 = (8.0, 32.0, 48.0, 64.0)


def ends(levels: tuple[float, ...], values: list[Edge], half: float = 0.0) -> tuple[float, float]:
    def moved(by: float) -> list[Edge]:
        return [None if v is None else v + by for v in values]

    return earliest(levels, moved(-half), values), latest(levels, moved(half), values)


def test_a_straight_curve_leaves_only_the_noise() -> None:
    assert ends(EVEN, [3.0, 1.0, -1.0, -3.0]) == pytest.approx((25.0, 25.0))
    assert ends(EVEN, [3.0, 1.0, -1.0, -3.0], half=0.5) == pytest.approx((22.5, 27.5))


def test_a_curve_may_go_on_as_steeply_as_it_came() -> None:
    values: list[Edge] = [3.0, 1.0, -0.5, -2.0]  # 0.2 a user, then 0.15: at the steeper slope 1.0 is gone after 5 users
    assert value_at(EVEN, values) == pytest.approx(20 + 10 / 1.5)
    assert ends(EVEN, values) == pytest.approx((25.0, 20 + 10 / 1.5))


def test_a_curve_may_be_as_steep_already_as_it_goes_on() -> None:
    values: list[Edge] = [
        2.0,
        1.0,
        -0.5,
        -3.5,
    ]  # 0.1, 0.15, then 0.3 a user: the last line is 0 at 28.3, the first at 30
    assert ends(EVEN, values) == pytest.approx((20 + 10 / 1.5, 30.0))
    values = [2.5, 1.0, -0.5, -3.5]  # the slope before is the same: the one after says 28.3 at the latest
    assert ends(EVEN, values) == pytest.approx((20 + 10 / 1.5, 30 - 0.5 / 0.3))


def test_a_plateau_behind_leaves_the_whole_way_to_it() -> None:
    assert ends(A_BEND_AT_40, [4.0, 1.0, -0.5, -0.5])[0] == 32.0


def test_one_neighbour_bends_it_as_much_to_either_side() -> None:
    before = ends((10.0, 20.0, 30.0), [2.5, 1.0, -1.0])  # 0.15, then 0.2: 0.05 a user to either side
    assert before == pytest.approx((20 + 1 / 0.25, 20 + 1 / 0.15))
    after = ends((20.0, 30.0, 40.0), [1.0, -1.0, -2.5])
    assert after == pytest.approx((30 - 1 / 0.15, 30 - 1 / 0.25))


@pytest.mark.parametrize(
    "values",
    [
        [None, 1.0, -1.0, None],  # no neighbour
        [math.inf, 1.0, -1.0, -3.0],  # one that is not finite
        [3.0, 1.0, -1.0, -math.inf],
    ],
)
def test_without_a_slope_it_falls_anywhere_between(values: list[Edge]) -> None:
    assert ends(EVEN, values) == (20.0, 30.0)


def test_bounds_of_other_levels_than_the_values() -> None:
    assert earliest(EVEN, [3.0, 1.0, None, -1.0], [3.0, 1.0, 0.0, -1.0]) == 20.0
    assert latest(EVEN, [3.0, None, None, -1.0], [3.0, None, 1.0, -1.0]) == 40.0
    assert latest(EVEN, [3.0, 1.0, -1.0, -3.0], [3.0, None, -1.0, -3.0]) == 30.0


def test_ends_of_a_ladder() -> None:
    assert ends(EVEN, [-1.0, -2.0, -3.0, -4.0]) == (0.0, 0.0)
    assert ends(EVEN, [1.0, 1.0, 1.0, 0.0]) == (math.inf, math.inf)
    assert ends(EVEN, [None, None, None, None]) == (0.0, math.inf)
    assert ends(EVEN, [1.0, 1.0, None, None]) == (20.0, math.inf)
    assert ends(EVEN, [1.0, -1.0, 1.0, 1.0]) == pytest.approx(
        (10.0, 10 + 10 * 5 / 6)
    )  # what holds again above is no capacity


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=6),
    st.floats(0, 2),
    st.lists(st.floats(1, 50), min_size=6, max_size=6),
)
def test_the_ends_hold_the_crossing_and_stay_between_tested_loads(
    values: list[float], half: float, gaps: list[float]
) -> None:
    levels = tuple(float(x) for x in np.cumsum(gaps[: len(values)]))
    low, high = ends(levels, list(values), half)
    at = value_at(levels, values)
    assert low <= at * (1 + 1e-9)
    assert at <= high * (1 + 1e-9)
    for level, value in zip(levels, values, strict=True):
        if level < low:
            assert value - half >= 0  # all that lies before is shown to meet the limit
        if level == high:
            assert value + half < 0  # an end at a tested load is one that is shown to miss it


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("at", [13.0, 17.0, 25.0, 36.0, 45.0, 60.0])
def test_smooth_curves_of_any_bend_are_covered(power: float, at: float) -> None:
    levels = (4.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
    values: list[Edge] = [at**power - level**power for level in levels]
    low, high = ends(levels, values)
    assert low - 1e-9 <= at <= high + 1e-9
