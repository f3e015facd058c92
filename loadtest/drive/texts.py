"""The text of the slowest requests of a cell, where it is kept: heard while they run, chosen when they have ended.

What is heard are an answer's events as they came, so that the path on which chunks are timed parses nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson

from loadtest.record import KeptText, Outcome, Request

KEPT = 3  # requests of a cell: as many as a page shows of an arm at a level, should they all be of one cell
HEARD_BYTES = 512 * 1024  # of one answer's events: about two thousand tokens with their usage
TEXT_CHARACTERS = 4000  # of a prompt or an answer that is kept: its beginning and its end
PARTS = ("reasoning", "reasoning_content", "content", "refusal")


class Heard:
    """The events of one answer as they came, up to a limit."""

    __slots__ = ("events", "left")

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.left = HEARD_BYTES

    def take(self, data: bytes) -> None:
        """Keep an event's data."""
        if self.left > 0:
            self.left -= len(data)
            self.events.append(data)


class Texts:
    """The slowest of a cell's requests, failed ones first, with what was asked and what came."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float, Request, bytes, Heard]] = []

    def consider(self, request: Request, body: bytes, heard: Heard) -> None:
        """Take in a finished request that was due in the window."""
        self._found.append((-_late_s(request), request.due_s, request, body, heard))
        self._found.sort(key=lambda one: one[:2])
        del self._found[KEPT:]

    def rows(self, without_secrets: Callable[[str], str]) -> list[KeptText]:
        """Return what is kept of them, the slowest first; `without_secrets` takes out keys that a server repeats."""
        return [text for _, _, text in self.ranked(without_secrets)]

    def ranked(self, without_secrets: Callable[[str], str]) -> list[tuple[float, float, KeptText]]:
        """Return them with the two numbers by which they are ordered."""
        return [
            (late_s, due_s, _kept(request, body, heard, without_secrets))
            for late_s, due_s, request, body, heard in self._found
        ]


def _late_s(request: Request) -> float:
    """Return by what the judgement orders slow requests: end-to-end seconds, failed ones infinite."""
    if request.outcome != Outcome.OK:
        return math.inf
    return request.chunk_s[-1] - request.due_s if request.chunk_s else -math.inf


def _kept(request: Request, body: bytes, heard: Heard, without_secrets: Callable[[str], str]) -> KeptText:
    prompt, answer = without_secrets(prompt_of(body)), without_secrets(answer_of(heard.events))
    return KeptText(cell=request.cell, arm=request.arm, session=request.session, turn=request.turn,
                    prompt=shortened(prompt), answer=shortened(answer), answer_cut=heard.left <= 0)  # fmt: skip


def shortened(text: str) -> str:
    """Return the beginning and the end of a text that is too long, and between them how much was left out."""
    left_out = len(text) - TEXT_CHARACTERS
    if left_out <= 0:
        return text
    half = TEXT_CHARACTERS // 2
    return f"{text[:half]} … ({left_out:,} characters left out) … {text[-half:]}"


def prompt_of(body: bytes) -> str:
    """Return what a request's body asks, each message after the role of its speaker."""
    asked = orjson.loads(body)
    if "prompt" in asked:
        return str(asked["prompt"])
    return "\n\n".join(f"{message.get('role')}: {_said(message)}" for message in asked.get("messages", ()))


def _said(message: dict[str, Any]) -> str:
    """Return the text of a message; what is no text, such as calls of tools, as JSON."""
    parts = [message.get("content"), message.get("tool_calls")]
    return "\n".join(part if isinstance(part, str) else orjson.dumps(part).decode() for part in parts if part)


def answer_of(events: list[bytes]) -> str:
    """Return the text that events brought: reasoning, answer and calls of tools; what cannot be read is passed over."""
    found: dict[str, list[str]] = {}
    for data in events:
        for part, text in _parts(data):
            found.setdefault(part, []).append(text)
    return "\n\n".join("".join(texts) for texts in found.values())


def _parts(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield what an event adds, by the part of the answer to which it belongs."""
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    choices = said.get("choices") if isinstance(said, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = choice["delta"] if isinstance(choice.get("delta"), dict) else {}
    for part in PARTS:
        if isinstance(delta.get(part), str):
            yield part, delta[part]
    if isinstance(choice.get("text"), str):
        yield "content", choice["text"]
    if delta.get("tool_calls"):
        with suppress(orjson.JSONEncodeError):  # it reads deeper nesting than it writes
            yield "tool_calls", orjson.dumps(delta["tool_calls"]).decode()
