"""The unit in which a run's loads are said. It is one for a whole answer, as a language is, and set in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from loadtest.settings import Load
from loadtest.slo import RATE, SESSIONS, USERS

__all__ = ["RATE", "SESSIONS", "USERS", "is_rate", "said", "spoken", "unit", "unit_of"]

_SPOKEN: ContextVar[str] = ContextVar("the unit of loads", default=USERS)


def unit_of(load: Load) -> str:
    """Return the unit of the levels of [load]: users, requests/s or sessions/s."""
    if load.kind == "closed":
        return USERS
    return SESSIONS if load.per == "sessions" else RATE


@contextmanager
def spoken(unit: str) -> Iterator[None]:
    """Say loads in this unit within the block."""
    token = _SPOKEN.set(unit)
    try:
        yield
    finally:
        _SPOKEN.reset(token)


def unit() -> str:
    """Return the unit in which loads are said here."""
    return _SPOKEN.get()


def is_rate() -> bool:
    """Return whether loads are rates here, of which fractions count."""
    return unit() != USERS


def said(amount: str) -> str:
    """Return an amount of load with its unit: '1 user', '16 users', '1 requests/s'."""
    return "1 user" if amount == "1" and unit() == USERS else f"{amount} {unit()}"
