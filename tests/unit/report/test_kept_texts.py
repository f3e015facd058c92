"""What people asked and a model wrote: on the page only where a run kept it, as text, and in nothing else."""

from __future__ import annotations

import contextlib
import json
import stat

import pytest
import report_example as example
from hypothesis import given
from hypothesis import strategies as st
from parsed import Parsed
from test_report_page import PAYLOADS

from loadtest.analyse.verdict import as_json
from loadtest.errors import UsageError
from loadtest.json_files import PRIVATE, LineWriter
from loadtest.record import KeptText
from loadtest.report.markdown import summary
from loadtest.report.page import page, write_page
from loadtest.report.texts import BYTES
from loadtest.run_folder import read_texts

NOTHING = "Times and counts alone: no text of a prompt or an answer is kept."
KEEPING = example.keeping()
SLOW = example.full().detail.slowest


@pytest.fixture(scope="module")
def shown() -> str:
    return page(KEEPING, example.full(), example.texts())


def test_without_the_option_a_page_holds_no_text_even_where_some_lies_in_the_folder():
    plain = page(example.run(), example.full())
    assert NOTHING in Parsed(plain).text("latency")
    assert page(example.run(), example.full(), example.texts()) == plain


def test_with_it_each_slow_request_shows_what_it_asked_and_was_answered(shown):
    found = Parsed(shown)
    assert found.broken == []
    said = found.text("latency")
    assert NOTHING not in said
    assert "This run was started with --keep-text: this page holds what people asked and a model wrote" in said
    assert said.count("Where is order 17?") == len(SLOW)
    assert f"cell {SLOW[0].cell}, session {SLOW[0].session}, turn {SLOW[0].turn + 1}" in said
    assert "It left\nMonday." in shown


def test_texts_of_other_requests_are_not_shown_and_that_none_was_kept_is_said():
    other = [KeptText(cell=99, arm="baseline", session=1, turn=0, prompt="Not this one", answer="Nor this")]
    text = page(KEEPING, example.full(), other)
    assert "Not this one" not in text
    assert "Of these requests nothing was kept" in Parsed(text).text("latency")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_adds_no_element_and_runs_nothing(payload, shown):
    harmless = Parsed(shown)
    text = page(KEEPING, example.full(), example.texts(prompt=f"a {payload} b", answer=payload))
    found = Parsed(text)
    assert found.broken == []
    assert found.shape == harmless.shape
    assert found.policy == harmless.policy
    text.encode()  # no lone surrogate is left
    assert not set("\x00\x07\x1b\u202e\u2028\u2029") & set(found.text())
    assert (payload if payload.isprintable() else "&lt;b&gt;") in found.text("latency")


def test_long_and_many_texts_do_not_swell_the_page_beyond_its_limit(shown):
    short = len(shown.encode())
    text = page(KEEPING, example.full(), example.texts(prompt="<" * 1_000_000, answer="&" * 1_000_000))
    assert len(text.encode()) < short + BYTES + 50_000


def test_a_page_with_texts_is_its_owners_alone(tmp_path):
    path = write_page(tmp_path, KEEPING, example.full(), example.texts())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert stat.S_IMODE(write_page(tmp_path, KEEPING, example.full(), example.texts()).stat().st_mode) == 0o600


def test_verdict_and_summary_know_no_text():
    words = json.dumps(as_json(example.full())) + summary(KEEPING, example.full())
    assert "prompt_tokens" in words
    assert "order 17" not in words


def test_texts_come_back_from_the_folder_and_a_wrong_value_is_named(tmp_path):
    assert read_texts(tmp_path) == []
    writer = LineWriter(tmp_path / "texts.jsonl", PRIVATE)
    for row in example.texts(answer="a\ud800b"):
        writer.write(row)
    writer.close()
    assert stat.S_IMODE((tmp_path / "texts.jsonl").stat().st_mode) == 0o600
    assert read_texts(tmp_path) == example.texts(answer="a\ud800b")
    with (tmp_path / "texts.jsonl").open("a") as file:
        file.write('{"cell": 1, "arm": "baseline", "session": 1, "turn": 0, "prompt": 5, "answer": ""}\n')
    with pytest.raises(UsageError, match=r"texts\.jsonl, line \d+, has `prompt` 5; it must be text"):
        read_texts(tmp_path)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)
NAMES = ("cell", "arm", "session", "turn", "prompt", "answer", "answer_cut")


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES).map(json.dumps) | st.text(), max_size=3))
def test_a_file_of_any_lines_is_read_or_refused(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "texts.jsonl").write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(UsageError):
        assert all(isinstance(row, KeptText) for row in read_texts(folder))
