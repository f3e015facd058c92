"""Pages of every kind of run in a real browser: drawn from their own figures, readable for everyone, printed uncut."""

import json
import os
import time
from pathlib import Path

import pytest
import report_cases as cases
import report_example as example
from chromium import PATH

from loadtest.report.comparison import write_comparison
from loadtest.report.page import write_page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PATH is None, reason="no chromium on the path: apt-get install chromium"),
]
AXE = Path(os.environ.get("AXE_CORE") or Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js")
SERIOUS = ("serious", "critical")
FULL = "everything"


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    found = {}
    for name in cases.CASES:
        (folder / name.replace("/", "")).mkdir()
        found[name] = write_page(folder / name.replace("/", ""), *cases.case(name))
    (folder / FULL).mkdir()
    found[FULL] = write_page(folder / FULL, example.keeping(), example.full(), example.texts())
    found["several"] = write_comparison(folder / "several.html", cases.several())
    return found


A4 = 703  # CSS pixels that a portrait page has between its margins
DRAWN_SO_FAR = (
    "document.documentElement.dataset.drawn === String([...document.querySelectorAll('.plot')].filter(one => one.data)"
    ".length)"
)
QUICK = ("one arm", "all failed", "A/A", FULL, "several")
KINDS = (*cases.CASES, FULL, "several")
NAMES = tuple(name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in KINDS)
AXE_QUICK = ((FULL, "light"), ("several", "light"))
AXE_CASES = tuple(
    pytest.param(name, scheme, marks=() if (name, scheme) in AXE_QUICK else pytest.mark.nightly)
    for name in KINDS
    for scheme in ("light", "dark")
)


@pytest.mark.parametrize("name", NAMES)
def test_it_draws_what_it_holds_at_the_width_of_a_phone(browser, paths, name):
    browser.open(paths[name], width=390, height=844)
    assert browser.value("document.documentElement.dataset.failed") is None
    assert browser.complaints == []
    assert browser.requests == [paths[name].as_uri()]
    assert browser.value("document.documentElement.scrollWidth") == 390
    empty = (
        "[...document.querySelectorAll('.plot')].filter(p => !p.querySelector('.trace, .box, .point, path.js-line'))"
    )
    assert browser.value(f"{empty}.map(p => p.dataset.figure)") == []


def test_the_figures_drawn_are_those_of_the_verdict(browser, paths):
    judgement = example.full()
    browser.open(paths[FULL], width=1280, height=800)

    def trace(chart, name, axis="y"):
        found = (
            f"document.querySelector('.plot[data-figure=\"{chart}\"]').data.find(t => t.name === {json.dumps(name)})"
        )
        return browser.value(f"Array.from({found}.{axis})")

    ratios = [s.ratio.value for s in judgement.speedups if s.metric == "e2e"]
    assert trace("speedup", "mean, 95 % interval") == pytest.approx(ratios)
    assert trace("steps", "tokens per step τ") == pytest.approx([why.tau_all for why in judgement.why])
    for arm in judgement.arms:
        own = [a for a in judgement.arm_levels if a.arm == arm]
        assert trace("throughput", arm) == pytest.approx([a.means["output_tokens_per_s"].value for a in own])
        assert trace("ttft", f"{arm}, p95") == pytest.approx([1000 * a.tails["ttft"].p95.value for a in own])
        assert trace("tradeoff", arm, "x") == pytest.approx([a.means["output_tokens_per_s"].value for a in own])
    tokens = judgement.findings.first_tokens
    assert trace("first-token", "queue") == pytest.approx([1000 * one.queue_s for one in tokens])
    slots = [100 * slot.conditional.value for slot in judgement.findings.acceptance.slots]
    assert trace("slots", "of those that reach the slot (conditional)") == pytest.approx(slots)
    day = [one.speedup.value for one in judgement.gate.traffic.loads]
    assert trace("day", "speed-up by E2E") == pytest.approx(day)
    limit = judgement.decision.limit.at
    assert trace("speedup", "limit 37 [32, 42]", "x") == [limit.value]


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install axe-core, or AXE_CORE=…/axe.min.js")
@pytest.mark.parametrize(("name", "scheme"), AXE_CASES)
def test_axe_finds_nothing_serious(browser, paths, name, scheme):
    browser.open(paths[name], width=1280, height=800, scheme=scheme)
    browser.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    browser.call("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8") + "; 0")
    assert found_by_axe(browser) == []
    browser.value("document.documentElement.removeAttribute('lang')")
    assert [one[1] for one in found_by_axe(browser, "html-has-lang")] == ["html-has-lang"]  # it does look


