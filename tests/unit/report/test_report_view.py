import dataclasses
import math

import pytest
import report_example as example

from loadtest.analyse import wording
from loadtest.analyse.capacity import bounded
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import Answer, BreakEven, Finding, Guard, Speedup
from loadtest.report import answer, header, protocol, rules, tables, why_words
from loadtest.report.charts_speedup import speedup
from loadtest.report.view import VERDICTS, View

BETWEEN = "between the tested 16 and 32"


def view_of(ratio: Estimate, *guards: Finding) -> View:
    judgement = example.judgement()
    found = tuple(Guard(name="ttft", level=1.0, finding=finding) for finding in guards)
    return View(
        run={},
        judgement=dataclasses.replace(
            judgement,
            speedups=(Speedup(metric="e2e", level=1.0, ratio=ratio),),
            decision=dataclasses.replace(judgement.decision, guards=found),
        ),
    )


@pytest.mark.parametrize(
    ("low", "high", "guards", "word"),
    [
        (1.04, 1.2, [Finding.HOLDS], "pays"),
        (1.04, 1.2, [Finding.UNPROVEN], "pays"),
        (1.04, 1.2, [Finding.BROKEN, Finding.NO_DATA], "guard broken"),
        (1.04, 1.2, [Finding.NO_DATA], "cannot tell"),
        (1.02, 1.2, [Finding.HOLDS], "cannot tell"),
        (0.99, 1.02, [Finding.HOLDS], "too little"),
        (0.8, 0.99, [Finding.BROKEN], "slower"),
        (None, None, [Finding.HOLDS], "no data"),
    ],
)
def test_the_verdict_of_a_level(low, high, guards, word):
    assert view_of(Estimate(value=1.1, low=low, high=high), *guards).verdict(1.0) == word
    assert word in VERDICTS


def test_the_tail_is_the_deepest_that_most_levels_reach_and_missing_where_one_does_not():
    full = example.judgement()
    first = full.arm_levels[0]
    shallow = dataclasses.replace(
        first, tails=first.tails | {"ttft": dataclasses.replace(first.tails["ttft"], deepest="p50")}
    )
    view = View(run={}, judgement=dataclasses.replace(full, arm_levels=(shallow, *full.arm_levels[1:])))
    assert view.deepest("ttft") == "p95"
    assert view.tail(first.arm, first.level, "ttft", "p95") == Estimate()
    assert view.tail(first.arm, first.level, "ttft", "p50") == first.tails["ttft"].p50
    assert view.tail("speculative", first.level, "ttft", "p95").value == pytest.approx(0.0683, abs=1e-4)


def test_the_rule_names_the_gain_and_the_guards():
    run = {"experiment": {"decision": {"ttft_margin": 0.1, "on_time_margin": 0.01, "ttft_ignore_below_s": 0.2}}}
    assert rules.rule(View(run=run, judgement=example.judgement())) == (
        "A load pays when the whole 95 % interval of the speed-up by end-to-end time is above 1.03× and no guard is"
        " proven broken; a guard without data leaves it open. Of several loads one may seem to pay by chance:"
        " the claims go up load by load from the lowest, or rest on a load whose interval holds for all loads together."
        " Guards: the time to first token, at the deepest of p50, p90 and p95 that is bounded,"
        " at most 10 % above the baseline's, the share of"
        " tokens on time at most 1 point lower, failed requests not more. A time to first token below 200 ms is never"
        " held against the candidate."
    )


def test_an_interrupted_run_has_the_exit_code_of_an_interruption():
    assert header.exit_code(View(run={"status": "interrupted"}, judgement=example.judgement())) == 130
    assert header.exit_code(View(run={"status": "complete"}, judgement=example.judgement())) == 0


def test_an_invalid_run_gets_no_verdict_and_no_key_figures():
    judgement = example.judgement()
    invalid = dataclasses.replace(judgement.decision, answer=Answer.INVALID)
    view = View(run={}, judgement=dataclasses.replace(judgement, decision=invalid))
    assert view.verdict(1.0) == "not judged"
    assert answer.tiles(view) == ()


