"""What a run lacks meets no objective: cells that a server gave in at, proof at a level, loads below all tested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gate_facts import PLAIN, facts_of, judged
from made_run import BASE, SPEC, Made, header

from loadtest.analyse.gate_results import GateOutcome, SloResult
from loadtest.analyse.gating import Asked
from loadtest.analyse.judge import judge_data
from loadtest.analyse.objectives import cell_figure
from loadtest.analyse.regression import with_regressions
from loadtest.analyse.results import Judgement
from loadtest.experiment import as_document, from_toml
from loadtest.record import NOT_CARRIED, CellRecord, Request, Scrape
from loadtest.settings import Limits
from loadtest.slo import Slo
from loadtest.slo_tables import objectives

PASS, FAIL, NO_DATA = GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.NO_DATA
OBJECTIVES = {
    "tail": 'metric = "ttft"\nstatistic = "p90"\nmax = "500 ms"\n',
    "mean": 'metric = "e2e"\nstatistic = "mean"\nmax = "9 s"\n',
    "errors": 'metric = "error_ratio"\nmax = "5 %"\n',
    "goodput": 'metric = "goodput"\nmin = "50 %"\nwithin = { ttft = "1 s" }\n',
    "carried": 'metric = "requests_per_s"\nmin = "0.01 requests/s"\n',
    "acceptance": 'metric = "acceptance_ratio"\nmin = "1 %"\n',
    "not worse": 'metric = "e2e"\nstatistic = "mean"\nnot_worse_by = "50 %"\n',
    "errors, not worse": 'metric = "error_ratio"\nnot_worse_by = "20 points"\n',
}
OF_BASELINE = 'metric = "ttft"\nstatistic = "p90"\nmax = "500 ms"\narm = "baseline"\n'


def run_of(source: str, **changes: Any) -> dict[str, Any]:
    return header(experiment=as_document(from_toml("[load]\nthink_time = 0\n" + source, "x.toml")), **changes)


def judgement_of(made: Made, source: str, *, scrapes: Callable[[Scrape], bool] = lambda _: True,
                 **changes: Any) -> Judgement:  # fmt: skip
    _, cells, read, table = made.build()
    return judge_data(run_of(source, **changes), cells, [s for s in read if scrapes(s)], table, None, Asked(gate=True))


def result(made: Made, table: str, *, scrapes: Callable[[Scrape], bool] = lambda _: True) -> SloResult:
    gate = judgement_of(made, f"[[slo]]\n{table}", scrapes=scrapes).gate
    assert gate is not None
    (found,) = gate.objectives
    return found


def giving_in(arm: str, blocks: range) -> Made:
    """PLAIN, whose arm gives in at 16 users in these blocks."""

    def edit(record: CellRecord) -> CellRecord:
        made = PLAIN.edit_cell(record)
        gone = record.arm == arm and record.level == 16 and record.block in blocks
        return replace(made, state=NOT_CARRIED, reason="1024 requests were in flight") if gone else made

    return PLAIN.having(edit_cell=edit)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_objective_is_met_by_the_blocks_in_which_the_server_coped(name: str) -> None:
    assert result(PLAIN, OBJECTIVES[name]).outcome is PASS
    found = result(giving_in(SPEC, range(4)), OBJECTIVES[name])
    assert found.at is not None
    assert (found.outcome, found.at.level) == (NO_DATA, 16.0)
    assert "did not carry the load in 4 of 6 blocks" in found.says


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_load_that_the_server_carried_in_no_block_fails_every_objective_there(name: str) -> None:
    found = result(giving_in(SPEC, range(6)), OBJECTIVES[name])
    assert found.at is not None
    assert (found.outcome, found.at.level) == (FAIL, 16.0)
    assert found.says == "its server carried the load in no block"
    assert result(giving_in(SPEC, range(6)), OBJECTIVES[name] + 'up_to = "4 users"\n').outcome is PASS


@pytest.mark.parametrize("blocks", [range(4), range(6)])
def test_a_baseline_that_gave_in_is_nothing_to_be_held_against(blocks: range) -> None:
    gone = giving_in(BASE, blocks)
    assert result(gone, OBJECTIVES["tail"]).outcome is PASS
    for name in ("not worse", "errors, not worse"):
        found = result(gone, OBJECTIVES[name])
        assert (found.outcome, found.says[:36]) == (NO_DATA, "the baseline is no measure there: it")
    assert result(gone, OF_BASELINE).outcome is (FAIL if len(blocks) == 6 else NO_DATA)


def test_nothing_is_compared_where_a_server_gave_in() -> None:
    whole, gone = judgement_of(PLAIN, ""), judgement_of(giving_in(SPEC, range(1)), "")
    assert {s.level for s in whole.speedups} == {4.0, 16.0}
    assert {s.level for s in gone.speedups} == {4.0}
    assert any("The load was not carried: speculative at 16 users in 1 of 6 blocks" in note for note in gone.notes)


@pytest.mark.parametrize("asked", ["3.9 users", "1 users", "1e-300 users"])
def test_a_load_below_all_that_were_tested_is_not_proven_by_the_lowest(asked: str) -> None:
    found = result(PLAIN, OBJECTIVES["tail"] + f'up_to = "{asked}"\n')
    assert found.outcome is NO_DATA
    assert found.says.startswith("only 4 to 16 users were tested, and ")


def test_speculation_is_proven_level_by_level() -> None:
    def at_4_alone(scrape: Scrape) -> bool:
        return scrape.arm == BASE or (scrape.cell // 2) % 2 == 0

    there, here = (OBJECTIVES["tail"] + f'at = "{level} users"\n' for level in (16, 4))
    assert result(PLAIN, here, scrapes=at_4_alone).outcome is PASS
    found = result(PLAIN, there, scrapes=at_4_alone)
    assert found.outcome is NO_DATA
    assert found.says.startswith("at 16 that speculation was on in speculative could not be read from its counters")
    trusted = judgement_of(PLAIN, f'[gate]\naccept = ["declared speculation"]\n[[slo]]\n{there}', scrapes=at_4_alone)
    assert trusted.gate is not None
    assert trusted.gate.outcome is PASS


def test_requests_that_do_not_tell_whether_they_were_good_are_taken_to_be_as_the_others() -> None:
    (slo,) = objectives(
        ({"metric": "goodput_per_s", "min": "1 requests/s", "within": {"tpot": "1 s", "ttft": "60 ms"}},)
    )

    def a_tenth(row: Request) -> Request:
        asked = row.session % 10 == 0
        return row if asked else replace(row, asked="none", tokens_source="none", chunk_tokens=[])

    for arm in (BASE, SPEC):
        all_asked = figures(PLAIN, slo, arm)
        some = figures(PLAIN.having(edit_request=a_tenth), slo, arm)
        assert some == pytest.approx(all_asked, rel=0.35)
        assert sum(some) / len(some) == pytest.approx(sum(all_asked) / len(all_asked), rel=0.15)


def figures(made: Made, slo: Slo, arm: str) -> list[float]:
    found = facts_of(made).found
    return [cell_figure(slo, found.requests.cell(c), Limits()) for c in found.of(arm, 16.0)]


@pytest.mark.parametrize("statistic", ["p50", "p90", "mean"])
def test_one_block_meets_no_limit_whatever_the_statistic(statistic: str) -> None:
    found = judged(facts_of(PLAIN.having(blocks=1)), metric="ttft", statistic=statistic, max="500 ms")
    assert (found.outcome, found.says) == (NO_DATA, "one block gives no interval")


def test_another_run_passes_nothing_that_was_only_measured() -> None:
    here = judgement_of(PLAIN, "[gate]\nregression_margin = 0.25\n", measure_only=True)
    assert here.gate is not None
    assert (here.gate.outcome, here.gate.exit_code) == (GateOutcome.INVALID, 5)
    there = judgement_of(PLAIN.having(seed=8), "", measure_only=True)
    done = with_regressions(here, there, "e2e", 0.25, ()).gate
    assert done is not None
    assert (done.outcome, done.exit_code, done.headline) == (GateOutcome.INVALID, 5, here.gate.headline)
    assert {r.outcome for r in done.regressions if r.judged} == {PASS}
