"""Sessions as an engine sees them: lengths instead of text, made once for thousands of virtual experiments."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.drive.timetable import Habits, habits_from
from loadtest.settings import Experiment
from loadtest.simulate.text import category_of, key_of, rendered, token_count
from loadtest.workload.seeds import seed_of
from loadtest.workload.sessions import SessionKey, SessionSource

CACHE_BLOCK = 16  # tokens; a turn finds the whole blocks of the turn before in the prefix cache


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnShape:
    """A turn as an engine sees it: lengths instead of text."""

    category: str
    served_category: str  # what the server takes it for
    key: int
    prompt_tokens: int
    cached_tokens: int
    think_s: float


Shape = tuple[TurnShape, ...]


class ShapePool:
    """Shapes of a source's own sessions, made once: each cell takes a stretch of them, with luck of its own.

    A stretch keeps the order in which the source gives its sessions, and so their mix.
    """

    def __init__(self, source: SessionSource, size: int = 2000, seed: int = 0) -> None:
        """Take `size` sessions of the source."""
        keys = (SessionKey(seed=seed, level=0, block=0, number=number) for number in range(size))
        self._shapes = [_shape(source, key) for key in keys]
        self._cell: tuple[int, float, int] | None = None  # whose stretch begins at `_first`
        self._first = 0

    def habits(self, experiment: Experiment) -> Habits:
        """Return what its sessions are like, for the timetable of an open load."""
        turns = [len(shape) for shape in self._shapes]
        pauses_s = [sum(turn.think_s for turn in shape[1:]) * experiment.load.think_time for shape in self._shapes]
        return habits_from(turns, pauses_s, experiment.load)

    def session(self, key: SessionKey) -> tuple[Shape, int]:
        """Return (shape, salt of the request keys) of a session."""
        cell = (key.seed, key.level, key.block)
        if cell != self._cell:
            self._cell, self._first = cell, seed_of("stretch", *cell)
        shape = self._shapes[(self._first + key.number) % len(self._shapes)]
        return shape, seed_of("shape", *cell, key.number)


def _shape(source: SessionSource, key: SessionKey) -> Shape:
    session = source.session(key)
    messages = [{"role": "system", "content": session.system}] if session.system else []
    turns: list[TurnShape] = []
    before = 0
    for turn in session.turns:
        messages.append({"role": "user", "content": turn.user})
        prompt = rendered(messages)
        tokens = token_count(prompt)
        turns.append(
            TurnShape(
                category=turn.category,
                served_category=category_of(session.turns[0].user),  # as the simulated server guesses it
                key=key_of(prompt),
                prompt_tokens=tokens,
                cached_tokens=before // CACHE_BLOCK * CACHE_BLOCK,
                think_s=turn.think_s,
            )
        )
        before = tokens
        messages.append({"role": "assistant", "content": turn.assistant})
    return tuple(turns)
