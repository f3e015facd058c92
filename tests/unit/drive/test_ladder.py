"""The coarse ladder: when it ends, and which levels it chooses, from figures given by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from loadtest.drive.figures import CellFigure
from loadtest.drive.ladder import choose_levels, ladder_ends, rungs

GAIN = math.log(1.03)
LADDER = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


def _figures(speedups: dict[float, float], *, rates=None, errors=(), preempted=(), blocks=1):
    """Both arms at each level; the baseline's mean time is 1 s, its rate grows with the level unless given."""
    found = []
    for level, speedup in speedups.items():
        rate = (rates or {}).get(level, 100 * level)
        for block in range(blocks):
            for arm, figure in (("a", 1.0), ("b", 1.0 / speedup)):
                troubled = arm == "b" and level in errors
                found.append(
                    CellFigure(arm=arm, level=level, block=block, figure=figure, output_tokens_per_s=rate, requests=100,
                               error_ratio=0.02 if troubled else 0.0, preempted=arm == "b" and level in preempted)
                )  # fmt: skip
    return found


def _rungs(speedups, **more):
    return rungs(_figures(speedups, **more), "a", "b", higher_is_better=False)


def test_a_speed_up_is_turned_so_that_less_time_is_more():
    (rung,) = _rungs({4.0: 1.25})
    assert rung.gain == pytest.approx(math.log(1.25))
    (rung,) = rungs(_figures({4.0: 1.25}), "a", "b", higher_is_better=True)
    assert rung.gain == pytest.approx(-math.log(1.25))


def test_a_level_that_only_one_arm_has_visited_is_no_rung():
    assert rungs(_figures({4.0: 1.2})[:1], "a", "b", higher_is_better=False) == []


@pytest.mark.parametrize(
    ("speedups", "more", "ends"),
    [
        ({1.0: 1.4}, {}, ""),
        ({1.0: 1.4, 2.0: 1.3, 4.0: 1.2}, {}, ""),
        # 8 % below 1.03 settles it once a level has paid; 1.00 does not
        ({1.0: 1.2, 2.0: 0.94}, {}, "settled against the candidate"),
        ({1.0: 1.2, 2.0: 1.0}, {}, ""),
        # where nothing has paid, four levels in a row that do not get better
        ({1.0: 0.9, 2.0: 0.9, 4.0: 0.9}, {}, ""),
        ({1.0: 0.9, 2.0: 0.9, 4.0: 0.9, 8.0: 0.88}, {}, "settled against the candidate"),
        ({1.0: 0.7, 2.0: 0.75, 4.0: 0.8, 8.0: 0.88}, {}, ""),
        ({1.0: 1.4, 2.0: 1.3}, {"rates": {1.0: 100, 2.0: 104}}, "stopped growing"),
        ({1.0: 1.4, 2.0: 1.3}, {"rates": {1.0: 100, 2.0: 106}}, ""),
        ({1.0: 1.4, 2.0: 1.3}, {"errors": (2.0,)}, "errors began at 2 users"),
        ({1.0: 1.4, 2.0: 1.3}, {"preempted": (2.0,)}, "preemption began at 2 users"),
    ],
)
def test_where_the_ladder_ends(speedups, more, ends):
    said = ladder_ends(_rungs(speedups, **more), GAIN)
    assert ends in said if ends else said == ""


def test_throughput_of_one_arm_that_still_grows_keeps_the_ladder_going():
    figures = _figures({1.0: 1.4, 2.0: 1.3}, rates={1.0: 100, 2.0: 100})
    grown = [CellFigure(arm=f.arm, level=f.level, block=0, figure=f.figure, error_ratio=0.0,
                        output_tokens_per_s=100 * f.level if f.arm == "b" else 100) for f in figures]  # fmt: skip
    assert ladder_ends(rungs(grown, "a", "b", higher_is_better=False), GAIN) == ""


def test_a_crossing_is_bracketed_and_the_lowest_level_kept():
    speedups = {1.0: 1.4, 2.0: 1.35, 4.0: 1.3, 8.0: 1.25, 16.0: 1.12, 32.0: 1.0, 64.0: 0.88}
    chosen = choose_levels(_rungs(speedups), LADDER, GAIN)
    # 1.03 lies at 16·2^((ln 1.12 − ln 1.03)/ln 1.12) = 26.8 users, 1 at 32 users
    assert chosen.levels[0] == 1.0
    assert all(14 <= level <= 26 for level in chosen.levels[1:2])
    assert all(33 <= level <= 64 for level in chosen.levels[-1:])
    assert len(chosen.levels) in (3, 4)


def test_a_steep_quiet_ladder_gets_a_narrow_bracket():
    speedups = {float(2**i): math.exp(0.9 - 0.2 * i) for i in range(8)}  # crosses 1 at 2^4.5 = 22.6 users
    chosen = choose_levels(_rungs(speedups), LADDER, GAIN)
    assert chosen.levels == (1.0, 18.0, 28.0)  # 2^(4.352 − 0.15) and 2^(4.5 + 0.3), out to whole users


@pytest.mark.parametrize(
    ("speedups", "levels", "why"),
    [
        ({1.0: 1.5, 2.0: 1.5, 4.0: 1.4, 8.0: 1.3, 16.0: 1.2}, (1.0, 4.0, 16.0), "it pays at every level"),
        ({1.0: 0.9, 2.0: 0.9, 4.0: 0.95, 8.0: 0.8, 16.0: 0.7}, (1.0, 4.0, 16.0), "it does not pay at every level"),
        ({1.0: 0.9, 2.0: 0.8, 4.0: 0.7, 8.0: 0.6, 16.0: 0.5}, (1.0, 4.0, 16.0), "it does not pay at every level"),
        ({1.0: 1.2}, (1.0,), "too few levels"),
    ],
)
def test_without_a_crossing_the_ends_and_one_between_are_judged(speedups, levels, why):
    chosen = choose_levels(_rungs(speedups), LADDER, GAIN)
    assert chosen.levels == levels
    assert why in chosen.why


def test_a_band_gets_a_bracket_at_each_of_its_ends():
    speedups = {1.0: 0.7, 2.0: 0.8, 4.0: 1.2, 8.0: 1.4, 16.0: 1.4, 32.0: 1.2, 64.0: 0.8, 128.0: 0.6}
    chosen = choose_levels(_rungs(speedups), LADDER, GAIN)
    assert any(2 <= level < 3.2 for level in chosen.levels)  # below and above the rise through 1.03, near 3 users
    assert any(3 <= level <= 8 for level in chosen.levels)
    assert any(16 < level < 45 for level in chosen.levels)  # and the fall, near 44 users
    assert any(46 < level <= 128 for level in chosen.levels)


def test_levels_with_errors_choose_nothing():
    speedups = {1.0: 1.5, 2.0: 1.4, 4.0: 1.3, 8.0: 0.5}
    chosen = choose_levels(_rungs(speedups, errors=(8.0,)), LADDER, GAIN)
    assert chosen.levels == (1.0, 2.0, 4.0)


def test_blocks_that_disagree_widen_the_bracket():
    speedups = {float(2**i): math.exp(0.9 - 0.2 * i) for i in range(8)}
    quiet = _figures(speedups, blocks=2)
    noisy = [replace(f, figure=f.figure * (1.2 if f.block and f.arm == "b" else 1.0)) for f in quiet]
    narrow, wide = (
        choose_levels(rungs(f, "a", "b", higher_is_better=False), LADDER, GAIN).levels for f in (quiet, noisy)
    )
    assert wide[-1] / wide[1] > 1.2 * narrow[-1] / narrow[1]