def test_threshold_and_metric_come_from_the_header_where_there_is_no_limit():
    judgement = example.judgement()
    decision = dataclasses.replace(judgement.decision, limit=None)
    view = View(
        run={"experiment": {"decision": {"metric": "tpot", "min_gain": 0.05}}},
        judgement=dataclasses.replace(judgement, decision=decision),
    )
    assert (view.decision_metric, view.threshold) == ("tpot", 1.05)


def test_key_figures_of_a_comparison():
    found = {tile.label: tile for tile in answer.tiles(View(run=example.run(), judgement=example.judgement()))}
    limit = found["Pays up to, in users"]
    assert (limit.value, limit.tone) == ("32", "good")
    assert limit.detail == (
        "the limit itself is estimated at 37 [32, 42] users, between the tested 32 and 64, ≈ 31 in flight"
    )
    assert found["Speed-up by end-to-end time"].value == "1.44× → 0.89×"
    assert found["Speed-up by end-to-end time"].tone == ""  # better at one end, worse at the other
    assert found["Throughput at 64 users"].value == "−11 %"
    assert found["Throughput at 64 users"].detail.startswith("[−")
    assert found["Time to first token, p95"].value == "+15 %"


@pytest.mark.parametrize(
    ("at", "value", "detail"),
    [
        (Estimate(value=20.0, low=12.0), "12", f"where it ends is not settled up to 64, {BETWEEN}"),
        (
            Estimate(value=20.0, high=26.0),
            "≤ 26",
            f"the limit is at most 26 users (where it begins is not settled from 1), {BETWEEN}",
        ),
        (Estimate(value=16.0, low=16.0, high=32.0), "16", ""),
    ],
)
def test_a_limit_with_one_bound_is_given_by_that_bound(at, value, detail):
    full = example.judgement()
    limit = BreakEven(metric="e2e", threshold=1.03, form=Crossing.PAYS_UP_TO, at=at)
    decision = dataclasses.replace(full.decision, limit=limit)
    tile = answer.tiles(View(run={}, judgement=dataclasses.replace(full, decision=decision)))[0]
    assert (tile.value, tile.detail) == (value, detail)


def test_key_figures_of_one_arm():
    found = [tile.value for tile in answer.tiles(View(run={}, judgement=example.one_arm()))]
    assert found == ["3,818 tokens/s", "2.23 s → 4.29 s", "337 ms", "0 %"]


def test_the_cause_is_named():
    said = why_words.why_sentences(View(run={}, judgement=example.judgement()))
    assert said[2].startswith("At 1 user a step brings 1.82 tokens and takes 1.26× as long")
    assert said[1] == "What changes with load is the cost of a step, not the acceptance of drafts."


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"simulated": True}, ["Simulated"]),
        ({"status": "interrupted"}, ["Interrupted", "One start each"]),
        ({"smoke": True, "starts": 4}, ["Smoke run"]),
        ({"starts": 4}, []),
        ({}, ["One start each"]),
    ],
)
def test_banners(run, words):
    assert [b.word for b in header.banners(View(run=run, judgement=example.judgement()))] == words


def test_banners_of_what_was_not_judged():
    assert [b.word for b in header.banners(View(run={"starts": 2}, judgement=example.invalid()))] == ["Invalid"]
    assert [b.word for b in header.banners(View(run={}, judgement=example.one_arm()))] == ["Measured only"]


def test_servers_that_were_started_in_turn_at_one_address_are_not_taken_for_one_server():
    start = {"start": ["vllm", "serve"]}
    run = example.run(starts=4, servers_file={"contents": {"arms": {"baseline": start, "speculative": start}}})
    run["arms"] = [dict(arm, url="http://127.0.0.1:8101", identity={}) for arm in run["arms"]]
    view = View(run=run, judgement=example.judgement())
    assert [said for _, said in header.servers(view)] == ["http://127.0.0.1:8101 (alone there in its turn)"] * 2
    said = "one at a time, never two at once: baseline and speculative at http://127.0.0.1:8101 (4 starts of each)"
    assert dict(header.conditions(view))["start"] == said
    for other in (dict(run, servers_file={}), dict(run, arms=example.run()["arms"])):  # not ours, or two addresses
        found = View(run=other, judgement=example.judgement())
        assert "start" not in dict(header.conditions(found))
        assert not [said for _, said in header.servers(found) if "turn" in said]


