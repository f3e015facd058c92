"""Sentences on every load are of the loads that both servers have: one whose cells are invalid is not spoken for."""

from __future__ import annotations

import math

from loadtest.analyse.breakeven import break_even
from loadtest.analyse.compare import Curve, fit_curve
from loadtest.analyse.remarks import described, second_sentence

NOISE = (-0.01, 0.01, 0.0)
TESTED = (4.0, 16.0, 64.0)


def curve(**ratios: float) -> Curve:
    return fit_curve({float(at[1:]): [math.log(ratio) + e for e in NOISE] for at, ratio in ratios.items()})


def test_a_gain_at_the_loads_that_have_pairs_is_no_gain_at_every_tested_load() -> None:
    part, whole = curve(u4=1.3, u16=1.2), curve(u4=1.3, u16=1.2, u64=1.1)
    said = [described(break_even(one, "e2e"), one, "end-to-end time", TESTED).sentence for one in (part, whole)]
    beats = "By end-to-end time the candidate beats the baseline at every"
    assert said == [f"{beats} load that has an interval (4 to 16 users).", f"{beats} tested load (4 to 64 users)."]


def test_a_loss_names_the_loads_that_were_measured_in_pairs() -> None:
    part = curve(u64=0.9)
    said = described(break_even(part, "e2e"), part, "end-to-end time", TESTED).sentence
    assert said == "By end-to-end time the candidate falls behind the baseline (64 users)."


def test_later_first_tokens_are_said_of_the_loads_that_have_pairs() -> None:
    e2e = curve(u4=1.3, u16=1.2, u64=1.1)
    for first, where in ((curve(u4=0.7, u16=0.7), "at 4, 16 users"),
                         (curve(u4=0.7, u16=0.7, u64=0.7), "at every tested load")):  # fmt: skip
        assert second_sentence({"e2e": e2e, "ttft": first}, "e2e", TESTED).endswith(f"later {where}.")
