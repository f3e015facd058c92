"""Forms of prompt files beyond JSONL of texts, and what the protocol says of known sets."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.experiment import override
from loadtest.settings import Experiment, Load, Trace
from loadtest.workload.given import given_source, notes_of
from loadtest.workload.prompt_sets import SETS, set_of
from loadtest.workload.prompts import PromptSource
from loadtest.workload.sessions import SessionKey, requests_of

SHARED = Path(__file__).parents[4] / "shared" / "data"
TRACES = Path(__file__).parents[2] / "data" / "traces"
KEY = SessionKey(seed=1, level=4.0, block=0, number=0)


def source_of(tmp_path: Path, content: str | bytes, name: str) -> PromptSource:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return PromptSource(path)


def asked(source: PromptSource) -> list[str]:
    return [prompt.turns[0][0] for prompt in source.prompts]


def test_a_text_file_holds_a_prompt_a_line(tmp_path: Path) -> None:
    source = source_of(tmp_path, "\ufeffName a river.\r\n\r\n  Name a lake. \n", "own.txt")
    assert asked(source) == ["Name a river.", "Name a lake."]
    assert source.categories == ("own",)
    with pytest.raises(UsageError, match=r"own\.txt, line 2: byte 1 \(0xff\) is not UTF-8"):
        source_of(tmp_path, b"fine\n\xff\n", "own.txt")


def test_a_table_has_a_column_of_prompts(tmp_path: Path) -> None:
    table = 'Category,Instruction,Input\nedit,Shorten this.,"A long,\nlong text."\n,Name a lake.,\n,,\n'
    source = source_of(tmp_path, table, "own.csv")
    assert asked(source) == ["Shorten this.\n\nA long,\nlong text.", "Name a lake."]
    assert [prompt.category for prompt in source.prompts] == ["edit", "own"]
    assert asked(source_of(tmp_path, "prompt\tid\nName a lake, please.\t7\n", "own.tsv")) == ["Name a lake, please."]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("id,query\n1,a\n", r"line 1: no column prompt, question, instruction, text; its columns are id, query\."),
        ("prompt\na\nb,c\n", r"line 3: 2 fields where the heading has 1"),
        ('prompt\n"a\n', r"line 2: not CSV \(unexpected end of data\)"),
        ('prompt\n"a"b\n', r"line 2: not CSV"),
        (b"prompt\n\xff\n", r"byte 8 \(0xff\) is not UTF-8"),
        ("", "is empty"),
        ("prompt\n", "holds no prompts: every line is blank"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        source_of(tmp_path, content, "own.csv")


def talk(*said: tuple[str, str]) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": speaker, "value": text} for speaker, text in said]}


def test_dialogues_of_sharegpt(tmp_path: Path) -> None:
    dialogues = [
        talk(("human", "Name a lake."), ("gpt", "Como."), ("human", "Another."), ("gpt", "Garda.")),
        talk(("system", "Be brief."), ("gpt", "…so it is."), ("human", "Why?"), ("gpt", "Because.")),
        talk(("human", "a"), ("human", "b")),
        talk(("wizard", "a")),
        talk(("gpt", "a")),
    ]
    source = source_of(tmp_path, json.dumps(dialogues, indent=1), "own.json")
    assert [prompt.turns for prompt in source.prompts] == [
        (("Name a lake.", "Como."), ("Another.", "")), (("Why?", ""),), (("a", ""),)
    ]  # fmt: skip
    assert source.prompts[1].system == "Be brief."
    left_out, licence = source.notes[-2:]
    assert left_out.startswith("own.json: 2 of 5 conversations left out; entry 4: `conversations[0]` has no `from` of")
    assert licence.endswith("do not pass it on.")
    with pytest.raises(UsageError, match=r"holds no prompts \(entry 1: `conversations` holds nothing that a person"):
        source_of(tmp_path, json.dumps([talk(("gpt", "a"))]), "own.json")


def test_an_array_that_is_broken_or_holds_other_things(tmp_path: Path) -> None:
    assert asked(source_of(tmp_path, '[{"prompt": "a"}, {"prompt": "b"}]', "own.jsonl")) == ["a", "b"]
    with pytest.raises(UsageError, match=r"own\.json is not JSON: .*line 2"):
        source_of(tmp_path, '[{"prompt": "a"},\n', "own.json")
    with pytest.raises(UsageError, match="entry 2: a number where an object is needed: '3'"):
        source_of(tmp_path, '[{"prompt": "a"}, 3]', "own.json")


CALL = [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}]
WITH_TOOLS = {
    "messages": [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": CALL},
        {"role": "tool", "tool_call_id": "c1", "content": "In Oslo."},
        {"role": "assistant", "content": "It is in Oslo."},
        {"role": "user", "content": "Thanks. Until when?"},
    ],
    "tools": [{"type": "function", "function": {"name": "find", "parameters": {}}}],
    "category": "agent",
}


def test_a_dialogue_with_tools_is_sent_request_by_request(tmp_path: Path) -> None:
    session = source_of(tmp_path, json.dumps(WITH_TOOLS), "own.jsonl").session(KEY)
    assert [turn.from_tool for turn in session.turns] == [False, True, False]
    assert all(turn.tools == tuple(WITH_TOOLS["tools"]) for turn in session.turns)  # type: ignore[arg-type]
    sent = [messages for _, messages in requests_of(session)]
    assert [len(messages) for messages in sent] == [2, 4, 6]
    assert sent[1][2] == {"role": "assistant", "content": "", "tool_calls": CALL}
    assert sent[2][:4] == sent[1]
    assert session.turns[1].think_s > 0
    broken = {**WITH_TOOLS, "messages": [*WITH_TOOLS["messages"], {"role": "tool"}]}  # type: ignore[misc]
    with pytest.raises(UsageError, match="line 1: a message without content"):
        source_of(tmp_path, json.dumps(broken), "own.jsonl")


ROWS: dict[str, dict[str, Any]] = {
    "Spec-Bench": {"question_id": 1, "category": "rag", "turns": ["a"]},
    "MT-Bench": {"question_id": 1, "category": "writing", "turns": ["a", "b"]},
    "HumanEval": {"task_id": "HumanEval/0", "prompt": "def a(): ..."},
    "MBPP": {"task_id": 1, "text": "Write a function."},
    "GSM8K": {"question": "How many?", "answer": "4 - 1 = 3\n#### 3"},
    "EditEval": {"task_id": "EditEval/0", "instruction": "Change it.", "input": "a", "output": "b"},
    "ShareGPT form": talk(("human", "a")),
}


@pytest.mark.parametrize("one", SETS, ids=lambda one: one.name)
def test_every_known_set_is_known_by_its_form(one: Any, tmp_path: Path) -> None:
    assert set_of(ROWS[one.name]) is one
    source = source_of(tmp_path, json.dumps(ROWS[one.name]), "own.jsonl")
    told = source.protocol()
    assert (told["name"], told["known_by"], told["passed_on"]) == (one.name, "form", False)
    assert told["licence"].startswith("not known to loadtest")
    assert one.licence_of("0" * 64)[0] == told["licence"]
    assert all(one.licence_of(digest) == (one.licence, one.passed_on) for digest in one.hashes)
    assert any("do not pass it on" in note for note in source.notes) is (one.name == "ShareGPT form")
    if one.category:
        assert told["categories"] == {one.category: 1}


def test_a_set_that_holds_another_is_known_by_its_own_rows(tmp_path: Path) -> None:
    rows = [ROWS["MT-Bench"], ROWS["Spec-Bench"], ROWS["MT-Bench"]]
    source = source_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "own.jsonl")
    assert source.protocol()["name"] == "Spec-Bench"


def test_what_is_not_known_is_said_to_be_so(tmp_path: Path) -> None:
    told = source_of(tmp_path, '{"prompt": "a", "category": "x"}', "own.jsonl").protocol()
    assert (told["name"], told["known_by"], told["passed_on"]) == ("own", None, False)
    assert told["licence"].startswith("not known to loadtest")
    assert told["categories"] == {"x": 1}
    assert told["sha256"] == hashlib.sha256(b'{"prompt": "a", "category": "x"}').hexdigest()


PUBLISHED = (
    ("spec_bench_question.jsonl", "Spec-Bench", "sha256", 480), ("mt_bench_question.jsonl", "MT-Bench", "sha256", 80),
    ("gsm8k_test.jsonl", "GSM8K", "sha256", 1319), ("humaneval_prompts.jsonl", "HumanEval", "form", 164),
    ("mbpp_prompts.jsonl", "MBPP", "form", 974), ("editeval_code_edit.jsonl", "EditEval", "form", 194),
    ("sharegpt_format_dummy.json", "ShareGPT form", "form", 60),
)  # fmt: skip


@pytest.mark.parametrize(("name", "known", "by", "count"), PUBLISHED)
def test_published_sets(name: str, known: str, by: str, count: int) -> None:
    if not (SHARED / name).is_file():
        pytest.skip(f"{name} is not at hand")
    told = PromptSource(SHARED / name).protocol()
    assert (told["name"], told["known_by"], told["prompts"]) == (known, by, count)


def test_sets_smaller_than_the_sessions_of_a_cell_are_told(tmp_path: Path) -> None:
    source = source_of(tmp_path, "".join(f'{{"prompt": "a {n}"}}\n' for n in range(40)), "own.jsonl")
    few = override(Experiment(load=Load(levels=(1.0, 8.0))), "window", min_requests=40)
    assert notes_of(source, few) == ()
    (note,) = notes_of(source, override(few, "load", levels=(1.0, 64.0)))
    assert note.startswith("own.jsonl holds 40 sessions, and a cell may need 64: they come again within it")
    opened = override(few, "load", kind="open", levels=(0.5,))
    assert "may need 60" in notes_of(source, opened)[0]
    trace = given_source(None, Experiment(load=Load(levels=(1.0,)), trace=Trace(file=str(TRACES / "plain.csv"))))
    assert "plain.csv holds 2 sessions" in notes_of(trace, Experiment(load=Load(levels=(1.0,))))[-1]
    assert notes_of(None, few) == ()


def test_prompts_and_a_trace_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--prompts a\.jsonl and trace\.file \(b\.csv\) both say what is asked"):
        given_source("a.jsonl", Experiment(trace=Trace(file="b.csv")))
