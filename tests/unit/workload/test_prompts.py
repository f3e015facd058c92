"""Prompt files: every form that is read, every complaint, and order of sessions."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.workload import prompt_files
from loadtest.workload.prompts import Prompt, PromptSource
from loadtest.workload.sessions import Session, SessionKey

DATA = Path(__file__).parents[2] / "data" / "prompts"


def key(number: int, *, seed: int = 1, level: float = 4.0, block: int = 0) -> SessionKey:
    return SessionKey(seed=seed, level=level, block=block, number=number)


def source_of(tmp_path: Path, *lines: str | bytes, name: str = "own.jsonl") -> PromptSource:
    path = tmp_path / name
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return PromptSource(path)


def test_turns() -> None:
    source = PromptSource(DATA / "turns.jsonl")
    assert source.prompts == (
        Prompt(category="writing", turns=(("Describe a harbour at dawn in two sentences.", ""),), left_out=1),
        Prompt(category="math", turns=(("What is 17 times 23?", "391"), ("And minus 100?", ""))),
        Prompt(category="math", turns=(("Name a prime above 40.", "41"), ("And the next one?", "")), left_out=1),
        Prompt(category="summarization", turns=(("Shorten: the meeting was long, and nothing was decided.", ""),)),
    )
    assert source.categories == ("math", "summarization", "writing")
    (note,) = source.notes
    assert note == (
        "turns.jsonl: 2 follow-up turns in 2 of 4 prompts left out,"
        " because the file gives no answer to stand in the history before them."
    )


def test_messages() -> None:
    source = PromptSource(DATA / "messages.jsonl")
    assert source.prompts == (
        Prompt(
            category="messages",
            system="You are brief.",
            turns=(("Which is longer, a mile or a kilometre?", "A mile."), ("By how many metres?", "")),
        ),
        Prompt(category="messages", system="Be kind.\n\nBe exact.", turns=(("First line\nsecond line", ""),)),
        Prompt(category="messages", turns=(("One question", ""),), left_out=1),
    )
    (note,) = source.notes
    assert note == (
        "messages.jsonl: 1 follow-up turn in 1 of 3 prompts left out,"
        " because the file gives no answer to stand in the history before it."
    )


def test_single_fields() -> None:
    source = PromptSource(DATA / "single.jsonl")
    assert [(prompt.category, prompt.turns) for prompt in source.prompts] == [
        ("single", (('def twice(x):\n    """Return x two times."""\n', ""),)),
        ("single", (("Write a function that counts vowels.", ""),)),
        ("single", (("Ann has 3 pens and buys 4. How many has she?", ""),)),
        ("single", (("Rename the function to add.\n\ndef plus(a, b):\n    return a + b", ""),)),
        ("qa", (("Name three rivers.", ""),)),
    ]
    assert source.notes == ()


def test_a_session_carries_history_and_pauses() -> None:
    source = PromptSource(DATA / "messages.jsonl")
    sessions = [source.session(key(number)) for number in range(3)]
    (long,) = [session for session in sessions if len(session.turns) == 2]
    assert long.system == "You are brief."
    assert [turn.assistant for turn in long.turns] == ["A mile.", ""]
    assert long.turns[0].think_s >= 0.0
    assert 0.2 < long.turns[1].think_s <= 60.0


def test_a_cell_walks_through_all_prompts_then_again(tmp_path: Path) -> None:
    source = source_of(tmp_path, *(json.dumps({"prompt": f"Number {n}"}) for n in range(50)))
    assert source.repeats_after == 50

    def asked(**cell: float) -> list[str]:
        return [source.session(key(number, **cell)).turns[0].user for number in range(100)]  # type: ignore[arg-type]

    walk = asked()
    assert sorted(walk[:50]) == sorted(f"Number {n}" for n in range(50))
    assert walk[50:] == walk[:50]
    orders = {tuple(asked(**cell)) for cell in ({}, {"seed": 2}, {"level": 8.0}, {"block": 1})}
    assert len(orders) == 4


def test_equal_keys_give_equal_sessions(tmp_path: Path) -> None:
    one, two = PromptSource(DATA / "turns.jsonl"), PromptSource(DATA / "turns.jsonl")
    backwards = [two.session(key(number)) for number in reversed(range(40))]
    assert [one.session(key(number)) for number in range(40)] == backwards[::-1]


def test_the_order_is_fixed_for_good(tmp_path: Path) -> None:
    source = source_of(tmp_path, *(json.dumps({"prompt": letter}) for letter in "abcdefgh"))
    assert "".join(source.session(key(number)).turns[0].user for number in range(8)) == "beadfhcg"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", r"own\.jsonl, line 2: not JSON \(.*\): '\{'"),
        ('["a", "b"', r"line 2: not JSON \(unexpected end"),
        ('["a"]', r"line 2: a list where an object is needed: .*each line must be a JSON object"),
        ("3", "line 2: a number where an object is needed"),
        ('{"prompt": "a", "tools": ' + "[" * 300 + "]" * 300 + "}", "line 2: nested too deeply to be sent"),
        ("NaN", "line 2: not JSON"),
        ("{}", r"no usable field \(seen: none\)"),
        ('{"promt": "x"}', r"no usable field \(seen: `promt`\); each line must be a JSON object with `turns`"),
        ('{"prompt": 3}', "`prompt` is a number; it must be a text"),
        ('{"prompt": "  "}', "`prompt` is blank"),
        ('{"prompt": "\\ud800"}', "not JSON"),  # half a surrogate pair cannot be sent
        ('{"turns": []}', "`turns` is an empty list; it must be a list of at least one text"),
        ('{"turns": "hello"}', "`turns` is a string; it must be a list"),
        ('{"turns": ["a", null]}', r"`turns\[1\]` is null; it must be a text"),
        ('{"prompt": "a", "category": 4}', "`category` is a number"),
        ('{"instruction": "a", "input": 4}', "`input` is a number; it must be a text"),
        ('{"messages": {}}', "`messages` is an object; it must be a list of at least one message"),
        ('{"messages": ["a"]}', r"`messages\[0\]` is a string; it must be an object with `role` and `content`"),
        ('{"messages": [{"role": "system", "content": "a"}]}', "holds no message with the role `user`"),
        ('{"messages": [{"role": "tool", "content": "a"}]}', r"`messages\[0\]` has the role 'tool' here; allowed are"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', r"the role 'assistant' here"),
        ('{"messages": [{"role": "user"}]}', r"`messages\[0\].content` is null"),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            r"`messages\[0\].content\[0\]` is not a part of the type `text`; only text is sent",
        ),
        (b'{"prompt": "caf\xe9"}', r"line 2: byte 16 \(0xe9\) is not UTF-8; save the file as UTF-8"),
        ("[" * 5000, "line 2: not JSON"),
    ],
)
def test_refused_lines(tmp_path: Path, line: str | bytes, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        source_of(tmp_path, '{"prompt": "fine"}', line)


def test_byte_order_mark_and_line_ends_of_windows(tmp_path: Path) -> None:
    source = source_of(tmp_path, b'\xef\xbb\xbf{"prompt": "a"}\r', b"\r", b'{"prompt": "b"}\r')
    assert [prompt.turns[0][0] for prompt in source.prompts] == ["a", "b"]


def test_a_last_line_without_its_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"}', encoding="utf-8")
    assert PromptSource(path).repeats_after == 2


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl does not exist; give a JSONL file"):
        PromptSource(tmp_path / "nowhere.jsonl")
    with pytest.raises(UsageError, match="is a directory; give a JSONL file"):
        PromptSource(tmp_path)
    with pytest.raises(UsageError, match="/dev/null is no file"):
        PromptSource("/dev/null")
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        PromptSource(tmp_path / ("x" * 300))
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UsageError, match=r"empty\.jsonl is empty; each line must be"):
        PromptSource(tmp_path / "empty.jsonl")
    with pytest.raises(UsageError, match="holds no prompts: every line is blank"):
        source_of(tmp_path, "", "  ")


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prompt_files.MAX_FILE_BYTES == 64 * 1024 * 1024
    long = json.dumps({"prompt": "x" * (1024 * 1024)})
    with pytest.raises(UsageError, match="line 2: longer than 1,048,576 bytes"):
        source_of(tmp_path, '{"prompt": "fine"}', long)
    monkeypatch.setattr(prompt_files, "MAX_FILE_BYTES", 30)
    with pytest.raises(UsageError, match="has 34 bytes; at most 30 are read"):
        source_of(tmp_path, '{"prompt": "a"}', '{"prompt": "bc"}', "")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arbitrary") / "any.jsonl"


def usable_or_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        source = PromptSource(path)
    except UsageError:
        return
    session = source.session(key(3))
    assert isinstance(session, Session)
    assert session.turns
    assert all(turn.user.strip() and turn.user.encode() for turn in session.turns)


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=400))
def test_arbitrary_bytes(scratch: Path, content: bytes) -> None:
    usable_or_refused(scratch, content)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["user", "system"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["turns", "messages", "prompt", "question", "instruction", "input", "text", "reference", "category", "other"]


@settings(max_examples=250, deadline=None)
@given(documents=st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4) | VALUES, max_size=3))
def test_arbitrary_documents(scratch: Path, documents: list[object]) -> None:
    usable_or_refused(scratch, "\n".join(json.dumps(document) for document in documents).encode())


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": st.text(min_size=1, max_size=5)}
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(messages=MESSAGES)
def test_arbitrary_messages(scratch: Path, messages: list[dict[str, str]]) -> None:
    usable_or_refused(scratch, json.dumps({"messages": messages}).encode())


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("own.jsonl", gzip.compress(b'{"prompt": "a"}\n', mtime=0), "is compressed (gzip); unpack it."),
        ("own.csv", "prompt\nHé\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8."),
        ("own.parquet", b"PAR1....", "is a Parquet file; write its columns as CSV or JSONL."),
        ("own.csv", b"category,prompt\nx,a\ny\n", "line 3: the column prompt is blank."),
        ("own.csv", b"prompt;category\na;x\n ;y\n", "line 3: the column prompt is blank."),
        ("own.csv", b"prompt\n" + b"x" * 2**21, "line 2: not CSV (field larger than field limit (1048576))."),
    ],
)
def test_what_a_file_is_in_place_of_prompts_is_said(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        PromptSource(path)
    assert str(refused.value).endswith(complaint)


def test_a_table_of_a_spreadsheet_has_semicolons_and_long_fields(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    long = "word, " * 60_000
    path.write_text(f'prompt;category\n"Where, is it?";a\n"{long}";b\n')
    assert [(p.turns[0][0], p.category) for p in PromptSource(path).prompts] == [("Where, is it?", "a"), (long, "b")]
    path.write_text("prompt\nWhere; is it?\n")
    assert PromptSource(path).prompts[0].turns[0][0] == "Where; is it?"


def test_prompts_that_ask_the_same_are_counted_beforehand(tmp_path: Path) -> None:
    asks = [json.dumps({"prompt": text}) for text in ("a", "b", "a", "a")]
    said = "own.jsonl: 2 of 4 prompts ask what an earlier one asks, by which caches and drafts from memory gain."
    assert source_of(tmp_path, *asks).notes == (said,)
    assert source_of(tmp_path, *asks[:2]).notes == ()
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function"}]}
    tools = [json.dumps({"messages": [{"role": "user", "content": text}, call]}) for text in ("a", "b")]
    assert source_of(tmp_path, *tools).notes == ()
