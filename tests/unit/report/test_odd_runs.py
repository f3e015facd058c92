"""Runs at the edge: nothing answered, nothing gained, nothing judged, stopped half-way. No form says more than that."""

import dataclasses
import io
import math
import re
from functools import cache
from xml.etree import ElementTree as ET

import pytest
import report_cases as cases
import report_detail_example as behind
import report_example as example
from report_detail_example import near
from rich.console import Console

from loadtest.analyse import wording
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.findings import Law, Line
from loadtest.analyse.gate_results import GateOutcome, SloAt, SloResult
from loadtest.analyse.guards import _ttft_sentence
from loadtest.analyse.judge import judge_data
from loadtest.analyse.law import _compared
from loadtest.analyse.ranking_results import Ranking
from loadtest.analyse.results import Answer, Finding
from loadtest.report import gate as gate_report
from loadtest.report import header, limits, next_steps, runs, several, sure, tables_detail, terminal, why_words, words
from loadtest.report.charts import CHARTS
from loadtest.report.charts_classes import by_class
from loadtest.report.charts_runs import CHARTS as CHARTS_OF_RUNS
from loadtest.report.charts_runs import limit_chart, speedup_chart, throughput_chart
from loadtest.report.junit import junit
from loadtest.report.page import page
from loadtest.report.progress import Progress
from loadtest.report.view import View

TOP = 64.0


def chart(key, run, judgement):
    drawn = (draw(run, judgement) for draw in CHARTS)
    return next((found for found in drawn if found is not None and found.key == key), None)


def refused_at_top(row):
    """Let every request to the candidate fail at the highest load."""
    return cases.timed_out(row) if (row.arm, row.level) == ("speculative", TOP) else cases.classed(row)


@cache
def unanswered():
    run, cells, scrapes, table = cases.of(speedup=cases.falling, edit_request=refused_at_top).build()
    return run, judge_data(run, cells, scrapes, table, detailed=True)


def test_a_load_without_an_answer_is_no_point_of_the_straight_lines():
    _, judgement = unanswered()
    law = judgement.findings.law
    assert law.levels == (1.0, 4.0, 16.0)
    assert "None" not in law.sentence
    assert law.at.value == pytest.approx(10.8, abs=0.5)


def test_valid_cells_in_which_all_failed_are_not_called_invalid():
    run, judgement = unanswered()
    assert all(cell.valid for cell in judgement.cells)
    for key, what in (("speedup", "pair of valid cells"), ("throughput", "speculative"), ("token-gap", "speculative")):
        note = chart(key, run, judgement).note
        assert f"No {what} at 64 users: every request to a server failed in a cell there." in note, key
        assert "invalid cells" not in note, key
    said = sure.certainty(View(run=run, judgement=judgement))
    assert "Fewer blocks have valid cells of both servers with an answer: 0 at 64 users." in said


def test_an_arm_without_a_single_point_is_named_beside_the_chart():
    full = example.full()
    rest = tuple(one for one in full.arm_levels if one.arm == "baseline")
    less = dataclasses.replace(full, arm_levels=rest)
    for key in ("throughput", "ttft", "tradeoff", "tokens-per-chunk"):
        note = chart(key, example.run(), less).note
        assert "No speculative at 1, 2, 4, 8, 16, 32 and 64 users: not measured" in note, key


def test_a_line_breaks_where_a_load_has_no_value():
    full = example.full()
    gone = (("baseline", 8.0), ("speculative", 64.0))
    rest = tuple(one for one in full.arm_levels if (one.arm, one.level) not in gone)
    lost = dataclasses.replace(full, arm_levels=rest)
    for key in ("throughput", "ttft", "tokens-per-chunk"):
        lines = {trace.name: trace for trace in chart(key, example.run(), lost).figure.data if trace.name}
        own = next(trace for name, trace in lines.items() if name.startswith("baseline"))
        assert [y is None for y in own.y] == [False] * 3 + [True] + [False] * 3, key
        other = next(trace for name, trace in lines.items() if name.startswith("speculative"))
        assert len(other.y) == 6
        assert None not in other.y, key


def test_bounds_that_failures_make_infinite_are_written_as_such():
    assert words.interval(Estimate(value=math.inf, low=math.inf, high=math.inf), words.ratio) == "∞ [∞, ∞]"
    assert wording.apart(1.0004) == "1.0004"


