"""Answers that are odd rather than broken, and broken ones that are rare: on real sockets, with what is kept."""

from __future__ import annotations

import gzip
import math
import time
import zlib
from typing import Any

import gevent
import pytest

from loadtest.drive import exchange as exchange_module
from loadtest.record import Request


def stream(client: Any) -> Request:
    record = Request(due_s=client._clock.now_s())
    client.stream("/v1/chat/completions", b"{}", record)
    return record


def refused(status: str, *lines: str, body: bytes = b"") -> bytes:
    head = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


# ---- before the first byte


def test_a_server_that_goes_away_and_comes_back(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.good(2), say.CLOSE])
    client = connect(server.url, connect_s=2.0)
    assert stream(client).outcome == "ok"
    server.stop()
    gone = [stream(client) for _ in range(2)]
    assert [record.outcome for record in gone] == ["connect_error", "connect_error"]
    assert all(math.isnan(record.sent_s) and not record.chunk_s and record.end_s >= record.due_s for record in gone)
    back = serve([say.READ, say.good(3), say.HOLD])
    client._endpoint.port = back.port
    client._endpoint.worked(None)
    record = stream(client)
    assert (record.outcome, record.output_tokens, record.reconnected) == ("ok", 3, False)


AGAIN = [
    ("retry-after: 5", ", Retry-After 5"),
    ("retry-after: Wed, 21 Oct 2026 07:28:00 GMT", ", Retry-After Wed, 21 Oct 2026 07:28:00 GMT"),
    ("retry-after-ms: 1500", ", Retry-After-Ms 1500"),
    ("retry-after: 1000000000", ", Retry-After 1000000000"),
    ("retry-after: \xa0soon", ", Retry-After soon"),
    (
        "X-RateLimit-Limit-Requests: 60\r\nx-ratelimit-limit-tokens: 90000",
        ", at most 60 requests a minute, at most 90,000 tokens a minute",
    ),
    (
        'retry-after: 5\r\nRateLimit-Policy: "burst";q=10;w=1, "day";q=500;w=86400',
        ", Retry-After 5, at most 500 requests a minute",
    ),
    ("x-ratelimit-limit-requests: \xff", ""),
    ("retry-after: " + "9" * 500, ", Retry-After " + "9" * 60 + "…"),
]


@pytest.mark.parametrize(("line", "said"), AGAIN, ids=[line[:24] for line, _ in AGAIN])
def test_a_limit_on_the_rate_is_named_and_not_waited_for(ask: Any, say: Any, line: str, said: str) -> None:
    head = f"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n{line}\r\n\r\n".encode("latin-1")
    record = ask(head, say.HOLD)
    assert (record.outcome, record.http_status, record.error) == ("rate_limited", 429, f"HTTP 429{said}")
    assert record.end_s < 4
    assert list(record.chunk_s) == []
    assert record.output_tokens == -1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_not_followed_and_takes_no_key_with_it(serve: Any, connect: Any, say: Any, status: str) -> None:
    other = serve([say.READ, say.good(2)])
    server = serve([say.READ, refused(status, f"location: {other.url}/v1/chat/completions"), say.HOLD])
    record = stream(connect(server.url, headers={"Authorization": "Bearer sk-canary-1234"}))
    assert record.outcome == "http_error"
    assert record.error == f"HTTP {status[:3]} to {other.url}/v1/chat/completions (redirects are not followed)"
    assert (other.connections, other.requests) == (0, [])


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_not_quoted(serve: Any, connect: Any, say: Any, status: int) -> None:
    server = serve([say.READ, refused(f"{status} No", body=b'{"error":"bad key sk-canary-1234"}'), say.HOLD])
    record = stream(connect(server.url, headers={"X-Api-Key": "sk-canary-1234"}))
    assert (record.outcome, record.error) == ("http_error", f"HTTP {status}: bad key (hidden)")


def test_proxies_of_the_environment_are_not_used(
    serve: Any, connect: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve([say.READ, say.good(9)])
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv(name.upper(), proxy.url)
    server = serve([say.READ, say.good(2)])
    assert stream(connect(server.url)).output_tokens == 2
    assert proxy.connections == 0


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"\0" * 10_000_000, mtime=0)),
        ("deflate", zlib.compress(b"data: [DONE]\n\n")),
        ("br", b"\x0b\x06\x80data: [DONE]\n\n\x03"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"\0" * 10_000_000, mtime=0), mtime=0)),
        ("x-\x1b[31mown", b"data: [DONE]\n\n"),
    ],
)
def test_a_compressed_answer_is_refused_and_not_unpacked(ask: Any, say: Any, coding: str, body: bytes) -> None:
    head = say.PLAIN_HEAD[:-2] + f"content-encoding: {coding}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    record = ask(head + body, say.HOLD)
    assert record.outcome == "protocol_error"
    if "\x1b" not in coding:
        assert record.error == f"the answer is compressed ({coding}), although it was asked not to be"
    assert record.error.isprintable()
    assert list(record.chunk_s) == []


