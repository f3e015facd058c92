"""A server on a real socket that plays a script of bytes, pauses and faults, and the pieces of such scripts."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from listening import Listening, reset_at_close

from loadtest.drive import clock, connection
from loadtest.drive.client import Client, Clock, Endpoint
from loadtest.record import Request
from loadtest.settings import Limits

READ, CLOSE, RESET, HOLD = "read one request", "close", "reset", "hold until the client closes"
Step = bytes | float | str
Script = list[Step]


class ScriptedServer(Listening):
    """Plays the n-th script to the n-th connection, and the last one to all later ones."""

    def __init__(self, scripts: list[Script], tls: ssl.SSLContext | None = None) -> None:
        """Start it."""
        self.requests: list[bytes] = []
        self.client_left = threading.Event()  # a HOLD saw the end of the connection
        self._scripts = scripts
        super().__init__(tls)

    def serve(self, connection: socket.socket, number: int) -> None:
        """Play one script."""
        for step in self._scripts[min(number, len(self._scripts) - 1)]:
            self._step(connection, step)

    def _step(self, connection: socket.socket, step: Step) -> None:
        if isinstance(step, bytes):
            connection.sendall(step)
        elif isinstance(step, float):
            self._stopping.wait(step)
        elif step == READ:
            self._read(connection)
        elif step == RESET:
            reset_at_close(connection)
            connection.close()
        elif step == CLOSE:
            connection.close()
        elif step == HOLD:
            self._hold(connection)

    def _read(self, connection: socket.socket) -> None:
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._some(connection)
        head, _, body = got.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += self._some(connection)
        self.requests.append(head + b"\r\n\r\n" + body)

    def _some(self, connection: socket.socket) -> bytes:
        data = connection.recv(65536)
        if not data:
            raise ConnectionError
        return data

    def _hold(self, connection: socket.socket) -> None:
        connection.settimeout(0.05)
        while not self._stopping.is_set():
            try:
                if not connection.recv(65536):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.client_left.set()


class Say:
    """The pieces of an answer."""

    READ, CLOSE, RESET, HOLD = READ, CLOSE, RESET, HOLD
    HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    PLAIN_HEAD = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"  # the end of the connection ends the body
    )
    END = b"0\r\n\r\n"
    DONE = b"data: [DONE]\n\n"

    @staticmethod
    def chunk(data: bytes) -> bytes:
        """One chunk of a chunked body."""
        return b"%x\r\n%s\r\n" % (len(data), data)

    @staticmethod
    def event(**said: Any) -> bytes:
        return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\n\n"

    @staticmethod
    def role() -> bytes:
        delta = {"role": "assistant", "content": ""}
        return Say.event(id="chatcmpl-1", choices=[{"index": 0, "delta": delta, "finish_reason": None}],
                         usage={"prompt_tokens": 5, "completion_tokens": 0})  # fmt: skip

    @staticmethod
    def token(count: int, text: str = "x", finish: str | None = None) -> bytes:
        """An event with a running count."""
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        usage = {"prompt_tokens": 5, "total_tokens": 5 + count, "completion_tokens": count}
        return Say.event(id="chatcmpl-1", choices=[choice], usage=usage)

    @staticmethod
    def word(text: str = "x") -> bytes:
        """An event without a count."""
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return Say.event(id="chatcmpl-1", choices=[choice])

    @staticmethod
    def tokens(number: int) -> bytes:
        return b"".join(Say.token(count) for count in range(1, number + 1))

    @staticmethod
    def usage(count: Any) -> bytes:
        return Say.event(id="chatcmpl-1", choices=[], usage={"prompt_tokens": 5, "completion_tokens": count})

    @staticmethod
    def answer(number: int = 3) -> bytes:
        """A whole good body of `number` tokens, one a chunk."""
        return Say.role() + Say.tokens(number - 1) + Say.token(number, "", "stop") + Say.usage(number) + Say.DONE

    @staticmethod
    def good(number: int = 3) -> bytes:
        """A whole good response."""
        return Say.HEAD + Say.chunk(Say.answer(number)) + Say.END


@pytest.fixture
def say() -> type[Say]:
    return Say


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    """Start a server with one script per connection: serve([…], […])."""
    servers: list[ScriptedServer] = []

    def start(*scripts: Script, tls: ssl.SSLContext | None = None) -> ScriptedServer:
        servers.append(ScriptedServer(list(scripts), tls))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Make a client for a URL, with limits by name; closed at the end."""
    clients: list[Client] = []

    def make(url: str, *, headers: dict[str, str] | None = None, verify: bool = True, ca: Path | None = None,
             proxy: str = "", **limits: float) -> Client:  # fmt: skip
        endpoint = Endpoint(url, headers, Limits(**limits), verify=verify, ca=ca, proxy=proxy)
        clients.append(Client(endpoint, Clock(time.perf_counter_ns())))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def ask(serve: Callable[..., ScriptedServer], connect: Callable[..., Client]) -> Callable[..., Request]:
    """Send one request to a server that reads it and then plays the steps; return the record."""

    def once(*steps: Step, **limits: float) -> Request:
        server = serve([READ, *steps])
        record = Request(due_s=0.0)
        connect(server.url, **limits).stream("/v1/chat/completions", b'{"stream":true}', record)
        return record

    return once


@pytest.fixture(params=["kernel", "user"])
def stamps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of time stamps: those of the kernel, and the time of the read, as on a system that gives none."""
    given = str(request.param)
    if given == "kernel" and not clock.KERNEL_STAMPS:
        pytest.skip("the kernel of this system does not stamp what arrives")
    for module in (clock, connection):
        monkeypatch.setattr(module, "KERNEL_STAMPS", given == "kernel")
    return given