def gaining(*gains):
    """The example with decode speed-ups of its lowest loads set anew, tokens a step and step times agreeing."""
    full = example.full()
    why = [dataclasses.replace(one, tau_all=gain, step_ratio=1.0, decode_speedup=gain)
           for one, gain in zip(full.why, gains, strict=True)]  # fmt: skip
    return dataclasses.replace(full, why=tuple(why))


def test_decoding_that_gains_in_the_middle_alone_is_not_said_to_gain_from_the_lowest_load():
    middle = gaining(0.7, 0.9, 1.2, 1.3, 1.2, 0.8, 0.6)
    title = chart("steps", example.run(), middle).title
    assert title.startswith("Decoding gains up to ≈ 22 users, where the lines cross, not at 1 and 2 users: at 64")
    first = why_words.why_sentences(View(run=example.run(), judgement=middle))[0]
    assert "; at 1 and 2 users it does not gain either (0.70×, 0.90×)" in first
    late = chart("steps", example.run(), gaining(0.7, 0.9, 0.9, 0.9, 0.9, 1.1, 1.2)).title
    assert late.startswith("Decoding gains at 32 and 64 users: at 64 users")


def test_a_thousandth_on_counters_is_neither_a_gain_nor_a_crossing():
    nearly = gaining(1.002, 0.999, 1.0, 1.003, 0.998, 1.001, 1.004)
    title = chart("steps", example.run(), nearly).title
    assert title.startswith("Decoding neither gains nor loses 1 % at any tested load: at 64 users")
    view = View(run=example.run(), judgement=nearly)
    said = "Decoding is as fast as without speculation at every tested load, to within 1 %."
    assert why_words.why_sentences(view)[0] == said
    assert "decoding, by the servers' counters" not in [one.name for one in limits.others(view)]


def test_the_ratio_of_an_objective_says_which_way_it_is():
    found = SloResult(sentence="tpot p95 at most 5 % worse than the baseline at 16 users", metric="tpot",
                      statistic="p95", ask="non_inferior", unit="speed-up", limit=1 / 1.05, lower=False,
                      outcome=GateOutcome.PASS,
                      at=SloAt(level=16.0, outcome=GateOutcome.PASS, observed=near(1.31)))  # fmt: skip
    gate = dataclasses.replace(behind.gate(), objectives=(found,))
    assert gate_report.lines(gate)[0].endswith("at 16 users: speed-up 1.31 [1.244, 1.376] at 16.")
    assert gate_report.limit(found) == "≥ 0.9524"


def test_two_bent_lines_are_plural():
    bent, straight = (Line(arm=arm, c1_s=near(1.0), c2_s=near(0.1), lack_of_fit_p=p)
                      for arm, p in (("a", 0.001), ("b", 0.5)))  # fmt: skip
    both = Law(lines=(bent, dataclasses.replace(bent, arm="b")))
    assert _compared(both, None, (1.0, 2.0)).note.startswith("The latencies of a and b are no straight lines in their")
    alone = _compared(dataclasses.replace(both, lines=(bent, straight)), None, (1.0, 2.0))
    assert alone.note.startswith("The latency of a is no straight line in its requests in flight")


def test_terms_that_stay_the_same_are_named():
    same = View(run=example.run(), judgement=gaining(*[1.2] * 7))
    assert "Neither the tokens of a step nor its cost changes with load by more than 5 %." in why_words.why_sentences(
        same
    )


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (0.98, "decoding alone never gains (at best 0.98×, at 1 user)."),
        (1.004, "decoding alone never gains 3 % (at best 1.00×, at 1 user)."),
        (1.2, "Look at first tokens and the queue: decoding alone gains (at best 1.20×, at 1 user)"),
    ],
)
def test_a_gain_of_decoding_below_the_one_asked_for_is_no_reason_to_look_at_the_queue(best, said):
    full = gaining(best, *[0.9] * 6)
    never = dataclasses.replace(full.decision, answer=Answer.NEVER_PAYS, limit=example.break_even(
        "e2e", 1.0, 1.03, form=Crossing.NEVER_PAYS))  # fmt: skip
    steps = next_steps.of_answer(View(run=example.run(), judgement=dataclasses.replace(full, decision=never)))
    assert any(said in step.text for step in steps)


def test_a_server_against_itself_is_not_called_speculation():
    run, judgement = cases.case("A/A")
    view = View(run=run, judgement=judgement)
    assert why_words.why_sentences(view) == ()
    assert chart("steps", run, judgement) is None
    drawn = [chart(key, run, judgement) for key in ("speedup", "metrics")]
    assert not [one.key for one in drawn if "peculation" in one.title + one.note]
    assert drawn[0].title.startswith("speculative is 1.00× as fast at 1 user")  # its second arm's name
    shown = page(run, judgement)
    assert 'id="why"' not in shown
    assert "Whether speculation pays is not judged here." in shown


