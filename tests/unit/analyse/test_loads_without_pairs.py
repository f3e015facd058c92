"""Sentences on every load are of the loads that both servers have: one whose cells are invalid is not spoken for."""

from __future__ import annotations

import math

from loadtest.analyse.breakeven import break_even
from loadtest.analyse.compare import Curve, fit_curve
from loadtest.analyse.remarks import described, second_sentence, would_settle
from loadtest.analyse.results import Finding, Guard

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
    for first, where in ((curve(u4=0.7, u16=0.7), "at 4 and 16 users"),
                         (curve(u4=1.1, u16=0.7, u64=0.7), "from 16 users on"),
                         (curve(u4=1.1, u16=1.1, u64=0.7), "at 64 users"),  # nothing was tested beyond
                         (curve(u4=0.7, u16=0.7, u64=0.7), "at every tested load")):  # fmt: skip
        assert second_sentence({"e2e": e2e, "ttft": first}, "e2e", TESTED).endswith(f"later {where}.")


def test_a_crossing_across_a_load_without_pairs_is_said_to_be_interpolated() -> None:
    part, whole = curve(u4=1.3, u64=0.9), curve(u4=1.3, u16=1.1, u64=0.9)
    said = [described(break_even(one, "e2e"), one, "end-to-end time", TESTED).sentence for one in (part, whole)]
    lost = "It is interpolated between 4 and 64 users, since 16 users, tested too, has no interval."
    assert said[0].endswith(f"users. {lost}")
    assert "interpolated" not in said[1]


def test_what_would_settle_a_load_without_pairs_is_to_measure_it_again() -> None:
    part = curve(u4=1.3, u64=0.9)
    unheard = [Guard(name="ttft", level=16.0, finding=Finding.NO_DATA)]
    assert would_settle(part, 1.03, [16.0], unheard) == (
        "Measure 16 users again: no block has a valid cell of both servers there.",
        2,
    )
    silent = [Guard(name=name, level=4.0, finding=Finding.NO_DATA) for name in ("ttft", "on_time")]
    assert would_settle(part, 1.03, [4.0], silent) == (
        "Longer windows, or a server that says more: on_time and ttft have no data at 4 users.",
        None,
    )
    assert would_settle(part, 1.03, [4.0], silent[:1])[0].endswith(": ttft has no data at 4 users.")
