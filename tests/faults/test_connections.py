"""One kept connection per client: when it is used again, when not, and what a kill leaves behind."""

from __future__ import annotations

import gc
import math
import os
import time
from typing import Any

import gevent
import pytest

from loadtest.drive import client as client_module
from loadtest.drive.exchange import TAIL_S
from loadtest.record import Request

pytestmark = pytest.mark.usefixtures("stamps")


def stream(client: Any, **given: Any) -> Request:
    record = Request(due_s=0.0)
    client.stream("/v1/chat/completions", b"{}", record, **given)
    return record


def test_a_connection_is_kept(serve: Any, connect: Any, say: Any, stamps: str) -> None:
    server = serve([say.READ, say.good(2), say.READ, say.good(3), say.READ, say.good(4), say.HOLD])
    client = connect(server.url)
    records = [stream(client) for _ in range(3)]
    assert [record.output_tokens for record in records] == [2, 3, 4]
    assert server.connections == 1
    assert [math.isnan(record.connect_s) for record in records] == [False, True, True]
    assert {record.stamp_source for record in records} == {stamps}


def test_the_end_of_the_body_may_follow_done_in_a_read_of_its_own(serve: Any, connect: Any, say: Any) -> None:
    parts = [say.HEAD + say.chunk(say.answer(2)), 0.003, say.END]
    server = serve([say.READ, *parts, say.READ, *parts, say.HOLD])
    client = connect(server.url)
    for _ in range(2):
        record = stream(client)
        assert record.outcome == "ok"
        assert client.over_s - record.end_s >= 0.002  # a user's next request falls due then, and is not late by it
    assert server.connections == 1


def test_what_breaks_the_body_after_done_is_waited_for_like_its_end(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.HEAD + say.chunk(say.answer(2)), 0.004, b"no chunk\r\n", say.HOLD])
    client = connect(server.url)
    record = stream(client)
    assert record.outcome == "ok"
    assert client.over_s - record.end_s >= 0.003