def test_identity_is_no_compression(ask: Any, say: Any) -> None:
    head = say.HEAD[:-2] + b"content-encoding: Identity\r\n\r\n"
    assert ask(head + say.chunk(say.answer(2)) + say.END).outcome == "ok"


def test_headers_in_single_bytes_meet_the_first_token_limit(ask: Any, say: Any) -> None:
    steps = [step for byte in say.HEAD * 20 for step in (bytes([byte]), 0.02)]
    record = ask(*steps, first_token_s=0.4)
    assert (record.outcome, record.error) == ("timeout", "no token came within 0.4 s")
    assert record.headers_s >= record.sent_s
    assert record.http_status == 0


# ---- in the stream

ENDS = {"LF": b"\n", "CR LF": b"\r\n", "CR": b"\r"}


@pytest.mark.parametrize("end", [*ENDS, "mixed"])
def test_lines_end_in_every_way_of_the_standard(ask: Any, say: Any, end: str) -> None:
    events = [part + b"\n\n" for part in say.answer(4).split(b"\n\n")[:-1]]
    given = [ENDS[end]] * len(events) if end in ENDS else [list(ENDS.values())[i % 3] for i in range(len(events))]
    body = b"".join(event.replace(b"\n", line) for event, line in zip(events, given, strict=True))
    record = ask(say.HEAD + b"".join(say.chunk(body[i : i + 7]) for i in range(0, len(body), 7)) + say.END)
    assert (record.outcome, list(record.chunk_tokens), record.output_tokens) == ("ok", [1, 1, 1, 1], 4)


def test_a_break_between_cr_and_lf_is_one_line_end(ask: Any, say: Any) -> None:
    first, second = say.tokens(1).replace(b"\n", b"\r\n"), say.token(2, "", "stop").replace(b"\n", b"\r\n")
    parts = [say.chunk(first[:-1]), 0.05, say.chunk(first[-1:] + second[:-3]), 0.05, say.chunk(second[-3:] + say.DONE)]
    record = ask(say.HEAD, *parts, say.END)
    assert (record.outcome, list(record.chunk_tokens)) == ("ok", [1, 1])


def test_fields_and_comments_of_the_standard(ask: Any, say: Any) -> None:
    one = say.token(1).replace(b"data: {", b"data:{").replace(b',"usage"', b',\ndata: "usage"')
    assert b"\ndata:" in one
    odd = b": note\nid: 7\nretry: 10\nevent: message\nfoo: bar\nnothing\n" + one
    odd += b"\n\n: pong\n\nevent: ping\ndata: {}\n\n"
    record = ask(say.HEAD + say.chunk(odd + say.token(2, "", "stop") + say.DONE) + say.END)
    assert (record.outcome, list(record.chunk_tokens), record.error) == ("ok", [1, 1], "")


def test_no_other_character_ends_a_line(ask: Any, say: Any) -> None:
    text = '"\u2028\u2029\x85\\u000b\x7f\ufeff\\u0000"'.encode()
    body = b"\xef\xbb\xbf" + say.token(1).replace(b'"x"', text) + say.token(2, "", "stop") + say.DONE
    assert text in body
    record = ask(say.HEAD + say.chunk(body) + say.END)
    assert (record.outcome, list(record.chunk_tokens), record.error) == ("ok", [1, 1], "")


@pytest.mark.parametrize("cut", [1, 6, 40, -3, -2, -1])
def test_an_event_has_the_time_of_its_last_byte(ask: Any, say: Any, cut: int) -> None:
    first, rest = say.token(1), say.chunk(say.token(2, "", "stop") + say.DONE) + say.END
    record = ask(say.HEAD + say.chunk(first[:cut]), 0.1, say.chunk(first[cut:]), 0.1, rest)
    assert (record.outcome, list(record.chunk_tokens)) == ("ok", [1, 1])
    if record.lag_max_s < 0.05:  # else this machine was so busy that reads fell together
        assert record.chunk_s[0] - record.headers_s >= 0.05
        assert record.chunk_s[1] - record.chunk_s[0] >= 0.05