def found_by_axe(browser, *rules):
    only = f", runOnly: {json.dumps(rules)}" if rules else ""
    found = browser.call(
        "Runtime.evaluate",
        expression=f"axe.run(document, {{resultTypes: ['violations']{only}}}).then(r => r.violations.map("
        "v => [v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160))]))",
        awaitPromise=True,
        returnByValue=True,
    )["result"]["value"]
    return [one for one in found if one[0] in SERIOUS]


def test_a_table_sorts_by_its_column_and_back(browser, paths):
    browser.open(paths[FULL], width=1280, height=800)
    table = "[...document.querySelectorAll('table')].find(t => t.caption.textContent === 'Both arms by level')"
    column = f"[...{table}.tHead.rows[0].cells].findIndex(c => c.textContent === 'tokens/s')"
    texts = f"[...{table}.tBodies[0].rows].map(r => r.cells[{column}].textContent.trim())"
    click = f"{table}.tHead.rows[0].cells[{column}].querySelector('button').click()"
    sort = f"{table}.tHead.rows[0].cells[{column}].getAttribute('aria-sort')"
    before = browser.value(texts)
    browser.value(click)
    up = browser.value(texts)
    assert browser.value(sort) == "ascending"
    assert up == sorted(before, key=lambda text: float(text.replace(",", "")))
    assert up != before
    browser.value(click)
    assert browser.value(texts) == up[::-1]
    browser.value(click)
    assert (browser.value(texts), browser.value(sort)) == (before, None)


def test_times_sort_by_their_length_and_what_is_missing_comes_last(browser, paths):
    browser.open(paths[FULL], width=1280, height=800)
    table = (
        "[...document.querySelectorAll('table')].find(t => t.caption.textContent === 'The requests that make the tail')"
    )
    texts = f"[...{table}.tBodies[0].rows].map(r => r.cells[2].textContent.trim())"
    browser.value(f"{table}.tHead.rows[0].cells[2].querySelector('button').click()")
    assert browser.value(texts)[-1] == "∞"
    due = f"[...{table}.tBodies[0].rows].map(r => r.cells[12].textContent.trim())"
    browser.value(f"{table}.tHead.rows[0].cells[12].querySelector('button').click()")
    assert browser.value(due)[::2] == ["1 min 30 s", "3 min", "6 min", "12 min", "24 min", "48 min", "1 h 36 min"]


def test_a_table_copies_as_csv_that_no_spreadsheet_runs(browser, paths):
    browser.open(paths[FULL], width=1280, height=800)
    browser.value("""
      (() => {
        const cell = document.querySelector("section[aria-labelledby=comparability] td");
        cell.textContent = '=HYPERLINK("http://x","y")';
        const writeText = text => { window.copied = text; return Promise.resolve(); };
        Object.defineProperty(navigator, "clipboard", {value: {writeText}});
        cell.nextElementSibling.textContent = "+5.30 ms [+4.38, +6.36]";
        cell.closest(".scroll").nextElementSibling.click();
      })()
    """)
    lines = browser.value("window.copied").split("\r\n")
    assert lines[0] == '"item","difference","baseline","candidate","source"'
    assert '"\'=HYPERLINK(""http://x"",""y"")"' in browser.value("window.copied")
    assert '"+5.30 ms [+4.38, +6.36]"' in browser.value("window.copied")  # a figure is copied as it stands


