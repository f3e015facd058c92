"""The page of every kind of run, from its records."""

import dataclasses
import json

import pytest
import report_cases as cases
from parsed import Parsed

from loadtest.analyse.verdict import as_json
from loadtest.report.charts import CHARTS
from loadtest.report.comparison import comparison
from loadtest.report.page import page


@pytest.fixture(scope="module")
def pages():
    return {name: Parsed(page(*cases.case(name))) for name in cases.CASES}


@pytest.mark.parametrize("name", cases.CASES)
def test_a_run_of_every_kind_has_its_answer_and_a_whole_page(pages, name):
    answer, (_, judgement) = cases.MADE[name][0], cases.case(name)
    assert judgement.decision.answer is answer, judgement.decision.headline
    assert pages[name].broken == []
    assert judgement.decision.headline in pages[name].text("answer")


@pytest.mark.parametrize("name", cases.CASES)
def test_every_chart_that_has_data_is_drawn_with_its_table(pages, name):
    run, judgement = cases.case(name)
    drawn = [chart for chart in (draw(run, judgement) for draw in CHARTS) if chart is not None]
    figures = json.loads(next(text for _, attributes, text in pages[name].raw if attributes.get("id") == "figures"))
    assert set(figures) == {chart.key for chart in drawn}
    for chart in drawn:
        assert chart.rows, chart.key
        assert {len(row) for row in chart.rows} == {len(chart.columns)}
        assert any(character.isdigit() for character in chart.title), chart.title


def test_what_only_some_runs_have_stands_in_their_pages_alone(pages):
    keys = {name: {a["id"] for tag, a in found.elements if tag == "figure"} for name, found in pages.items()}
    assert {name for name, own in keys.items() if "day" in own} == {"with a day"}
    assert {name for name in keys if "speedup" not in keys[name]} == {"one arm", "all failed"}
    assert "classes" not in keys["one arm"]
    assert {"over-time", "tradeoff", "ttft"} <= keys["one arm"]
    assert {"classes", "pairs", "law", "steps", "slots", "categories", "acceptance-time"} <= keys["pays up to"]


def test_stamps_stand_before_the_answer(pages):
    for name, word in {"simulated": "Simulated", "invalid": "Invalid", "all failed": "Invalid", "A/A": "A/A"}.items():
        text = pages[name].text("answer").partition("To the answer")[2]
        assert text.index(word) < text.index("loadtest")


def test_an_invalid_run_explains_nothing(pages):
    for name in ("invalid", "all failed"):
        assert "a step brings" not in pages[name].text("answer")
    assert "a step brings" in pages["pays up to"].text("answer")


def test_requests_that_failed_are_the_first_of_the_tail(pages):
    text = pages["all failed"].text("latency")
    assert "∞ failed" in text
    assert "timeout cell" in text


def test_the_page_and_the_verdict_are_the_same_for_the_same_records():
    name = "pays up to"
    run, cells, scrapes, table = cases.MADE[name][1]().build()
    again = cases.judge_data(run, cells, scrapes, table, detailed=True)
    assert as_json(again) == as_json(cases.case(name)[1])
    assert page(run, again) == page(*cases.case(name))


def test_five_candidates_stand_on_one_page():
    found = Parsed(comparison(cases.several()))
    assert found.broken == []
    assert "eagle3, k = 5" in found.text("runs")
    assert "Simulated" in found.text("answer")


@pytest.mark.nightly
def test_a_million_requests_give_a_page_of_the_same_size():
    import numpy as np
    import pyarrow as pa

    run, cells, scrapes, table = cases.of(speedup=cases.falling).build()
    times = -(-1_600_000 // table.num_rows)  # a third of them falls due before the windows
    number = pa.array(np.arange(table.num_rows * times, dtype=np.int64) // 3)
    many = pa.concat_tables([table] * times)
    many = many.set_column(many.column_names.index("session"), "session", number)
    judgement = cases.judge_data(run, cells, scrapes, many, detailed=True)
    text = page(run, judgement)
    assert sum(level.requests for level in judgement.arm_levels) > 1_000_000
    assert len(text.encode()) < 6_000_000
    assert len(judgement.detail.slowest) <= 60


def test_a_level_without_a_pair_leaves_a_gap_and_no_chart_fails():
    run, judgement = cases.case("pays up to")
    first = judgement.arm_levels[0]
    empty = dataclasses.replace(first, requests=0, means={}, tails={}, in_flight=None, running=None)
    gap = dataclasses.replace(judgement, arm_levels=(empty, *judgement.arm_levels[1:]), speedups=judgement.speedups[1:])
    assert Parsed(page(run, gap)).broken == []
