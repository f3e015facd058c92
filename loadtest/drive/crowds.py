"""Who sends next in a virtual cell: users of a closed load, or sessions that arrive in an open one."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from loadtest.drive.phases import PAUSE_AFTER_FAILURE_S
from loadtest.drive.shapes import Shape, TurnShape

Draw = Callable[[int], tuple[Shape, int]]  # number of a session → its turns, and the salt of its request keys


@dataclass(frozen=True, slots=True)
class Sending:
    """One request that falls due."""

    due_s: float
    user: int
    number: int  # of the session
    position: int  # of the turn
    turn: TurnShape
    salt: int


class Crowd(Protocol):
    """What sends requests in a cell."""

    @property
    def next_s(self) -> float:
        """When the next request falls due; inf when none does before another has ended."""

    def take(self) -> Sending:
        """Return the request that falls due next."""

    def ended(self, sent: Sending, end_s: float, *, failed: bool) -> None:
        """A request ended."""


class Users:
    """A closed load: each user goes on when its last request has ended and its pause is over."""

    def __init__(self, count: int, think_time: float, begin_s: float, stagger_s: float, draw: Draw) -> None:
        """Let `count` users start evenly over `stagger_s`; `think_time` is the factor on their pauses."""
        self._count, self._think_time, self._draw = count, think_time, draw
        self._plans: list[list[TurnShape]] = [[] for _ in range(count)]  # turns to come, the next one last
        self._salts = [0] * count
        self._rounds = [0] * count
        self._turns = [0] * count
        for user in range(count):
            self._begin(user)
        self._ready = [(begin_s + stagger_s * user / count + self._think_s(user), user) for user in range(count)]
        heapq.heapify(self._ready)

    def _begin(self, user: int) -> None:
        shape, self._salts[user] = self._draw(self._number(user))
        self._plans[user] = list(reversed(shape))
        self._turns[user] = 0

    def _number(self, user: int) -> int:
        return user + self._rounds[user] * self._count

    def _think_s(self, user: int) -> float:
        return self._plans[user][-1].think_s * self._think_time

    @property
    def next_s(self) -> float:
        """When the next request falls due."""
        return self._ready[0][0] if self._ready else math.inf

    def take(self) -> Sending:
        """Return the request that falls due next."""
        due_s, user = heapq.heappop(self._ready)
        position, turn = self._turns[user], self._plans[user].pop()
        self._turns[user] += 1
        return Sending(due_s, user, self._number(user), position, turn, self._salts[user])

    def ended(self, sent: Sending, end_s: float, *, failed: bool) -> None:
        """Let the user pause, and go on with its dialogue or a new one."""
        user = sent.user
        if not self._plans[user]:
            self._rounds[user] += 1
            self._begin(user)
        pause_s = self._think_s(user)
        if failed:
            pause_s = max(pause_s, PAUSE_AFTER_FAILURE_S)
        heapq.heappush(self._ready, (end_s + pause_s, user))


class Sessions:
    """An open load: sessions arrive at set times; a later turn falls due its pause after the end of the one before."""

    def __init__(self, arrivals: Iterator[float], think_time: float, begin_s: float, draw: Draw) -> None:
        """Take the times of arrival, in seconds from `begin_s`."""
        self._arrivals, self._think_time, self._begin_s, self._draw = arrivals, think_time, begin_s, draw
        self._number = 0
        self._arrives_s = begin_s + next(arrivals)
        self._under_way: dict[int, tuple[Shape, int]] = {}
        self._later: list[tuple[float, int, int]] = []  # due, number, position

    @property
    def next_s(self) -> float:
        """When the next request falls due."""
        return min(self._arrives_s, self._later[0][0]) if self._later else self._arrives_s

    def take(self) -> Sending:
        """Return the request that falls due next."""
        if self._later and self._later[0][0] < self._arrives_s:
            due_s, number, position = heapq.heappop(self._later)
        else:
            due_s, number, position = self._arrives_s, self._number, 0
            self._under_way[number] = self._draw(number)
            self._number += 1
            self._arrives_s = self._begin_s + next(self._arrivals)
        shape, salt = self._under_way[number]
        return Sending(due_s, number, number, position, shape[position], salt)

    def ended(self, sent: Sending, end_s: float, *, failed: bool) -> None:  # arrivals wait for nobody
        """Let the session's next turn follow, if there is one."""
        shape, _ = self._under_way[sent.number]
        following = sent.position + 1
        if following == len(shape):
            del self._under_way[sent.number]
            return
        due_s = end_s + shape[following].think_s * self._think_time
        heapq.heappush(self._later, (due_s, sent.number, following))
