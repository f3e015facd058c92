"""Five arms on one page, in markdown, JUnit and on the terminal: every figure is the verdict's."""

import io
import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from parsed import Parsed
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from several_runs import SPEEDUPS, five_arms, judged, made

from loadtest.errors import ExitCode
from loadtest.report import next_steps, several, words
from loadtest.report.junit import junit
from loadtest.report.markdown import summary
from loadtest.report.page import page
from loadtest.report.terminal import summary as printed
from loadtest.report.view import View

NAMES = tuple(SPEEDUPS)


@pytest.fixture(scope="module")
def parsed():
    return Parsed(page(*five_arms()))


def test_the_page_is_whole_and_has_a_section_for_each_candidate(parsed):
    _, judgement = five_arms()
    assert parsed.broken == []
    assert judgement.decision.headline in parsed.text("answer")
    for place, (name, pair) in enumerate(zip(NAMES, judgement.pairs, strict=True), start=1):
        text = parsed.text(f"pair-{place}")
        assert name in text
        assert pair.decision.headline.replace("\u00a0", " ") in text.replace("\u00a0", " ")
        assert "Acceptance of its drafts" in text
        assert "Comparable with the baseline?" in text


def test_next_names_the_step_of_each_candidate_at_the_top_and_all_of_them_in_its_section(parsed):
    _, judgement = five_arms()
    view = View(run=five_arms()[0], judgement=judgement)
    for place, (name, own) in enumerate(view.pairs.items(), start=1):
        steps = tuple(next_steps.of_answer(own))
        said = f"{name}: {steps[0].text[:1].lower()}{steps[0].text[1:]}" if steps else f"{name}: "
        assert (said in parsed.text("answer").replace("\u00a0", " ")) is bool(steps)
        assert all(step.text in parsed.text(f"pair-{place}").replace("\u00a0", " ") for step in steps)
    top = parsed.text("answer")
    said = "eagle3: test above 64 users: the limit lies beyond the tested loads."
    assert said in top.replace("\u00a0", " ")


def test_every_chart_of_the_page_has_a_key_of_its_own_and_its_figures(parsed):
    figures = json.loads(next(text for _, attributes, text in parsed.raw if attributes.get("id") == "figures"))
    keys = [attributes["id"] for tag, attributes in parsed.elements if tag == "figure"]
    assert len(keys) == len(set(keys))
    assert set(figures) == set(keys)
    for place in range(1, 5):
        assert {f"pair-{place}-speedup", f"pair-{place}-steps", f"pair-{place}-slots"} <= set(keys)


def test_each_candidate_has_a_colour_and_a_shape_of_its_own_in_the_chart_of_all():
    run, judgement = five_arms()
    chart = several.charts(run, judgement)[0]
    assert chart.key == "speedups"
    lines = {trace.name: (trace.line.color, trace.marker.symbol) for trace in chart.figure.data}
    assert tuple(lines) == NAMES
    assert len({colour for colour, _ in lines.values()}) == len({shape for _, shape in lines.values()}) == 4
    for trace, pair in zip(chart.figure.data, judgement.pairs, strict=True):
        own = [s.ratio for s in pair.speedups if s.metric == "e2e"]
        assert list(trace.y) == [ratio.value for ratio in own]
        assert list(trace.error_y.array) == pytest.approx([ratio.high - ratio.value for ratio in own])


def test_tables_hold_every_arm_and_every_pair():
    view = View(run=five_arms()[0], judgement=five_arms()[1])
    ranking = several.ranking(view)
    assert len(ranking.rows) == 6 * 4
    alike = [row for row in ranking.rows if row[1:3] == ("ngram", "draft")]
    assert {row[4] for row in alike} == {"not told apart"}
    assert next(row[4] for row in ranking.rows if row[:3] == ("64 users", "eagle3", "medusa")) == "eagle3 is better"
    tiles = {tile.label: tile.value for tile in several.tiles(view)}
    assert tiles["eagle3"] == "≥ 64"
    assert tiles["medusa"] == "never"


def test_markdown_and_terminal_say_the_same_of_every_candidate():
    run, judgement = five_arms()
    text = summary(run, judgement)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(printed(run, judgement))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 80
    for name, pair in zip(NAMES, judgement.pairs, strict=True):
        assert f"- **{name}:** {pair.decision.headline}" in text
        ratio = next(s.ratio for s in pair.speedups if (s.metric, s.level) == ("e2e", 16.0))
        assert f"| 16 users | {name} | {words.interval(ratio, words.ratio)} |" in text
        assert words.interval(ratio, words.ratio) in shown
    assert "hold for all of them together with 95 %" in " ".join(shown.split())


def test_junit_has_a_case_for_the_run_and_one_for_each_candidate():
    run, judgement = five_arms()
    cases = ET.fromstring(junit(run, judgement)).findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["speculation pays", *NAMES]
    assert [case.find("skipped") is not None for case in cases] == [False, False, False, False, True]
    never = judged(made({"a": SPEEDUPS["medusa"], "b": SPEEDUPS["medusa"]}))
    suite = ET.fromstring(junit(made().run, never)).find("testsuite")
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "2")
    assert never.decision.exit_code == ExitCode.FAILED


def test_a_name_that_is_markup_is_shown_as_text():
    evil = {"<b>x</b>": SPEEDUPS["eagle3"], "ngram": SPEEDUPS["ngram"]}
    what = made(evil)
    found = page(what.run, judged(what))
    assert "<b>x</b>" not in found
    assert Parsed(found).broken == []


def test_an_invalid_run_of_several_shows_no_tiles():
    rows = [{"item": "model", "baseline": "a", "candidate": "b", "source": "verified", "kind": "violation",
             "arm": name} for name in ("a", "b")]  # fmt: skip
    what = made({"a": SPEEDUPS["eagle3"], "b": SPEEDUPS["ngram"]}, run={"comparability": rows})
    judgement = judged(what, detailed=True)
    assert several.tiles(View(run=what.run, judgement=judgement)) == ()
    assert Parsed(page(what.run, judgement)).broken == []
