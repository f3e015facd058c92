"""A whole server of a test's own, whose answer to each request its prompt chooses: `[case] …`.

It runs in threads of the test's process and speaks HTTP/1.1 as far as `loadtest run` needs it. A script is a list of
bytes to send, seconds to wait, and one of CLOSE, RESET and HOLD; a connection whose script ends stays open.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from listening import Listening, reset_at_close

CLOSE, RESET, HOLD = "close", "reset", "hold until the client closes"
Script = list[bytes | float | str]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
MODEL = "faulty-1"
_CASE = re.compile(rb"\[([\w-]+)\]")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the server read it."""

    target: str
    head: bytes
    body: bytes

    @property
    def case(self) -> str:
        """What the prompt asks for; empty for a prompt that names nothing."""
        found = _CASE.search(self.body)
        return found[1].decode() if found else ""

    @property
    def counts(self) -> bool:
        """Whether it asks for the tokens of each chunk."""
        return b"continuous_usage_stats" in self.body

    @property
    def prompt(self) -> bytes:
        """The messages as they were sent."""
        return json.dumps(json.loads(self.body)["messages"], sort_keys=True).encode()


def chunked(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(**said: Any) -> bytes:
    """Return one event, as a chunk of the body."""
    return chunked(b"data: " + json.dumps(said).encode() + b"\n\n")


def token(count: int, *, counted: bool = True, finish: str | None = None, **more: Any) -> bytes:
    """Return the event of the `count`-th token."""
    choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": finish}
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": count}} if counted else {}
    return event(**{"id": "chatcmpl-1", "choices": [choice]} | usage | more)


def usage(count: int) -> bytes:
    """Return the closing event with the number of tokens."""
    return event(id="chatcmpl-1", choices=[], usage={"prompt_tokens": 5, "completion_tokens": count})


def answer(tokens: int = 4, gap_s: float = 0.005, *, counted: bool = True) -> Script:
    """Return a whole good answer, a token a chunk."""
    script: Script = [HEAD]
    for count in range(1, tokens + 1):
        script += [gap_s, token(count, counted=counted, finish="stop" if count == tokens else None)]
    return [*script, usage(tokens) + chunked(DONE) + END]


def response(status: str, body: bytes, kind: str = "application/json", *lines: str) -> bytes:
    """Return a whole response that is no stream."""
    head = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


MODELS = response("200 OK", json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())


class Faulty(Listening):
    """The server; `script(asked)` answers a chat request, `models` whatever asks for the list of models."""

    def __init__(self, script: Callable[[Asked], Script] = lambda asked: answer(counted=asked.counts),
                 models: bytes = MODELS, other: bytes = response("404 Not Found", b"{}"),
                 tls: ssl.SSLContext | None = None) -> None:  # fmt: skip
        """Start it."""
        self.script, self.models, self.other = script, models, other
        self.asked: list[Asked] = []
        super().__init__(tls)

    def serve(self, connection: socket.socket, number: int) -> None:
        """Answer requests until the client leaves or a script ends the connection."""
        connection.settimeout(0.2)
        while (asked := self._read(connection)) is not None:
            if not self._play(connection, self._answer(asked)):
                break

    def _answer(self, asked: Asked) -> Script:
        if asked.target.startswith("POST /v1/chat"):
            self.asked.append(asked)
            return self.script(asked)
        return [self.models if asked.target.startswith("GET /v1/models") else self.other]

    def _read(self, connection: socket.socket) -> Asked | None:
        got = b""
        while b"\r\n\r\n" not in got:
            if not (data := self._some(connection)):
                return None
            got += data
        head, _, body = got.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head.lower())
        while len(body) < (int(found[1]) if found else 0):
            if not (data := self._some(connection)):
                return None
            body += data
        return Asked(head.split(b" HTTP")[0].decode(), head, body)

    def _some(self, connection: socket.socket) -> bytes:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                return connection.recv(65536)
        return b""

    def _play(self, connection: socket.socket, script: Script) -> bool:
        """Play a script; False when the connection is not to be used again."""
        for step in script:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif isinstance(step, float):
                if self._stopping.wait(step):
                    return False
            elif step == HOLD:
                while self._some(connection):
                    pass
                return False
            else:
                if step == RESET:
                    reset_at_close(connection)
                return False
        return True


def by_case(cases: Mapping[str, Script]) -> Callable[[Asked], Script]:
    """Return what answers a prompt by the script that it names, and any other one well."""
    return lambda asked: cases.get(asked.case) or answer(counted=asked.counts)