def test_a_run_that_was_stopped_is_gone_on_with():
    stopped = cases.header(status="interrupted", folder="R")
    run, cells, scrapes, table = cases.of(run=stopped, blocks=1, levels=(4.0,)).build()
    judgement = judge_data(run, cells, scrapes, table)
    assert judgement.decision.answer is Answer.INVALID
    (step,) = next_steps.next_steps(View(run=run, judgement=judgement))
    assert str(step) == "Measure the cells that are missing: loadtest run --resume reports/R"
    worse = dataclasses.replace(judgement.decision, reasons=(*judgement.decision.reasons, "The model differs."))
    found = next_steps.next_steps(View(run=run, judgement=dataclasses.replace(judgement, decision=worse)))
    assert [one.text[:4] for one in found] == ["Mend"]


def test_a_last_sitting_that_was_stopped_is_said_at_the_top_and_next():
    run, judgement = cases.case("pays up to")
    stopped = View(run=run | {"sittings": [{"state": "interrupted"}]}, judgement=judgement)
    assert "Interrupted" in [banner.word for banner in header.banners(stopped)]
    assert next_steps.next_steps(stopped)[0].text == "Measure the cells that are missing."


def test_one_server_that_was_held_against_objectives_was_judged():
    run, alone = cases.case("one arm")
    gated = View(run=run, judgement=dataclasses.replace(alone, gate=behind.gate()))
    assert "Measured only" in [banner.word for banner in header.banners(View(run=run, judgement=alone))]
    assert "Measured only" not in [banner.word for banner in header.banners(gated)]
    assert "Nothing was judged" not in page(run, gated.judgement)
    texts = [step.text for step in next_steps.next_steps(gated)]
    assert texts == ["Measure it beside a server that speculates (--baseline, --speculative)."]


@pytest.mark.parametrize("name", ["one arm", "A/A"])
def test_junit_passes_nothing_that_was_not_judged(name):
    (case,) = ET.fromstring(junit(*cases.case(name))).iter("testcase")
    assert [child.tag for child in case] == ["skipped"]


def printed(view):
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(terminal.summary(view.run, view.judgement))
    return out.getvalue()


def test_an_interval_of_many_digits_is_not_cut_on_a_terminal():
    full = example.full()
    ratio = Estimate(value=1.0, low=0.9996, high=1.0004, n=6)
    close = tuple(dataclasses.replace(one, ratio=ratio) for one in full.speedups)
    shown = printed(View(run=example.run(), judgement=dataclasses.replace(full, speedups=close)))
    assert shown.count("1.00× [0.9996, 1.0004]") >= 7
    table = shown.partition("users  arm")[2] or shown.partition("users arm")[2]
    assert "…" not in table.partition("\n\n")[0]


def test_a_long_name_is_cut_in_its_middle_and_to_the_room_that_it_has():
    names = ("qwen3-eagle3-k3", "qwen3-eagle3-k5")
    assert [words.plain(name, 14) for name in names] == ["qwen3-eag…3-k3", "qwen3-eag…3-k5"]
    assert [len(words.plain("n" * length, 14)) for length in (13, 14, 15, 9000)] == [13, 14, 14, 14]
    for limit in (14, 40, 300):
        assert "ecret" not in words.plain(f"http://user:{'secret' * 60}@host/{'path' * 90}", limit)


def test_two_arms_of_long_names_fit_a_terminal():
    names = ("production-baseline-2026", "qwen3-eagle3-k5-candidate-of-november")
    full = example.full()
    rows = tuple(dataclasses.replace(one, arm=names[one.arm != "baseline"]) for one in full.arm_levels)
    shown = printed(View(run=example.run(), judgement=dataclasses.replace(full, arms=names, arm_levels=rows)))
    table = re.split(r"\nusers +arm ", shown)[1].partition("\n\n")[0]
    assert "qwen3-eag…mber" in table
    assert "more characters" not in table
    assert max(len(line) for line in table.splitlines()) <= 80
    live = Progress(Console(file=io.StringIO(), width=80))
    for arm in names:
        live.handle({"event": "cell_start", "arm": arm, "level": 64, "total": 9})
        live.handle({"event": "tick", "phase": "window", "tokens_per_s": 1e5, "ttft_p50_s": 1.2, "in_flight": 64})
    out = io.StringIO()
    Console(file=out, width=80).print(live.view())
    assert all(row in out.getvalue() for row in ("tokens/s", "TTFT p50", "in flight", "qwen3-eag…mber"))


