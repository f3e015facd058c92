"""What the users of one cell share: where to send, what to ask, when to stop, and who is told."""

from __future__ import annotations

import math
import statistics
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from loadtest.drive.arriving import SESSIONS_APART, Opened
from loadtest.drive.asking import NOBODY, is_sampled
from loadtest.drive.client import Client, Clock, Endpoint
from loadtest.drive.openai import nonce_of
from loadtest.drive.phases import Phase, Phases
from loadtest.drive.plan import Cell
from loadtest.drive.texts import Texts
from loadtest.errors import UsageError
from loadtest.record import TOO_MANY, Outcome, Request
from loadtest.settings import Experiment
from loadtest.workload.sessions import SessionKey, SessionSource

LIVE_SPAN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One arm as the measured path sees it."""

    name: str
    endpoint: Endpoint
    model: str
    count: str = "continuous"  # how tokens per chunk are asked for: continuous · ids · timings · none
    asked_ratio: float = 1.0  # share of the requests that ask
    salted: bool = True  # whether the server takes a cache_salt


@dataclass(slots=True)
class Live:
    """Figures of the last seconds, for the screen alone."""

    ended: deque[tuple[float, int, float]] = field(default_factory=lambda: deque(maxlen=4096))  # end, tokens, TTFT
    errors: int = 0

    def add(self, request: Request) -> None:
        """Take in a finished request."""
        if request.outcome != Outcome.OK:
            self.errors += 1
        elif request.chunk_s:
            self.ended.append((request.end_s, request.output_tokens, request.chunk_s[0] - request.due_s))

    def figures(self, now_s: float) -> tuple[float | None, float | None]:
        """Return (output tokens/s, median TTFT in seconds) of the requests that ended lately."""
        recent = [row for row in self.ended if row[0] > now_s - LIVE_SPAN_S]
        if not recent:
            return None, None
        return sum(row[1] for row in recent) / LIVE_SPAN_S, statistics.median(row[2] for row in recent)


class CellContext:
    """One cell in progress, shared by its users."""

    def __init__(
        self, *, experiment: Experiment, target: Target, cell: Cell, clock: Clock, phases: Phases, stagger_s: float,
        salt: str, source: SessionSource | None, keep: Callable[[Request], None], opened: Opened | None = None,
        texts: Texts | None = None,
    ) -> None:  # fmt: skip
        """Make the context; `source` replaces the scenario's own sessions, `keep` is given every finished request.

        `opened` is there in an open load, whose users are sessions that arrive; `texts` where text is kept.
        """
        self.experiment, self.target, self.cell, self.clock, self.phases = experiment, target, cell, clock, phases
        self.source, self._keep, self.texts = source, keep, texts
        self.salt = salt if target.salted and experiment.servers.cache == "salt" else None
        self.nonce = nonce_of(salt) if experiment.servers.cache == "nonce" else ""  # before every prompt
        self.stagger_s = stagger_s
        self.opened = opened
        self.users = cell.users if opened is None else SESSIONS_APART
        self.live = Live()
        self.failures_in_a_row = 0
        self.last_error = ""
        self.lateness_s = array("d")  # of requests due in the window, without the opening of connections
        self._users = 0

    @property
    def accepting(self) -> bool:
        """Whether users may still send."""
        return self.phases.phase not in (Phase.DRAIN, Phase.OVER)

    def new_user(self) -> tuple[int, float]:
        """Return the next user's number and the time at which it starts."""
        if self.opened is not None:
            return self.opened.next
        user = self._users
        self._users += 1
        return user, self.starts_s(user)

    def starts_s(self, user: int) -> float:
        """Return when a user of a closed load starts, counted over all of them: not before now."""
        planned_s = self.phases.full_load_s - self.stagger_s * (1 - user / self.users)
        return max(planned_s, self.clock.now_s())

    def new_client(self) -> Client:
        """Return a connection of a user's own."""
        return Client(self.target.endpoint, self.clock)

    def session_key(self, user: int, turn_round: int) -> SessionKey:
        """Return the key of a user's next dialogue; the same in both arms."""
        return SessionKey(seed=self.experiment.plan.seed, level=self.cell.level, block=self.cell.block,
                          number=user + turn_round * self.users)  # fmt: skip

    def asks(self, key: SessionKey, turn: int) -> str:
        """Return how a turn of a session asks for the tokens of its chunks: as the server allows, or not at all."""
        ratio = self.target.asked_ratio
        return self.target.count if ratio >= 1.0 or is_sampled(key, turn, ratio) else NOBODY

    def begin(self) -> None:
        """Set the times of an open load, now that its cell begins."""
        if self.opened is not None:
            self.phases = self.opened.phases(self.clock.now_s())

    def due(self, request: Request) -> None:
        """A request fell due."""
        self.phases.due(request.due_s)

    def turns_away(self, request: Request) -> bool:
        """Return whether a request finds too many others in flight, and note on it that it was not sent."""
        if self.opened is None or self.phases.in_flight <= self.opened.most:
            return False
        self.opened.turned_away += 1
        request.error = f"not sent: {self.opened.most} {TOO_MANY}"
        return True

    def in_window(self, request: Request) -> bool:
        """Return whether a request that has ended was due in the window."""
        opened, closed = self.phases.window_open_s, self.phases.window_close_s
        return opened is not None and request.due_s >= opened and (closed is None or request.due_s < closed)

    def ended(self, request: Request) -> None:
        """A request ended: it is counted and kept."""
        if self.in_window(request) and math.isfinite(request.sent_s):  # one that found no connection was never sent
            opening_s = request.connect_s if request.connect_s > 0 else 0.0  # the way's time, not this client's
            self.lateness_s.append(max(0.0, request.sent_s - request.due_s - opening_s))
        self.phases.ended(request.due_s, request.end_s)
        if request.outcome == Outcome.OK:
            self.failures_in_a_row = 0
        else:
            self.failures_in_a_row += 1
            self.last_error = f"{request.outcome}: {request.error}"
        self.live.add(request)
        self._keep(request)

    @property
    def hopeless(self) -> bool:
        """Whether the cell is to be given up: many failures and no success between them."""
        most = self.opened.hopeless_after if self.opened is not None else max(10, 2 * self.users)
        return self.failures_in_a_row >= most


def check_source(source: object) -> SessionSource:
    """Return a scenario's `source`, or say that it has none."""
    if not callable(getattr(source, "session", None)):
        raise UsageError(
            "The scenario asks for `self.next_session()` but its class names no `source`;"
            " write, for example, `source = dialogues('chat')`, or give --prompts FILE."
        )
    return source  # type: ignore[return-value]  # it has the one method that the protocol asks for
