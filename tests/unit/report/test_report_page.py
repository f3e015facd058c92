import base64
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

import pytest
import report_example as example
from parsed import Parsed

from loadtest.report.charts import CHARTS
from loadtest.report.document import embedded
from loadtest.report.page import page, write_page

SECTIONS = (
    "load",
    "by-class",
    "latency",
    "inter-token",
    "why",
    "acceptance",
    "changes",
    "levels",
    "guards",
    "comparability",
    "cells",
    "protocol",
    "definitions",
)
ALL = {
    "pays": (example.run(), example.full()),
    "one arm": (example.run(), example.one_arm()),
    "invalid": (example.run(), example.invalid()),
    "bare": ({}, example.bare()),
}
PAYLOADS = (
    "</script><script>alert(1)</script>",
    "</SCRIPT><IMG SRC=x ONERROR=alert(1)>",
    "\"' onmouseover=alert(1) x='",
    "<!--<script>",
    "{{ 7*7 }}{% raw %}",
    "</style></title></details>",
    "\u2028\u2029\u202e\x1b]0;x\x07\x00\ud800&lt;b&gt;",
)


@pytest.fixture(scope="module")
def parsed() -> Parsed:
    return Parsed(page(example.run(), example.judgement()))


@pytest.fixture(scope="module")
def full() -> Parsed:
    return Parsed(page(example.run(), example.full()))


def test_every_section_is_there_with_its_figures(parsed):
    assert [attributes["aria-labelledby"] for tag, attributes in parsed.elements if tag == "section"] == list(SECTIONS)
    assert example.HEADLINE in parsed.text("answer")
    assert example.SECOND in parsed.text("answer")
    assert "Recommendation: on up to 32 users" in parsed.text("answer")
    assert "37 [32, 42]" in parsed.text("load")
    assert "time per output token 1.00× better up to 47 [41, 54]" in parsed.text("load")
    assert "387 ms" in parsed.text("latency")
    assert "speculation lengthens it by design" in parsed.text("inter-token")
    assert "2.03×" in parsed.text("why")
    assert "1 to 36 5 yes" in parsed.text("why")
    with_ten = "the least gain were 10 % proven at 1, 2, 4, 8 and 16 users, ruled out at 32 and 64 users"
    assert with_ten in parsed.text("changes")
    assert (
        "the least gain were 20 % proven at 1, 2, 4 and 8 users, ruled out at 32 and 64 users, open at 16"
        in parsed.text("changes")
    )
    assert "timeout cell 64, session 17, turn 2" in parsed.text("latency")
    assert "requests sent after they were due, p99 0.900 ms 1.20 ms" in parsed.text("cells")
    assert "0.89× [0.87, 0.92]" in parsed.text("levels")
    assert "not proven" in parsed.text("guards")
    assert "KV blocks consequence 27,412 25,870 verified" in parsed.text("comparability")
    assert "a request of another client was running in the window." in parsed.text("cells")
    assert "loadtest run scenarios/chat.py \\ --baseline http://a:8000 \\ --speculative" in parsed.text("protocol")
    assert "lateness_p99_s 0.0009" in parsed.text("protocol")
    assert "arrival of the last chunk, minus the moment the request was due" in parsed.text("definitions")


def test_both_arms_stand_at_every_level(parsed):
    text = parsed.text("levels")
    for level in ("1 user", "2 users", "4 users", "8 users", "16 users", "32 users", "64 users"):
        assert f"{level} baseline" in text
        assert f"{level} speculative" in text


def test_every_chart_has_a_place_a_description_and_its_figures(full):
    plots = [attributes for _, attributes in full.elements if attributes.get("class") == "plot"]
    figures = json.loads(next(text for tag, a, text in full.raw if a.get("id") == "figures"))
    assert len(plots) == len(CHARTS)
    assert {plot["data-figure"] for plot in plots} == set(figures)
    assert all(plot["role"] == "img" and len(plot["aria-label"] or "") > 40 for plot in plots)
    assert full.text().count("Figures of this chart") == len(CHARTS)


@pytest.mark.parametrize("name", ALL)
def test_the_page_is_whole_and_names_nothing_outside_it(name):
    text = page(*ALL[name])
    found = Parsed(text)
    assert found.broken == []
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in found.elements:
        assert (attributes.get("href") or "#").startswith("#")
        assert not attributes.keys() & {"src", "srcset", "action", "data", "poster", "style"}
        assert not [key for key in attributes if key.startswith("on")]
    assert len(text.encode()) < 6_000_000


@pytest.mark.parametrize("name", ALL)
def test_links_within_the_page_have_a_target(name):
    found = Parsed(page(*ALL[name]))
    ids = {attributes.get("id") for _, attributes in found.elements}
    assert {attributes["href"][1:] for tag, attributes in found.elements if tag == "a"} <= ids


def test_the_policy_allows_the_scripts_and_the_style_of_this_page_and_nothing_else(parsed):
    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    scripts = [hashed(text) for tag, attributes, text in parsed.raw if tag == "script" and "type" not in attributes]
    styles = [hashed(text) for tag, _, text in parsed.raw if tag == "style"]
    assert len(scripts) == 2
    assert parsed.policy["default-src"] == ["'none'"]
    assert parsed.policy["script-src"] == scripts
    assert parsed.policy["style-src"] == [*styles, hashed("")]
    assert not any("unsafe" in word for values in parsed.policy.values() for word in values)


