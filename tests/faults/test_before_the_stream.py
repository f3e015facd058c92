"""What can go wrong before the first event, on real sockets."""

from __future__ import annotations

import errno
import math
import resource
import socket
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from loadtest.record import Request

Ask = Callable[..., Request]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def stream(client: Any) -> Request:
    record = Request(due_s=0.0)
    client.stream("/v1/chat/completions", b"{}", record)
    return record


def test_a_refused_connection_names_host_and_port(connect: Any) -> None:
    port = free_port()
    record = stream(connect(f"http://127.0.0.1:{port}"))
    assert record.outcome == "connect_error"
    assert record.error == f"no connection to 127.0.0.1:{port}: Connection refused"
    assert math.isnan(record.sent_s)
    assert record.end_s >= 0
    assert list(record.chunk_s) == []


def test_a_host_without_an_address_is_a_connect_error(connect: Any) -> None:
    record = stream(connect("http://nowhere.invalid:8000", connect_s=5.0))
    assert record.outcome == "connect_error"
    assert "nowhere.invalid cannot be looked up" in record.error


def test_the_second_address_of_a_host_is_tried(connect: Any, serve: Any, say: Any) -> None:
    server = serve([say.READ, say.good()])
    client = connect(server.url)
    dead = (socket.AF_INET, ("127.0.0.1", free_port()))
    alive = (socket.AF_INET, ("127.0.0.1", server.port))
    client._endpoint._addresses = [dead, alive]
    assert stream(client).outcome == "ok"
    assert client._endpoint.addresses(1.0) == [alive, dead]


def test_a_full_backlog_meets_the_connect_limit(connect: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        where = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            assert filler.connect_ex(where) in (0, errno.EINPROGRESS)
        record = stream(connect(f"http://127.0.0.1:{where[1]}", connect_s=0.2))
        for filler in fillers:
            filler.close()
    assert record.outcome == "connect_error"
    assert "no connection was made" in record.error
    assert 0.15 < record.end_s < 2.0


def test_no_file_descriptor_left_is_the_clients_fault(connect: Any, serve: Any, say: Any) -> None:
    client = connect(serve([say.READ, say.good()]).url)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open("/dev/null") as probe:  # noqa: PTH123  # its number is the next free one
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe.fileno(), hard))
    try:
        record = stream(client)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert record.outcome == "client_error"
    assert "this machine could not open another connection: Too many open files" in record.error


def head(status: str, *lines: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    text = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *lines]
    return "\r\n".join(text).encode() + b"\r\n\r\n" + body


NOT_FOUND = b'{"error":{"message":"The model `nope` does not exist.","type":"NotFoundError","code":404}}'
REFUSALS = [
    (head("404 Not Found", body=NOT_FOUND), "http_error", "HTTP 404: The model `nope` does not exist."),
    (head("401 Unauthorized", body=b'{"error":"Unauthorized"}'), "http_error", "HTTP 401: Unauthorized"),
    (head("400 Bad Request", body=b'{"detail":"too long"}'), "http_error", "HTTP 400: too long"),
    (head("503 Service Unavailable", body=b'{"message":"queue is full"}'), "http_error", "HTTP 503: queue is full"),
    (head("500 Oops", kind="text/html", body=b"<h1>\x1b[31mOops\x00</h1>\r\n"), "http_error",
     "HTTP 500: <h1>[31mOops</h1>"),
    (head("500 Oops"), "http_error", "HTTP 500"),
    (head("302 Found", "location: http://other:1/\x01v1"), "protocol_error", ""),
    (head("302 Found", "location: http://other:1/v1"), "http_error",
     "HTTP 302 to http://other:1/v1 (redirects are not followed)"),
    (head("429 Too Many", "retry-after: 5", body=b'{"error":{"message":"slow down"}}'), "rate_limited",
     "HTTP 429, Retry-After 5: slow down"),
    (head("429 Too Many", "retry-after: soon"), "rate_limited", "HTTP 429, Retry-After soon"),
    (head("204 No Content"), "http_error", "HTTP 204"),
    (head("200 OK", body=b'{"choices":[{"message":{"content":"hi"}}]}'), "protocol_error",
     "the server answered with application/json, not with an event stream"),
    (head("200 OK", body=b'{"error":{"message":"no GPU"}}'), "stream_error",
     "the server answered with an error and status 200: no GPU"),
    (head("200 OK", "content-encoding: gzip", kind="text/event-stream", body=b"\x1f\x8b"), "protocol_error",
     "the answer is compressed (gzip), although it was asked not to be"),
    (b"\x15\x03\x03\x00\x02\x02\x46", "protocol_error", "the server answered plain HTTP with TLS: is its URL https://?"),
    (b"SSH-2.0-OpenSSH_9.9\r\n", "protocol_error", ""),
    (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", "http_error", "HTTP 101"),
    (b"HTTP/1.1 200 OK\r\nbad header\x00: x\r\n\r\n", "protocol_error", ""),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "outcome", "error"), REFUSALS, ids=range(len(REFUSALS)))
def test_an_answer_that_is_no_stream_is_named(ask: Ask, say: Any, answer: bytes, outcome: str, error: str) -> None:
    record = ask(answer, say.HOLD, first_token_s=3.0)
    assert record.outcome == outcome
    assert record.end_s < 2.0
    assert list(record.chunk_s) == []
    assert record.output_tokens == -1
    if error:
        assert record.error == error
    assert record.error.isprintable()


