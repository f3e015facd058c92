"""The page of five arms in a real browser: the figures drawn are the verdict's, and nothing scrolls sideways."""

import json
import sys
from pathlib import Path

import pytest
from chromium import PATH

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analyse"))

from several_runs import SPEEDUPS, five_arms

from loadtest.analyse.verdict import as_json
from loadtest.report.page import write_page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PATH is None, reason="no chromium on the path: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("five"), *five_arms())


@pytest.mark.parametrize("width", [390, 1280])
def test_it_draws_everything_and_nothing_scrolls_sideways(browser, path, width):
    browser.open(path, width=width, height=844)
    assert browser.value("document.documentElement.dataset.failed") is None
    assert browser.complaints == []
    assert browser.requests == [path.as_uri()]
    assert browser.value("document.documentElement.scrollWidth") == width
    empty = (
        "[...document.querySelectorAll('.plot')].filter(p => !p.querySelector('.trace, .box, .point, path.js-line'))"
    )
    assert browser.value(f"{empty}.map(p => p.dataset.figure)") == []
    assert browser.value("document.querySelector('h1').textContent") == five_arms()[1].decision.headline


def test_what_is_drawn_and_written_is_what_the_verdict_says(browser, path):
    verdict = as_json(five_arms()[1])
    browser.open(path, width=1280, height=844)

    def trace(chart, name, what="y"):
        found = (
            f"document.querySelector('.plot[data-figure=\"{chart}\"]').data.find(t => t.name === {json.dumps(name)})"
        )
        return browser.value(f"Array.from({found}.{what})")

    for place, (name, pair) in enumerate(zip(SPEEDUPS, verdict["pairs"], strict=True), start=1):
        ratios = [one["ratio"] for one in pair["speedups"] if one["metric"] == "e2e"]
        values = [ratio["value"] for ratio in ratios]
        assert trace("speedups", name) == pytest.approx(values)
        assert trace("speedups", name, "error_y.array") == pytest.approx([r["high"] - r["value"] for r in ratios])
        assert trace("speedups", name, "error_y.arrayminus") == pytest.approx([r["value"] - r["low"] for r in ratios])
        assert trace(f"pair-{place}-speedup", "mean, 95 % interval") == pytest.approx(values)
        carried = [row["means"]["output_tokens_per_s"]["value"] for row in pair["arm_levels"] if row["arm"] == name]
        assert trace("throughput", name) == pytest.approx(carried)
    colours = browser.value(
        "[...document.querySelector('.plot[data-figure=\"speedups\"]').data].map(t => t.line.color)"
    )
    assert len(set(colours)) == len(SPEEDUPS)
    table = (
        "[...document.querySelectorAll('table')].find(t => t.caption.textContent === 'Candidates against each other')"
    )
    assert browser.value(f"{table}.tBodies[0].rows.length") == len(verdict["ranking"]["against"])


def test_the_swatch_of_a_candidate_has_the_colour_of_its_line(browser, path):
    browser.open(path, width=1280, height=844)
    lines = browser.value(
        "[...document.querySelector('.plot[data-figure=\"speedups\"]').data].map(t => [t.name, t.line.color])"
    )
    shown = browser.value(
        "[...document.querySelectorAll('.where .swatch')].map(s => [s.textContent.trim(),"
        " getComputedStyle(s, '::before').backgroundColor])"
    )
    wanted = {name: tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for name, colour in lines}
    found = {name: tuple(map(int, colour[4:-1].split(","))) for name, colour in shown}
    assert {name: found[name] for name in wanted} == wanted
