"""What must not pass: failures below a generous limit, a part of the cells, streams held back, an unproven pair."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gate_facts import PLAIN, facts_of, failing, judged
from made_run import BASE, SPEC, Made, header

from loadtest.analyse import capacity
from loadtest.analyse.gate_results import GateOutcome
from loadtest.analyse.gating import Asked
from loadtest.analyse.judge import judge_data
from loadtest.analyse.regression import refuse_unnamed, with_regressions
from loadtest.analyse.results import Judgement
from loadtest.errors import NotComparable
from loadtest.experiment import as_document, from_toml
from loadtest.record import Scrape
from loadtest.settings import Price
from loadtest.slo_tables import objectives

GATE = Asked(gate=True)
SMALL = PLAIN.having(blocks=3, requests=40)


def run_of(source: str = "", **changes: Any) -> dict[str, Any]:
    return header(experiment=as_document(from_toml(f"[load]\nthink_time = 0\n{source}", "x.toml")), **changes)


def judgement(made: Made = SMALL, source: str = "", asked: Asked = GATE, **changes: Any) -> Judgement:
    return judge_data(run_of(source, **changes), *made.build()[1:], None, asked)


# A failed request counts as 600 s of `e2e`, 120 s of `ttft` and 60 s of the rest, as [limits] cuts it off.
@pytest.mark.parametrize(("metric", "cut_s"), [("e2e", 600), ("ttft", 120), ("ttft_visible", 120), ("tpot", 60)])
def test_a_mean_with_failures_meets_no_limit_at_which_they_are_cut_off(metric: str, cut_s: float) -> None:
    half = facts_of(SMALL.having(edit_request=lambda row: failing(row, 2)))
    for limit in (cut_s, 10 * cut_s):
        table = {"metric": metric, "statistic": "mean", "max": f"{limit} s", "at": "16 users"}
        found = judged(half, **table)
        assert (found.outcome, f"count as {cut_s} s in a mean" in found.says) == (GateOutcome.NO_DATA, True)
        assert judged(facts_of(SMALL), **table).outcome is GateOutcome.PASS
        of_baseline = judged(half, **table, arm="baseline")  # none of its requests failed
        assert of_baseline.outcome is GateOutcome.PASS
    arms = capacity.capacities(
        objectives([{"metric": metric, "statistic": "mean", "max": f"{cut_s} s"}]), half, {}, Price()
    )
    assert [arm.form.value for arm in arms] == ["pays_everywhere", "no_data"]


def _silent(row: Scrape) -> Scrape:
    """Take the drafts of the first block's cells (0 to 3) from a reading."""
    if row.cell > 3:
        return row
    return replace(row, values={k: 0.0 if "spec_decode" in k else v for k, v in row.values.items()}, per_position=[])


@pytest.mark.parametrize("edit", [_silent, lambda row: None if row.cell <= 3 else row], ids=["no drafts", "not read"])
def test_an_acceptance_floor_is_not_met_by_a_part_of_the_cells(edit: Callable[[Scrape], Scrape | None]) -> None:
    _, cells, scrapes, table = PLAIN.build()
    source = '[[slo]]\nmetric = "acceptance_ratio"\nmin = "30 %"\nat = "16 users"\n'
    whole = judge_data(run_of(source), cells, scrapes, table, None, GATE).gate
    part = [row for row in map(edit, scrapes) if row is not None]
    gate = judge_data(run_of(source), cells, part, table, None, GATE).gate
    assert whole is not None
    assert gate is not None
    assert (whole.exit_code, gate.exit_code) == (0, 4)
    assert "1 of 6 cells have no acceptance_ratio" in gate.objectives[0].says


@pytest.mark.parametrize("limit", ["ttft", "tpot", "worst_stall"])
def test_goodput_of_streams_held_back_has_no_data(limit: str) -> None:
    made = SMALL.having(edit_request=lambda row: replace(
        row, chunk_s=[row.chunk_s[-1]] * len(row.chunk_s), coalesced=len(row.chunk_s) - 1) if row.arm == SPEC else row
    )  # fmt: skip
    table = {"metric": "goodput", "min": "50 %", "within": {limit: "100 ms"}, "at": "16 users"}
    assert judged(facts_of(made), **table).outcome is GateOutcome.NO_DATA
    assert judged(facts_of(made), **table, arm="baseline").outcome is GateOutcome.PASS


@pytest.mark.parametrize("asked", [{"statistic": "p50"}, {"statistic": "mean"}])
def test_every_request_of_a_cell_may_fail_and_nothing_passes(asked: dict[str, str]) -> None:
    made = SMALL.having(edit_request=lambda row: failing(row, 1))
    for table in ({"max": "1000000 s"}, {"not_worse_by": "5 %"}, {"better_by": "1 %"}):
        assert judged(facts_of(made), metric="e2e", **asked, **table).outcome is not GateOutcome.PASS


