"""The plan: same seed, same bytes; arms alternate; every cell once."""

from collections import Counter

import pytest

from loadtest.drive.plan import make_plan, plan_lines
from loadtest.experiment import override
from loadtest.settings import Experiment

ARMS = ("baseline", "speculative")


def _experiment(seed: int = 1, blocks: int = 6):
    experiment = override(Experiment(), "load", levels=(1.0, 2.0, 4.0, 8.0))
    return override(experiment, "plan", seed=seed, blocks=blocks)


def test_equal_seeds_give_equal_bytes_and_others_another_order():
    assert plan_lines(make_plan(_experiment(), ARMS)) == plan_lines(make_plan(_experiment(), ARMS))
    assert plan_lines(make_plan(_experiment(1), ARMS)) != plan_lines(make_plan(_experiment(2), ARMS))


def test_every_cell_stands_once_and_the_arms_of_a_level_follow_each_other():
    cells = make_plan(_experiment(), ARMS)
    assert Counter((c.block, c.level, c.arm) for c in cells) == Counter(
        {(b, level, arm): 1 for b in range(6) for level in (1.0, 2.0, 4.0, 8.0) for arm in ARMS}
    )
    assert [c.cell for c in cells] == list(range(48))
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        assert (first.block, first.level) == (second.block, second.level)
        assert {first.arm, second.arm} == set(ARMS)


@pytest.mark.parametrize("seed", [1, 2, 3, 77])
def test_which_arm_goes_first_alternates_by_block_and_is_balanced_within_one(seed):
    cells = make_plan(_experiment(seed), ARMS)
    first = {(c.block, c.level): c.arm for c in cells[::2]}
    for level in (1.0, 2.0, 4.0, 8.0):
        assert all(first[b, level] != first[b + 1, level] for b in range(5))
    assert Counter(first[0, level] for level in (1.0, 2.0, 4.0, 8.0)) == {"baseline": 2, "speculative": 2}


def test_levels_are_visited_in_another_order_in_each_block():
    cells = make_plan(_experiment(blocks=12), ARMS)
    orders = {tuple(c.level for c in cells[::2] if c.block == block) for block in range(12)}
    assert len(orders) > 5


def test_one_arm_alone_is_a_plan_too():
    assert len(make_plan(_experiment(), ("server",))) == 24