def ended(answer, *, low=None, value=None):
    full = example.full()
    limit = dataclasses.replace(full.decision.limit, at=Estimate(value=value, low=low))
    return dataclasses.replace(full, decision=dataclasses.replace(full.decision, answer=answer, limit=limit))


def named(**judgements):
    return tuple(runs.Entry(name=name, view=View(run={}, judgement=one)) for name, one in judgements.items())


def test_several_runs_that_pay_everywhere_are_plural():
    both = named(a=ended(Answer.PAYS_EVERYWHERE), b=ended(Answer.PAYS_EVERYWHERE))
    assert runs.headline(both[:1]) == "a pays at every tested load"
    assert runs.headline(both) == "a and b pay at every tested load"


def test_what_is_proven_is_said_where_no_limit_is_settled():
    found = named(a=ended(Answer.PAYS_UP_TO, low=7.4), b=ended(Answer.PAYS_UP_TO, low=13.9))
    assert runs.headline(found) == (
        "no run settled where speculation stops paying; it is proven to pay up to 13 users with b"
    )
    assert runs.headline(named(a=ended(Answer.NEVER_PAYS))) == "no run settled a load up to which speculation pays"


def test_a_run_looks_the_same_in_every_chart():
    full = example.full()
    found = named(a=dataclasses.replace(full, speedups=()), b=full)
    colours = []
    for draw in (speedup_chart, throughput_chart):
        own = [trace for trace in draw(found).figure.data if trace.name == "b"]
        colours.append({trace.line.color for trace in own} | {trace.marker.symbol for trace in own})
    assert colours[0] == colours[1]


def test_candidates_of_a_run_that_judged_nothing_are_not_told_apart():
    full = example.full()
    ranked = dataclasses.replace(full, ranking=Ranking(
        metric="e2e", confidence=0.95, of_candidate=0.975, of_pair=0.99, sentence="a is proven better."))  # fmt: skip
    asked = [Answer.PAYS_UP_TO, Answer.MEASURED, Answer.INVALID]
    views = [View(run={}, judgement=dataclasses.replace(ranked, decision=dataclasses.replace(
        full.decision, answer=answer))) for answer in asked]  # fmt: skip
    assert [several.relations(view) for view in views] == ["a is proven better.", "", ""]


def test_an_invalid_run_is_drawn_in_no_chart_of_several_and_named_beside_it():
    full = example.full()
    wrong = dataclasses.replace(full, decision=dataclasses.replace(full.decision, answer=Answer.INVALID))
    found = named(a=full, b=wrong, **{f"c{place}": full for place in range(10)})
    for draw in CHARTS_OF_RUNS:
        drawn = draw(found)
        assert "b" not in [trace.name for trace in drawn.figure.data]
        assert drawn.note.endswith(" Not drawn, being invalid: b. Drawn: the first 10 of 11; all stand in the tables.")


def test_equal_runs_are_not_ranked():
    full = example.full()
    both = [draw(named(a=full, b=full)).title for draw in (limit_chart, throughput_chart)]
    assert both == ["The limit is 37 [32, 42] users in each", "Carried at most, as tested: 3,414 tokens/s in each run"]
    alone = [draw(named(a=full)).title for draw in (limit_chart, throughput_chart)]
    assert alone == ["The limit is 37 [32, 42] users (a)", "Carried at most, as tested: 3,414 tokens/s (a)"]


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0023, "−99.8 %"), (1e-5, "−100 %"), (0.5, "−50 %"), (498.07, "+49,707 %"), (1.18, "+18 %"), (1.016, "+1.6 %"),
     (1.0, "±0 %")],
)  # fmt: skip
def test_a_change_says_nothing_is_left_only_where_nothing_is(value, said):
    assert words.change(value) == said


def test_small_figures_do_not_turn_into_nothing():
    assert [words.tenths(value) for value in (0.0, 0.0373, 0.94)] == ["0.0", "0.037", "0.9"]
    assert [words.signed_percent(value) for value in (-0.04, 0.0, -1.26)] == ["±0 %", "±0 %", "−1.3 %"]
    assert _ttft_sentence("p95", Estimate(value=0.998), Finding.HOLDS) == "first tokens differ by less than 1 % (p95)"