@pytest.mark.parametrize("where", [{"at": "8 users"}, {"up_to": "8 users"}])
@pytest.mark.parametrize("lacking", [{4.0, 16.0}, {4.0}, {16.0}], ids=str)
def test_a_load_between_levels_without_data_has_none_and_no_warning_passes_it(
    where: dict[str, str], lacking: set[float]
) -> None:
    """As inconclusive it would pass where `[gate] inconclusive = "warn"`, though nothing was measured there."""
    made = SMALL.having(edit_request=lambda row: row if row.level in lacking else replace(row, category="code"))
    found = judged(facts_of(made), metric="ttft", statistic="p50", max="1 s", category="code", **where)
    assert found.outcome is GateOutcome.NO_DATA
    assert found.at is not None
    assert found.at.level in lacking


def test_a_category_that_no_request_has_is_named_with_the_nearest() -> None:
    facts = facts_of(SMALL.having(edit_request=lambda row: replace(row, category="code")))
    for table in ({"max": "1 s"}, {"not_worse_by": "5 %"}):
        found = judged(facts, metric="ttft", statistic="p50", category="cdoe", **table)
        assert found.outcome is GateOutcome.NO_DATA
        assert "no request is of the category 'cdoe'. Did you mean `code`? Categories are code" in found.says


def test_an_isolated_comparison_passes_no_rollout() -> None:
    source = '[[slo]]\nmetric = "e2e"\nstatistic = "mean"\nmax = "100 s"\n'
    isolated = {"servers_file": {"comparison": "isolated"}}
    for asked in (GATE, Asked()):
        gate = judgement(SMALL, source, asked, **isolated).gate
        assert gate is not None
        assert (gate.outcome, gate.exit_code) == (GateOutcome.INVALID, 5)
        assert "never whether to roll it out" in gate.headline


def against(here: Judgement, there: Judgement) -> Any:
    found = with_regressions(here, there, "e2e", 0.03, []).gate
    assert found is not None
    return found


def test_a_run_whose_speculation_is_unproven_does_not_pass_against_another() -> None:
    blind = SMALL.having(counters=False)
    assert against(judgement(), judgement()).exit_code == 0
    gate = against(judgement(blind), judgement())
    assert (gate.outcome, gate.exit_code) == (GateOutcome.NO_DATA, 4)
    assert "could not be read from its counters" in gate.headline
    assert "of the other run" in against(judgement(), judgement(blind)).headline
    trust = '[gate]\naccept = ["declared speculation"]\n'
    assert against(judgement(blind, trust), judgement(blind, trust)).exit_code == 0


def test_what_has_failed_stays_failed_though_speculation_is_unproven() -> None:
    source = '[[slo]]\nmetric = "ttft"\nstatistic = "p50"\nmax = "1 ms"\narm = "baseline"\n'
    assert against(judgement(SMALL.having(counters=False), source), judgement()).exit_code == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"smoke": True}, "a smoke run judges nothing"),
        ({"aa": True}, "compares a server with itself"),
        ({"simulated": {"world": "default", "late_ratio": {}}}, "the servers were simulated"),
        ({"status": "given_up", "reason": "hopeless"}, "ended early (hopeless)"),
        ({"status": "interrupted"}, "interrupted"),
    ],
)
def test_nothing_passes_against_a_run_that_is_not_judged(changes: dict[str, Any], said: str) -> None:
    gate = against(judgement(), judgement(**changes))
    assert (gate.outcome, gate.exit_code) == (GateOutcome.INVALID, 5)
    assert said in gate.headline


def test_inconclusive_that_warns_does_not_pass_what_is_unproven() -> None:
    one = SMALL.having(blocks=1, counters=False)  # a decision that cannot be told
    gate = judgement(one, '[gate]\ninconclusive = "warn"\n').gate
    assert gate is not None
    assert (gate.outcome, gate.exit_code) == (GateOutcome.NO_DATA, 4)


def test_simulated_servers_of_which_nothing_is_told_are_simulated() -> None:
    gate = judgement(simulated={}).gate
    assert gate is not None
    assert gate.exit_code == 5


def arms(*versions: str | None) -> list[dict[str, Any]]:
    roles = ((BASE, "baseline"), (SPEC, "candidate"))
    return [{"name": n, "role": role, "model": "m", "version": v} for (n, role), v in zip(roles, versions, strict=True)]


def test_an_unknown_value_of_one_arm_hides_no_difference_of_the_other() -> None:
    old, new = run_of(arms=arms(None, "0.32")), run_of(arms=arms(None, "0.33"))
    with pytest.raises(NotComparable, match=r"version: candidate: 0\.32 → 0\.33"):
        refuse_unnamed(new, old, [])
    assert refuse_unnamed(new, old, ["version"]) == ["Under test: version: candidate: 0.32 → 0.33."]
    same = copy.deepcopy(old)
    assert refuse_unnamed(same, old, []) == []
    assert refuse_unnamed(run_of(arms=arms("0.32", "0.32")), old, []) == ["version is known of one run only."]
