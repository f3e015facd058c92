"""Findings of whole runs: made ones whose figures are known, and simulated worlds whose truth is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from made_run import BASE, SPEC, Made, header

from loadtest.analyse.findings import Findings, LineCrossing
from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Judgement
from loadtest.analyse.verdict import as_json
from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import run_virtual
from loadtest.experiment import override
from loadtest.record import Scrape
from loadtest.simulate.worlds import world
from loadtest.workload.templates import TemplateSource

SCENARIO = Path(__file__).parents[3] / "scenarios" / "chat.py"


def found(made: Made, edit: Callable[[Scrape], None] = lambda scrape: None) -> tuple[Judgement, Findings]:
    run, cells, scrapes, table = made.build()
    for scrape in scrapes:
        edit(scrape)
    judgement = judge_data(run, cells, scrapes, table)
    assert judgement.findings is not None
    return judgement, judgement.findings


def crossing_lines(level: float) -> float:
    """A decode speed-up for which the latency of both arms of `Made` is a straight line, crossing at 20 users."""
    base, spec = 0.02 * (1 + level / 50), 0.014 + 0.0007 * level
    return base / spec


@cache
def _straight() -> tuple[Judgement, Findings]:
    return found(Made(speedup=crossing_lines))


def test_the_law_of_a_made_run_crosses_where_its_lines_do() -> None:
    """Per token 0.02 · (1 + N ÷ 50) against 0.014 + 0.0007·N: they are equal at N = 20."""
    judgement, findings = _straight()
    law = findings.law
    assert law is not None
    assert law.crossing is LineCrossing.PAYS_BELOW
    assert law.at.value == pytest.approx(20, abs=1)
    assert law.levels == (1.0, 4.0, 16.0, 64.0)
    assert [line.arm for line in law.lines] == [BASE, SPEC]
    assert law.lines[0].c2_s.value == pytest.approx(19 * 0.02 / 50, rel=0.03)
    assert law.lines[1].c1_s.value == pytest.approx(0.05 + 19 * 0.014, rel=0.03)
    even = next(b for b in judgement.break_evens if b.metric == "e2e")
    assert even.in_flight.value is not None
    assert law.agrees is not None


def test_a_level_with_a_queue_or_preemption_is_left_out_of_the_law() -> None:
    def queue(scrape: Scrape) -> None:
        level_64 = scrape.values["vllm:num_requests_running"] == 64.0
        scrape.values["vllm:num_requests_waiting"] = 10.0 if level_64 else 0.5

    assert found(Made(speedup=crossing_lines, blocks=2), queue)[1].law.levels == (1.0, 4.0, 16.0)  # type: ignore[union-attr]

    def preempt(scrape: Scrape) -> None:
        if scrape.arm == SPEC and scrape.values["vllm:num_requests_running"] == 16.0:
            scrape.values["vllm:num_preemptions_total"] = float(scrape.moment == "window_close")

    assert found(Made(speedup=crossing_lines, blocks=2), preempt)[1].law.levels == (1.0, 4.0, 64.0)  # type: ignore[union-attr]


def test_the_counters_of_a_made_run() -> None:
    _, findings = _straight()
    accepted = findings.acceptance
    assert accepted is not None
    assert [slot.survival.value for slot in accepted.slots] == pytest.approx([0.6, 0.3, 0.1])
    assert [slot.conditional.value for slot in accepted.slots] == pytest.approx([0.6, 0.5, 1 / 3])
    assert accepted.ratio.value == pytest.approx(1 / 3)
    assert findings.batch_table is not None
    setting = json.loads(findings.batch_table.setting)["num_speculative_tokens_per_batch_size"]
    assert [row[2] for row in setting] == [3, 0]  # three slots in the counters are three draft tokens
    assert 16 <= setting[0][1] < 64
    assert findings.noise is None
    assert findings.held_against is None


def test_the_draft_tokens_come_from_the_server_where_it_says_them() -> None:
    arms = [{"name": BASE}, {"name": SPEC, "speculative": {"method": "eagle3", "num_speculative_tokens": 5}}]
    declared = [{"name": SPEC, "declared": {"num_speculative_tokens": 7}}]
    for k, run in ((5, header(arms=arms)), (7, header(arms=declared))):
        table = found(Made(speedup=crossing_lines, blocks=2, run=run))[1].batch_table
        assert table is not None
        assert table.rows[0].draft_tokens == k


def test_starts_count_as_blocks_everywhere() -> None:
    """With starts the intervals of speed-ups and guards rest on the blocks alone, and are wider."""
    usual, by_start = (found(Made(speedup=crossing_lines, blocks=3, noise=0.02, run=header(starts=starts)))[0]
                       for starts in (1, 3))  # fmt: skip
    for a, b in zip(usual.speedups, by_start.speedups, strict=True):
        assert _width(b.ratio) >= _width(a.ratio)
    guards = [(g, h) for g, h in zip(usual.decision.guards, by_start.decision.guards, strict=True) if g.name == "ttft"]
    assert all(_width(h.ratio) > _width(g.ratio) for g, h in guards)


def _width(estimate: Any) -> float:
    return (estimate.high or 0.0) - (estimate.low or 0.0)


def test_a_later_look_is_surer_and_its_intervals_wider() -> None:
    look = {"number": 2, "blocks": 3, "of": 2, "confidence": 0.99}
    usual, later = (found(Made(blocks=3, noise=0.02, run=header(**more)))[0] for more in ({}, {"look": look}))
    assert all(_width(b.ratio) > _width(a.ratio) for a, b in zip(usual.speedups, later.speedups, strict=True))


def test_the_verdict_holds_them_as_strict_json() -> None:
    document = as_json(_straight()[0])
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["findings"]["law"]["crossing"] == "pays_below"
    assert again["findings"]["acceptance"]["slots"][0]["slot"] == 1
    assert again["findings"]["batch_table"]["rows"][0]["start"] == 1


@cache
def of_world(name: str) -> Judgement:
    experiment = prepare(Options(scenario=SCENARIO, world=name), {}).experiment
    experiment = override(override(experiment, "plan", seed=11, blocks=3), "load", levels=(8.0, 24.0, 56.0))
    pair = world(name)
    arms = {BASE: pair.baseline, SPEC: pair.speculative}
    run = run_virtual(experiment, arms, ShapePool(TemplateSource("chat"), size=400))
    return judge_data(run.header, run.cells, run.scrapes, run.requests())


def test_a_world_whose_acceptance_drifts_and_one_whose_acceptance_falls_with_load() -> None:
    """eagle3 accepts alike at any load and time; `drift` loses over time, `load-acceptance` with the batch."""
    said = {}
    for name in ("eagle3", "drift", "load-acceptance"):
        findings = of_world(name).findings
        assert findings is not None
        assert findings.acceptance is not None
        said[name] = (findings.acceptance.flat, findings.acceptance.drift)
    assert [bool(t and t.sentence) for t in said["eagle3"]] == [False, False]
    assert [bool(t and t.sentence) for t in said["drift"]] == [False, True]
    assert [bool(t and t.sentence) for t in said["load-acceptance"]] == [True, False]
    assert any("it drifts while the server runs" in note for note in of_world("drift").notes)


def test_a_world_explains_its_first_tokens_and_orders_its_categories() -> None:
    findings = of_world("eagle3").findings
    assert findings is not None
    for row in findings.first_tokens:
        parts = (row.outside_s, row.front_s, row.queue_s, row.prefill_s)
        assert None not in parts
        assert sum(p for p in parts if p is not None) == pytest.approx(row.client_s, rel=1e-6)
        assert abs(row.outside_s or 0.0) < 0.002  # virtual time: there is no network
    assert {c.term for c in findings.first_token_changes} <= {"queue", "prefill"}
    assert all(c.sentence for c in findings.first_token_changes)
    assert findings.acceptance is not None
    by_name = {g.name: g.value for g in findings.acceptance.categories}
    code, writing = by_name["code"], by_name["writing"]  # drafted best and worst: worlds.BY_CATEGORY
    assert code.low is not None
    assert writing.high is not None
    assert code.low > writing.high


def test_a_cache_that_loses_blocks_is_seen() -> None:
    findings = of_world("cache").findings
    assert findings is not None
    hits = {(t.arm, t.level): t.cache_hit_ratio or 0.0 for t in findings.first_tokens}
    assert all(hits[SPEC, level] < hits[BASE, level] - 0.02 for level in (8.0, 24.0, 56.0))
    assert any("prefix-cache hits fell" in c.sentence for c in findings.first_token_changes)


def test_a_run_without_a_server_that_counts_says_less_and_does_not_fail() -> None:
    _, findings = found(Made(counters=False, blocks=2))
    assert findings.first_tokens[0].client_s is not None
    assert findings.first_tokens[0].queue_s is None
    assert findings.acceptance is not None
    assert findings.acceptance.slots == ()
    assert findings.batch_table is not None
    assert findings.batch_table.why_not == "It is not known how many tokens the server drafts."
    broken = Made(blocks=2, edit_cell=lambda record: replace(record, state="aborted"))
    assert found(broken)[1].law is not None