def bounded(arm, depth):
    """The example with the depth to which one arm's gaps between tokens are bounded at every load."""
    full = example.full()
    rows = tuple(
        dataclasses.replace(one, tails=one.tails | {"token_gap": dataclasses.replace(one.tails["token_gap"],
                                                                                     deepest=depth)})
        if one.arm == arm else one for one in full.arm_levels
    )  # fmt: skip
    return dataclasses.replace(full, arm_levels=rows)


def test_a_percentile_that_one_arm_lacks_is_not_shown_of_the_other_alone():
    drawn = chart("token-gap", example.run(), bounded("speculative", ""))
    assert "(speculative) against" in drawn.title
    assert drawn.alt.startswith("Line chart of gap between tokens over load, median, for baseline, speculative.")


def acceptance_of(**changes):
    full = example.full()
    found = dataclasses.replace(full.findings.acceptance, **changes)
    return dataclasses.replace(full, findings=dataclasses.replace(full.findings, acceptance=found))


def test_nothing_lies_below_the_least_there_is():
    depths = ("p5", "p25", "p50", "p75", "p95")
    same = acceptance_of(requests={name: near(1.0, 0.0) for name in depths}, of_requests="tokens per chunk")
    assert chart("requests", example.run(), same).title == "Tokens per chunk by request: nine of ten have 1"
    spread = dict(zip(depths, map(near, (1.0, 1.0, 1.2, 1.4, 1.9)), strict=True))
    title = chart("requests", example.run(), acceptance_of(requests=spread, of_requests="tokens per chunk")).title
    assert title.endswith("half lie between 1 and 1.40, one in twenty at or below 1")


def test_alike_categories_and_classes_are_not_ranked():
    groups = example.full().findings.acceptance.categories
    alike = acceptance_of(categories=tuple(dataclasses.replace(g, value=near(1.0, 0.0)) for g in groups),
                          of_requests="tokens per chunk")  # fmt: skip
    title = chart("categories", example.run(), alike).title
    assert title == f"Tokens per chunk by category: 1 in all {len(groups)}"
    full = example.full()
    equal = tuple(dataclasses.replace(one, speedups=one.speedups | {"e2e": near(1.2)}) for one in full.detail.classes)
    said = by_class(View(run=example.run(), judgement=dataclasses.replace(
        full, detail=dataclasses.replace(full.detail, classes=equal))))  # fmt: skip
    assert said.endswith("3 of 3 classes are faster by their own interval, all at 1.20×.")


def banded(*regions, unmeasured=()):
    full = example.full()
    limit = dataclasses.replace(full.decision.limit, form=Crossing.BAND, at=Estimate(), regions=regions)
    decision = dataclasses.replace(full.decision, answer=Answer.PAYS_IN_BAND, limit=limit)
    speedups = tuple(one for one in full.speedups if one.level not in unmeasured)
    return View(run=example.run(), judgement=dataclasses.replace(full, decision=decision, speedups=speedups))


def test_a_band_is_not_said_to_end_beside_a_load_that_was_not_measured():
    said = [step.text for step in next_steps.of_answer(banded((16.0, 64.0))) if "band" in step.text]
    assert said == ["Test loads between 8 and 16 users: the band has an end there."]
    assert not [step for step in next_steps.of_answer(banded((16.0, 64.0), unmeasured=(8.0,))) if "band" in step.text]


def test_longer_windows_are_asked_for_once():
    full = example.full()
    guards = tuple(
        dataclasses.replace(g, finding=Finding.NO_DATA) if g.level == 1.0 else g for g in full.decision.guards
    )
    decision = dataclasses.replace(
        full.decision, answer=Answer.CANNOT_TELL, guards=guards,
        would_settle="Longer windows, or a server that says more: ttft has no data at 1 user.",
    )  # fmt: skip
    steps = next_steps.of_answer(View(run=example.run(), judgement=dataclasses.replace(full, decision=decision)))
    assert len([step for step in steps if "onger windows" in step.text and "data" in step.text]) == 1


def test_a_load_without_an_interval_is_named_among_what_would_change():
    full = example.full()
    less = dataclasses.replace(full, speedups=tuple(one for one in full.speedups if one.level != 8.0))
    table = tables_detail.changes(View(run=example.run(), judgement=less))
    assert [row[1].endswith(", without an interval at 8 users") for row in table.rows[:5]] == [True] * 5
