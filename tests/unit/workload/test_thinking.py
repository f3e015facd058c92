"""Pauses of users."""

import random
import statistics

import pytest

from loadtest.workload.thinking import LONGEST_S, after_answer_s, before_dialogue_s


@pytest.mark.parametrize(("characters", "median_s"), [(0, 4.0), (600, 8.0), (1500, 14.0)])
def test_median_after_an_answer(characters: int, median_s: float) -> None:
    generator = random.Random(1)
    pauses = [after_answer_s(generator, "x" * characters) for _ in range(4000)]
    assert statistics.median(pauses) == pytest.approx(median_s, rel=0.05)
    assert min(pauses) > 0.2
    assert max(pauses) <= LONGEST_S


def test_spread_after_an_answer() -> None:
    generator = random.Random(2)
    pauses = sorted(after_answer_s(generator, "x" * 600) for _ in range(4000))
    assert pauses[4000 * 16 // 100] == pytest.approx(8.0 / 1.822, rel=0.06)  # e^0.6 = 1.822, one sigma either way
    assert pauses[4000 * 84 // 100] == pytest.approx(8.0 * 1.822, rel=0.06)


def test_pause_before_a_dialogue() -> None:
    generator = random.Random(3)
    pauses = [before_dialogue_s(generator) for _ in range(4000)]
    assert statistics.mean(pauses) == pytest.approx(10.0, rel=0.06)
    assert statistics.median(pauses) == pytest.approx(6.93, rel=0.06)  # 10 ln 2
    assert min(pauses) >= 0.0
    assert max(pauses) <= LONGEST_S
