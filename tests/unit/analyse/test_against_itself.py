"""A/A: what a server against itself shows."""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_run import BASE, Made, header

from loadtest.analyse.against_itself import judge_against_itself, largest_difference, smallest_effect
from loadtest.analyse.compare import fit_curve
from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Answer

# Log-ratios whose mean is 0.01 and −0.02; two values 0.02 apart have the variance 0.0002 at both levels, pooled over
# 2 degrees of freedom (t = 4.302653): half-width 4.302653 · √(0.0002 ÷ 2) = 0.043027.
CURVE = fit_curve({4.0: [0.0, 0.02], 16.0: [-0.03, -0.01]})
APART = fit_curve({4.0: [0.099, 0.101], 16.0: [0.0, 0.002]})


def _decision(curve: Any, **run: Any) -> Any:
    return judge_against_itself(header(aa=True, **run), curve, "e2e", (4.0, 16.0))


def test_the_smallest_effect_is_the_half_width_of_the_interval():
    assert largest_difference(CURVE) == pytest.approx(math.expm1(0.02))
    assert smallest_effect(CURVE) == pytest.approx(math.expm1(0.0430265), rel=1e-4)
    decision = _decision(CURVE, starts=4)
    assert decision.headline == (
        "A/A: two starts of baseline differ by at most 2.02 % by end-to-end time (4 to 16 users);"
        " smallest effect this set-up can claim: 4.4 %."
    )
    assert decision.second == "All intervals together hold 1.00."
    assert (decision.answer, decision.exit_code, decision.reasons) == (Answer.MEASURED, 0, ())


def test_equal_servers_that_are_told_apart_widen_it_and_are_named():
    half = 4.302653 * math.sqrt(0.000002 / 2)
    assert smallest_effect(APART) == pytest.approx(math.expm1(0.1 + half), rel=1e-4)
    assert _decision(APART).second.startswith(
        "Both arms are the same and yet told apart: 1.11 [1.10, 1.11] at 4 users."
    )


def test_one_pair_gives_no_smallest_effect():
    decision = _decision(fit_curve({4.0: [0.01]}))
    assert decision.headline == (
        "A/A: baseline differs from itself by at most 1.01 % by end-to-end time (4 to 16 users);"
        " one pair gives no interval, so that the smallest effect is not known."
    )
    assert decision.second == ""
    assert decision.reasons == (
        "Each arm was started once: how starts differ from each other is not in these figures.",
    )


def test_no_pair_at_all():
    assert _decision(fit_curve({})).headline == "A/A: no valid pair of cells exists."


def test_a_run_against_itself_is_measured_and_not_held_to_speculate():
    made = Made(speedup=lambda level: 1.0, arms=(BASE, "baseline-2"), levels=(4.0, 16.0), blocks=3,
                run=header(aa=True, candidate="baseline-2", starts=3))  # fmt: skip
    judgement = judge_data(*made.build())
    assert judgement.decision.answer is Answer.MEASURED
    assert judgement.decision.headline.startswith("A/A: two starts of baseline differ by at most ")
    assert judgement.break_evens == ()
    assert judgement.decision.limit is None