def test_every_value_of_the_header_is_in_the_protocol():
    run = example.run(extra={"deep": [{"name": "x", "list": [1, 2]}]})
    rows = {f"{group.title}: {name}": value for group in protocol.protocol(run) for name, value in group.rows}
    assert rows["Experiment: everything sent and asked for: generation.max_tokens"] == "256"
    assert rows["Servers under test: speculative.identity.method"] == "eagle3"
    assert rows["Extra: deep.x.list"] == "1, 2"
    assert rows["Run: version"] == "0.1.0"
    assert rows["Experiment: everything sent and asked for: generation.top_p"] == "–"


def test_a_header_without_end_is_cut():
    (group,) = protocol.protocol({"config": {f"key{i}": i for i in range(1000)}})
    assert (len(group.rows), group.left_out) == (300, 700)


def test_the_command_is_quoted_for_a_shell():
    assert header.command({"command": ["loadtest", "run", "a b.py"]}) == "loadtest run 'a b.py'"


def test_a_table_of_cells_is_cut_where_the_page_would_grow_too_large():
    judgement = example.judgement()
    many = tuple(dataclasses.replace(judgement.cells[0], cell=i) for i in range(3000))
    table = tables.cells(View(run={}, judgement=dataclasses.replace(judgement, cells=many)))
    assert (len(table.rows), table.left_out) == (250, 2750)


@pytest.mark.parametrize(
    ("low", "value", "high", "texts"),
    [
        (2.4, 3.2, 4.7, ("2.4", "3.2", "4.7")),
        (9.71, 12.2, 14.2, ("9.7", "12", "15")),
        (13.42, 13.51, 13.6, ("13.4", "13.5", "13.6")),
        (2.0, 3.04, 5.5, ("2", "3.0", "5.5")),
        (8.2, 9.97, 12.0, ("8.2", "10", "12")),
        (1031.0, 1110.2, 1250.0, ("1031", "1110", "1250")),
    ],
)
def test_sentences_tiles_charts_and_tables_write_a_load_with_the_same_digits(low, value, high, texts):
    at, full = Estimate(value=value, low=low, high=high), example.judgement()
    limit = BreakEven(metric="e2e", threshold=1.03, form=Crossing.PAYS_UP_TO, at=at)
    judged = dataclasses.replace(full, decision=dataclasses.replace(full.decision, limit=limit))
    written = f"{texts[1]} [{texts[0]}, {texts[2]}]"
    assert wording.bounded(at, (1.0, 64.0)) == bounded(at, (1.0, 64.0), "users") == f"{written} users"
    found = View(run=example.run(), judgement=judged)
    tile = answer.tiles(found)[0]
    assert float(tile.value) == math.floor(float(texts[0]))  # what is proven, in whole users
    assert tile.detail.startswith(f"the limit itself is estimated at {written} users")
    assert tables.break_evens(found).rows[0][3] == written
    assert f"limit {written}" in [trace.name for trace in speedup(example.run(), judged).figure.data]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("2026-11-30T16:33:27.189+00:00", "2026-11-30 16:33 UTC"),
        ("2026-11-30T16:33:27Z", "2026-11-30 16:33 UTC"),
        ("2026-11-30T16:33:27+02:00", "2026-11-30T16:33:27+02:00"),
        ("yesterday", "yesterday"),
        (None, ""),
    ],
)
def test_the_start_is_told_to_the_minute(told, said):
    assert header.started({"started": told}) == said


@pytest.mark.parametrize(("running", "told"), [(22.0, False), (20.0, True)])
def test_running_requests_are_told_where_they_differ_from_the_users(running, told):
    limit = BreakEven(metric="e2e", threshold=1.03, form=Crossing.PAYS_UP_TO, at=Estimate(value=25.0, low=23.0),
                      running=Estimate(low=running))  # fmt: skip
    assert ("running" in answer.limit_detail(View(run={}, judgement=example.full()), limit)) is told
