"""What master and workers say to each other: Locust's own messages (ZeroMQ, msgpack), over its own sockets.

Locust's runners are not used. They deal users by number and not by name, deal them anew in the middle of a test when a
worker is missing, and send statistics that nothing here is judged by. Every message here may be lost or come twice:
it says how things stand, and is said again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import zmq.green as zmq
from locust.exception import RPCError
from locust.rpc import Message, rpc

from loadtest.drive.workers.wanted import cannot_listen
from loadtest.errors import UsageError

_Message: Any = Message  # Locust types it in part
_rpc: Any = rpc

LINGER_MS = 500  # what was said last may still go out

JOIN, PING, REPORT, WANT, LEAVE = "join", "ping", "report", "want", "leave"  # of a worker
WELCOME, REFUSED, PONG, STATE, PART = "welcome", "refused", "pong", "state", "part"  # of the master
STRANGER = "stranger"  # of a master to a worker that did not join it: it is another one, or has begun anew


class Heard(NamedTuple):
    """One message."""

    node: str  # who says it: the worker's own name on the line
    kind: str
    data: dict[str, Any]


def _heard(data: bytes, node: str) -> Heard | None:
    """Return a message; None for bytes that are none, which anybody may send to an open port."""
    try:
        message = _Message.unserialize(data)
    except Exception:  # noqa: BLE001  # msgpack has no common class for what can be wrong with bytes
        return None
    if not isinstance(message.type, str) or not isinstance(message.data, dict):
        return None
    return Heard(node, message.type, message.data)


class Hub:
    """The master's end."""

    def __init__(self, host: str, port: int) -> None:
        """Listen there; port 0 takes one that is free. Raises UsageError when it is taken."""
        try:
            self._server = _rpc.Server(_bracketed(host), port)
        except (RPCError, zmq.ZMQError, OSError) as error:
            raise cannot_listen(host, port, error) from error
        # A worker that comes again after a cut takes the place of its connection that has not been seen to end.
        self._server.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.port: int = self._server.port

    def send(self, node: str, kind: str, data: Mapping[str, Any]) -> None:
        """Say something to a worker; one that is not there does not hear it."""
        message = _Message(kind, dict(data), node).serialize()
        try:
            self._server.socket.send_multipart([node.encode(), message], zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def receive(self) -> Heard | None:
        """Wait for the next message; None for one that makes no sense."""
        parts = self._server.socket.recv_multipart()
        try:
            return _heard(parts[1], parts[0].decode()) if len(parts) == 2 else None
        except UnicodeDecodeError:
            return None

    def close(self) -> None:
        """Hear nothing more."""
        self._server.close(linger=LINGER_MS)


class Line:
    """A worker's end."""

    def __init__(self, host: str, port: int, node: str) -> None:
        """Connect, now or as soon as the master is there, and again after a cut.

        Raises UsageError for a place that is none.
        """
        self._where, self._node = (_bracketed(host), port), node
        try:
            self._client = _rpc.Client(*self._where, node)
        except (zmq.ZMQError, OSError, ValueError) as error:
            raise UsageError(f"There can be no master at {host}:{port} ({error}); give another --master.") from error

    def send(self, kind: str, data: Mapping[str, Any]) -> None:
        """Say something to the master; when it cannot be reached for long, what is said is lost."""
        message = _Message(kind, dict(data), self._node).serialize()
        try:
            self._client.socket.send(message, zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def receive(self, limit_s: float) -> Heard | None:
        """Wait for the master's next message; None when none came in time, or one that makes no sense."""
        if not self._client.socket.poll(1000 * limit_s):
            return None
        return _heard(self._client.socket.recv(), self._node)

    def again(self) -> None:
        """Connect anew: a connection that was cut without a word may not be seen to be gone for minutes."""
        self.close(0)
        self._client = _rpc.Client(*self._where, self._node)

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Hear nothing more; what was said last has so long to go out. Without that nothing of it stays."""
        context = self._client.socket.context
        self._client.close(linger=linger_ms)
        if not linger_ms:
            context.term()  # its threads and open files would stay as long as the process


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
