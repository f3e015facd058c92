"""What stands behind the answer, in the reader's words: figures of the example run, checked one by one."""

import dataclasses

import pytest
import report_example as example

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import TailRatio
from loadtest.analyse.results import Finding
from loadtest.report import header, tables_detail
from loadtest.report.charts import CHARTS
from loadtest.report.view import View

BY_NAME = {draw.__name__: draw for draw in CHARTS}


def view(judgement=None, **run):
    return View(run=example.run(**run), judgement=judgement or example.full())


def chart(name, judgement=None):
    return BY_NAME[name](example.run(), judgement or example.full())


def with_findings(**changes):
    full = example.full()
    return dataclasses.replace(full, findings=dataclasses.replace(full.findings, **changes))


def with_guards(*levels):
    full = example.full()
    guards = tuple(
        dataclasses.replace(guard, finding=Finding.BROKEN if guard.level in levels else Finding.HOLDS)
        for guard in full.decision.guards
    )
    return dataclasses.replace(full, decision=dataclasses.replace(full.decision, guards=guards))


def then(judgement, condition):
    return dict(tables_detail.changes(view(judgement)).rows)[condition]


def test_another_least_gain_moves_what_is_proven():
    assert then(None, "the least gain were 3 %").startswith("proven at 1, 2, 4, 8 and 16 users")
    assert then(None, "the least gain were 20 %") == (
        "proven at 1, 2, 4 and 8 users, ruled out at 32 and 64 users, open at 16 users"
    )
    nothing = dataclasses.replace(example.full(), speedups=())
    assert then(nothing, "the least gain were 0 %") == (
        "proven at no tested load, without an interval at 1, 2, 4, 8, 16, 32 and 64 users"
    )


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ((), "nothing: none is proven broken"),
        ((4.0, 64.0), "4 users would pay as well"),
        ((64.0,), "nothing: the gain itself is not proven at 64 users"),
    ],
)
def test_without_guards_those_levels_pay_that_gain_enough(levels, said):
    assert then(with_guards(*levels), "the guards did not count") == said


@pytest.mark.parametrize(
    ("low", "said"), [(1.05, "nothing: no load that pays needs that"), (1.2, "1, 2 and 4 users would not pay")]
)
def test_the_loads_that_pay_by_the_floor_of_first_tokens_alone_are_named(low, said):
    full = example.full()
    guards = tuple(dataclasses.replace(g, finding=Finding.HOLDS, ratio=Estimate(value=1.3, low=low, high=1.5))
                   if g.name == "ttft" and g.level in (1.0, 2.0, 4.0, 64.0) else g
                   for g in full.decision.guards)  # fmt: skip
    judged = dataclasses.replace(full, decision=dataclasses.replace(full.decision, guards=guards))
    run = {"experiment": {"decision": {"ttft_margin": 0.1, "ttft_ignore_below_s": 0.1}}}
    rows = dict(tables_detail.changes(View(run=run, judgement=judged)).rows)
    assert rows["first tokens within 100 ms were held against the candidate like any others"] == said
    assert "like any others" not in str(tables_detail.changes(View(run={}, judgement=judged)).rows)  # no floor is known


def test_percentiles_that_are_not_shown_have_no_ratio():
    without = TailRatio(metric="e2e", level=8.0, statistic="p95", speedup=Estimate(value=0.9), requests_needed=300)
    bounded = dataclasses.replace(without, statistic="p90", speedup=Estimate(value=0.9, low=0.8, high=0.95))
    full = example.full()
    found = dataclasses.replace(full, findings=dataclasses.replace(full.findings, tails=(without, bounded)))
    columns = {row[2]: row[5] for row in tables_detail.tails(view(found)).rows}
    assert columns == {"p95": "–", "p90": "0.90× [0.80, 0.95]"}


def test_without_guards_a_load_that_only_lacks_their_data_is_named():
    full = with_guards(4.0)
    lacking = tuple(
        dataclasses.replace(g, finding=Finding.NO_DATA) if g.level in (1.0, 64.0) else g for g in full.decision.guards
    )
    judged = dataclasses.replace(full, decision=dataclasses.replace(full.decision, guards=lacking))
    said = "4 users would pay as well; 1 user would not lack data"
    assert then(judged, "the guards did not count") == said  # at 64 users the metric itself does not gain


def test_an_invalid_run_has_no_other_answer():
    assert tables_detail.changes(View(run={}, judgement=example.invalid())).rows == ()


def test_tails_are_told_with_how_many_requests_they_need_and_stalls_are_left_out():
    table = tables_detail.tails(view())
    assert len(table.rows) == 2 * 2 * 7
    assert table.rows[1] == (
        "1 user", "TTFT", "p95", "67.5 ms", "68.3 ms", "0.90× [0.85, 0.95]", "+4.00 ms [+3.80, +4.20]", "900", "85",
    )  # fmt: skip


def test_a_failed_request_is_infinitely_late_in_the_table_of_the_tail():
    rows = tables_detail.slowest(view()).rows
    assert [row[2] for row in rows[-2:]] == ["7.25 s", "∞"]
    assert rows[-1][3] == "failed"
    assert rows[0][8:] == ("5.50 s", "code", "ok", "cell 1, session 17, turn 2", "1 min 30 s")


