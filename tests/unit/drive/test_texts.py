"""The text of slow requests: which are chosen, what of them is kept, and that no server's stream breaks it."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadtest.analyse.slowest import EACH, slowest
from loadtest.analyse.table import derive
from loadtest.drive.sse import EventSplitter
from loadtest.drive.texts import HEARD_BYTES, KEPT, Heard, Texts, answer_of, prompt_of, shortened
from loadtest.record import Request
from loadtest.servers.hiding import without

sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from made_run import BASE, cell, request, table_of

STREAMS = Path(__file__).parents[2] / "data" / "streams"


def body(text: str = "Where is order 17?") -> bytes:
    return orjson.dumps({"messages": [{"role": "user", "content": text}]})


def heard(*texts: str) -> Heard:
    found = Heard()
    for text in texts:
        found.take(orjson.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}))
    return found


def as_it_is(text: str) -> str:
    return text


def events_of(name: str) -> list[bytes]:
    return [data for _, data in EventSplitter().feed((STREAMS / name).read_bytes())]


def test_the_slowest_are_chosen_failed_ones_first_and_early_ones_before_late_ones() -> None:
    texts = Texts()
    for session, took_s in enumerate((1.0, 5.0, 3.0, 4.0)):
        texts.consider(request(session=session, chunk_s=[100.1, 100.0 + took_s]), body(f"number {session}"), heard("x"))
    assert [row.session for row in texts.rows(as_it_is)] == [1, 3, 2]
    for session, due_s in ((7, 103.0), (8, 102.0)):
        texts.consider(request(session=session, due_s=due_s, outcome="timeout", chunk_s=[]), body(), heard())
    rows = texts.rows(as_it_is)
    assert [(row.session, row.prompt, row.answer) for row in rows] == [
        (8, "user: Where is order 17?", ""), (7, "user: Where is order 17?", ""), (1, "user: number 1", "x")
    ]  # fmt: skip
    assert (rows[2].cell, rows[2].arm, rows[2].turn, rows[2].answer_cut) == (0, BASE, 0, False)


@pytest.mark.parametrize("seed", range(5))
def test_every_slow_request_of_a_page_is_among_those_whose_text_was_kept(seed: int) -> None:
    assert KEPT >= EACH
    draw, rows, kept = random.Random(seed), [], set()
    for number in range(3):  # cells of one arm at one level
        texts = Texts()
        for session in range(40):
            ended_s = 100.0 + draw.choice((1.0, 2.0, draw.random()))
            outcome = draw.choice(("ok", "ok", "ok", "stalled"))
            row = request(cell=number, block=number, session=session, due_s=99.0 + draw.randrange(9) / 10,
                          chunk_s=[ended_s - 0.1, ended_s], chunk_tokens=[1, 1], outcome=outcome)  # fmt: skip
            rows.append(row)
            texts.consider(row, body(), heard())
        kept |= {(row.cell, row.session) for row in texts.rows(as_it_is)}
    cells = [cell(number, block=number) for number in range(3)]
    found = slowest(derive(table_of(rows), cells, 15.0).frame, [0, 1, 2], (BASE,))
    assert len(found) == EACH
    assert {(one.cell, one.session) for one in found} <= kept


def test_a_prompt_is_told_by_its_speakers_and_calls_as_they_stand() -> None:
    call = [{"id": "1", "function": {"name": "track", "arguments": "{}"}}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": None, "tool_calls": call},
                {"role": "tool", "content": [{"type": "text", "text": "It left."}]}]  # fmt: skip
    told = prompt_of(orjson.dumps({"model": "m", "messages": messages}))
    assert told.split("\n\n")[0] == "system: Be brief."
    assert 'assistant: [{"id":"1","function":{"name":"track","arguments":"{}"}}]' in told
    assert 'tool: [{"type":"text","text":"It left."}]' in told
    assert prompt_of(orjson.dumps({"prompt": "Once upon"})) == "Once upon"


def test_what_servers_streamed_reads_as_their_answers() -> None:
    for name in sorted(path.name for path in STREAMS.glob("*.sse")):
        said = "".join(_deltas(name))
        assert "".join(answer_of(events_of(name)).split("\n\n")) == "".join(said.split("\n\n")), name
    assert answer_of(events_of("vllm-0.32-ngram-chat-usage.sse")) == '{"id": 333, "name": "Karenar'


def _deltas(name: str) -> list[str]:
    """Return the texts of a stream by another way: line by line, by the standard library."""
    found = []
    for line in (STREAMS / name).read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            said = json.loads(line.removeprefix("data: "))
            choice = said["choices"][0]
        except (ValueError, KeyError, IndexError, TypeError):
            continue
        delta = choice.get("delta") or {}
        found.append(delta.get("content") or choice.get("text") or "")
    return found


def test_reasoning_stands_before_the_answer_and_calls_after_it() -> None:
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""}, {"reasoning": "Hm, "}, {"reasoning": "17."}, {"content": "It "},
        {"content": "left."}, {"tool_calls": [{"index": 0}]}, {"content": None}
    ]  # fmt: skip
    assert answer_of([orjson.dumps({"choices": [{"delta": one}]}) for one in deltas[1:]]) == (
        'Hm, 17.\n\nIt left.\n\n[{"index":0}]'
    )


@given(st.lists(st.one_of(st.binary(max_size=40), st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["choices", "delta", "content", "text", "tool_calls", "reasoning"]), inner, max_size=3),
    max_leaves=8).map(orjson.dumps)), max_size=4))  # fmt: skip
@example([b'{"choices":[{"delta":{"tool_calls":' + b"[" * 300 + b"]" * 300 + b"}}]}"])
def test_no_event_breaks_it(events: list[bytes]) -> None:
    assert isinstance(answer_of(events), str)


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    kept = shortened("a" * 3000 + "b" * 3000)
    assert (kept[:2000], kept[-2000:]) == ("a" * 2000, "b" * 2000)
    assert kept[2000:-2000] == " … (2,000 characters left out) … "
    assert shortened("c" * 4000) == "c" * 4000


def test_a_stream_without_end_is_heard_up_to_a_limit_and_said_to_be_cut() -> None:
    found = Heard()
    for _ in range(1000):
        found.take(b"x" * 1024)
    assert sum(map(len, found.events)) == HEARD_BYTES
    texts = Texts()
    texts.consider(Request(), body(), found)
    assert texts.rows(as_it_is)[0].answer_cut


def test_a_key_that_a_server_repeats_is_taken_out() -> None:
    texts = Texts()
    texts.consider(request(), body("my key is sk-topsecret1"), heard("Your key is sk-top", "secret1, or so."))
    (row,) = texts.rows(lambda text: without(("sk-topsecret1",), text))
    assert "topsecret1" not in replace(row, arm="").prompt + row.answer
    assert row.answer.startswith("Your key is ")
