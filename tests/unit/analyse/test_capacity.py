"""Capacity: where the first objective ends, typed, with its interval, its ratio, per GPU and per million tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gate_facts import facts_of, failing
from made_run import BASE, SPEC, Made

from loadtest.analyse.capacity import Margins, bounded, capacities, capacity_slos, greatest_load, ratio_of, sentence
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.gate_results import Capacity
from loadtest.settings import Price
from loadtest.slo_tables import objectives

LEVELS = (1.0, 4.0, 16.0, 64.0)
(SLO,) = objectives([{"metric": "tpot", "statistic": "mean", "max": "30 ms"}])
(OTHER,) = objectives([{"metric": "error_ratio", "max": "1 %"}])


def margins(value: list[float | None], half: float = 0.0, slo: Any = SLO) -> Margins:
    def moved(by: float) -> tuple[float | None, ...]:
        return tuple(None if v is None else v + by for v in value)

    return Margins(slo=slo, value=tuple(value), worst=moved(-half), best=moved(half))


def test_the_crossing_is_linear_in_the_load() -> None:
    found = greatest_load(LEVELS, [margins([3.0, 2.0, 1.0, -1.0])])
    assert found.form is Crossing.PAYS_UP_TO
    assert found.at.value == pytest.approx(40.0)  # halfway from 16 to 64
    assert found.bound_by == "tpot mean ≤ 30 ms"


def test_the_interval_is_where_its_bounds_cross() -> None:
    found = greatest_load(LEVELS, [margins([3.0, 2.0, 1.0, -1.0], half=0.5)])
    assert (found.at.low, found.at.high) == (pytest.approx(22.0), 64.0)  # as the slope before 16 users allows
    straight = greatest_load((1.0, 17.0, 33.0, 49.0), [margins([5.0, 3.0, 1.0, -1.0], half=0.5)])
    assert (straight.at.low, straight.at.high) == pytest.approx((37.0, 45.0))


def test_the_objective_that_ends_first_decides() -> None:
    found = greatest_load(LEVELS, [margins([3.0, 2.0, 1.0, -1.0]), margins([1.0, -1.0, -1.0, -1.0], slo=OTHER)])
    assert found.at.value == pytest.approx(2.5)
    pair = [margins([3.0, 2.0, 1.0, -1.0], half=0.5), margins([1.0, -1.0, -1.0, -1.0], half=0.5, slo=OTHER)]
    ends = greatest_load(LEVELS, pair).at  # both ends are those of the objective that ends first
    assert (ends.low, ends.high) == pytest.approx((1.0, 3.625))
    assert found.bound_by == "error_ratio ≤ 1 %"


@pytest.mark.parametrize(
    ("value", "form", "at"),
    [
        ([1.0, 1.0, 1.0, 1.0], Crossing.PAYS_EVERYWHERE, (None, 64.0, None)),
        ([-1.0, -1.0, -1.0, -1.0], Crossing.NEVER_PAYS, (None, None, 1.0)),
        ([None, None, None, None], Crossing.NO_DATA, (None, None, None)),
        ([1.0, 1.0, None, None], Crossing.PAYS_UP_TO, (4.0, 4.0, None)),  # nothing is shown beyond, and nothing refuted
        ([None, 1.0, None, -1.0], Crossing.PAYS_UP_TO, (34.0, 4.0, 64.0)),  # from 4 to 64, with nothing in between
        ([1.0, math.inf, -math.inf, -math.inf], Crossing.PAYS_UP_TO, (4.0, 4.0, 16.0)),  # it broke down in between
        ([1.0, -1.0, 1.0, 1.0], Crossing.PAYS_UP_TO, (2.5, 1.0, 10 / 3)),  # what holds again above is no capacity
        ([0.0, 0.0, 0.0, 0.0], Crossing.PAYS_EVERYWHERE, (None, 64.0, None)),  # exactly at the limit
    ],
)
def test_the_forms(value: list[float | None], form: Crossing, at: tuple[float | None, ...]) -> None:
    found = greatest_load(LEVELS, [margins(value)])
    assert found.form is form
    assert (found.at.value, found.at.low, found.at.high) == pytest.approx(at)


def test_an_undecided_first_level_cannot_be_told() -> None:
    found = greatest_load(LEVELS, [margins([0.1, 0.1, 0.1, 0.1], half=0.5)])
    assert found.form is Crossing.CANNOT_TELL


MADE = Made(levels=LEVELS, blocks=4, requests=60, chunks=12, noise=0.004, ttft_s=0.05)
# Gaps are 20 ms × (1 + N ÷ 50), the candidate's 1.5 times shorter: 30 ms are reached at 25 users, and at 62.5.


def found_of(made: Made, gpus: dict[str, int], price: Price, *tables: dict[str, Any]) -> tuple[Capacity, ...]:
    return capacities(objectives(tables), facts_of(made), gpus, price)


def test_both_arms_of_a_run() -> None:
    table = {"metric": "tpot", "statistic": "mean", "max": "30 ms", "at": "16 users"}
    base, cand = found_of(MADE, {BASE: 2, SPEC: 2}, Price(gpu_hour=3.6, currency="EUR"), table)
    assert (base.arm, cand.arm) == (BASE, SPEC)
    for found, true in ((base, 25.0), (cand, 62.5)):
        assert found.at.value is not None
        assert found.at.low is not None
        assert found.at.high is not None
        assert found.at.low < found.at.value < found.at.high
        assert found.at.value == pytest.approx(true, rel=0.02)
        assert found.per_gpu.value == found.at.value / 2
        assert found.bound_by == "tpot mean ≤ 30 ms"
        tokens = found.output_tokens_per_s.value
        assert tokens is not None
        # 2 GPUs at 3.60 an hour cost 0.002 a second
        assert found.per_million_tokens.value == pytest.approx(0.002 / tokens * 1e6)
    ratio = ratio_of((base, cand))
    assert ratio.value == pytest.approx(cand.at.value / base.at.value)  # type: ignore[operator]
    assert ratio.low is not None
    assert ratio.low < ratio.value < ratio.high  # type: ignore[operator]
    said = sentence((base, cand), ratio)
    assert said.startswith("Capacity: speculative meets them up to 6")
    assert "; candidate ÷ baseline 2." in said
    assert said.endswith("EUR.")


def test_failures_end_a_capacity() -> None:
    def overloaded(row: Any) -> Any:
        return failing(row, 2) if row.level > 4 else row

    table = {"metric": "ttft", "statistic": "p90", "max": "1 s"}
    base, cand = found_of(MADE.having(edit_request=overloaded), {}, Price(), table)
    assert base.form is Crossing.PAYS_EVERYWHERE
    assert (cand.form, cand.at.low, cand.at.high) == (Crossing.PAYS_UP_TO, 4.0, 16.0)
    assert cand.per_million_tokens == Estimate()


def test_only_limits_on_what_users_see_bound_a_capacity() -> None:
    kept = capacity_slos(objectives([
        {"metric": "e2e", "statistic": "mean", "max": "1 s"},
        {"metric": "e2e", "statistic": "mean", "better_by": "1 %"},
        {"metric": "acceptance_ratio", "min": "1 %"}, {"metric": "output_tokens_per_s", "min": "1 tokens/s"},
        {"metric": "goodput", "min": "90 %", "within": {"ttft": "1 s"}},
    ]))  # fmt: skip
    assert [slo.metric for slo in kept] == ["e2e", "goodput"]
    assert capacities(kept, replace(facts_of(MADE), refused="invalid"), {}, Price()) == ()
    assert capacities((), facts_of(MADE), {}, Price()) == ()


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (Estimate(value=41.3, low=33.0, high=52.0), "41 [33, 52] users"),
        (Estimate(value=2.53, low=2.4, high=2.7), "2.5 [2.4, 2.7] users"),
        (Estimate(value=41.3, low=33.0), "41 users (at least 33 is shown)"),
        (Estimate(value=41.3, high=52.0), "41 users (at most 52 is shown)"),
        (Estimate(low=33.0), "33 users at least (where it ends is not shown up to 64)"),
        (Estimate(high=52.0), "52 users at most"),
    ],
)
def test_a_capacity_in_words(at: Estimate, words: str) -> None:
    assert bounded(at, LEVELS, "users") == words


def test_the_ratio_of_capacities_by_mover() -> None:
    arms = [Capacity(arm="b", form=Crossing.PAYS_UP_TO, at=Estimate(value=20.0, low=16.0, high=25.0)),
            Capacity(arm="c", form=Crossing.PAYS_UP_TO, at=Estimate(value=40.0, low=32.0, high=50.0))]  # fmt: skip
    ratio = ratio_of(arms)
    step = math.sqrt(2) * np.log(1.25)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.0, 2 * np.exp(-step), 2 * np.exp(step)))
    assert ratio_of(arms[:1]) == Estimate()
    open_ended = replace(arms[1], at=Estimate(value=40.0, low=32.0))
    assert ratio_of([arms[0], open_ended]).high is None
