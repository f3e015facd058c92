"""Orders of the arms: every place and every succession equally often, whatever their number."""

from collections import Counter
from itertools import pairwise

import pytest

from loadtest.drive.balance import in_order, in_order_of_start, orders
from loadtest.drive.plan import make_plan, make_start_plan
from loadtest.experiment import override
from loadtest.settings import Experiment

ARMS = ("baseline", "eagle3", "ngram", "draft", "medusa")


@pytest.mark.parametrize(("count", "length"), [(2, 2), (3, 6), (4, 4), (5, 10), (6, 6), (7, 14), (8, 8)])
def test_each_arm_stands_at_each_place_and_follows_each_other_one_equally_often(count, length):
    found = orders(count)
    assert len(found) == length
    assert all(sorted(order) == list(range(count)) for order in found)
    places = Counter((place, arm) for order in found for place, arm in enumerate(order))
    assert set(places.values()) == {length // count}
    follows = Counter(pair for order in found for pair in pairwise(order))
    assert len(follows) == count * (count - 1)
    assert set(follows.values()) == {length // count}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_an_order_and_its_mirror_image_stand_next_to_each_other(count):
    found = orders(count)
    assert all(first == second[::-1] for first, second in zip(found[::2], found[1::2], strict=True))


def test_three_arms_in_full():
    assert ["".join(in_order("ABC", number)) for number in range(7)] == [
        "ABC",
        "CBA",
        "BCA",
        "ACB",
        "CAB",
        "BAC",
        "ABC",
    ]


def test_starts_of_two_arms_follow_thue_and_morse_and_of_more_every_order_comes():
    assert ["".join(in_order_of_start("AB", block)) for block in range(8)] == [
        "AB",
        "BA",
        "BA",
        "AB",
        "BA",
        "AB",
        "AB",
        "BA",
    ]
    assert ["".join(in_order_of_start("ABC", block)) for block in range(6)] == [
        "ABC",
        "CBA",
        "ACB",
        "BCA",
        "BAC",
        "CAB",
    ]
    assert len({tuple(in_order_of_start(ARMS, block)) for block in range(10)}) == 10
    assert in_order_of_start(["A"], 3) == ["A"]


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_in_a_plan_each_level_has_each_order_once_in_a_round_of_blocks(seed):
    experiment = override(Experiment(), "load", levels=(1.0, 4.0, 16.0))
    cells = make_plan(override(experiment, "plan", blocks=10, seed=seed), ARMS)
    visits = [cells[i : i + 5] for i in range(0, len(cells), 5)]
    assert all(len({(c.block, c.level) for c in visit}) == 1 for visit in visits)
    for level in (1.0, 4.0, 16.0):
        own = [tuple(c.arm for c in visit) for visit in visits if visit[0].level == level]
        assert len(set(own)) == 10
        follows = Counter(pair for order in own for pair in pairwise(order))
        assert set(follows.values()) == {2}
    assert len({tuple(c.arm for c in visit) for visit in visits if visit[0].block == 0}) == 3


def test_each_start_of_several_arms_walks_the_same_ladder():
    experiment = override(Experiment(), "load", levels=(1.0, 4.0))
    cells = make_start_plan(override(experiment, "plan", blocks=2), ARMS[:3])
    assert [c.arm for c in cells[::2]] == ["baseline", "eagle3", "ngram", "ngram", "eagle3", "baseline"]
    assert len({tuple(c.level for c in cells[i : i + 2]) for i in (0, 2, 4)}) == 1
