"""Whole runs through the gate: outcome, exit code and sentence; regression against another run; verdict.json."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from gate_facts import PLAIN, failing
from made_run import BASE, SPEC, Made, header

from loadtest.analyse.gate_results import Gate, GateOutcome
from loadtest.analyse.gating import Asked
from loadtest.analyse.judge import judge_data
from loadtest.analyse.regression import items, refuse_unnamed, with_regressions
from loadtest.analyse.results import Judgement
from loadtest.analyse.verdict import as_json, json_schema
from loadtest.errors import ExitCode, NotComparable, UsageError
from loadtest.experiment import as_document, from_toml

GATE = Asked(gate=True)
FIRST = "[load]\nthink_time = 0\n"
MET = '[[slo]]\nmetric = "ttft"\nstatistic = "p90"\nmax = "80 ms"\n'
MISSED = '[[slo]]\nmetric = "ttft"\nstatistic = "p90"\nmax = "40 ms"\n'
OPEN = '[[slo]]\nmetric = "ttft"\nstatistic = "p90"\nmax = "55 ms"\nat = "16 users"\n'
ABSENT = '[[slo]]\nmetric = "ttft"\nstatistic = "p90"\nmax = "80 ms"\ncategory = "code"\n'
STRICT, LENIENT = '[gate]\ninconclusive = "fail"\n', '[gate]\ninconclusive = "warn"\n'


def run_of(source: str, **changes: Any) -> dict[str, Any]:
    return header(experiment=as_document(from_toml(FIRST + source, "x.toml")), **changes)


@cache
def records() -> tuple[Any, ...]:
    return PLAIN.build()[1:]


def gate_of(source: str, asked: Asked = GATE, **changes: Any) -> Gate:
    gate = judge_data(run_of(source, **changes), *records(), None, asked).gate
    assert gate is not None
    return gate


@pytest.mark.parametrize(
    ("source", "outcome", "code", "said"),
    [
        (MET, GateOutcome.PASS, 0, "Gate: passed: the objective is met."),
        (MET + MISSED, GateOutcome.FAIL, 3, "Gate: failed: 1 of 2 objectives: ttft p90 ≤ 40 ms at every tested load"),
        (MET + OPEN, GateOutcome.INCONCLUSIVE, 4, "Gate: inconclusive: 1 of 2 objectives: ttft p90 ≤ 55 ms at 16"),
        (MET + ABSENT, GateOutcome.NO_DATA, 4, "Gate: no data: 1 of 2 objectives"),
        (OPEN + MISSED, GateOutcome.FAIL, 3, "Gate: failed: 1 of 2"),
        (OPEN + ABSENT, GateOutcome.NO_DATA, 4, "Gate: no data: 1 of 2"),
        (OPEN + STRICT, GateOutcome.INCONCLUSIVE, 3, 'inconclusive = "fail": it counts as failed'),
        (OPEN + LENIENT, GateOutcome.INCONCLUSIVE, 0, 'inconclusive = "warn": it passes with a warning'),
        (ABSENT + LENIENT, GateOutcome.NO_DATA, 4, "no data"),
        (MISSED + LENIENT, GateOutcome.FAIL, 3, "failed"),
    ],
)  # fmt: skip
def test_one_outcome_for_all(source: str, outcome: GateOutcome, code: int, said: str) -> None:
    judgement = judge_data(run_of(source), *records(), None, GATE)
    gate = judgement.gate
    assert gate is not None
    assert (gate.outcome, gate.exit_code) == (outcome, code)
    assert said in gate.headline
    assert judgement.decision.exit_code == code
    assert judgement.decision.headline.startswith("Speculation pays at every tested load")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "interrupted"}, "interrupted"),
        ({"smoke": True}, "a smoke run judges nothing"),
        ({"aa": True}, "compares a server with itself"),
        ({"simulated": {"world": "default", "late_ratio": {}}}, "the servers were simulated"),
        ({"comparability": [{"item": "model", "kind": "violation"}]}, "model"),
    ],
)
@pytest.mark.parametrize("source", [MET, ""])
def test_what_must_not_be_judged_is_invalid(changes: dict[str, Any], said: str, source: str) -> None:
    gate = gate_of(source, **changes)
    assert (gate.outcome, gate.exit_code) == (GateOutcome.INVALID, ExitCode.INVALID)
    assert said in gate.headline
    assert gate.capacities == ()


def test_simulated_servers_are_judged_when_asked_for_and_it_is_said() -> None:
    simulated = {"world": "default", "late_ratio": {}}
    gate = gate_of(MET, Asked(gate=True, allow_simulated=True), simulated=simulated)
    assert gate.exit_code == ExitCode.PASS
    assert any("says nothing of real ones" in note for note in gate.notes)
    assert gate_of(MET, Asked(), simulated=simulated).exit_code == ExitCode.PASS  # a run that asked for them


def test_speculation_that_was_inactive_passes_nothing() -> None:
    def idle(values: dict[str, float]) -> dict[str, float]:
        return {k: 0.0 if "spec_decode" in k else v for k, v in values.items()}

    _, cells, scrapes, table = PLAIN.build()
    for scrape in scrapes:
        scrape.values = idle(scrape.values)
    gate = judge_data(run_of(MET), cells, scrapes, table, None, GATE).gate
    assert gate is not None
    assert gate.exit_code == ExitCode.INVALID
    assert "not active" in gate.headline


def test_what_was_only_declared_passes_nothing_unless_accepted() -> None:
    data = PLAIN.having(counters=False).build()[1:]
    gate = judge_data(run_of(MET), *data, None, GATE).gate
    assert gate is not None
    assert (gate.outcome, gate.exit_code) == (GateOutcome.NO_DATA, 4)
    assert 'accept = ["declared speculation"]' in gate.headline
    trusted = judge_data(run_of(MET + '[gate]\naccept = ["declared speculation"]\n'), *data, None, GATE).gate
    assert trusted is not None
    assert trusted.exit_code == ExitCode.PASS
    bare = judge_data(run_of(""), *data, None, GATE).gate
    assert bare is not None
    assert bare.exit_code == 4


def test_without_objectives_the_decision_is_the_gate() -> None:
    gate = gate_of("")
    assert (gate.outcome, gate.exit_code, gate.objectives) == (GateOutcome.PASS, 0, ())
    assert judge_data(run_of(""), *records()).gate is None  # a run without objectives has no gate
    slower = PLAIN.having(speedup=lambda level: 0.8).build()[1:]
    worse = judge_data(run_of(""), *slower, None, GATE).gate
    assert worse is not None
    assert (worse.outcome, worse.exit_code) == (GateOutcome.FAIL, 3)


def test_a_gate_passes_nothing_that_was_only_measured() -> None:
    gate = gate_of("", candidate=None)
    assert (gate.outcome, gate.exit_code) == (GateOutcome.INVALID, 5)
    assert "no objectives" in gate.headline


def test_one_server_alone_is_gated_by_its_objectives() -> None:
    data = PLAIN.having(arms=(BASE,)).build()[1:]
    judgement = judge_data(run_of(MET, candidate=None), *data)
    assert judgement.gate is not None
    assert judgement.decision.exit_code == 0
    assert [c.arm for c in judgement.gate.capacities] == [BASE]


def test_traffic_alone_asks_for_the_least_gain_over_it() -> None:
    traffic = "[traffic]\nloads = [4, 16]\nhours = [12, 12]\n"
    gate = gate_of(traffic)
    assert gate.objectives[0].sentence == "e2e mean at least 3 % better than the baseline at the expected traffic"
    assert gate.exit_code == 0
    assert gate.traffic is not None
    assert gate.traffic.sentence.startswith("Expected speed-up by end-to-end time over the traffic: 1.")
    assert gate_of(traffic + "[decision]\nmin_gain = 0.9\n").exit_code == 3


def test_chunk_gap_against_the_baseline_warns_and_a_preset_names_its_source() -> None:
    slo = '[[slo]]\nmetric = "chunk_gap"\nstatistic = "mean"\nnot_worse_by = "5 %"\n'
    assert any("longer under speculation by design" in note for note in gate_of(slo).notes)
    assert not any("by design" in note for note in gate_of(slo.replace('not_worse_by = "5 %"', 'max = "1 s"')).notes)
    preset = gate_of('[[slo]]\npreset = "mlperf-llama2-70b"\nat = "16 users"\n')
    assert [r.metric for r in preset.objectives] == ["ttft", "tpot"]
    assert any("MLPerf Inference" in note for note in preset.notes)


def test_capacity_stands_in_the_gate() -> None:
    gate = gate_of(MET + "[price]\ngpu_hour = 2.5\n", arms=[{"name": BASE, "gpus": 1}, {"name": SPEC, "gpus": 2}])
    assert [c.gpus for c in gate.capacities] == [1, 2]
    assert gate.capacity_sentence.startswith("Capacity: speculative meets the objectives at every tested load")


# --- verdict.json


def test_verdicts_follow_the_published_schema() -> None:
    published = json.loads((Path(__file__).parents[3] / "docs" / "verdict.schema.json").read_text(encoding="utf-8"))
    assert published == json_schema(), "write docs/verdict.schema.json again: scripts/verdict-schema"
    validate = fastjsonschema.compile(published)
    broken = PLAIN.having(edit_request=lambda row: failing(row, 1)).build()[1:]
    judgements = [
        judge_data(run_of(MET + MISSED + OPEN), *records(), None, GATE),
        judge_data(run_of(MET), *broken, None, GATE),
        judge_data(run_of(""), *records()),
        judge_data(run_of("", candidate=None), *PLAIN.having(arms=(BASE,)).build()[1:]),
    ]
    for judgement in judgements:
        validate(json.loads(json.dumps(as_json(judgement), allow_nan=False)))
    wrong = as_json(judgements[0])
    wrong["gate"]["outcome"] = "fine"
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        validate(json.loads(json.dumps(wrong)))


# --- regression


def arms(**changes: Any) -> list[dict[str, Any]]:
    common = {"model": "m", "version": "0.32", "identity": {"kind": "vllm", "config": {"a": 1, "port": 8000}}}
    return [{"name": BASE, "role": "baseline", **common, **changes},
            {"name": SPEC, "role": "candidate", **common, "speculative": {"method": "eagle3"}, **changes}]  # fmt: skip


def judged(made: Made, run: dict[str, Any]) -> Judgement:
    return judge_data(run, *made.build()[1:], None, GATE)


OTHER_DAY = PLAIN.having(seed=99)


@pytest.mark.parametrize(
    ("speedup", "outcome", "code"),
    [(1.5, GateOutcome.PASS, 0), (1.3, GateOutcome.FAIL, 3), (1.43, GateOutcome.INCONCLUSIVE, 4)],
)
def test_a_candidate_against_the_same_of_another_day(speedup: float, outcome: GateOutcome, code: int) -> None:
    run = run_of("", arms=arms())
    here = judged(OTHER_DAY.having(speedup=lambda level: speedup), run)
    there = judged(PLAIN, run)
    found = with_regressions(here, there, "e2e", 0.03, [])
    gate = found.gate
    assert gate is not None
    assert (gate.outcome, gate.exit_code) == (outcome, code)
    assert all(r.of_ratios for r in gate.regressions if r.metric != "error_ratio")
    assert {r.metric for r in gate.regressions if r.judged} == {"e2e", "error_ratio"}
    assert any("not paired" in note for note in gate.notes)


def test_the_interval_of_two_days_is_wider_than_either() -> None:
    run = run_of("", arms=arms())
    here, there = judged(OTHER_DAY, run), judged(PLAIN, run)
    gate = with_regressions(here, there, "e2e", 0.03, []).gate
    assert gate is not None
    both = next(r.ratio for r in gate.regressions if r.metric == "e2e" and r.level == 16.0)
    own = next(s.ratio for s in here.speedups if s.metric == "e2e" and s.level == 16.0)
    assert both.low is not None
    assert both.high is not None
    assert own.low is not None
    assert own.high is not None
    assert both.high / both.low > own.high / own.low


def test_a_day_that_was_slower_for_both_arms_cancels_and_one_arm_alone_does_not() -> None:
    run = run_of("", arms=arms())
    slower = OTHER_DAY.having(gap_s=PLAIN.gap_s * 1.2, ttft_s=PLAIN.ttft_s * 1.2)
    gate = with_regressions(judged(slower, run), judged(PLAIN, run), "e2e", 0.03, []).gate
    assert gate is not None
    assert gate.exit_code == 0
    alone = run_of(MET, candidate=None, arms=arms()[:1])
    data = [made.having(arms=(BASE,)) for made in (slower, PLAIN)]
    gate = with_regressions(judged(data[0], alone), judged(data[1], alone), "e2e", 0.03, []).gate
    assert gate is not None
    assert gate.exit_code == 3
    assert not any(r.of_ratios for r in gate.regressions)


def test_more_failures_than_before_are_a_regression() -> None:
    run = run_of("", arms=arms())
    here = judged(OTHER_DAY.having(edit_request=lambda row: failing(row, 10)), run)
    gate = with_regressions(here, judged(PLAIN, run), "e2e", 0.5, []).gate
    assert gate is not None
    assert gate.exit_code == 3
    assert "error ratio" in gate.headline


def test_an_invalid_run_on_either_side_is_no_comparison() -> None:
    run, stopped = run_of("", arms=arms()), run_of("", arms=arms(), status="interrupted")
    for pair in ((run, stopped), (stopped, run)):
        here, there = (judged(made, one) for made, one in zip((OTHER_DAY, PLAIN), pair, strict=True))
        gate = with_regressions(here, there, "e2e", 0.03, []).gate
        assert gate is not None
        assert gate.exit_code == ExitCode.INVALID


def test_runs_without_a_load_in_common_are_no_comparison() -> None:
    run = run_of("", arms=arms())
    gate = with_regressions(judged(PLAIN.having(levels=(8.0,)), run), judged(PLAIN, run), "e2e", 0.03, []).gate
    assert gate is not None
    assert gate.exit_code == ExitCode.INVALID
    assert "no load in common" in gate.headline


def test_loads_that_one_run_alone_tested_are_named() -> None:
    run = run_of("", arms=arms())
    gate = with_regressions(judged(PLAIN.having(levels=(4.0,)), run), judged(PLAIN, run), "e2e", 0.03, []).gate
    assert gate is not None
    assert "Tested in one of the two runs only, and not compared: 16 users." in gate.notes


def test_what_differs_must_be_named() -> None:
    old, new = run_of("", arms=arms()), run_of("", arms=arms(version="0.33"))
    with pytest.raises(NotComparable, match=r"version: baseline: 0\.32 → 0\.33; candidate: 0\.32 → 0\.33"):
        refuse_unnamed(new, old, [])
    for name in ("version", "vllm_version"):
        assert any("Under test: version" in note for note in refuse_unnamed(new, old, [name]))
    with pytest.raises(NotComparable, match=r"--changed model,version"):
        refuse_unnamed(new, old, ["model"])
    with pytest.raises(UsageError, match="Did you mean `model`"):
        refuse_unnamed(new, old, ["modle"])
    assert any("is the same in both" in note for note in refuse_unnamed(new, old, ["version", "model"]))


@pytest.mark.parametrize(
    "path", [("generation", "temperature"), ("window", "min_s"), ("plan", "seed"), ("limits", "total_s")]
)
def test_every_setting_that_shapes_a_measurement_must_be_named(path: tuple[str, str]) -> None:
    old, new = run_of("", arms=arms()), run_of("", arms=arms())
    new = copy.deepcopy(new)
    new["experiment"][path[0]][path[1]] = 12345
    with pytest.raises(NotComparable, match=r"\.".join(path)):
        refuse_unnamed(new, old, [])
    refuse_unnamed(new, old, [".".join(path)])


def test_settings_are_compared_but_for_what_always_differs() -> None:
    old, new = run_of("", arms=arms()), run_of("", arms=arms())
    new = copy.deepcopy(new)
    new["arms"][0]["identity"]["config"]["port"] = 9000
    assert refuse_unnamed(new, old, [], ("*port*",)) == []
    new["arms"][0]["identity"]["config"]["a"] = 2
    with pytest.raises(NotComparable, match="settings: baseline: a: 1 → 2"):
        refuse_unnamed(new, old, [], ("*port*",))
    del new["arms"][0]["identity"]["config"]
    assert refuse_unnamed(new, old, [], ("*port*",)) == ["settings is known of one run only."]
    assert items(new, ())["settings"]["baseline"] is None