def test_in_print_nothing_is_folded_and_nothing_cut_off(browser, paths):
    browser.open(paths[FULL], width=1280, height=800)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    browser.value("window.dispatchEvent(new Event('beforeprint'))")
    try:
        assert browser.value("document.querySelectorAll('details.print:not([open])').length") == 0
        cut = (
            "[...document.querySelectorAll('.scroll')].filter(s => getComputedStyle(s).overflowX !== 'visible').length"
        )
        assert browser.value(cut) == 0
        browser.call("Emulation.setDeviceMetricsOverride", width=A4, height=1000, deviceScaleFactor=1, mobile=False)
        beyond = f"[...document.querySelectorAll('table, pre')].filter(t => t.getBoundingClientRect().right > {A4})"
        assert browser.value(f"{beyond}.map(t => t.textContent.trim().slice(0, 60))") == []
        widths = "[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().width)"
        assert max(browser.value(widths)) <= 641
        assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert browser.call("Page.printToPDF", printBackground=False)["data"]
    finally:
        browser.value("window.dispatchEvent(new Event('afterprint'))")
        browser.call("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize("width", [1280, 390])
def test_what_is_folded_opens_by_link_key_and_print_and_draws_its_charts_at_their_width(browser, paths, width):
    browser.open(paths[FULL], width=width, height=800, unfolded=False)
    whole = "document.documentElement.scrollHeight"
    folded = browser.value(whole)
    assert browser.value("document.querySelectorAll('details.fold[open]').length") == 0
    assert browser.value("[...document.querySelectorAll('.fold .plot')].some(plot => plot.data)") is False
    browser.value("document.querySelector('nav a[href=\"#acceptance\"]').click()")
    slots = "document.querySelector('#slots .plot')"
    browser.until(f"document.getElementById('acceptance').closest('details').open && {slots}.data && {DRAWN_SO_FAR}")
    drawn, room = (f"{slots}{of}.getBoundingClientRect().width" for of in (".querySelector('.main-svg')", ""))
    assert browser.value(drawn) == pytest.approx(browser.value(room), abs=1)
    assert 0 <= browser.value("document.getElementById('acceptance').getBoundingClientRect().top") < 200
    browser.value("document.getElementById('acceptance').closest('details').open = false")
    browser.value("document.querySelector('nav a[href=\"#acceptance\"]').click()")  # the same link once more
    browser.until("document.getElementById('acceptance').closest('details').open")
    browser.value("document.querySelector('#cells').closest('summary').focus()")
    browser.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
    )
    browser.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)
    browser.until("document.getElementById('cells').closest('details').open")
    browser.value("document.querySelectorAll('details.fold').forEach(one => { one.open = true; })")
    assert folded < 0.6 * browser.value(whole)
    browser.value("document.querySelectorAll('details.fold').forEach(one => { one.open = false; })")
    browser.value("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.value("[...document.querySelectorAll('.plot')].every(plot => plot.data && plot.clientWidth > 0)")
    browser.value("window.dispatchEvent(new Event('afterprint'))")
    assert browser.value("document.querySelectorAll('details.fold[open]').length") == 0
    assert browser.complaints == []


def test_a_page_that_is_opened_at_a_folded_part_shows_it(browser, paths):
    class At:
        def as_uri(self):
            return paths[FULL].as_uri() + "#guards"

    browser.open(At(), width=1280, height=800, unfolded=False)
    assert browser.value("document.getElementById('guards').closest('details').open")
    assert 0 <= browser.value("document.getElementById('guards').getBoundingClientRect().top") < 200


def test_a_link_into_a_folded_part_opens_it(browser, paths):
    browser.open(paths[FULL], width=1280, height=800)
    links = browser.value("[...document.querySelectorAll('.evidence a')].map(a => a.getAttribute('href'))")
    assert set(links) >= {"#load", "#guards", "#why", "#cells", "#changes"}
    assert browser.value("[...document.querySelectorAll('.evidence a')].every(a => document.querySelector(a.hash))")
    folded = "[...document.querySelectorAll('details:not([open])')].find(d => d.querySelector('table'))"
    browser.value(f"(() => {{ {folded}.querySelector('table').id = 'within'; location.hash = 'within'; }})()")
    opened = "document.getElementById('within').closest('details').open"
    deadline = time.monotonic() + 10
    while not browser.value(opened):
        assert time.monotonic() < deadline
        time.sleep(0.05)
