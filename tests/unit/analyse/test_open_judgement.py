"""An open load is judged and said in its own unit, and kept apart from closed ones."""

from __future__ import annotations

import pytest
from made_run import Made, header

from loadtest import loads
from loadtest.analyse import wording
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.judge import judge_data
from loadtest.analyse.regression import refuse_unnamed
from loadtest.analyse.results import Answer
from loadtest.errors import NotComparable
from loadtest.experiment import as_document
from loadtest.settings import Experiment, Load, Traffic

LEVELS = (0.5, 1.0, 2.0, 4.0, 8.0)


def opened(**values: object) -> dict[str, object]:
    load = Load(kind="open", levels=LEVELS, think_time=0.0)
    return header(experiment=as_document(Experiment(load=load, **values)))  # type: ignore[arg-type]


def falling(level: float) -> float:
    """Gains 30 % at 0.5, and nothing at about 4."""
    return 1.3 - 0.1 * (level - 0.5)


MADE = Made(levels=LEVELS, speedup=falling, run=opened())


def test_the_answer_is_in_requests_per_second() -> None:
    found = judge_data(*MADE.build())
    assert found.unit == "requests/s"
    assert found.decision.answer is Answer.PAYS_UP_TO
    assert "requests/s (≈ " in found.decision.headline
    assert "users" not in f"{found.decision} {found.break_evens} {found.notes}"
    limit = found.decision.limit
    assert limit is not None
    assert limit.at.value == pytest.approx(3.2, abs=0.4)  # the decode gains 3 % at 3.2, and is nearly all of the time
    assert found.decision.recommendation.startswith("on up to ")
    assert found.decision.recommendation.endswith(" requests/s")


def test_the_unit_is_left_behind_where_it_was_set() -> None:
    judge_data(*MADE.build())
    assert loads.unit() == "users"
    assert wording.with_unit(3.0) == "3 users"


def test_what_arrives_has_no_break_even_and_the_linear_law_is_of_closed_loads() -> None:
    found = judge_data(*MADE.build())
    assert "output_tokens_per_s" not in {even.metric for even in found.break_evens}
    assert "requests_per_s" not in {even.metric for even in found.break_evens}
    assert "e2e" in {even.metric for even in found.break_evens}
    assert found.findings is not None
    assert found.findings.law is None
    closed = judge_data(*MADE.having(run=header(), levels=(1.0, 2.0, 4.0, 8.0)).build())
    assert "output_tokens_per_s" in {even.metric for even in closed.break_evens}


def test_a_day_in_requests_per_second_is_weighed_and_one_in_users_is_not() -> None:
    day = Traffic(unit="requests/s", loads=(0.5, 2.0), hours=(12.0, 12.0))
    gate = judge_data(*MADE.having(run=opened(traffic=day)).build()).gate
    assert gate is not None
    assert gate.traffic is not None
    assert gate.traffic.gain.value == pytest.approx(1.2, abs=0.06)
    people = Traffic(unit="users", loads=(0.5, 2.0), hours=(12.0, 12.0))
    gate = judge_data(*MADE.having(run=opened(traffic=people)).build()).gate
    assert gate is not None
    assert gate.traffic is not None
    assert gate.traffic.gain.value is None
    assert "this run's levels are requests/s (open load)" in gate.traffic.sentence


def test_a_closed_run_is_never_held_against_an_open_one_even_when_the_load_is_named_as_changed() -> None:
    with pytest.raises(NotComparable, match="One run is of a closed load and the other of an open one"):
        refuse_unnamed(opened(), header(), ["load.kind", "load.levels"])


def test_rates_keep_three_digits_and_their_bounds_are_rounded_outwards() -> None:
    with loads.spoken("requests/s"):
        assert wording.with_unit(0.25) == "0.25 requests/s"
        assert wording.tested((0.5, 12.0)) == "0.5 to 12 requests/s"
        assert wording.listed([0.5, 2.0]) == "0.5 and 2 requests/s"
        assert wording.bounded(Estimate(value=3.21, low=2.956, high=3.5), (0.5, 8.0)) == "3.21 [2.95, 3.5] requests/s"
        assert [wording.claimed(Estimate(value=99.0, low=x)) for x in (0.03769, 51.97, 2.0)] == [
            "0.0376 requests/s", "51.9 requests/s", "2 requests/s"
        ]  # fmt: skip
    assert wording.claimed(Estimate(value=99.0, low=51.9)) == "51 users"