def test_comments_are_no_first_token(ask: Any, say: Any) -> None:
    body = say.chunk(b": ping\n\n"), 0.1, say.chunk(say.role()), 0.1, say.chunk(b":\n\n\n" + say.tokens(1)), 0.02
    record = ask(say.HEAD, *body, say.chunk(say.token(2, "", "stop") + say.DONE) + say.END)
    assert record.outcome == "ok"
    assert record.chunk_s[0] - record.headers_s >= 0.15 or record.lag_max_s > 0.05
    assert record.first_visible_s == record.chunk_s[0]


MIXED = "an event names the key {} twice after 1 chunk"
REPEATS = {
    "at the top": (b', "id": "chatcmpl-1"}', "id"),
    "the choices": (b', "choices": []}', "choices"),
    "the usage": (b', "usage": null}', "usage"),
    "the same value": (b', "a": 1, "a": 1}', "a"),
    "nested": (b', "x": [{"a": 1, "a": 2}]}', "a"),
    "written with blanks": (b', "usage" : null}', "usage"),
    "written with a blank, and a number": (b', "a": 1, "a" : 2}', "a"),
    "written with an escape": (b', "us\\u0061ge":null}', "usage"),
    "unprintable": (b', "\\u001b[0m":1, "\\u001b[0m":1}', "[0m"),
}


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("name", REPEATS)
def test_a_key_that_comes_twice_is_no_figure(ask: Any, say: Any, name: str, closing: bool) -> None:
    more, key = REPEATS[name]
    event = (say.usage(2) if closing else say.token(2)).removesuffix(b"}\n\n") + more + b"\n\n"
    record = ask(say.HEAD + say.chunk(say.tokens(1) + event), say.HOLD)
    assert (record.outcome, record.error) == ("protocol_error", MIXED.format(key))
    assert (list(record.chunk_tokens), record.output_tokens) == ([1], 1)


