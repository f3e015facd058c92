"""The page in a real browser: nothing refused by its own policy, nothing fetched, nothing cut off."""

import dataclasses
import time

import pytest
import report_example as example
from chromium import PATH

from loadtest.report.charts import CHARTS
from loadtest.report.page import write_page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PATH is None, reason="no chromium on the path: apt-get install chromium"),
]
SIZES = [(1280, 800), (390, 844)]
VARIANTS = {
    "pays": (example.run(), example.judgement(), len(CHARTS) - 1),  # it has no expected day
    "one arm": (example.run(), example.one_arm(), 11),
    "invalid": (example.run(), example.invalid(), 0),
    "bare": ({}, example.bare(), 0),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, (run, judgement, _) in VARIANTS.items():
        (folder / name).mkdir()
        found[name] = write_page(folder / name, run, judgement)
    return found


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_draws_without_a_complaint_and_fetches_nothing(browser, paths, name, width, height):
    browser.open(paths[name], width=width, height=height)
    assert browser.value("document.documentElement.dataset.failed") is None
    assert browser.value("document.querySelectorAll('.plot .main-svg').length > 0") is (VARIANTS[name][2] > 0)
    assert browser.value("document.documentElement.dataset.drawn") == str(VARIANTS[name][2])
    assert browser.complaints == []
    assert browser.requests == [paths[name].as_uri()]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_is_wider_than_the_screen(browser, paths, name, width, height):
    browser.open(paths[name], width=width, height=height)
    assert browser.value("document.documentElement.scrollWidth") == width
    wide = (
        "[...document.querySelectorAll('table')].filter(t => t.parentElement.scrollWidth > t.parentElement.clientWidth)"
    )
    assert browser.value(f"{wide}.every(t => getComputedStyle(t.parentElement).overflowX === 'auto')") is True


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_table_wider_than_its_frame_says_that_it_scrolls_and_no_other_does(browser, paths, width, height):
    browser.open(paths["pays"], width=width, height=height)
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    frames = "[...document.querySelectorAll('.scroll')].filter(f => f.getClientRects().length)"
    wide, hint = "f.scrollWidth > f.clientWidth", "!f.previousElementSibling.hidden"
    until = time.monotonic() + 20
    while not browser.value(f"{frames}.every(f => ({wide}) === ({hint}))"):
        assert time.monotonic() < until, "a hint stands at a table that fits, or none at one that does not"
        time.sleep(0.05)
    assert browser.value(
        f"{frames}.some(f => {wide}) && {frames}.every(f => f.previousElementSibling.matches('.more'))"
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_answer_is_seen_without_scrolling(browser, paths, width, height):
    browser.open(paths["pays"], width=width, height=height, unfolded=False)
    assert browser.value("document.querySelector('.tiles').getBoundingClientRect().bottom") < height


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(browser, paths, scheme):
    browser.open(paths["pays"], width=1280, height=800, scheme=scheme)
    worst = browser.value("""
      (() => {
        const channel = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
        const parse = text => text.match(/[\\d.]+/g).map(Number);
        const paper = node => {
          for (; node; node = node.parentElement) {
            const colour = parse(getComputedStyle(node).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
          }
          return [255, 255, 255];
        };
        let worst = [99, ""];
        for (const node of document.querySelectorAll("body *:not(script):not(template)")) {
          const svg = node.tagName === "text";
          const own = [...node.childNodes].some(c => c.nodeType === 3 && c.textContent.trim());
          if (!own || !node.getClientRects().length) continue;
          const style = getComputedStyle(node);
          const [a, b] = [light(parse(svg ? style.fill : style.color)), light(paper(node))];
          const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          if (ratio < worst[0]) worst = [ratio, node.tagName + " " + node.textContent.trim().slice(0, 40)];
        }
        return worst;
      })()
    """)
    assert worst[0] >= 4.5, worst


def test_charts_follow_a_change_of_colour_scheme(browser, paths):
    browser.open(paths["pays"], width=1280, height=800)
    ink = "document.querySelector('.plot .xtick text').style.fill"
    light = browser.value(ink)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    until = time.monotonic() + 20
    while browser.value(ink) == light:
        assert time.monotonic() < until, "the axis kept its colour for 20 s"
        time.sleep(0.05)


def test_hostile_text_runs_nothing(browser, tmp_path):
    payload = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    judgement = example.judgement()
    decision = dataclasses.replace(judgement.decision, headline=payload, second=payload, reasons=(payload,))
    hostile = dataclasses.replace(
        judgement,
        decision=decision,
        notes=(payload,),
        arms=("baseline", payload),
        arm_levels=tuple(
            dataclasses.replace(a, arm=payload if a.arm == "speculative" else a.arm) for a in judgement.arm_levels
        ),
    )
    browser.open(write_page(tmp_path, example.run(server=payload), hostile), width=1280, height=800)
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.querySelector('h1').textContent") == payload
    assert browser.complaints == []


def test_every_control_is_reached_by_the_keyboard(browser, paths):
    browser.open(paths["pays"], width=390, height=844)
    reached = browser.value("""
      [...document.querySelectorAll(".scroll, a, summary, pre")].every(node => node.tabIndex === 0)
    """)
    assert reached is True
