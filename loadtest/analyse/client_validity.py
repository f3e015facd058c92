"""Did the client make the load that was asked for, and was it free to measure? Rules for a cell."""

from __future__ import annotations

import math

from loadtest.analyse.rules import CellFacts, Mark, Unknown
from loadtest.record import Outcome

LOAD_REACHED = 0.90  # in flight ÷ users, without think time
LATENESS_S, LATENESS_RATIO = 0.005, 0.10  # p99 of sent − due, absolute and against the median TTFT
CPU_RATIO, CPU_RATIO_INVALID = 0.90, 0.98  # of one core: the driver runs on one
HUB_LAG_S = 0.010
FAR_BEYOND = 3.0  # lateness this many times beyond its limit invalidates
HUB_LAG_INVALID_S = 0.100
ERROR_RATIO = 0.01
STOOD_STILL_S = 1.0  # the client did nothing for this long: no load, whatever the percentiles say
COALESCED_RATIO = 0.05  # of the chunks: a twentieth of the gaps between them is not seen


def load_not_reached(facts: CellFacts) -> Mark | Unknown | None:
    """Without think time, users and requests in flight must agree; users who wait after failures excuse it.

    Failures of the whole cell count: a user that failed just before the window waits in it.
    """
    reached = facts.record.in_flight_mean
    if facts.thinks or not facts.closed:
        return None
    if reached is None:
        return Unknown(missing="requests in flight")
    if reached >= LOAD_REACHED * facts.users:
        return None
    failing = sum(facts.measured.failures.values()) > ERROR_RATIO * facts.measured.sent
    why = ", as users waited after failures" if failing else ""
    return Mark(
        sentence=f"The load was not reached: {reached:.1f} in flight of {facts.users} users"
        f" (limit {100 * LOAD_REACHED:.0f} %){why}; {'mend the failures' if failing else 'see what held users up'}.",
        invalid=not failing,
    )


def sends_late(facts: CellFacts) -> Mark | Unknown | None:
    """The client must send when a request is due."""
    late, ttft = facts.record.lateness_p99_s, facts.measured.figures["ttft_p50"]
    limit = max(LATENESS_S, LATENESS_RATIO * ttft if math.isfinite(ttft) else 0.0)
    if late is None:
        return Unknown(missing="lateness of the sends")
    if late <= limit:
        return None
    return Mark(
        sentence=f"The client sent late: p99 {1000 * late:.1f} ms after due (limit {1000 * limit:.1f} ms);"
        " give it a faster or less busy machine.",
        invalid=late > FAR_BEYOND * limit,
    )


def client_busy(facts: CellFacts) -> Mark | Unknown | None:
    """The client must have processor time to spare."""
    cpu = facts.record.client_cpu_ratio
    if cpu is None:
        return Unknown(missing="the client's processor time")
    if cpu <= CPU_RATIO:
        return None
    return Mark(
        sentence=f"The client was busy {100 * cpu:.0f} % of the window (limit {100 * CPU_RATIO:.0f} %);"
        " lower the load, or give it more --workers.",
        invalid=cpu > CPU_RATIO_INVALID,
    )


def hub_lagging(facts: CellFacts) -> Mark | Unknown | None:
    """The client's timers must fire on time."""
    lag = facts.record.hub_lag_p99_s
    if lag is None:
        return Unknown(missing="lag of the client's timers")
    if lag <= HUB_LAG_S:
        return None
    return Mark(
        sentence=f"The client's timers fired late: p99 {1000 * lag:.1f} ms (limit {1000 * HUB_LAG_S:.0f} ms);"
        " give it a less busy machine.",
        invalid=lag > HUB_LAG_INVALID_S,
    )


def stood_still(facts: CellFacts) -> Mark | Unknown | None:
    """A client that is stopped, or sleeps with its machine, sends no load meanwhile."""
    still, slept = facts.record.hub_lag_max_s, facts.record.suspended_s or 0.0
    if still is None:
        return Unknown(missing="the longest lag of the client's timers")
    if max(still, slept) <= STOOD_STILL_S:
        return None
    what = f"slept with its machine for {slept:.1f} s" if slept > still else f"stood still for {still:.1f} s"
    return Mark(sentence=f"The client {what} (limit {STOOD_STILL_S:g} s); measure again.", invalid=True)


def clock_set(facts: CellFacts) -> Mark | Unknown | None:
    """Durations do not depend on the wall clock; stamps from before it was set cannot be carried over."""
    steps = facts.record.clock_steps
    if steps is None:
        return Unknown(missing="steps of the wall clock")
    if not steps:
        return None
    return Mark(
        sentence=f"The wall clock was set within the window ({steps:.0f} seen, limit 0): arrivals just before were"
        " stamped when they were read. Durations are not touched."
    )


def chunks_coalesced(facts: CellFacts) -> Mark | Unknown | None:
    """Chunks that share a read share a stamp: the server's doing where it sent them together, else the client's."""
    share, lag = facts.record.coalesced_ratio, facts.record.lag_p99_s
    if share is None:
        return Unknown(missing="chunks that shared a read")
    if share <= COALESCED_RATIO:
        return None
    gap = facts.measured.figures["chunk_gap"]
    late = lag is not None and lag > gap  # false without a gap: such an answer came in one piece
    why = f"the client read up to {1000 * (lag or 0.0):.1f} ms late; give it a faster or less busy machine"
    sent = "the server, or something before it, sent them together, so that gaps between chunks are those of its sends"
    return Mark(
        sentence=f"{100 * share:.0f} % of the chunks shared a read with an earlier one (limit"
        f" {100 * COALESCED_RATIO:.0f} %): {why if late else sent}.",
        invalid=late,
    )


def client_failed(facts: CellFacts) -> Mark | Unknown | None:
    """What the client could not send is not the server's failure."""
    if not facts.measured.requests:
        return Unknown(missing="requests due in the window")
    own = facts.measured.outcomes.get(Outcome.CLIENT_ERROR, 0)
    if not own:
        return None
    return Mark(
        sentence=f"{own} of {facts.measured.requests} requests failed in the client (limit 0), not in the server: their"
        " `error` says why; too few open files (ulimit -n) or ports are usual.",
        invalid=True,
    )
