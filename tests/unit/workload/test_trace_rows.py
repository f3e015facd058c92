"""Forms of traces: what is read of each, and what is said of every row that cannot be used."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.workload import trace_lines
from loadtest.workload.trace_forms import FORMS
from loadtest.workload.trace_rows import Row, TraceFile

DATA = Path(__file__).parents[2] / "data" / "traces"
NINE = 1772355600.0  # 2026-03-01 09:00:00 UTC


def rows_of(path: Path, **mapped: str) -> tuple[TraceFile, list[Row]]:
    file = TraceFile(path, mapped)
    return file, list(file.rows())


def written(tmp_path: Path, *lines: str | bytes, name: str = "own.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return path


def counted(file: TraceFile) -> dict[str, tuple[int, int, str]]:
    return {reason: (one.rows, one.line, one.seen) for reason, one in file.left_out.items()}


def test_azure_with_seven_digits_and_both_kinds_of_time() -> None:
    file, rows = rows_of(DATA / "azure_form.csv")
    assert file.form.name == "Azure LLM inference trace"
    assert [row.t_s - NINE for row in rows] == pytest.approx([0.1234567, 2.5, 2.0, 7.0], abs=1e-6)
    assert [(row.input_tokens, row.output_tokens) for row in rows] == [(374, 44), (396, 109), (879, 55), (91, 16)]
    assert [row.line for row in rows] == [2, 3, 4, 5]
    assert not file.holds_text
    assert not file.reread


def test_burstgpt_without_the_requests_that_failed() -> None:
    file, rows = rows_of(DATA / "burstgpt_form.csv")
    assert file.form.name == "BurstGPT"
    assert [(row.t_s, row.input_tokens, row.output_tokens) for row in rows] == [
        (5.0, 472, 18), (45.0, 1087, 230), (118.0, 417, 276)
    ]  # fmt: skip
    assert counted(file) == {"no output tokens: a request that failed": (1, 4, "")}
    assert file.read == 4


def test_burstgpt_of_the_later_releases_with_its_sessions_and_durations(tmp_path: Path) -> None:
    path = written(
        tmp_path, "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5.0,1,2.31,ChatGPT,472,18,490,Conversation log", "12.25,,1.5,GPT-4,417,276,693,API log",
        "45.0,1,6.02,ChatGPT,1087,230,1317,Conversation log", "61.0,2,0.0,ChatGPT,900,0,900,Conversation log",
        name="BurstGPT_3.csv",
    )  # fmt: skip
    file, rows = rows_of(path)
    assert file.form.name == "BurstGPT"
    assert [(row.t_s, row.session, row.duration_s, row.input_tokens, row.output_tokens) for row in rows] == [
        (5.0, "1", 2.31, 472, 18), (12.25, "", 1.5, 417, 276), (45.0, "1", 6.02, 1087, 230)
    ]  # fmt: skip
    assert counted(file) == {"no output tokens: a request that failed": (1, 5, "")}


def test_mooncake_in_milliseconds_with_blocks() -> None:
    file, rows = rows_of(DATA / "mooncake_form.jsonl")
    assert file.form.name == "Mooncake"
    assert [row.t_s for row in rows] == [0.0, 3.0, 4.5]
    assert [row.blocks for row in rows] == [(0, 1, 2), (0, 1, 3), (4,)]
    assert {row.block_tokens for row in rows} == {512}
    assert file.reread
    assert not file.holds_text


def test_plain_columns_by_many_names_with_quotes_and_semicolons() -> None:
    file, rows = rows_of(DATA / "plain.csv")
    assert file.form.name == "trace"
    assert [(row.t_s, row.session, row.input_tokens, row.output_tokens, row.category) for row in rows] == [
        (10.0, "a;1", 100, 20, "code"), (10.5, "b", 50, None, "chat"), (14.0, "a;1", 160, 30, "code")
    ]  # fmt: skip
    assert [row.duration_s for row in rows] == [0.5, None, 1.5]
    (mended,) = file.mended
    assert mended == "no count of output tokens: the answer ends by itself"


def test_a_log_with_messages_prompts_and_the_body_of_an_answer() -> None:
    file, rows = rows_of(DATA / "log.jsonl")
    assert file.form.name == "log"
    assert file.holds_text
    assert [row.t_s - NINE for row in rows] == [0.0, 1.5, 4.0, 6.0]
    assert [row.category for row in rows] == ["support", "story", "support", ""]
    assert rows[0].params == {"temperature": 0.7, "max_tokens": 200}
    assert rows[1].asked is not None
    assert rows[1].asked.prompt == "Once upon a time"
    assert (rows[2].input_tokens, rows[2].output_tokens) == (31, 9)
    assert rows[3].asked is not None
    assert rows[3].asked.messages == ({"role": "user", "content": "Where is order 18?"},)
    assert {what: one.line for what, one in file.mended.items()} == {"the answer at the end of `messages` left out": 4}


def test_a_log_of_another_shape_is_mapped(tmp_path: Path) -> None:
    line = {"when": {"at": 12.5}, "call": {"msgs": [{"role": "user", "content": "Hi there"}]}, "sizes": [7, 9]}
    path = written(tmp_path, json.dumps(line))
    _, (row,) = rows_of(path, ts="when.at", messages="call.msgs", input_tokens="sizes.0", output_tokens="sizes.1")
    assert (row.t_s, row.input_tokens, row.output_tokens) == (12.5, 7, 9)
    assert row.asked is not None
    assert row.asked.last == "Hi there"


def test_a_body_within_a_line_is_found_unmapped(tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "Hi there"}], "temperature": 0.3, "max_tokens": 50}
    path = written(
        tmp_path, json.dumps({"timestamp_ms": 2500, "request": body, "response": {"usage": {"completion_tokens": 8}}})
    )
    _, (row,) = rows_of(path)
    assert (row.t_s, row.output_tokens, row.params) == (2.5, 8, {"temperature": 0.3, "max_tokens": 50})


def test_columns_of_a_table_are_mapped(tmp_path: Path) -> None:
    path = written(tmp_path, "begin,len in,len out", "3,4,5", name="odd.csv")
    _, (row,) = rows_of(path, ts="begin", input_tokens="len in", output_tokens="Len Out")
    assert (row.t_s, row.input_tokens, row.output_tokens) == (3.0, 4, 5)
    with pytest.raises(UsageError, match=r"--map ts=begun: .*odd\.csv has no such column\. Did you mean `begin`\?"):
        TraceFile(path, {"ts": "begun", "input_tokens": "len in"})


USER = '"messages": [{"role": "user", "content": "a"}]'


@pytest.mark.parametrize(
    ("line", "reason", "seen"),
    [
        ("{", "not JSON", ""),
        ("[1]", "JSON that is no object", ""),
        ("NaN", "not JSON", ""),
        ("{" + USER + "}", "no time of arrival (`ts`)", ""),
        ('{"ts": "noon", ' + USER + "}", "the time of arrival is not a number or a date", "'noon'"),
        ('{"ts": true, ' + USER + "}", "the time of arrival is not a number or a date", "True"),
        ('{"ts": "2026-02-30 00:00:00", ' + USER + "}", "the time of arrival is not a day that exists", "2026"),
        ('{"ts": 1, "output_tokens": 0, ' + USER + "}", "no output tokens: a request that failed", ""),
        ('{"ts": 1, "output_tokens": -4, ' + USER + "}", "`output_tokens` is no whole number of tokens", "-4"),
        ('{"ts": 1, "output_tokens": 4.5, ' + USER + "}", "`output_tokens` is no whole number of tokens", "4.5"),
        ('{"ts": 1, "output_tokens": [4], ' + USER + "}", "`output_tokens` is no whole number of tokens", "a list"),
        ('{"ts": 1, "input_tokens": 1e30, "output_tokens": 2}', "`input_tokens` is no whole number of tokens", "1e+30"),
        ('{"ts": 1, "output_tokens": 4}', "no input tokens", ""),
        ('{"ts": 1, "session": [1], ' + USER + "}", "`session` is neither a text nor a number", ""),
        ('{"ts": 1, "prompt": " "}', "`prompt` holds no text", ""),
        ('{"ts": 1, "prompt": 7}', "`prompt` holds no text", ""),
        ('{"ts": 1, "messages": []}', "`messages` is no list of messages", ""),
        ('{"ts": 1, "messages": [{"role": "user"}]}', "a message without content", ""),
        ('{"ts": 1, "messages": [{"role": "wizard", "content": "a"}]}', "a message without a role of system", ""),
        ('{"ts": 1, "messages": [{"role": "user", "content": 3}]}', "a message whose content is neither", ""),
        (
            '{"ts": 1, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            "a message with a part that is not text (only text is sent)", "",
        ),
        ('{"ts": 1, "messages": [{"role": "assistant", "content": "a"}]}', "`messages` holds no text with", ""),
        ('{"ts": 1, "input_tokens": 5, "hash_ids": ["x"]}', "`hash_ids` is no list of whole numbers", ""),
        (b'{"ts": 1, "prompt": "caf\xe9"}', "not JSON", ""),
        ('{"ts": 1, "stop": ' + "[" * 300 + "]" * 300 + ", " + USER + "}", "nested too deeply to be sent", ""),
    ],
)  # fmt: skip
def test_lines_of_a_log_that_are_left_out(tmp_path: Path, line: str | bytes, reason: str, seen: str) -> None:
    file, rows = rows_of(written(tmp_path, '{"ts": 0, "prompt": "fine", "output_tokens": 1}', line))
    assert len(rows) == 1
    ((found, one),) = file.left_out.items()
    assert found.startswith(reason)
    assert (one.rows, one.line) == (1, 2)
    assert seen in one.seen
    assert bool(one.seen) == bool(seen)  # what a message says is shown nowhere


@pytest.mark.parametrize(
    ("line", "reason", "seen"),
    [
        ("1,2", "another number of fields than the heading", "2 instead of 3"),
        ("1,2,3,4", "another number of fields than the heading", "4 instead of 3"),
        ("x,2,3", "the time of arrival is not a number or a date such as 2026-01-31 08:15:00.123", "'x'"),
        ("1,,3", "no input tokens", ""),
        ("1,two,3", "`input_tokens` is no whole number of tokens", "'two'"),
        ("1,2,0", "no output tokens: a request that failed", ""),
        ('1,"2,3', "a quote that is not closed within its line", ""),
        ('1,"2"x"",3', "quotes that are no CSV", ""),
        (b"1,2,\xff", "not UTF-8 text", ""),
        ("1,__import__('os'),3", "`input_tokens` is no whole number of tokens", "\"__import__('os')\""),
    ],
)
def test_lines_of_a_table_that_are_left_out(tmp_path: Path, line: str | bytes, reason: str, seen: str) -> None:
    file, rows = rows_of(written(tmp_path, "ts,input_tokens,output_tokens", "0,5,6", line, name="own.csv"))
    assert len(rows) == 1
    assert counted(file) == {reason: (1, 3, seen)}


def test_what_is_shown_of_a_value_is_short(tmp_path: Path) -> None:
    file, _ = rows_of(written(tmp_path, "ts,input_tokens", "x" * 500 + ",5", "1,1", name="own.csv"))
    ((seen),) = (one.seen for one in file.left_out.values())
    assert len(seen) == 40


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "own.csv is empty"),
        (b"\n  \n", "holds no row: every line is blank"),
        (b"\xff\xfet\x00s\x00", "is UTF-16 text; save it as UTF-8"),
        (b"PAR1....", "is a Parquet file"),
        (gzip.compress(b"ts,input_tokens\n1,2\n", mtime=0), "is compressed"),
        (b"[\n{}\n]", "is one JSON array; write one JSON object per line"),
        (
            b"begin,input_tokens\n1,2\n",
            r"line 1: no column of arrival times, such as `ts`.* Columns are begin, input_tokens",
        ),
        (b"ts,size\n1,2\n", r"no column of input lengths, such as `input_tokens`.*--map input_tokens=COLUMN"),
        (b"2026-03-01 09:00:00,5,6\n", "no column of arrival times"),
        (b"timestmp,input_tokens\n1,2\n", "Did you mean `timestamp`"),
        (b"\xff,b\n1,2\n", "line 1 is not UTF-8 text"),
        (b'ts,"input_tokens\n1,2\n', "line 1: the heading has a quote that is not closed within its line"),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint):
        TraceFile(path)


def test_no_file_at_all(tmp_path: Path) -> None:
    for path, complaint in (
        (tmp_path / "x", "does not exist"),
        (tmp_path, "is a directory"),
        (Path("/dev/null"), "no file"),
    ):
        with pytest.raises(UsageError, match=complaint):
            TraceFile(path)


def test_a_line_beyond_the_limit_is_left_out_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_lines, "MAX_LINE_BYTES", 64)
    long = json.dumps({"ts": 1, "prompt": "x" * 500})
    file, rows = rows_of(written(tmp_path, '{"ts": 0, "prompt": "a"}', long, '{"ts": 2, "prompt": "b"}'))
    assert [(row.line, row.t_s) for row in rows] == [(1, 0.0), (3, 2.0)]
    ((reason, one),) = file.left_out.items()
    assert reason.startswith("longer than")
    assert one.line == 2


def test_offsets_name_the_bytes_of_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + b'{"ts": 0, "prompt": "\xc3\xa4"}', b"", b'{"ts": 2, "prompt": "b"}\r')
    _, rows = rows_of(path)
    data = path.read_bytes()
    assert [data[row.offset :].splitlines()[0] for row in rows] == [
        b'{"ts": 0, "prompt": "\xc3\xa4"}', b'{"ts": 2, "prompt": "b"}'
    ]  # fmt: skip


def test_every_form_is_recognised_by_a_sample() -> None:
    samples = {"Azure LLM inference trace": "azure_form.csv", "BurstGPT": "burstgpt_form.csv", "log": "log.jsonl",
               "Mooncake": "mooncake_form.jsonl", "trace": "plain.csv"}  # fmt: skip
    assert {form.name for form in FORMS} == set(samples)
    for name, sample in samples.items():
        assert TraceFile(DATA / sample).form.name == name


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@settings(max_examples=80, deadline=None)
@given(content=st.binary(max_size=300), name=st.sampled_from(["a.csv", "a.jsonl"]))
def test_arbitrary_bytes_are_read_or_refused(scratch: Path, content: bytes, name: str) -> None:
    path = scratch / name
    path.write_bytes(content)
    try:
        list(TraceFile(path).rows())
    except UsageError:
        return


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "usage"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = ["ts", "messages", "prompt", "session", "class", "input_tokens", "output_tokens", "hash_ids", "tools",
          "appended", "after", "params", "duration_s", "block_tokens"]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(objects=st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6), min_size=1, max_size=3))
def test_arbitrary_objects_are_read_or_counted(scratch: Path, objects: list[object]) -> None:
    path = scratch / "any.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in objects))
    try:
        file = TraceFile(path)
    except UsageError:
        return
    used = list(file.rows())
    assert len(used) + sum(one.rows for one in file.left_out.values()) == file.read == len(objects)