@pytest.mark.parametrize("name", ["connection: close", "trailing bytes", "a second response", "no end of the body"])
def test_a_connection_out_of_step_is_dropped(serve: Any, connect: Any, say: Any, name: str) -> None:
    good = say.good(2)
    first = {
        "connection: close": good.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1),
        "trailing bytes": good + b"garbage",
        "a second response": good + say.good(5),
        "no end of the body": good.removesuffix(say.END),
    }[name]
    server = serve([say.READ, first, say.HOLD], [say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    record = stream(client)
    assert record.output_tokens == 2
    waited_s = client.over_s - record.end_s
    assert waited_s >= TAIL_S * 0.9 if name == "no end of the body" else waited_s == 0
    assert stream(client).output_tokens == 3
    assert server.connections == 2


def test_stray_bytes_after_the_answer_do_not_reach_the_next_one(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.good(2), 0.05, say.good(5), say.HOLD], [say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    first = stream(client)
    gevent.sleep(0.15)
    second = stream(client)
    assert (first.output_tokens, second.output_tokens, second.reconnected) == (2, 3, False)


def test_a_connection_closed_while_idle_is_opened_anew(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.good(2), say.CLOSE], [say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    stream(client)
    gevent.sleep(0.1)
    record = stream(client)
    assert (record.outcome, record.output_tokens, record.reconnected) == ("ok", 3, False)
    assert record.connect_s > 0


def test_a_connection_idle_for_long_is_not_used(
    serve: Any, connect: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client_module.IDLE_LIMIT_S == 4.0
    monkeypatch.setattr(client_module, "IDLE_LIMIT_S", 0.1)
    server = serve([say.READ, say.good(2), say.HOLD], [say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    stream(client)
    gevent.sleep(0.15)
    assert stream(client).output_tokens == 3
    assert server.connections == 2


@pytest.mark.parametrize("end", ["CLOSE", "RESET"])
def test_a_reused_connection_that_ends_at_once_is_tried_again(serve: Any, connect: Any, say: Any, end: str) -> None:
    server = serve([say.READ, say.good(2), say.READ, 0.1, getattr(say, end)], [say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    stream(client)
    record = stream(client)
    assert (record.outcome, record.output_tokens, record.reconnected, record.error) == ("ok", 3, True, "")
    assert record.connect_s > 0
    assert record.headers_s - record.sent_s >= 0.09  # the first attempt counts
    assert len(server.requests) == 3


def test_it_is_tried_again_once(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.good(2), say.READ, say.CLOSE], [say.READ, say.CLOSE], [say.READ, say.good(3)])
    client = connect(server.url)
    stream(client)
    record = stream(client)
    assert (record.outcome, record.reconnected) == ("truncated", True)
    assert server.connections == 2


def test_after_one_byte_it_is_not_tried_again(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.good(2), say.READ, b"H", say.CLOSE], [say.READ, say.good(3)])
    client = connect(server.url)
    stream(client)
    record = stream(client)
    assert (record.outcome, record.reconnected) == ("truncated", False)
    assert server.connections == 1


def test_a_client_goes_on_after_a_failure(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.HEAD + say.chunk(say.tokens(2)), say.RESET], [say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    assert [stream(client).outcome, stream(client).outcome] == ["truncated", "ok"]


def test_an_error_answer_leaves_the_connection_open(serve: Any, connect: Any, say: Any) -> None:
    refusal = b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\n{}"
    server = serve([say.READ, refusal, say.READ, say.good(3), say.HOLD])
    client = connect(server.url)
    assert [stream(client).outcome, stream(client).outcome] == ["http_error", "ok"]
    assert server.connections == 1


@pytest.mark.parametrize("way", ["kill", "timeout"])
def test_a_cancelled_request_closes_its_connection_and_keeps_what_came(
    serve: Any, connect: Any, say: Any, way: str
) -> None:
    server = serve([say.READ, say.HEAD + say.chunk(say.role() + say.tokens(2)), say.HOLD])
    client, record = connect(server.url), Request()
    greenlet = gevent.spawn(client.stream, "/v1/x", b"{}", record)
    gevent.sleep(0.15)
    if way == "kill":
        greenlet.kill()
        assert isinstance(greenlet.value, gevent.GreenletExit)
    else:
        greenlet.kill(gevent.Timeout(1))
        assert isinstance(greenlet.exception, gevent.Timeout)
    assert (record.outcome, record.error) == ("cancelled", "the request was cancelled")
    assert (list(record.chunk_tokens), record.output_tokens, record.tokens_source) == ([1, 1], 2, "usage")
    assert record.end_s > record.chunk_s[-1]
    assert server.client_left.wait(2)


def test_a_kill_while_connecting_is_a_cancelled_request(connect: Any) -> None:
    record = Request()
    # TEST-NET-1 (RFC 5737) is routed nowhere: the connection stays pending, or is refused at once by the machine.
    greenlet = gevent.spawn(connect("http://192.0.2.1:9").stream, "/v1/x", b"{}", record)
    gevent.sleep(0.05)
    pending = not greenlet.ready()
    greenlet.kill()
    assert record.outcome == ("cancelled" if pending else "connect_error")


def test_on_first_is_called_once_with_the_first_chunk(serve: Any, connect: Any, say: Any) -> None:
    calls: list[float] = []
    server = serve([say.READ, say.HEAD + say.chunk(say.role()), 0.1, say.chunk(say.tokens(1)), 0.1,
                    say.chunk(say.token(2, "", "stop") + say.DONE) + say.END])  # fmt: skip
    client = connect(server.url)
    record = stream(client, on_first=lambda: calls.append(client._clock.now_s()))
    assert calls == [pytest.approx(record.chunk_s[0], abs=0.03)]


def test_our_own_mistake_is_raised_and_recorded(serve: Any, connect: Any, say: Any) -> None:
    def fail() -> None:
        raise ZeroDivisionError("own")

    record = Request()
    client = connect(serve([say.READ, say.HEAD + say.chunk(say.tokens(1)), 0.1, say.HOLD]).url)
    with pytest.raises(ZeroDivisionError):
        client.stream("/v1/x", b"{}", record, on_first=fail)
    assert record.outcome == "client_error"
    assert record.error.startswith("loadtest failed: ZeroDivisionError('own')")


def test_a_client_refuses_two_requests_at_once(serve: Any, connect: Any, say: Any) -> None:
    client = connect(serve([say.READ, 0.2, say.good(2), say.HOLD]).url)
    greenlet = gevent.spawn(stream, client)
    gevent.sleep(0.05)
    with pytest.raises(RuntimeError, match="one request at a time"):
        stream(client)
    assert greenlet.get(timeout=3).outcome == "ok"


def test_many_clients_run_at_once_and_leave_nothing_open(serve: Any, connect: Any, say: Any) -> None:
    steps = [say.HEAD + say.chunk(say.role())]
    for n in range(1, 11):
        steps += [0.02, say.chunk(say.token(n, "x", "stop" if n == 10 else None))]
    server = serve([say.READ, *steps, say.chunk(say.DONE) + say.END, say.HOLD])
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208
    clients = [connect(server.url) for _ in range(40)]
    records = [greenlet.get(timeout=10) for greenlet in [gevent.spawn(stream, client) for client in clients]]
    assert {record.outcome for record in records} == {"ok"}
    assert {tuple(record.chunk_tokens) for record in records} == {(1,) * 10}
    for client in clients:
        client.close()
    server.stop()
    gc.collect()
    deadline = time.monotonic() + 2
    while before and len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:  # noqa: PTH208
        time.sleep(0.02)
    assert not before or len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
