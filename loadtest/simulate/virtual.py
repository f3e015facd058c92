"""The simulated server in virtual time, as a closed-loop or open-loop driver wants it: submit, then advance."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heappop, heappush

from loadtest.simulate.engine import Engine
from loadtest.simulate.jobs import Ask, Counters, Job
from loadtest.simulate.models import ArmModel


class VirtualServer:
    """One server without a socket: it answers at once in real time, and says when it would have answered.

    The driver's rule: submit nothing earlier than the time it has advanced to.
    """

    def __init__(self, arm: ArmModel, seed: int, born_s: float = 0.0) -> None:
        """Start an idle server at `born_s`."""
        self._engine = Engine(arm, seed, born_s)
        self._refused: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()
        self.now_s = born_s

    @property
    def idle(self) -> bool:
        """True when nothing is under way."""
        return self._engine.idle and not self._refused

    def submit(self, at_s: float, ask: Ask) -> Job:
        """Send a request that arrives at `at_s`, now or later; a refused one ends as `error` without tokens."""
        if at_s < self.now_s:
            raise ValueError(f"cannot submit at {at_s} s: the server is at {self.now_s} s")
        if self._engine.refuses(ask.key):
            job = Job(ask, at_s, at_s + self._engine.arm.frontend_s)
            job.finish, job.finished_s = "error", job.ready_s
            heappush(self._refused, (job.finished_s, next(self._numbers), job))
            return job
        return self._engine.submit(at_s, ask)

    def cancel(self, job: Job) -> None:
        """Give a request up."""
        self._engine.cancel(job)

    def advance(self, until_s: float) -> list[Job]:
        """Go on to the next moment, at most `until_s`, at which requests end; return these, or [] at `until_s`.

        All of them end at the same time, which is `now_s` afterwards.
        """
        limit = min(until_s, self._refused[0][0]) if self._refused else until_s
        done = self._engine.advance(limit)
        if done:
            self.now_s = done[0].finished_s
        elif self._refused and self._refused[0][0] <= until_s:
            done = [heappop(self._refused)[2]]
            self.now_s = done[0].finished_s
        else:
            self.now_s = max(self.now_s, until_s)
        return done

    def counters(self) -> Counters:
        """Return the counters as a scrape at `now_s` would find them: at the end of the last whole step."""
        return self._engine.counters()


def closed_loop(
    server: VirtualServer, users: int, until_s: float, next_ask: Callable[[int, int], Ask], stagger_s: float = 0.0
) -> list[Job]:
    """Let `users` send one request after the other without think time until `until_s`; return what ended, in order.

    `next_ask(user, round)` says what a user asks; the users start evenly over `stagger_s`.
    """
    rounds = [0] * users
    owner: dict[Job, int] = {}
    for user in range(users):
        owner[server.submit(server.now_s + stagger_s * user / users, next_ask(user, 0))] = user
    ended: list[Job] = []
    while done := server.advance(until_s):
        for job in done:
            user = owner.pop(job)
            rounds[user] += 1
            owner[server.submit(job.finished_s, next_ask(user, rounds[user]))] = user
        ended += done
    return ended


def static_batch_s(arm: ArmModel, seed: int, ask: Ask, copies: int) -> float:
    """Return how long a batch of identical copies takes alone, prefill included, as in arXiv 2601.11580."""
    engine = Engine(arm, seed)
    jobs = [engine.submit(-arm.frontend_s, ask) for _ in range(copies)]
    while not engine.idle:
        engine.advance()
    return max(job.finished_s for job in jobs)
