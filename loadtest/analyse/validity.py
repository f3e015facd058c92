"""Is a cell to be trusted? One function per rule; each returns a mark or None.

A mark that invalidates takes the cell out of every estimate; the others are shown beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from loadtest.analyse.counters import Deltas
from loadtest.analyse.summary import Measured
from loadtest.record import CellRecord

LOAD_REACHED = 0.90  # in flight ÷ users, without think time
LATENESS_S, LATENESS_RATIO = 0.005, 0.10  # p99 of sent − due, absolute and against the median TTFT
CPU_RATIO, CPU_RATIO_INVALID = 0.90, 0.98  # of one core: the driver runs on one
HUB_LAG_S = 0.010
FAR_BEYOND = 3.0  # lateness this many times beyond its limit invalidates
HUB_LAG_INVALID_S = 0.100
ERROR_RATIO = 0.01
FEW_REQUESTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A sentence on the quality of a cell or a run."""

    sentence: str
    invalid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What the rules for a cell look at."""

    measured: Measured
    users: int
    thinks: bool  # whether users pause between requests
    window: Deltas | None = None  # counters over the window
    whole: Deltas | None = None  # counters from idle to idle

    @property
    def record(self) -> CellRecord:
        """The cell as it was run."""
        return self.measured.record


def not_complete(facts: CellFacts) -> Mark | None:
    """Only a complete cell with a window and a request in it counts."""
    record = facts.record
    if record.state != "complete":
        why = f": {record.reason}" if record.reason else ""
        return Mark(sentence=f"The cell was {record.state}{why}.", invalid=True)
    if record.window_open_s is None or record.window_close_s is None:
        return Mark(sentence="The window never opened and closed.", invalid=True)
    if not facts.measured.requests:
        return Mark(sentence="No request fell due in the window.", invalid=True)
    return None


def damaged(facts: CellFacts) -> Mark | None:
    """Records that cannot be true are not counted with."""
    return Mark(sentence=" ".join(facts.measured.damage), invalid=True) if facts.measured.damage else None


def load_not_reached(facts: CellFacts) -> Mark | None:
    """Without think time, users and requests in flight must agree; users who wait after failures excuse it."""
    reached = facts.record.in_flight_mean
    if facts.thinks or reached is None or reached >= LOAD_REACHED * facts.users:
        return None
    failing = facts.measured.failed > ERROR_RATIO * facts.measured.requests
    why = ", as users waited after failures" if failing else ""
    sentence = f"The load was not reached: {reached:.1f} in flight of {facts.users} users{why}."
    return Mark(sentence=sentence, invalid=not failing)


def sends_late(facts: CellFacts) -> Mark | None:
    """The client must send when a request is due."""
    late, ttft = facts.record.lateness_p99_s, facts.measured.figures["ttft_p50"]
    limit = max(LATENESS_S, LATENESS_RATIO * ttft if math.isfinite(ttft) else 0.0)
    if late is None or late <= limit:
        return None
    return Mark(
        sentence=f"The client sent late: p99 {1000 * late:.1f} ms after due, limit {1000 * limit:.1f} ms.",
        invalid=late > FAR_BEYOND * limit,
    )


def client_busy(facts: CellFacts) -> Mark | None:
    """The client must have processor time to spare."""
    cpu = facts.record.client_cpu_ratio
    if cpu is None or cpu <= CPU_RATIO:
        return None
    return Mark(sentence=f"The client was busy {100 * cpu:.0f} % of the window.", invalid=cpu > CPU_RATIO_INVALID)


def hub_lagging(facts: CellFacts) -> Mark | None:
    """The client's timers must fire on time."""
    lag = facts.record.hub_lag_p99_s
    if lag is None or lag <= HUB_LAG_S:
        return None
    return Mark(sentence=f"The client's timers fired late: p99 {1000 * lag:.1f} ms.", invalid=lag > HUB_LAG_INVALID_S)


def errors(facts: CellFacts) -> Mark | None:
    """Failures above one in a hundred are shown."""
    failed, requests = facts.measured.failed, facts.measured.requests
    if failed <= ERROR_RATIO * requests:
        return None
    return Mark(sentence=f"{failed} of {requests} requests failed.")


def preemptions(facts: CellFacts) -> Mark | None:
    """Preemption means that the server ran out of KV memory."""
    count = facts.window.get("preemptions") if facts.window else math.nan
    return Mark(sentence=f"The server preempted {count:.0f} requests in the window.") if count > 0 else None


def few_requests(facts: CellFacts) -> Mark | None:
    """A window with few requests gives a noisy figure."""
    if facts.measured.requests >= FEW_REQUESTS:
        return None
    return Mark(sentence=f"Only {facts.measured.requests} requests fell due in the window.")


def counts_differ(facts: CellFacts) -> Mark | None:
    """From idle to idle, client and server must count the same; only exact when nothing failed."""
    if facts.whole is None or not facts.measured.exact:
        return None
    pairs = (
        ("tokens", facts.measured.tokens_client, facts.whole.get("generation_tokens")),
        ("requests", facts.measured.requests_client, facts.whole.get("requests")),
    )
    parts = [
        f"{server:.0f} {what} where the client counted {client}"
        for what, client, server in pairs
        if not math.isnan(server) and round(server) != client
    ]
    if not parts:
        return None
    return Mark(sentence=f"The server counted {' and '.join(parts)}: other traffic, or lost answers.")


CELL_RULES: tuple[Callable[[CellFacts], Mark | None], ...] = (
    damaged, not_complete, load_not_reached, sends_late, client_busy, hub_lagging, errors, preemptions, few_requests,
    counts_differ,
)  # fmt: skip


def cell_marks(facts: CellFacts) -> tuple[Mark, ...]:
    """Return the marks of a cell, those that invalidate first."""
    found = [mark for rule in CELL_RULES if (mark := rule(facts)) is not None]
    return tuple(sorted(found, key=lambda mark: not mark.invalid))