def test_the_floor_stands_beside_the_worst_valid_cell():
    late = example.full()
    worse = tuple(dataclasses.replace(c, lateness_p99_s=0.5 if not c.valid else c.lateness_p99_s) for c in late.cells)
    table = tables_detail.floor(view(dataclasses.replace(late, cells=worse)))
    assert table.rows == (
        ("requests sent after they were due, p99", "0.900 ms", "1.20 ms"),
        ("CPU", "34 %", "21 %"),
    )
    assert tables_detail.floor(View(run={}, judgement=late)).rows == ()


def test_first_tokens_are_drawn_in_milliseconds_as_parts_of_the_whole():
    found = chart("first_token")
    drawn = {trace.name: list(trace.y) for trace in found.figure.data}
    assert list(drawn) == ["prefill", "queue", "server's front end", "outside the server"]
    assert drawn["queue"][:2] == pytest.approx([1.0, 3.0])
    total = sum(values[-1] for values in drawn.values())
    assert total == pytest.approx(1000 * example.behind.first_token("speculative", 64.0).client_s)
    assert found.title == "At 64 users first tokens come 128 ms later; the queue grew most (+128 ms)"


def test_where_no_term_grew_the_greatest_is_named():
    same = tuple(dataclasses.replace(c, term="", sentence="", total_s=Estimate(value=-0.002, low=-0.003, high=-0.001))
                 for c in example.behind.findings().first_token_changes)  # fmt: skip
    assert chart("first_token", with_findings(first_token_changes=same)).title == (
        "At 64 users queue is 65.6 % of the time to first token (speculative); against the baseline"
        " −2.00 ms [−3.00, −1.00]"
    )


def test_the_day_says_how_much_of_it_runs_slower():
    assert chart("day").title == "Over the expected day the speed-up is 1.21× [1.15, 1.27]; 16.7 % of it runs slower"
    bars, line = chart("day").figure.data
    assert sum(bars.y) == pytest.approx(100)
    assert line.y[-1] == pytest.approx(0.9)


def test_of_many_levels_the_lowest_the_limits_and_the_highest_are_drawn_by_class():
    found = chart("classes")
    assert [trace.name for trace in found.figure.data] == ["1 user", "32 users", "64 users"]
    assert found.figure.layout.yaxis.ticktext == ("rag", "code", "chat")
    assert len(found.rows) == 7 * 3
    assert found.rows[-1][:4] == ("64 users", "rag", "40", "41")


def test_what_is_said_by_class_is_said_of_the_level_that_the_recommendation_rests_on():
    full = example.full()
    for at, level in ((1.5, "1 user"), (37.0, "32 users"), (90.0, "64 users"), (None, "8 users")):
        limit = dataclasses.replace(full.decision.limit, at=Estimate(value=at))
        low = dataclasses.replace(full, decision=dataclasses.replace(full.decision, limit=limit))
        assert chart("classes", low).title.startswith(f"At {level} "), at


def test_the_run_over_time_marks_its_cells_and_breaks_between_them():
    found = chart("over_time")
    by_axis = {trace.yaxis for trace in found.figure.data}
    assert by_axis >= {"y", "y2", "y3", "y4"}
    assert len(found.figure.layout.shapes) == 1  # the one invalid cell
    (marked,) = [trace for trace in found.figure.data if trace.name == "cells with a mark"]
    assert len(marked.x) == 3
    first = next(trace for trace in found.figure.data if trace.name == "baseline")
    assert first.x[3] is None
    assert first.y[:3] == (1, 1, 1)


AGAIN = "a user sends again when the last request is done"


def test_the_conditions_stand_beside_the_answer():
    identity = {"kind": "vllm", "version": "0.32.0", "config": {"device_config.device": "cuda"}}
    experiment = {"load": {"kind": "closed", "think_time": 1.5}, "generation": {"temperature": 0.7, "max_tokens": 64}}
    arms = [{"name": name, "identity": identity, "gpus": 2} for name in example.ARMS]
    assert header.conditions(view(arms=arms, experiment=experiment)) == (
        ("server", "vllm 0.32.0"),
        ("hardware", "cuda, 2 GPUs"),
        ("generation", "temperature 0.7, max tokens 64"),
        ("load", f"closed loop, think times × 1.5 ({AGAIN} and its think time over)"),
        ("windows", "1 min, 6 blocks"),
    )
    assert dict(header.conditions(view(simulated={"world": "default"})))["hardware"] == "none: a model of an engine"


def test_hardware_that_only_one_arm_tells_of_is_said_for_each():
    arms = [{"name": "baseline", "gpus": 1}, {"name": "speculative"}]
    assert dict(header.conditions(view(arms=arms)))["hardware"] == "baseline: 1 GPU; speculative: not said"


def test_faked_acceptance_cannot_be_missed():
    arms = [{"name": "speculative", "identity": {"modes": ["faked acceptance"]}}]
    first = header.banners(view(arms=arms))[0]
    assert (first.word, first.tone) == ("Faked acceptance", "alarm")
    assert first.text == "Drafts are accepted by decree (speculative): no evidence."
    lossy = [{"name": "speculative", "identity": {"modes": ["lossy acceptance"]}}]
    assert [banner.word for banner in header.banners(view(arms=lossy))] == ["One start each"]


def test_a_depth_is_one_that_both_servers_reach():
    full = example.full()
    shallow = tuple(
        dataclasses.replace(a, tails={name: dataclasses.replace(t, deepest="p50") for name, t in a.tails.items()})
        if a.arm == "speculative" and a.level > 2 else a
        for a in full.arm_levels
    )  # fmt: skip
    assert View(run={}, judgement=dataclasses.replace(full, arm_levels=shallow)).deepest("ttft") == "p50"
    assert View(run={}, judgement=full).deepest("ttft") == "p95"
