"""What a user asks: a session of turns, drawn by a key that both arms share."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A dialogue: an optional system prompt and its turns."""

    turns: tuple[Turn, ...]
    system: str = ""


class SessionSource(Protocol):
    """Where sessions come from."""

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names."""
