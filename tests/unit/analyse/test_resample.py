"""The bootstrap over blocks: when it is used, what it covers, and that it is the same each time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from loadtest.analyse.compare import fit_curve
from loadtest.analyse.resample import LEAST_BLOCKS, block_half_widths, studentized_half_widths
from loadtest.analyse.stats import half_widths

LOADS = np.array([1.0, 4.0, 16.0, 64.0])


def drawn(seed: int, blocks: int, kind: str = "normal") -> list[np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    if kind == "skewed":
        values = np.exp(0.8 * rng.standard_normal((4, blocks))) - math.exp(0.32)
    elif kind == "starts":
        values = rng.standard_normal((1, blocks)) + 0.2 * rng.standard_normal((4, blocks))
    else:
        values = rng.standard_normal((4, blocks))
    return list(values * LOADS[:, None] ** -0.3)


def test_below_eight_blocks_it_is_students_t() -> None:
    seven, eight = drawn(1, 7), drawn(1, 8)
    assert LEAST_BLOCKS == 8
    assert block_half_widths(LOADS, seven) == pytest.approx(half_widths(LOADS, seven), abs=0)
    assert (block_half_widths(LOADS, eight) != half_widths(LOADS, eight)).all()
    mixed = [*eight[:3], eight[3][:7]]
    assert block_half_widths(LOADS, mixed) == pytest.approx(half_widths(LOADS, mixed), abs=0)


def test_the_same_data_give_the_same_interval() -> None:
    sample = drawn(2, 10)
    assert block_half_widths(LOADS, sample) == pytest.approx(block_half_widths(LOADS, sample), abs=0)


def test_one_level_of_many_normal_blocks_agrees_with_t_and_with_scipys_bootstrap() -> None:
    values = np.random.default_rng(3).normal(0.1, 0.05, 60)
    found = float(studentized_half_widths(np.array([8.0]), [values], joint=True)[0])
    t = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found == pytest.approx((t.high - t.low) / 2, rel=0.06)
    other = stats.bootstrap((values,), np.mean, method="BCa", rng=np.random.default_rng(4)).confidence_interval
    assert found == pytest.approx((other.high - other.low) / 2, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "blocks", "restarted"), [("normal", 8, False), ("skewed", 8, False), ("normal", 16, False),
                                      ("starts", 8, True)],
)  # fmt: skip
def test_it_covers_the_true_mean(kind: str, blocks: int, restarted: bool) -> None:
    """Of 100 experiments at 4 levels (starts: what a level tells the others tell too). Skewed: a lognormal, sd 0.8."""
    inside = [
        np.mean(np.abs([np.mean(s) for s in sample]) <= block_half_widths(LOADS, sample, restarted=restarted))
        for sample in (drawn(100 + seed, blocks, kind) for seed in range(100))
    ]
    assert 0.90 <= np.mean(inside) <= 0.99


def test_levels_without_a_block_are_drawn_by_themselves_and_starts_fall_back_on_t() -> None:
    sample = [*drawn(5, 9)[:3], drawn(6, 8)[3]]
    assert np.isfinite(block_half_widths(LOADS, sample)).all()
    assert block_half_widths(LOADS, sample, restarted=True) == pytest.approx(
        half_widths(LOADS, sample, restarted=True), abs=0
    )


def test_blocks_that_agree_exactly_have_no_width() -> None:
    assert (block_half_widths(LOADS, [np.full(8, 0.1)] * 4) == 0).all()


def test_more_confidence_is_wider() -> None:
    for blocks in (6, 9):
        samples = {float(load): list(s) for load, s in zip(LOADS, drawn(7, blocks), strict=True)}
        usual, sure = fit_curve(samples), fit_curve(samples, confidence=0.99)
        assert (sure.half > usual.half).all()
        assert (usual.confidence, sure.confidence) == (0.95, 0.99)
    t = half_widths(np.array([4.0]), [np.array([0.0, 0.1, 0.2])], confidence=0.99)
    assert t == pytest.approx([9.92484 * 0.1 / math.sqrt(3)], rel=1e-5)


def test_blocks_that_are_nearly_all_equal_get_the_t_interval():
    """Every second draw of such blocks has no spread at all: the studentized quantile is infinite."""
    tied = [0.1] * 8 + [0.4]
    curve = fit_curve({8.0: tied})
    half = stats.t.ppf(0.975, 8) * np.std(tied, ddof=1) / 3
    assert curve.half == pytest.approx([half])
    assert curve.ratio(8.0).high == pytest.approx(math.exp(np.mean(tied) + half))
    assert fit_curve({8.0: [0.2] * 9}).half == pytest.approx([0.0])
