"""Chunks of HTTP told by their bytes give the record that reading them gives, however the connection cuts them."""

from __future__ import annotations

import json
from array import array
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.drive.alike import OTHER, UNCOUNTED, Alike
from loadtest.drive.clock import Clock
from loadtest.drive.connection import Connection
from loadtest.drive.deltas import Deltas
from loadtest.drive.exchange import Exchange
from loadtest.record import Request
from loadtest.settings import Limits

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TEXTS = st.one_of(st.sampled_from([" word", "a", "", '"', "\n", "é", "x" * 300]), st.text(max_size=6))
FORMS = st.sampled_from([b"%x", b"%x", b"%X", b"%04x", b"%x;a=b"])


def event(text: str, count: int | None = None, finish: str | None = None) -> bytes:
    said: dict[str, Any] = {"id": "c-1", "choices": [
        {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}]}  # fmt: skip
    if count is not None:
        said["usage"] = {"prompt_tokens": 5, "total_tokens": 5 + count, "completion_tokens": count}
    return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\n\n"


def chunk(data: bytes, form: bytes = b"%x") -> bytes:
    return form % len(data) + b"\r\n" + data + b"\r\n"


def ending(count: int) -> bytes:
    closing = b'data: {"id":"c-1","choices":[],"usage":{"completion_tokens":%d}}\n\ndata: [DONE]\n\n' % count
    return chunk(event("", count, "stop") + closing) + b"0\r\n\r\n"


PARSED, TOLD, QUICK = "parsed", "told", "quick"


def read(reads: list[bytes], way: str) -> dict[str, Any]:
    """Return the record of an answer that comes in these reads, the n-th at n seconds; how many went the quick way."""
    return record_of([(data, float(number)) for number, data in enumerate(reads)], way)


def record_of(reads: list[tuple[bytes, float | None]], way: str, drained_at: int = 0) -> dict[str, Any]:
    """Return the record of an answer whose reads bear these stamps, None for none; b"" reads as nothing there."""
    left = iter(enumerate(reads))
    callbacks: list[Any] = []
    quick = 0

    def recvmsg(*_: int) -> tuple[bytes, list[Any], int, int]:
        nonlocal quick
        number, (data, stamp) = next(left)
        if not data:
            raise BlockingIOError
        quick += 1
        return data, [] if stamp is None else [(0, 0, stamp)], 0, number

    def receive() -> bytes:
        number, (data, stamp) = next(left)
        if not data:
            raise BlockingIOError
        return received(data, [] if stamp is None else [(0, 0, stamp)], number)

    def received(data: bytes, stamps: list[Any], _: int) -> bytes:
        connection.kernel = bool(stamps)
        connection.arrived_ns = round((stamps[0][2] if stamps else 0) * 1e9)
        return data

    nothing = SimpleNamespace(start=callbacks.append, stop=lambda: None)
    clock = SimpleNamespace(origin_ns=0, now_s=lambda: connection.arrived_ns / 1e9,
                            arrival_ns=lambda stamp, _: round(stamp * 1e9))  # fmt: skip
    connection = SimpleNamespace(
        receive=receive, received=received, recvmsg=recvmsg, arrived_ns=0, kernel=True, lag_ns=0, all_sent=True,
        on_alarm=None, reader=nothing, writer=nothing, alarms=SimpleNamespace(after=lambda *_: None), clock=clock,
        gatherer=SimpleNamespace(busy_since_ns=-1) if way == QUICK else None,
    )  # fmt: skip
    record = Request()
    exchange = Exchange(cast(Connection, connection), record, cast(Clock, clock), Limits(), None,
                        (lambda data: None) if way == PARSED else None)  # fmt: skip
    turn = 0
    while not exchange._over:
        turn += 1
        try:
            if turn == drained_at:  # as when a deadline is looked at
                exchange._drain()
            (callbacks[-1] if callbacks else exchange._on_readable)()
        except StopIteration:
            break
        assert exchange.crash is None or isinstance(exchange.crash, StopIteration)
    exchange._deltas.close()
    kept = {name: repr(list(value) if isinstance(value, array) else value) for name, value in asdict(record).items()}
    return kept | {"settled": exchange._settled, "reusable": exchange.reusable, "left": exchange._left, "quick": quick}


