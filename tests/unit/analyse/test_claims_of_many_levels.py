"""A claim about any of many levels errs no more often than one interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadtest.analyse.breakeven import Translation
from loadtest.analyse.compare import Curve, fit_curve, together
from loadtest.analyse.decide import NOT, OPEN, PAYS, Evidence, decide, level_states
from loadtest.analyse.results import Answer
from loadtest.settings import Decision

LEVELS = (4.0, 16.0, 32.0, 48.0, 64.0)
GAIN = math.log(1.03)


def evidence(curve: Curve) -> Evidence:
    return Evidence(
        levels=LEVELS, rules=Decision(min_gain=0.03), curves={"e2e": curve}, guards=(), rows={}, baseline="b",
        candidate="c", in_flight=Translation(by_level={}), running=Translation(by_level={}),
    )  # fmt: skip


def made(*gains: float, spread: float = 0.01) -> Curve:
    """Three blocks at each level whose mean log-ratio is GAIN + gain, with the standard deviation `spread`."""
    return fit_curve({
        level: [GAIN + gain - spread, GAIN + gain, GAIN + gain + spread]
        for level, gain in zip(LEVELS, gains, strict=True)
    })  # fmt: skip


def test_all_levels_together_have_wider_intervals():
    pair = fit_curve({8.0: [0.0, 0.02], 16.0: [0.0, 0.02]})
    # One variance, 0.0002, over two degrees of freedom: t = 4.302653 for 95 %, 6.205347 for 97.5 % = 1 - 0.05 / 2.
    assert pair.half == pytest.approx([4.302653 * 0.01] * 2, rel=1e-6)
    assert together(pair).half == pytest.approx([6.205347 * 0.01] * 2, rel=1e-6)
    assert together(fit_curve({})).half.size == 0


@pytest.mark.parametrize(
    ("gains", "states"),
    [
        # Half-widths alone: 0.021, 0.013, 0.013, 0.014, 0.015; together 0.043, 0.019, 0.019, 0.021, 0.024.
        ((0.030, 0.015, -0.05, -0.05, -0.05), [PAYS, PAYS, NOT, NOT, NOT]),  # begins at the lowest level
        ((0.0, 0.015, -0.05, -0.05, -0.05), [OPEN, OPEN, NOT, NOT, NOT]),  # one of four chances
        ((0.0, 0.02, -0.05, -0.05, -0.05), [OPEN, PAYS, NOT, NOT, NOT]),  # holds for all together
        ((-0.05, 0.015, 0.02, 0.015, -0.05), [NOT, PAYS, PAYS, PAYS, NOT]),  # its neighbours go with it
        ((0.030, 0.0, 0.015, 0.0, 0.025), [PAYS, OPEN, OPEN, OPEN, PAYS]),
        ((0.030, 0.015, 0.015, 0.015, 0.016), [PAYS] * 5),
    ],
)
def test_a_claim_begins_at_the_lowest_level_or_holds_for_all_together(gains, states):
    assert level_states(evidence(made(*gains))) == states


def test_a_level_that_is_taken_back_says_why():
    decision = decide(evidence(made(0.0, 0.015, -0.05, -0.05, -0.05)))
    assert decision.answer is Answer.CANNOT_TELL
    assert decision.reasons[1] == (
        "At 16 users the speed-up 1.05 [1.032, 1.06] is beyond 1.03, but not surely so when 5 levels are looked at."
    )


def test_a_gain_of_exactly_the_least_is_claimed_in_few_experiments():
    """Chance alone: 2.5 % at the lowest level and 2.5 % elsewhere; binomial bound for 1,500 experiments: 6.5 %."""
    draw = np.random.default_rng(20261130)
    claimed = sum(
        PAYS in level_states(evidence(fit_curve({level: draw.normal(GAIN, 0.02, 3).tolist() for level in LEVELS})))
        for _ in range(1500)
    )
    assert 0.02 <= claimed / 1500 <= 0.065
