"""Whole judgements of made runs: every answer, its exit code and its sentence."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_run import BASE, SPEC, Made, header

from loadtest.analyse.decide import answer_of
from loadtest.analyse.estimates import Crossing
from loadtest.analyse.judge import judge, judge_data
from loadtest.analyse.results import Answer, Finding, Judgement
from loadtest.analyse.verdict import as_json
from loadtest.errors import ExitCode, UsageError
from loadtest.experiment import as_document
from loadtest.json_files import LineWriter, write_json
from loadtest.record import CellRecord, Request
from loadtest.record_writer import RequestWriter
from loadtest.run_folder import finish_requests
from loadtest.settings import Decision, Experiment, Load

FALLING = Made(speedup=lambda level: 1.8 - 0.2 * float(np.log2(level)))  # of the decode; 1 at 16 users


def judged(made: Made) -> Judgement:
    return judge_data(*made.build())


def with_rules(**rules: Any) -> dict[str, Any]:
    return header(experiment=as_document(Experiment(load=Load(think_time=0), decision=Decision(**rules))))


def test_pays_up_to() -> None:
    found = judged(FALLING)
    decision = found.decision
    assert (decision.answer, decision.exit_code) == (Answer.PAYS_UP_TO, ExitCode.PASS)
    assert decision.headline.split("; the limit itself is estimated at ") == [
        "Speculation pays up to 13 users by end-to-end time, by at least 3 %", "13.7 [13.3, 14.2] users."
    ]  # fmt: skip
    assert decision.limit is not None
    assert decision.break_even is not None
    assert decision.limit.threshold == 1.03
    assert decision.break_even.threshold == 1.0
    low, value, high = decision.limit.at.low, decision.limit.at.value, decision.limit.at.high
    assert low is not None
    assert value is not None
    assert high is not None
    assert 13 < low < value < high < 15
    assert decision.break_even.at.value is not None
    assert value < decision.break_even.at.value
    assert decision.limit.in_flight.value == pytest.approx(value)  # without think time users are in flight
    assert decision.recommendation == "on up to 13 users"
    assert found.levels == (1.0, 4.0, 16.0, 64.0)
    assert found.arms == (BASE, SPEC)


def test_pays_everywhere_says_how_far_from_saturation() -> None:
    decision = judged(Made()).decision
    assert (decision.answer, decision.exit_code) == (Answer.PAYS_EVERYWHERE, ExitCode.PASS)
    head, growth = decision.headline.split("; ")
    assert head == "Speculation pays at every tested load (1 to 64 users) by end-to-end time, by at least 3 %"
    # throughput N ÷ latency, latency 0.05 + 0.38·(1 + N ÷ 50): per doubling from 16 to 64
    expected = math.sqrt(4 * (0.05 + 0.38 * 1.32) / (0.05 + 0.38 * 2.28)) - 1
    grown = float(growth.removeprefix("throughput of the baseline still grew by ").split(" ")[0])
    assert grown == pytest.approx(100 * expected, abs=8)
    assert decision.recommendation == "on"


def test_never_pays() -> None:
    decision = judged(Made(speedup=lambda level: 0.8)).decision
    assert (decision.answer, decision.exit_code) == (Answer.NEVER_PAYS, ExitCode.FAILED)
    assert "pays at none of the tested loads (1 to 64 users)" in decision.headline
    assert "the best speed-up is 0.8" in decision.headline
    assert decision.recommendation == "off"


def test_a_gain_below_the_least_one_does_not_pay() -> None:
    made = Made(speedup=lambda level: 1.08)
    assert judged(made).decision.answer is Answer.PAYS_EVERYWHERE
    assert judged(made.having(run=with_rules(min_gain=0.15))).decision.answer is Answer.NEVER_PAYS


def test_pays_in_a_band() -> None:
    decision = judged(Made(speedup=lambda level: 1.4 if level == 16 else 0.8)).decision
    assert (decision.answer, decision.exit_code) == (Answer.PAYS_IN_BAND, ExitCode.PASS)
    assert "pays at 16 users by end-to-end time" in decision.headline
    assert decision.limit is not None
    assert decision.limit.form is Crossing.BAND


def test_cannot_tell_and_what_would_settle_it() -> None:
    decision = judged(Made(speedup=lambda level: 1.035, noise=0.05)).decision
    assert (decision.answer, decision.exit_code) == (Answer.CANNOT_TELL, ExitCode.INCONCLUSIVE)
    assert decision.recommendation == "measure more"
    assert decision.would_settle
    assert len(decision.reasons) == 4


def test_one_block_cannot_tell() -> None:
    decision = judged(Made(blocks=1)).decision
    assert (decision.answer, decision.exit_code) == (Answer.CANNOT_TELL, ExitCode.INCONCLUSIVE)
    assert "At least 3 blocks" in decision.would_settle
    assert decision.break_even is not None
    assert decision.break_even.form is Crossing.NO_DATA


def test_a_broken_guard_stops_it_before_the_metric_does() -> None:
    made = Made(speedup=lambda level: 2.0, ttft_factor=lambda level: 1.5 if level >= 16 else 1.0)
    decision = judged(made).decision
    assert decision.answer is Answer.PAYS_UP_TO
    assert decision.headline.startswith(
        "Speculation pays up to 4 users by end-to-end time, by at least 3 %; at 16 users"
    )
    assert decision.limit is not None
    assert (decision.limit.at.low, decision.limit.at.high) == (4.0, 16.0)
    assert decision.limit.ended_by.startswith("first tokens are 5")
    assert f"at 16 users a guard ends it: {decision.limit.ended_by}" in decision.headline
    assert decision.headline.count("first tokens") == 1
    assert {g.level for g in decision.guards if g.finding is Finding.BROKEN and g.name == "ttft"} == {16.0, 64.0}
    assert decision.second.startswith("First tokens are on average 5")
    assert "later from 16 users on." in decision.second
    relaxed = made.having(run=with_rules(ttft_ignore_below_s=1.0))
    assert judged(relaxed).decision.answer is Answer.PAYS_EVERYWHERE


def test_guards_that_never_hold_mean_that_it_never_pays() -> None:
    decision = judged(Made(speedup=lambda level: 2.0, ttft_factor=lambda level: 1.5)).decision
    assert decision.answer is Answer.NEVER_PAYS
    assert "first tokens are" in decision.headline


def test_failures_of_the_candidate_break_a_guard() -> None:
    def fail(row: Request) -> Request:
        if row.arm == SPEC and row.level == 64.0 and row.session % 5 == 0:
            row.outcome = "timeout"
        return row

    found = judged(Made(edit_request=fail))
    assert found.decision.answer is Answer.PAYS_UP_TO
    assert "at 64 users" in found.decision.headline
    assert "the share of failed requests is 20.0 points higher" in found.decision.headline
    level = next(row for row in found.arm_levels if row.arm == SPEC and row.level == 64.0)
    assert (level.requests, level.failed, level.outcomes) == (360, 72, {"ok": 288, "timeout": 72})
    assert level.tails["ttft"].p95.value == math.inf


def test_a_guard_without_data_leaves_it_open() -> None:
    def uncounted(row: Request) -> Request:
        row.chunk_tokens = []
        return row

    decision = judged(Made(edit_request=uncounted)).decision
    assert decision.answer is Answer.CANNOT_TELL
    assert "on_time has no data" in decision.would_settle
    assert decision.reasons[0] == "At 1 user the share of tokens on time is not known."


def test_an_aborted_top_level_leaves_the_end_open() -> None:
    def give_up(record: CellRecord) -> CellRecord:
        return replace(record, state="aborted", reason="20 failures") if record.level == 64.0 else record

    found = judged(Made(edit_cell=give_up))
    assert found.decision.answer is Answer.PAYS_UP_TO
    assert found.decision.limit is not None
    assert (found.decision.limit.at.low, found.decision.limit.at.high) == (16.0, None)
    assert "12 of 48 cells are invalid and left out." in found.notes
    assert "At 64 users no valid pair of cells exists." in found.decision.reasons
    assert [c.marks[0] for c in found.cells if not c.valid] == ["The cell was aborted: 20 failures."] * 12


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (header(status="interrupted", reason="Ctrl-C"), "The run was interrupted (Ctrl-C)."),
        (header(simulated={"world": "default", "late_ratio": {BASE: 0.5}}), "was late in 50.0 % of its steps"),
    ],
)
def test_an_invalid_run_is_shown_and_not_judged(run: dict[str, Any], reason: str) -> None:
    found = judged(Made(run=run))
    assert (found.decision.answer, found.decision.exit_code) == (Answer.INVALID, ExitCode.INVALID)
    assert reason in found.decision.headline
    assert found.speedups
    assert found.arm_levels
    assert found.why
    assert found.decision.limit is None


def test_two_equal_servers_are_no_comparison() -> None:
    made = Made(speedup=lambda level: 1.0)
    run, cells, scrapes, table = made.build()
    for one in scrapes:
        one.values = {name: v for name, v in one.values.items() if "spec_decode" not in name}
        if one.arm == SPEC:
            one.values["vllm:inter_token_latency_seconds_count"] *= 2
    decision = judge_data(run, cells, scrapes, table).decision
    assert decision.answer is Answer.INVALID
    assert decision.reasons == ("Speculation was not active in speculative: 1.000 tokens per step (limit 1.01).",)


@pytest.mark.parametrize(
    "keys", [{"smoke": True}, {"measure_only": True}, {"servers_file": {"comparison": "isolated"}}]
)
def test_measuring_only(keys: dict[str, bool]) -> None:
    found = judged(Made(run=header(**keys), blocks=2))
    assert (found.decision.answer, found.decision.exit_code) == (Answer.MEASURED, ExitCode.PASS)
    assert found.speedups
    interrupted = judged(Made(run=header(status="interrupted", **keys), blocks=2))
    assert interrupted.decision.exit_code == ExitCode.INVALID


def test_a_smoke_run_says_whether_everything_is_ready() -> None:
    found = judged(Made(run=header(smoke=True), blocks=1))
    assert found.decision.headline == (
        "Ready to measure: everything worked, at 1 to 64 users. A smoke run judges nothing."
    )


def test_one_server_alone() -> None:
    found = judged(Made(arms=(BASE,), run=header(candidate=None)))
    assert (found.decision.answer, found.decision.exit_code) == (Answer.MEASURED, ExitCode.PASS)
    assert found.decision.headline == "One server was measured, at 1 to 64 users: nothing was compared."
    assert found.speedups == ()
    assert found.arms == (BASE,)
    assert len(found.arm_levels) == 4


def test_figures_of_an_arm_at_a_level() -> None:
    found = judged(FALLING)
    row = next(r for r in found.arm_levels if r.arm == BASE and r.level == 4.0)
    gap = 0.02 * (1 + 4 / 50)
    assert row.requests == 360
    assert row.failed == 0
    assert row.means["tpot"].value == pytest.approx(gap, rel=0.01)
    assert row.means["tpot"].n == 6
    assert row.means["tokens_per_chunk"].value == 1.0
    assert row.tails["ttft"].deepest == "p95"  # 360 requests bound p95, and not p99
    assert row.tails["ttft"].p99.high is None
    assert row.running == 4.0
    assert row.in_flight == 4.0
    assert row.finish_reasons == {"stop": 360}
    speedup = next(s for s in found.speedups if s.metric == "tpot" and s.level == 4.0)
    assert speedup.ratio.value == pytest.approx(1.4, rel=0.02)
    assert len(speedup.blocks) == 6
    assert found.median_pair[4.0] == pytest.approx(speedup.ratio.value, rel=0.1)
    assert found.slower_share[64.0] == 1.0


def test_cells_reconcile_with_the_server() -> None:
    one = judged(FALLING).cells[0]
    assert (one.tokens_client, one.tokens_server, one.requests_client, one.requests_server) == (1220, 1220, 61, 61)
    assert one.valid
    assert one.marks == ()


def test_another_metric_that_disagrees_is_named() -> None:
    made = Made(speedup=lambda level: 1.6, ttft_factor=lambda level: 40.0 if level >= 16 else 1.0)
    decision = judged(made.having(run=with_rules(ttft_ignore_below_s=60.0))).decision
    assert (
        "By time per output token the candidate beats the baseline at every tested load (1 to 64 users)."
        in decision.second
    )


def test_throughput_has_no_break_even_when_users_pause() -> None:
    run = header(experiment=as_document(Experiment()))

    def pausing(record: CellRecord) -> CellRecord:
        return replace(record, in_flight_mean=record.level * 0.5)

    found = judged(Made(run=run, edit_cell=pausing))
    assert "output_tokens_per_s" not in {b.metric for b in found.break_evens}
    assert "output_tokens_per_s" in {s.metric for s in found.speedups}
    assert "output_tokens_per_s" in {b.metric for b in judged(Made()).break_evens}


@pytest.mark.parametrize(
    ("states", "answer"),
    [
        ("PPPP", Answer.PAYS_EVERYWHERE), ("NNNN", Answer.NEVER_PAYS), ("PPNN", Answer.PAYS_UP_TO),
        ("POON", Answer.PAYS_UP_TO), ("PPPO", Answer.PAYS_UP_TO), ("OPPN", Answer.PAYS_IN_BAND),
        ("NPPP", Answer.PAYS_IN_BAND), ("PNPP", Answer.PAYS_IN_BAND), ("NNNO", Answer.CANNOT_TELL),
        ("OOOO", Answer.CANNOT_TELL), ("", Answer.CANNOT_TELL),
    ],
)  # fmt: skip
def test_answers_from_the_states_of_levels(states: str, answer: Answer) -> None:
    names = {"P": "pays", "N": "not", "O": "open"}
    assert answer_of([names[s] for s in states]) is answer


def test_a_run_without_a_cell_is_invalid() -> None:
    run, _, _, table = Made(blocks=1, levels=(1.0,)).build()
    assert judge_data(run, [], [], table.slice(0, 0)).decision.answer is Answer.INVALID


def test_a_folder_is_judged_like_its_data(tmp_path: Path) -> None:
    made = FALLING.having(levels=(4.0, 64.0), blocks=3)
    run, cells, scrapes, table = made.build()
    write_json(tmp_path / "run.json", run)
    for name, rows in (("cells.jsonl", cells), ("server.jsonl", scrapes)):
        lines = LineWriter(tmp_path / name)
        for row in rows:
            lines.write(row)
        lines.close()
    writer = RequestWriter(tmp_path / "requests.arrows")
    for values in table.to_pylist():
        writer.add(Request(**values))
    writer.close()
    assert as_json(judge(tmp_path)) == as_json(judge_data(run, cells, scrapes, table, detailed=True))
    finish_requests(tmp_path)
    assert judge(tmp_path).decision.answer is Answer.PAYS_UP_TO
    with pytest.raises(UsageError, match=r"holds no run\.json"):
        judge(tmp_path / "none")


def test_verdict_is_strict_json() -> None:
    def fail(row: Request) -> Request:
        row.outcome = "timeout" if row.session % 2 else row.outcome
        return row

    document = as_json(judged(FALLING.having(edit_request=fail)))
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again == document
    assert again["schema"] == 1
    assert again["arm_levels"][0]["tails"]["ttft"]["p95"]["value"] == "inf"
    assert again["decision"]["answer"] in {a.value for a in Answer}
    assert set(again["median_pair"]) == {"1", "4", "16", "64"}