def test_one_arm_is_shown_without_a_word_on_speculation_paying():
    found = Parsed(page(example.run(), example.one_arm()))
    sections = [attributes["aria-labelledby"] for tag, attributes in found.elements if tag == "section"]
    assert sections == ["load", "latency", "inter-token", "levels", "cells", "protocol", "definitions"]
    assert "Verdicts" not in found.text()
    assert "speed-up by" not in found.text("levels")
    assert "3,818 tokens/s" in found.text("answer")


def test_a_run_without_a_valid_cell_says_so_and_why():
    answer = Parsed(page(example.run(), example.invalid())).text("answer")
    assert "Invalid This run cannot be judged. Use none of its figures." in answer
    assert "the speculative server stopped answering after 4 cells" in answer
    assert "No data." in Parsed(page(example.run(), example.invalid())).text("latency")


def test_a_simulated_run_says_so_before_anything_else():
    found = Parsed(page(example.run(simulated=True), example.judgement()))
    body = found.text("answer")
    assert body.index("These figures describe a model, not anyone's hardware.") < body.index("scenario chat")


def spoiled(value, payload, field=""):
    """Append the payload to every text of a judgement except the names by which its parts find each other."""
    if isinstance(value, Enum) or field in ("metric", "statistic", "deepest", "kind"):
        return value
    if isinstance(value, str):
        return value + payload if value else value
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(
            value, **{f.name: spoiled(getattr(value, f.name), payload, f.name) for f in dataclasses.fields(value)}
        )
    if isinstance(value, dict):
        named = field in ("outcomes", "finish_reasons", "config")
        return {key + payload if named else key: spoiled(item, payload) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(spoiled(item, payload) for item in value)
    return value


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_in_every_field_adds_no_element_and_no_attribute(full, payload):
    judgement = spoiled(example.full(), payload)
    judgement = dataclasses.replace(
        judgement, decision=dataclasses.replace(judgement.decision, guards=example.judgement().decision.guards)
    )
    run = spoiled(example.run(), payload)
    run["experiment"]["decision"] = example.run()["experiment"]["decision"]
    text = page(run, judgement)
    found = Parsed(text)
    assert found.broken == []
    assert found.shape == full.shape
    assert found.policy["style-src"] == full.policy["style-src"]
    text.encode()  # no lone surrogate is left
    assert not set("\x00\x07\x1b\u202e\u2028\u2029") & set(found.text())
    figures = next(raw for _, attributes, raw in found.raw if attributes.get("id") == "figures")
    assert not set("<>&\u2028\u2029") & set(figures)


def test_hostile_names_of_settings_and_guards_are_text():
    payload = PAYLOADS[0]
    judgement = example.judgement()
    guards = tuple(
        dataclasses.replace(g, name=payload, statistic=payload, sentence=payload) for g in judgement.decision.guards
    )
    judgement = dataclasses.replace(judgement, decision=dataclasses.replace(judgement.decision, guards=guards))
    found = Parsed(page({payload: {payload: payload}, "arms": payload, "experiment": payload}, judgement))
    assert found.broken == []
    assert len([tag for tag, _ in found.elements if tag == "script"]) == 3
    assert payload in found.text("protocol")


def test_a_megabyte_of_an_answer_does_not_swell_the_page():
    run = example.run(answer="x" * 1_000_000)
    text = page(run, example.judgement())
    assert len(text.encode()) < 6_000_000
    assert "more characters)" in Parsed(text).text("protocol")


def test_json_in_the_page_is_inert_and_finite():
    assert embedded({"a": ["</script>", float("inf"), float("nan"), "\u2028&"]}) == (
        '{"a":["\\u003c/script\\u003e",null,null,"\\u2028\\u0026"]}'
    )


def test_equal_runs_give_equal_bytes_on_any_hash_seed():
    code = (
        "import hashlib, report_example as e; from loadtest.report.page import page;"
        "print(hashlib.sha256(page(e.run(), e.judgement()).encode()).hexdigest())"
    )
    here = Path(__file__).parent
    sums = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=here,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(here.parents[2])},
        ).stdout
        for seed in ("1", "2")
    }
    assert sums == {hashlib.sha256(page(example.run(), example.judgement()).encode()).hexdigest() + "\n"}


def test_the_page_is_written_whole(tmp_path):
    path = write_page(tmp_path, example.run(), example.judgement())
    assert path == tmp_path / "report.html"
    assert path.read_bytes().rstrip().endswith(b"</html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_a_very_large_run_stays_under_the_limit():
    full = example.judgement()
    levels = tuple(float(i) for i in range(1, 129))
    cells = tuple(
        dataclasses.replace(cell, cell=number * len(full.cells) + cell.cell, marks=("late " * 400,))
        for number in range(80)
        for cell in full.cells
    )
    large = dataclasses.replace(
        full,
        levels=levels,
        arm_levels=tuple(example.arm_level(arm, level) for level in levels for arm in example.ARMS),
        speedups=tuple(dataclasses.replace(example.speedup("e2e", level), blocks=(1.1,) * 200) for level in levels),
        why=tuple(example.why(level) for level in levels),
        cells=cells,
        notes=("note " * 50,) * 500,
    )
    text = page(example.run(), large)
    assert len(text.encode()) < 6_000_000
    assert "Tables are cut to " in Parsed(text).text()
