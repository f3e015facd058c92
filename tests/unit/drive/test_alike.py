"""Events told by their bytes are read as they would be otherwise, whatever they say."""

from __future__ import annotations

import json
from array import array
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.drive import deltas
from loadtest.drive.alike import OTHER, UNCOUNTED, Alike
from loadtest.drive.deltas import Deltas
from loadtest.drive.failure import Failure
from loadtest.record import Request


class Unlearning(Alike):
    """Learns nothing, so that every event is parsed."""

    def learn(self, data: bytes, text: Any, usage: dict[str, Any] | None) -> None:
        pass


def plain(value: Any) -> str:
    return repr(list(value) if isinstance(value, array) else value)


def read(events: list[bytes]) -> dict[str, Any]:
    """Read the events of one stream; return its record, and how it failed."""
    record, failed = Request(), ""
    reader = Deltas(record)
    try:
        for number, event in enumerate(events):
            reader.take(b"", event, float(number))
        wrong = reader.verdict()
        failed = str(wrong) if wrong else ""
    except Failure as failure:
        failed = str(failure)
    reader.close()
    return {name: plain(value) for name, value in asdict(record).items()} | {"failed": failed, "model": reader.model}


def event(text: Any, count: Any = None, *, key: str = "content", finish: str | None = None, total: Any = None,
          order: str = "ptc", **more: Any) -> bytes:  # fmt: skip
    said: dict[str, Any] = {"id": "chatcmpl-1", "model": "m", "choices": [
        {"index": 0, "delta": {key: text}, "logprobs": None, "finish_reason": finish}], **more}  # fmt: skip
    if count is not None:
        names = {"p": ("prompt_tokens", 17), "t": ("total_tokens", total if total is not None else 17),
                 "c": ("completion_tokens", count)}  # fmt: skip
        said["usage"] = dict(names[letter] for letter in order)
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


TEXTS = st.one_of(
    st.text(max_size=6), st.sampled_from([" word", "a", "", " ", '"', "\\", "\n", "}", '","', "é", ":", "0", "\x7f",
                                          '"content":"', ',"completion_tokens":'])
)  # fmt: skip
COUNTS = st.one_of(st.none(), st.integers(0, 12), st.just(-1), st.just(True), st.just(1.5), st.just(10**10))
EVENTS = st.builds(event, TEXTS, COUNTS, key=st.sampled_from(["content", "content", "content", "reasoning"]),
                   finish=st.sampled_from([None, None, None, None, "stop"]), total=st.integers(0, 12),
                   order=st.sampled_from(["ptc", "ptc", "ptc", "pct"]))  # fmt: skip


def rising(texts: list[str], first: int, steps: list[int], counted: bool) -> list[bytes]:
    counts = [first]
    for step in steps:
        counts.append(counts[-1] + step)
    return [event(text, count if counted else None) for text, count in zip(texts, counts, strict=False)]


RISING = st.builds(rising, st.lists(TEXTS, min_size=3, max_size=9), st.integers(0, 9998),
                   st.lists(st.integers(0, 4), min_size=9, max_size=9), st.booleans())  # fmt: skip


def both(events: list[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deltas, "Alike", Unlearning)
        parsed = read(events)
    return read(events), parsed


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        RISING,
        st.lists(EVENTS, max_size=8),
        st.tuples(RISING, st.lists(EVENTS, max_size=3)).map(lambda pair: [*pair[0], *pair[1]]),
    )
)
def test_what_is_told_by_its_bytes_is_what_parsing_tells(events: list[bytes]) -> None:
    told, parsed = both(events)
    assert told == parsed


@settings(max_examples=300, deadline=None)
@given(RISING, st.data())
def test_an_event_with_any_byte_changed_is_read_as_parsing_reads_it(events: list[bytes], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(events) - 1))
    place = data.draw(st.integers(0, len(events[at]) - 1))
    events[at] = events[at][:place] + bytes([data.draw(st.integers(0, 255))]) + events[at][place + 1 :]
    told, parsed = both(events)
    assert told == parsed


@pytest.mark.parametrize("texts", [["a", "b"], ["a", ""], ["a", "", "b"]])
def test_a_count_that_stays_at_nought_is_a_count_and_no_chunk(texts: list[str]) -> None:
    told, parsed = both([event(text, 0) for text in texts])
    assert told == parsed
    assert told["chunk_s"] == "[]"
    assert told["failed"]


def test_the_last_usage_holds_whether_or_not_it_was_parsed() -> None:
    odd = event(" b", 2).replace(b"prompt_tokens", b"prompt_tokenz")
    told, parsed = both([event(" a", 1), odd, event(" c", 3)])
    assert told == parsed
    assert told["prompt_tokens"] == "17"


def test_events_that_counted_nought_until_one_came_without_a_count_are_read_without() -> None:
    told, parsed = both([event("a", 0), event("b"), event("c", 0)])
    assert told == parsed
    assert told["chunk_s"] == "[1.0, 2.0]"
    told, parsed = both([event('"'), event("", 0), event("", 1), event("b", 2)])
    assert told == parsed
    assert told["chunk_s"] == "[0.0, 3.0]"


@pytest.mark.parametrize("counted", [False, True])
def test_nearly_every_event_of_a_plain_stream_needs_no_parsing(counted: bool) -> None:
    alike = Alike()
    alike.learn(
        event(" first", 1 if counted else None),
        " first",
        {"total_tokens": 17, "completion_tokens": 1} if counted else None,
    )
    assert alike.learnt
    assert alike.count(event(" second: of {many}", 999 if counted else None)) == (999 if counted else UNCOUNTED)
    for other in (event('"', 2), event("é", 2), event("", None), event(" x", 2, finish="stop"),
                  event(" x", 2, id="other"),
                  event(" x", 2)[:-1], event(" x", 2).replace(b":2}", b":02}"), b"[DONE]", b""):  # fmt: skip
        assert alike.count(other) == OTHER
