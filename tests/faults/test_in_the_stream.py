"""What can go wrong within a stream, on real sockets: the outcome, and the part that came is kept."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from loadtest.record import Request

pytestmark = pytest.mark.usefixtures("stamps")

Ask = Callable[..., Request]


def answered(record: Request) -> tuple[str, int, int, str]:
    return record.outcome, len(record.chunk_s), record.output_tokens, record.error


def test_a_good_stream_is_measured(ask: Ask, say: Any, stamps: str) -> None:
    steps = [say.HEAD, 0.05, say.chunk(say.role()), 0.1, say.chunk(say.token(1)), 0.1, say.chunk(say.token(4)), 0.05]
    record = ask(*steps, say.chunk(say.token(5, "", "stop") + say.usage(5)), 0.05, say.chunk(say.DONE), say.END)
    assert answered(record) == ("ok", 3, 5, "")
    assert list(record.chunk_tokens) == [1, 3, 1]
    assert (record.tokens_source, record.finish_reason, record.response_id) == ("usage", "stop", "chatcmpl-1")
    assert (record.http_status, record.prompt_tokens, record.reconnected) == (200, 5, False)
    assert record.headers_s == pytest.approx(record.sent_s, abs=0.04)
    gaps = [
        record.chunk_s[0] - record.headers_s,
        record.chunk_s[1] - record.chunk_s[0],
        record.end_s - record.chunk_s[2],
    ]
    assert gaps == pytest.approx([0.15, 0.1, 0.05], abs=0.03)
    assert record.first_visible_s == record.chunk_s[0]
    assert record.stamp_source == stamps
    assert record.coalesced == 0
    assert 0 < record.connect_s < 1


def test_chunks_of_one_read_share_its_stamp_and_are_marked(ask: Ask, say: Any) -> None:
    rest = say.answer(6).removeprefix(say.role() + say.tokens(4))
    record = ask(say.HEAD + say.chunk(say.tokens(4)), 0.05, say.chunk(rest), say.END)
    assert record.outcome == "ok"
    assert list(record.chunk_tokens) == [1, 1, 1, 1, 1, 1]
    assert record.chunk_s[0] == record.chunk_s[3] < record.chunk_s[4] == record.chunk_s[5]
    assert record.coalesced == 4


FAULTS: dict[str, tuple[Callable[[Any], list[Any]], tuple[str, int, int, str]]] = {
    "error event, then [DONE]": (
        lambda s: [s.HEAD + s.chunk(s.role() + s.tokens(2)),
                   s.chunk(s.event(error={"message": "EngineCore died", "code": 500})), s.chunk(s.DONE) + s.END],
        ("stream_error", 2, 2, "the stream reported an error: EngineCore died (after 2 chunks)")),
    "error event before any token": (
        lambda s: [s.HEAD + s.chunk(s.role() + s.event(error="no memory") + s.DONE) + s.END],
        ("stream_error", 0, 0, "the stream reported an error: no memory")),
    "event: error": (
        lambda s: [s.HEAD + s.chunk(s.tokens(1) + b"event: error\ndata: out of pages\n\n") + s.END],
        ("stream_error", 1, 1, "the stream reported an error: out of pages (after 1 chunk)")),
    "error null is none": (
        lambda s: [s.HEAD + s.chunk(s.event(error=None, choices=[]) + s.answer(2)) + s.END],
        ("ok", 2, 2, "")),
    "[DONE] alone": (
        lambda s: [s.HEAD + s.chunk(s.DONE) + s.END],
        ("empty", 0, -1, "the stream ended without a token")),
    "a finish without a token": (
        lambda s: [s.HEAD + s.chunk(s.role() + s.token(0, "", "stop") + s.DONE) + s.END],
        ("empty", 0, 0, "the stream ended without a token")),
    "no [DONE], clean end": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2) + s.token(3, "", "length")) + s.END],
        ("ok", 3, 3, "")),
    "no [DONE], no finish_reason": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2)) + s.END],
        ("truncated", 2, 2, "the stream ended without a finish_reason after 2 chunks")),
    "[DONE] without finish_reason": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2) + s.DONE) + s.END],
        ("truncated", 2, 2, "the stream ended without a finish_reason after 2 chunks")),
    "the connection ends the body": (
        lambda s: [s.PLAIN_HEAD + s.answer(3)[:-len(s.DONE)], s.CLOSE],
        ("ok", 3, 3, "")),
    "the connection ends a body without a finish_reason": (
        lambda s: [s.PLAIN_HEAD + s.tokens(3), s.CLOSE],
        ("truncated", 3, 3, "the stream ended without a finish_reason after 3 chunks")),
    "FIN inside a chunked body": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2)), s.CLOSE],
        ("truncated", 2, 2, "the server closed the connection after 2 chunks")),
    "FIN after the finish_reason, inside the body": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2) + s.token(3, "", "stop")), s.CLOSE],
        ("truncated", 3, 3, "the server closed the connection after 3 chunks")),
    "reset after 2 tokens": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2)), 0.1, s.RESET],
        ("truncated", 2, 2, "the connection was reset after 2 chunks")),
    "short Content-Length body": (
        lambda s: [s.PLAIN_HEAD[:-2] + b"content-length: 100000\r\n\r\n" + s.tokens(1), s.CLOSE],
        ("truncated", 1, 1, "the server closed the connection after 1 chunk")),
    "bad chunk size": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2)) + b"zz\r\n", s.HOLD],
        ("protocol_error", 2, 2,
         "the framing of the response body is broken (Invalid character in chunk size) after 2 chunks")),
    "silence after 2 tokens": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2)), s.HOLD],
        ("stalled", 2, 2, "no token came for 0.3 s after 2 chunks")),
    "comments for ever": (
        lambda s: [s.HEAD + s.chunk(s.tokens(2)), *[s.chunk(b": ping\n\n"), 0.1] * 20],
        ("stalled", 2, 2, "no token came for 0.3 s after 2 chunks")),
    "comments before the first token": (
        lambda s: [s.HEAD, *[s.chunk(b": ping\n\n"), 0.1] * 20],
        ("timeout", 0, -1, "no token came within 0.7 s")),
    "slow loris": (
        lambda s: [s.HEAD, *[step for n in range(1, 60) for step in (s.chunk(s.token(n)), 0.1)]],
        ("timeout", None, None, None)),
    "not JSON": (
        lambda s: [s.HEAD + s.chunk(s.tokens(1) + b"data: {\"choices\":[\n\n"), s.HOLD],
        ("protocol_error", 1, 1, 'an event is not JSON: {"choices":[ (after 1 chunk)')),
    "NaN": (
        lambda s: [s.HEAD + s.chunk(b"data: {\"x\":NaN}\n\n"), s.HOLD],
        ("protocol_error", 0, -1, 'an event is not JSON: {"x":NaN}')),
    "nested 100,000 deep": (
        lambda s: [s.HEAD + s.chunk(b"data: " + b"[" * 100_000 + b"]" * 100_000 + b"\n\n"), s.HOLD],
        ("protocol_error", 0, -1, "an event is not JSON: " + "[" * 80 + "…")),
    "an integer of 5,000 digits": (
        lambda s: [s.HEAD + s.chunk(b"data: {\"x\":" + b"9" * 5000 + b"}\n\n"), s.HOLD],
        ("protocol_error", 0, -1, 'an event is not JSON: {"x":' + "9" * 75 + "…")),
    "a count that falls": (
        lambda s: [s.HEAD + s.chunk(s.token(3) + s.token(2)), s.HOLD],
        ("protocol_error", 1, 3, "the count of output tokens fell from 3 to 2 after 1 chunk")),
    "a negative count": (
        lambda s: [s.HEAD + s.chunk(s.token(1) + s.token(-1)), s.HOLD],
        ("protocol_error", 1, 1, "usage.completion_tokens is -1 after 1 chunk")),
    "a count in words": (
        lambda s: [s.HEAD + s.chunk(s.tokens(1) + s.usage("2")), s.HOLD],
        ("protocol_error", 1, 1, 'usage.completion_tokens is "2" after 1 chunk')),
    "a text with 0 tokens": (
        lambda s: [s.HEAD + s.chunk(s.token(0, "hi", "stop") + s.DONE) + s.END],
        ("protocol_error", 0, 0, "the server counted 0 output tokens for an answer that has text")),
    "a second choice": (
        lambda s: [s.HEAD + s.chunk(s.tokens(1) + s.event(choices=[{"index": 1, "delta": {"content": "b"}}])), s.HOLD],
        ("protocol_error", 1, 1, "the server answered with several choices; one was asked for after 1 chunk")),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_outcome_and_keeps_what_came(ask: Ask, say: Any, name: str) -> None:
    steps, expected = FAULTS[name]
    record = ask(*steps(say), stall_s=0.3, first_token_s=0.7, total_s=1.5)
    assert record.outcome == expected[0]
    if expected[1] is not None:
        assert answered(record) == expected
        assert list(record.chunk_tokens) == [1] * len(record.chunk_s) or name == "a count that falls"
    assert record.end_s >= record.sent_s
    assert record.end_s < 2.0


def test_the_total_limit_ends_a_stream_that_never_stalls(ask: Ask, say: Any) -> None:
    steps = [step for n in range(1, 60) for step in (say.chunk(say.token(n)), 0.05)]
    record = ask(say.HEAD, *steps, stall_s=0.3, total_s=0.8)
    assert record.outcome == "timeout"
    assert record.error.startswith("the request was not finished within 0.8 s after ")
    assert record.end_s == pytest.approx(record.sent_s + 0.8, abs=0.1)
    assert 10 <= len(record.chunk_s) <= 17


def test_a_stall_is_counted_from_the_last_token(ask: Ask, say: Any) -> None:
    record = ask(say.HEAD + say.chunk(say.tokens(1)), 0.2, say.chunk(say.token(2)), say.HOLD, stall_s=0.3)
    assert record.outcome == "stalled"
    assert record.end_s - record.chunk_s[-1] == pytest.approx(0.3, abs=0.08)


def test_what_arrived_while_the_client_was_busy_is_no_stall(serve: Any, connect: Any, say: Any, stamps: str) -> None:
    server = serve([say.READ, say.HEAD + say.chunk(say.tokens(1)), 0.1, say.chunk(say.token(2)), 0.1,
                    say.chunk(say.token(3, "", "stop") + say.DONE) + say.END])  # fmt: skip
    record = Request()
    connect(server.url, stall_s=0.25).stream("/v1/x", b"{}", record, on_first=lambda: time.sleep(0.5))
    assert record.outcome == "ok"
    if stamps == "user":
        return  # there is nothing but the time of the read
    # The kernel's stamps hold although the client slept: the chunks lie 0.1 s apart, or share a read.
    assert record.chunk_s[-1] - record.chunk_s[0] == pytest.approx(0.2, abs=0.06)
    assert record.lag_max_s > 0.2


def test_done_ends_the_request_although_the_connection_is_held(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.HEAD + say.chunk(say.answer(3)), say.HOLD])
    record = Request()
    connect(server.url).stream("/v1/x", b"{}", record)
    assert record.outcome == "ok"
    assert record.end_s == record.chunk_s[-1]
    assert server.client_left.wait(2)


def test_what_follows_done_is_not_read(ask: Ask, say: Any) -> None:
    record = ask(say.HEAD + say.chunk(say.answer(2) + say.token(1) + b"data: nonsense\n\n") + say.END)
    assert answered(record) == ("ok", 2, 2, "")


def test_a_character_split_between_reads_is_whole(ask: Ask, say: Any) -> None:
    body = say.event(id="chatcmpl-1", choices=[{"index": 0, "delta": {"content": "x"}}], usage={"completion_tokens": 1})
    body = body.replace(b'"x"', '"größer €"'.encode())
    cut = body.index("€".encode()) + 1
    rest = say.chunk(say.token(2, "", "stop") + say.DONE)
    record = ask(say.HEAD + say.chunk(body[:cut]), 0.1, say.chunk(body[cut:]), 0.1, rest, say.END)
    assert record.outcome == "ok"
    assert list(record.chunk_tokens) == [1, 1]
    assert record.chunk_s[0] - record.headers_s == pytest.approx(0.1, abs=0.05)


def test_invalid_utf8_spoils_the_text_and_not_the_event(ask: Ask, say: Any) -> None:
    body = say.token(1).replace(b'"x"', b'"\xff\xc3"')
    record = ask(say.HEAD + say.chunk(body + say.token(2, "", "stop") + say.DONE) + say.END)
    assert answered(record) == ("ok", 2, 2, "")


def test_an_event_of_one_mebibyte_is_read(ask: Ask, say: Any) -> None:
    record = ask(say.HEAD + say.chunk(say.token(1, "a" * 2**20) + say.token(2, "", "stop") + say.DONE) + say.END)
    assert answered(record) == ("ok", 2, 2, "")


def test_a_line_without_an_end_is_refused(ask: Ask, say: Any) -> None:
    record = ask(say.HEAD, *[say.chunk(b"a" * 2**19)] * 12, say.HOLD)
    assert (record.outcome, record.error) == ("protocol_error", "an event of the stream is larger than 4 MiB")
    assert record.end_s < 3


def test_a_stream_in_single_bytes_is_read(ask: Ask, say: Any) -> None:
    record = ask(say.HEAD, *[say.chunk(bytes([byte])) for byte in say.answer(3)], say.END)
    assert answered(record) == ("ok", 3, 3, "")


def test_tool_calls_and_reasoning_are_visible(ask: Ask, say: Any) -> None:
    def delta(count: int, finish: str | None = None, **said: Any) -> bytes:
        choice = {"index": 0, "delta": said, "finish_reason": finish}
        return bytes(say.event(choices=[choice], usage={"completion_tokens": count}))

    call = [{"index": 0, "function": {"name": "look", "arguments": ""}}]
    for first in ({"reasoning": "hm"}, {"reasoning_content": "hm"}, {"content": None, "tool_calls": call}):
        body = say.chunk(say.role()), 0.05, say.chunk(delta(1, content="")), 0.05, say.chunk(delta(2, **first))
        record = ask(say.HEAD, *body, say.chunk(delta(3, "tool_calls") + say.DONE), say.END)
        assert answered(record) == ("ok", 3, 3, "")
        assert record.finish_reason == "tool_calls"
        assert record.first_visible_s == record.chunk_s[1] > record.chunk_s[0]


def test_a_stream_without_any_count_reports_none(ask: Ask, say: Any) -> None:
    def delta(text: str, finish: str | None = None) -> bytes:
        return bytes(say.event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}]))

    record = ask(say.HEAD + say.chunk(delta("") + delta("a") + delta("b") + delta("", "stop") + say.DONE) + say.END)
    assert answered(record)[:3] == ("empty", 2, -1)
    assert record.error == "text came, but the server reported no token count (no usage in the stream) after 2 chunks"
    record = ask(say.HEAD + say.chunk(delta("a") + delta("b", "stop") + say.usage(7) + say.DONE) + say.END)
    assert answered(record) == ("ok", 2, 7, "")
    assert (record.tokens_source, list(record.chunk_tokens)) == ("none", [])


def test_tokens_of_one_step_that_come_as_events_of_their_own(ask: Ask, say: Any) -> None:
    def delta(text: str | None, count: int) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return bytes(say.event(choices=[choice], timings={"predicted_n": count, "draft_n": 4, "draft_n_accepted": 2}))

    end = say.event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    first, step = delta("a", 1), delta("b", 2) + delta("c", 3) + delta("d", 4)
    rest = say.chunk(end + say.usage(4) + say.DONE) + say.END
    record = ask(say.HEAD, say.chunk(first), 0.05, say.chunk(step), 0.05, rest)
    assert answered(record) == ("ok", 4, 4, "")
    assert (record.tokens_source, list(record.chunk_tokens), record.coalesced) == ("timings", [1, 1, 1, 1], 2)
    assert record.chunk_s[0] < record.chunk_s[1] == record.chunk_s[3]
    cut = ask(say.HEAD, say.chunk(first + step), say.CLOSE)
    assert answered(cut)[:3] == ("truncated", 4, 4)


def test_a_failed_stream_has_no_first_token_rather_than_0(ask: Ask, say: Any) -> None:
    record = ask(say.HEAD + say.chunk(say.event(error={"message": "x"})), say.HOLD)
    assert math.isnan(record.first_visible_s)
    assert list(record.chunk_s) == []
    assert json.dumps(record.error) == '"the stream reported an error: x"'