def same(kept: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records are the same; the quick way does not count bytes."""
    return {**kept, "quick": 0, "left": 0} == {**other, "quick": 0, "left": 0}


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    """The chunks of a stream, each with its form of a length; mostly one event each."""
    counted, count, chunks = draw(st.booleans()), 0, []
    for text in draw(st.lists(TEXTS, min_size=1, max_size=8)):
        count += draw(st.integers(0, 3))
        said = event(text, count if counted else None)
        more = draw(st.sampled_from([b"", b"", b"", b"", b": ping\n\n", b"\n", said]))
        chunks.append(chunk(said + more, draw(FORMS)))
    return [*chunks, ending(count)]


@st.composite
def cut_answers(draw: st.DrawFn) -> list[bytes]:
    """The reads of a stream: a chunk each, but for some that are cut or joined, and for a byte that is wrong."""
    reads = [HEAD, *draw(answers())]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(reads) - 1))
        kind, both = draw(st.sampled_from(["cut", "wrong", "join"])), reads[at] + b"".join(reads[at + 1 : at + 2])
        beyond = min(len(reads[at]) + draw(st.integers(0, 4)), len(both) - 1)
        place = draw(st.integers(0, len(both) - 1) | st.just(beyond))
        wrong = draw(st.sampled_from([b"\n", b"0", b"f", b"{", b'"', b""]))
        if kind == "join":
            reads[at : at + 2] = [both]
        else:
            reads[at : at + 2] = [both[:place], both[place:] if kind == "cut" else wrong + both[place + 1 :]]
    return [data for data in reads if data]


@settings(max_examples=300, deadline=None)
@given(cut_answers())
def test_chunks_told_by_their_bytes_give_the_same_record(reads: list[bytes]) -> None:
    assert read(reads, TOLD) == read(reads, PARSED)
    assert same(read(reads, QUICK), read(reads, PARSED))


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("form", [b"%x", b"%X", b"%05x"])
def test_nearly_every_chunk_of_a_plain_stream_is_told(
    counted: bool, form: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    take = Deltas.take_chunk

    def counting(self: Deltas, data: bytes, at_s: float) -> bool:
        told.append(take(self, data, at_s))
        return told[-1]

    monkeypatch.setattr(Deltas, "take_chunk", counting)
    chunks = [chunk(event(" word" * n, n if counted else None), form) for n in range(1, 31)]
    heard = read([HEAD, *chunks, ending(30)], PARSED)
    assert told == []
    quick = read([HEAD, *chunks, ending(30)], QUICK)
    assert same(quick, heard)
    assert quick["quick"] == 29  # and the end, which is none of its reads
    assert told == [False]
    told.clear()
    kept = read([HEAD, *chunks, ending(30)], TOLD)
    assert told == [True] * 28 + [False]  # the first two are parsed, the second to learn from it
    assert kept == heard
    assert [round(float(at)) for at in kept["chunk_s"].strip("[]").split(",")] == list(range(1, 31))
    assert (kept["outcome"], kept["output_tokens"], kept["reusable"]) == ("'ok'", "30", True)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("form", [b"%x", b"%X", b"%05x"])
def test_whole_chunks_that_share_a_read_are_told_too(counted: bool, form: bytes) -> None:
    """A client that is late finds several: to be slower then would make it later."""
    chunks = [chunk(event(" word" * n, n if counted else None), form) for n in range(1, 31)]
    reads = [HEAD, *chunks[:4], b"".join(chunks[4:9]), chunks[9], b"".join(chunks[10:]), ending(30)]
    heard, quick, told = (read(reads, way) for way in (PARSED, QUICK, TOLD))
    assert same(quick, heard)
    assert told == heard
    assert quick["quick"] == 6  # all but the head, two chunks to learn from, and the end
    assert (heard["coalesced"], heard["output_tokens"]) == ("23", "30")
    stamps = [1, 2, 3, 4, *[5] * 5, 6, *[7] * 20]
    assert [round(float(at)) for at in heard["chunk_s"].strip("[]").split(",")] == stamps


FIRST, SECOND = chunk(event("a")), chunk(event("b"))
NESTED = chunk(event("a") + b"\r\n" + SECOND + b": x\n\n")


@pytest.mark.parametrize(
    "reads",
    [
        [FIRST, b"1", SECOND, b"x" * 300],  # of a length the first digit alone, then what looks like a whole chunk
        [FIRST + b"1", SECOND, b"x" * 300],
        [NESTED[: NESTED.index(SECOND)], SECOND, NESTED[NESTED.index(SECOND) + len(SECOND) :], SECOND, ending(4)],
        [FIRST, chunk(event("b") + b"\n"), SECOND, ending(4)],
    ],
)
def test_what_only_looks_like_a_whole_chunk_is_read_as_what_it_is(reads: list[bytes]) -> None:
    assert read([HEAD, FIRST, *reads], TOLD) == read([HEAD, FIRST, *reads], PARSED)
    assert same(read([HEAD, FIRST, *reads], QUICK), read([HEAD, FIRST, *reads], PARSED))


def test_what_a_deadline_finds_half_read_is_not_read_on_the_quick_way() -> None:
    """Its second half looks like a whole chunk."""
    half, rest = NESTED[: NESTED.index(SECOND)], NESTED[NESTED.index(SECOND) + len(SECOND) :]
    reads = [HEAD, *[FIRST] * 4, half, b"", SECOND, rest, SECOND, ending(7)]
    stamped = [(data, float(number)) for number, data in enumerate(reads)]
    quick, heard = (record_of(stamped, way, drained_at=6) for way in (QUICK, PARSED))
    assert same(quick, heard)
    assert (heard["outcome"], quick["quick"]) == ("'ok'", 4)


def test_no_stamp_of_the_quick_way_goes_back() -> None:
    """A packet that came out of order bears a stamp from before those that were read already."""
    reads = [(HEAD, 0.0), *((chunk(event(" word")), at) for at in (1.0, 2.0, 3.0, 2.5, 4.0)), (ending(5), 3.5)]
    kept = record_of(reads, QUICK)
    assert (kept["chunk_s"], kept["outcome"], kept["end_s"]) == ("[1.0, 2.0, 3.0, 3.0, 4.0]", "'ok'", "4.0")
    assert kept["quick"] == 4


def test_a_read_without_a_stamp_goes_the_other_way_and_the_next_the_quick_one() -> None:
    word = chunk(event(" word"))
    kept = record_of([(HEAD, 0.0), *((word, at) for at in (1.0, 2.0, None, 4.0, 5.0)), (ending(5), 6.0)], QUICK)
    assert (kept["chunk_s"], kept["quick"]) == ("[1.0, 2.0, 2.0, 4.0, 5.0]", 4)


def test_only_a_whole_chunk_with_one_such_event_is_told() -> None:
    alike = Alike()
    plain = event(" first")
    alike.learn(plain[6:-2], " first", None)
    assert alike.count_in_chunk(chunk(event(" second {one}"))) == UNCOUNTED
    whole = chunk(event(" second"))
    for other in (whole[1:], whole[:-1], b"0" + whole[1:], b"+" + whole, b"0x" + whole, b" " + whole, whole + whole,
                  whole.replace(b"data: ", b"data:"), whole.replace(b"\r\n", b"\n"), chunk(event('"')),
                  chunk(event("a") + event("b")), chunk(event("a") + b"\n"), b"", b"{", b"\r\n"):  # fmt: skip
        assert alike.count_in_chunk(other) == OTHER
        assert other in (b"", whole + whole) or alike.counts_in_chunks(whole + other) == []
    assert alike.counts_in_chunks(3 * whole) == [UNCOUNTED] * 3