def test_a_large_error_body_is_read_to_its_cap(ask: Ask, say: Any) -> None:
    flood = [b"HTTP/1.1 500 Oops\r\ncontent-length: 50000000\r\n\r\n", *[b"a" * 65536] * 8]
    record = ask(*flood, say.HOLD, total_s=3.0)
    assert record.outcome == "http_error"
    assert record.error == "HTTP 500: " + "a" * 300 + "…"
    assert record.end_s < 2.0


def test_an_error_body_that_never_ends_is_an_http_error_at_the_deadline(ask: Ask, say: Any) -> None:
    record = ask(b"HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\nhalf", say.HOLD, first_token_s=0.2)
    assert (record.outcome, record.error) == ("http_error", "HTTP 500: half")


def test_an_error_body_cut_short_is_an_http_error(ask: Ask, say: Any) -> None:
    record = ask(b"HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\nhalf", say.CLOSE)
    assert (record.outcome, record.error) == ("http_error", "HTTP 500: half")


def test_interim_responses_are_passed_over(ask: Ask, say: Any) -> None:
    record = ask(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", 0.02, say.good())
    assert (record.outcome, record.http_status, record.output_tokens) == ("ok", 200, 3)


@pytest.mark.parametrize("lines", [[b"x: " + b"a" * 1_000_000], [b"h%d: v" % i for i in range(10_000)]])
def test_oversized_headers_are_refused(ask: Ask, say: Any, lines: list[bytes]) -> None:
    record = ask(b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines) + b"\r\n\r\n", say.HOLD)
    assert record.outcome == "protocol_error"
    assert record.error == "the response headers are larger than 64 KiB"


def test_a_server_that_never_answers_meets_the_first_token_limit(ask: Ask, say: Any) -> None:
    record = ask(say.HOLD, first_token_s=0.2)
    assert (record.outcome, record.error) == ("timeout", "no token came within 0.2 s")
    assert record.end_s == pytest.approx(record.sent_s + 0.2, abs=0.1)
    assert math.isnan(record.headers_s)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("CLOSE", "the server closed the connection without an answer"),
        ("RESET", "the connection was reset without an answer"),
    ],
)
def test_a_new_connection_that_ends_without_an_answer_is_not_tried_again(
    serve: Any, connect: Any, say: Any, end: str, error: str
) -> None:
    server = serve([say.READ, getattr(say, end)])
    record = stream(connect(server.url))
    assert (record.outcome, record.error) == ("truncated", error)
    assert server.connections == 1
    assert not record.reconnected


def test_an_end_within_the_head_says_so(ask: Ask, say: Any) -> None:
    record = ask(b"HTTP/1.1 200 OK\r\ncontent-", say.CLOSE)
    assert record.outcome == "truncated"
    assert record.error == "the server closed the connection within the response headers"


def test_a_large_request_is_sent_while_the_hub_goes_on(serve: Any, connect: Any, say: Any) -> None:
    server = serve([0.2, say.READ, say.good()])
    body = b'{"prompt":"' + b"a" * 8_000_000 + b'"}'
    record = Request()
    client = connect(server.url)
    greenlet = gevent.spawn(client.stream, "/v1/completions", body, record)
    ticks = 0
    while not greenlet.ready():
        gevent.sleep(0.01)
        ticks += 1
    assert record.outcome == "ok"
    assert ticks >= 10
    assert server.requests[0].endswith(body)


def test_a_refusal_in_the_middle_of_a_large_request_is_read(serve: Any, connect: Any, say: Any) -> None:
    refusal = head("413 Too Large", "connection: close", body=b'{"error":{"message":"prompt too large"}}')
    server = serve([refusal, say.HOLD])
    record = Request()
    connect(server.url).stream("/v1/completions", b"a" * 30_000_000, record)
    assert (record.outcome, record.error) == ("http_error", "HTTP 413: prompt too large")


def test_what_is_sent(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.good()])
    client = connect(server.url + "/team/v1/", headers={"Authorization": "Bearer sk-canary"})
    record = Request()
    client.stream("/v1/chat/completions", b'{"a":1}', record)
    top, *lines = server.requests[0].decode().split("\r\n")
    assert top == "POST /team/v1/chat/completions HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in lines
    assert {"Accept: text/event-stream", "Accept-Encoding: identity", "Authorization: Bearer sk-canary"} <= set(lines)
    assert lines[-2:] == ["", '{"a":1}']
    assert "canary" not in repr(client._endpoint) + str(client._endpoint) + repr(record)


@pytest.mark.parametrize("filler", [0, 270, 280, 286, 290])
def test_a_key_that_the_server_repeats_is_not_kept(connect: Any, serve: Any, say: Any, filler: int) -> None:
    """Also where the message is cut within it."""
    said = ("." * filler + "bad key Bearer KEYCANARY777").encode()
    head = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % len(said)
    server = serve([say.READ, head + said])
    record = stream(connect(server.url, headers={"Authorization": "Bearer KEYCANARY777"}))
    assert record.outcome == "http_error"
    assert record.error.startswith("HTTP 401: ")
    assert "KEYC" not in record.error


def test_a_key_that_comes_back_within_a_stream_is_not_kept(connect: Any, serve: Any, say: Any) -> None:
    body = say.answer(3).replace(b"chatcmpl-1", b"KEYCANARY777")
    server = serve([say.READ, say.HEAD + say.chunk(body) + say.END])
    record = stream(connect(server.url, headers={"Authorization": "Bearer KEYCANARY777"}))
    assert record.outcome == "ok"
    assert record.response_id == "(hidden)"
