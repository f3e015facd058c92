"""A tunnel through an HTTP proxy (RFC 9110, section 9.3.6): asked for once per connection, before TLS begins."""

from __future__ import annotations

import time
from typing import Any

from gevent.socket import wait_read, wait_write

from loadtest.drive.endpoint import Endpoint
from loadtest.drive.failure import Failure, printable, quoted
from loadtest.record import Outcome

HEAD_LIMIT = 16 * 1024  # bytes of the proxy's answer


def open_tunnel(connection: Any, endpoint: Endpoint, deadline_s: float) -> None:
    """Have the proxy at the other end of a non-blocking socket connect to the endpoint. Raises Failure.

    The server behind it says nothing before TLS begins, so that no byte beyond the proxy's answer is taken.
    """
    target = f"{endpoint.host if ':' not in endpoint.host else f'[{endpoint.host}]'}:{endpoint.port}"
    asking = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode("ascii")
    try:
        _send(connection, asking, deadline_s)
        head = _head(connection, deadline_s)
    except TimeoutError:
        limit_s = endpoint.limits.connect_s
        raise _wrong(endpoint, f"opened no tunnel to {target} within its share of {limit_s:g} s") from None
    except ConnectionResetError:
        head = None
    except OSError as error:
        raise _wrong(endpoint, f"broke off: {printable(error.strerror or str(error))}") from None
    if head is None:
        raise _wrong(endpoint, f"opened no tunnel to {target}: it closed the connection")
    version, _, rest = head.partition(b" ")
    if not version.startswith(b"HTTP/1.") or rest[:1] != b"2":
        raise _wrong(
            endpoint, f"opened no tunnel to {target}: it answered {quoted(head.partition(bytes((13, 10)))[0])}"
        )


def _wrong(endpoint: Endpoint, said: str) -> Failure:
    return Failure(Outcome.CONNECT_ERROR, f"{endpoint.hop} {said}")


def _send(connection: Any, data: bytes, deadline_s: float) -> None:
    while data:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            wait_write(connection.fileno(), max(deadline_s - time.monotonic(), 0.001), TimeoutError())


def _head(connection: Any, deadline_s: float) -> bytes | None:
    """Return the head of the proxy's answer, byte by byte so that nothing behind it is taken; None at the end."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n") and len(head) < HEAD_LIMIT:
        try:
            piece = connection.recv(1)
        except BlockingIOError:
            wait_read(connection.fileno(), max(deadline_s - time.monotonic(), 0.001), TimeoutError())
            continue
        if not piece:
            return None
        head += piece
    return bytes(head)
