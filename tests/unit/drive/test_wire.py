from __future__ import annotations

import pytest

from loadtest.drive.wire import Reply

OK = b"HTTP/1.1 200 OK\r\n"


def feed(*reads: bytes) -> Reply:
    reply = Reply()
    for data in reads:
        assert reply.feed(data) is None
    return reply


def test_a_chunked_response_is_read_byte_by_byte() -> None:
    wire = (
        OK
        + b"Content-Type: text/event-stream\r\nTransfer-Encoding: Chunked\r\n\r\n"
        + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: v\r\n\r\n"
    )
    reply = feed(*[bytes([byte]) for byte in wire])
    assert (reply.status, b"".join(reply.pieces), reply.complete, reply.keep_alive) == (200, b"abcde", True, True)
    assert reply.headers[b"content-type"] == b"text/event-stream"
    assert reply.framed


@pytest.mark.parametrize(
    ("wire", "keep_alive", "complete", "framed"),
    [
        (OK + b"content-length: 2\r\n\r\nab", True, True, True),
        (OK + b"content-length: 2\r\n\r\na", False, False, True),
        (OK + b"content-length: 2\r\nconnection: close\r\n\r\nab", False, True, True),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nab", False, True, True),
        (OK + b"\r\nab", False, False, False),
        (OK + b"content-length: 2\r\n\r\nabc", False, True, True),
        (OK + b"content-length: 2\r\n\r\nab" + OK + b"content-length: 0\r\n\r\n", False, True, True),
        (b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" + OK + b"content-length: 0\r\n\r\n", True, True, True),
    ],
)
def test_where_a_response_ends(wire: bytes, keep_alive: bool, complete: bool, framed: bool) -> None:
    reply = feed(wire)
    assert (reply.status, reply.keep_alive, reply.complete, reply.framed) == (200, keep_alive, complete, framed)


def test_what_came_before_a_fault_is_kept() -> None:
    reply = Reply()
    broken = reply.feed(OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\nxx\r\n")
    assert broken is not None
    assert broken.outcome == "protocol_error"
    assert reply.pieces == [b"abc"]
    assert not reply.complete