@pytest.mark.parametrize("text", ['a: b, "c": d', '{"a": 1, "a": 2}', "::::", '"', "\\\\"])
def test_a_text_that_looks_like_keys_is_a_text(ask: Any, say: Any, text: str) -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": text}}
    delta = {"index": 0, "delta": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
    last = say.event(id="chatcmpl-1", choices=[delta], usage={"completion_tokens": 2, "details": {"a": 1}})
    record = ask(say.HEAD + say.chunk(say.token(1, text) + last + say.DONE) + say.END)
    assert (record.outcome, record.error, list(record.chunk_tokens)) == ("ok", "", [1, 1])


@pytest.mark.parametrize("depth", [990, 1020])
def test_deep_events_end_the_request_and_not_the_run(serve: Any, connect: Any, say: Any, depth: int) -> None:
    deep = b'data: {"id":"chatcmpl-1","x":' + b"[" * depth + b'"::"' + b"]" * depth + b"}\n\n"
    body = say.tokens(1) + deep + say.token(2, "", "stop") + say.DONE
    server = serve([say.READ, say.HEAD + say.chunk(body) + say.END, say.HOLD], [say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    record = stream(client)
    assert record.outcome in ("ok", "protocol_error")
    assert record.error in ("", "an event is nested too deeply after 1 chunk")
    assert record.chunk_tokens[0] == 1
    client.close()
    assert stream(client).output_tokens == 3


def test_an_answer_that_turns_into_another_one(serve: Any, connect: Any, say: Any) -> None:
    def token(count: int, **said: str) -> bytes:
        return bytes(say.event(**said, choices=[{"index": 0, "delta": {"content": "x"}}],
                               usage={"completion_tokens": count}))  # fmt: skip

    mixed = {
        "the id of the answer changed within the stream, from a to b": [{"id": "a"}, {"id": "b"}],
        "the model of the answer changed within the stream, from m to n": [{"id": "a", "model": "m"}, {"model": "n"}],
    }
    for error, (one, other) in mixed.items():
        server = serve([say.READ, say.HEAD + say.chunk(token(1, **one) + token(2, **other)), say.HOLD])
        record = stream(connect(server.url))
        assert (record.outcome, record.error) == ("protocol_error", f"{error} after 1 chunk")
        assert (list(record.chunk_tokens), record.response_id) == ([1], "a")


def test_what_does_not_always_tell_its_id_is_one_answer(ask: Any, say: Any) -> None:
    first = say.event(id="", model="", choices=[], prompt_filter_results=[])
    body = first + say.tokens(1) + say.event(choices=[], usage=None) + say.token(2, "", "stop") + say.DONE
    record = ask(say.HEAD + say.chunk(body) + say.END)
    assert (record.outcome, record.response_id, list(record.chunk_tokens)) == ("ok", "chatcmpl-1", [1, 1])


def test_models_and_oddities_are_counted_for_the_endpoint(serve: Any, connect: Any, say: Any) -> None:
    def answer(model: str, text: bytes, end: bytes) -> bytes:
        token = say.token(1, "x", "stop").replace(b'"x"', text)
        token = token.replace(b'{"id"', b'{"model": "%s", "id"' % model.encode())
        return bytes(say.HEAD + say.chunk(token + end) + say.END)

    steps = [answer("a", b'"x"', say.DONE), answer("a", b'"x"', b""), answer("b", b'"\xff"', say.DONE)]
    client = connect(serve([step for answer in steps for step in (say.READ, answer)] + [say.HOLD]).url)
    assert [stream(client).outcome for _ in steps] == ["ok", "ok", "ok"]
    assert client._endpoint.models == {"a", "b"}
    assert client._endpoint.oddities == {"no_done": 1, "not_utf8": 1}


def test_one_token_is_an_answer(ask: Any, say: Any) -> None:
    record = ask(say.HEAD + say.chunk(say.role() + say.token(1, "x", "stop") + say.usage(1) + say.DONE) + say.END)
    assert (record.outcome, list(record.chunk_tokens), record.output_tokens) == ("ok", [1], 1)
    assert list(record.chunk_s) == [record.first_visible_s]


@pytest.mark.parametrize(
    ("reason", "kept"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("abort", "abort"),
     ("repetition", "repetition"), ("\x1b[31mred" + "d" * 60, "[31mred" + "d" * 33 + "…"), (7, "7")],
)  # fmt: skip
def test_the_reason_of_the_end_is_kept(ask: Any, say: Any, reason: Any, kept: str) -> None:
    record = ask(say.HEAD + say.chunk(say.tokens(1) + say.token(2, "", reason) + say.DONE) + say.END)
    assert (record.outcome, record.finish_reason, list(record.chunk_tokens)) == ("ok", kept, [1, 1])


def test_comments_for_ever_meet_the_total_limit(ask: Any, say: Any) -> None:
    """Single bytes within every other limit: only the limit on the whole request ends it."""
    steps = [step for _ in range(100) for step in (say.chunk(b":"), 0.03)]
    record = ask(say.HEAD + say.chunk(say.tokens(2)), *steps, stall_s=9.0, first_token_s=9.0, total_s=0.5)
    assert (record.outcome, record.error) == ("timeout", "the request was not finished within 0.5 s after 2 chunks")
    assert (list(record.chunk_tokens), record.output_tokens) == ([1, 1], 2)


def test_a_stream_without_bounds_is_ended(ask: Any, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exchange_module.STREAM_LIMIT == 256 * 2**20
    monkeypatch.setattr(exchange_module, "STREAM_LIMIT", 2**20)
    flood = say.chunk(b": " + b"a" * 65000 + b"\n\n")
    record = ask(say.HEAD + say.chunk(say.tokens(2)), *[flood] * 40, say.HOLD)
    assert (record.outcome, record.error) == ("protocol_error", "the stream is larger than 1 MiB after 2 chunks")
    assert list(record.chunk_tokens) == [1, 1]


def test_a_server_that_closes_every_time_costs_connecting_and_says_so(serve: Any, connect: Any, say: Any) -> None:
    closing = say.good(2).replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    server = serve([say.READ, closing, say.CLOSE])
    client = connect(server.url)
    records = [stream(client) for _ in range(3)]
    assert server.connections == 3
    for record in records:
        assert (record.outcome, record.reconnected) == ("ok", False)
        assert 0 < record.connect_s <= record.sent_s - record.due_s + 1e-6
        assert record.chunk_s[0] >= record.sent_s


def test_the_tail_of_a_body_that_does_not_come_keeps_nobody_waiting(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.HEAD + say.chunk(say.answer(2)), say.HOLD])
    clients = [connect(server.url) for _ in range(20)]
    began = time.monotonic()
    greenlets = [gevent.spawn(stream, client) for client in clients]
    gevent.joinall(greenlets, timeout=20)
    assert {greenlet.value.outcome for greenlet in greenlets} == {"ok"}
    assert all(client._connection is None for client in clients)
    assert time.monotonic() - began < 10
