"""What a user asks: a session of turns, drawn by a key that both arms share."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from loadtest.workload.seeds import rng


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """Names a session. Equal keys give equal sessions, in either arm and on every machine."""

    seed: int
    level: float
    block: int
    number: int  # counts the sessions of one cell: user + round × users

    def rng(self, purpose: str = "") -> random.Random:
        """Return this session's own generator; different purposes give independent ones."""
        return rng("session", self.seed, f"{self.level:g}", self.block, self.number, purpose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a session, and the scripted answer that stands in the history of the next."""

    category: str
    user: str
    assistant: str  # "" on the last turn, or where the source knows no answer
    # Pause before this turn is due, counted from the end of the turn before; on the first: pause before the dialogue.
    think_s: float
    # The tool that the scripted answer calls, as "name {arguments in JSON}"; the turn after it holds what came back.
    call: str = ""
    from_tool: bool = False  # `user` is what a tool gave back, and `think_s` how long it took
    # Of a turn that was logged: its whole request, in place of `user` and the history before it.
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str = ""  # of a completion, which has no messages
    tools: tuple[Mapping[str, Any], ...] = ()
    max_tokens: int | None = None  # the answer's own limit, which can only lower that of [generation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A dialogue: an optional system prompt and its turns."""

    turns: tuple[Turn, ...]
    system: str = ""


def requests_of(session: Session) -> Iterator[tuple[Turn, list[dict[str, Any]]]]:
    """Yield each turn with the messages of its request: the scripted history before it, tool calls included."""
    messages: list[Any] = [{"role": "system", "content": session.system}] if session.system else []
    for number, turn in enumerate(session.turns):
        if turn.messages:
            yield turn, [dict(message) for message in turn.messages]
            continue
        if turn.from_tool:
            messages.append({"role": "tool", "tool_call_id": f"call_{number - 1}", "content": turn.user})
        else:
            messages.append({"role": "user", "content": turn.user})
        yield turn, list(messages)
        # Content stays a text beside a call: some chat templates cannot take null.
        answer: dict[str, Any] = {"role": "assistant", "content": turn.assistant}
        if turn.call:
            name, _, arguments = turn.call.partition(" ")
            function = {"name": name, "arguments": json.dumps(json.loads(arguments), ensure_ascii=False)}
            answer["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        messages.append(answer)


class SessionSource(Protocol):
    """Where sessions come from."""

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names."""
