"""Prompts and traces that are given: checked before any load, told in the protocol, and named from where they stand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loadtest.drive.header import make_header, sha256_of
from loadtest.drive.options import Options
from loadtest.drive.prepare import Prepared, prepare
from loadtest.errors import UsageError

ROOT = Path(__file__).parents[3]
TRACES = ROOT / "tests" / "data" / "traces"


def prepared(scenario: Path, **options: object) -> Prepared:
    return prepare(Options(scenario=scenario, simulated=True, **options), {})  # type: ignore[arg-type]


def test_a_trace_stands_beside_its_scenario_and_in_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "scenarios" / "trace.py").read_text())
    (tmp_path / "mine.toml").write_text('[trace]\nfile = "mine.csv"\njitter_s = 0\n')
    (tmp_path / "mine.csv").write_bytes((TRACES / "azure_form.csv").read_bytes())
    run = prepared(tmp_path / "mine.py")
    header = make_header(run, "", datetime.now(UTC), 0)
    told = header["scenario"]
    assert told["trace"] == str(tmp_path / "mine.csv")
    assert told["trace_sha256"] == sha256_of(tmp_path / "mine.csv")
    assert told["sessions_from"] == {
        "kind": "trace", "name": "Azure LLM inference trace", "holds_text": False, "rows": 4, "requests": 4,
        "sessions": 4,
        "licence": "as published CC-BY 4.0 (Patel et al., Splitwise, ISCA 2024)", "categories": ["chat"],
        "left_out": {},
        "mended": {}, "done": {"sorted: out of order in the file": 1}, "jitter_s": 0.0, "span_s": 9.169,
        "requests_per_s": pytest.approx(4 / 9.168725, abs=1e-5),
    }  # fmt: skip
    assert any("1 row sorted: out of order in the file (first: line 4)" in note for note in run.notes)
    assert any("mine.csv holds 4 sessions, and a cell may need 64" in note for note in run.notes)
    json.dumps(header, default=str)


def test_prompts_are_told_with_their_licence_and_hash(tmp_path: Path) -> None:
    prompts = ROOT / "tests" / "data" / "prompts" / "messages.jsonl"
    told = make_header(prepared(ROOT / "scenarios" / "chat.py", prompts=prompts), "", datetime.now(UTC), 0)["scenario"]
    assert told["prompts_sha256"] == told["sessions_from"]["sha256"] == sha256_of(prompts)
    assert told["sessions_from"]["licence"].startswith("not known to loadtest")
    assert told["trace"] is None


def test_without_either_nothing_is_told() -> None:
    run = prepared(ROOT / "scenarios" / "chat.py")
    assert run.sessions_from is None
    assert run.notes == ()


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("trace.file=nowhere.csv", r"nowhere\.csv does not exist; give a trace or log"),
        ("trace.speed=0", r"trace\.speed is 0; it must be a number above 0"),
        ("trace.jitter_s=soon", r"trace\.jitter_s is 'soon'; it must be \"auto\", or seconds"),
        ("trace.text=prose", r"trace\.text is 'prose'; it must be one of chat, code"),
        ("trace.max_input_tokens=1", "holds no row that can be used: left out: more than 1 input tokens"),
        ("trace.fil=a.csv", r"\[trace\] has no key `fil`\. Did you mean `file`\?"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_before_any_load(assignment: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        prepared(ROOT / "scenarios" / "trace.py", assignments=(assignment,))


def test_prompts_do_not_go_with_a_trace() -> None:
    with pytest.raises(UsageError, match="both say what is asked; leave one out"):
        prepared(ROOT / "scenarios" / "trace.py", prompts=ROOT / "tests" / "data" / "prompts" / "single.jsonl")
