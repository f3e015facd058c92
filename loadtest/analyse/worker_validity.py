"""Did all who made a cell's load do so to the end, by one clock, and when they were told? Rules for a cell."""

from __future__ import annotations

from loadtest.analyse.client_validity import FAR_BEYOND, STOOD_STILL_S
from loadtest.analyse.rules import CellFacts, Mark, Unknown

CLOCK_RATIO = 0.005  # of the window: what is put on the wrong side of its edges, at most, at either
LATE_S = 0.100  # a word that takes longer than this is told of


def worker_lost(facts: CellFacts) -> Mark | None:
    """A worker that is lost takes its share of the load with it."""
    lost = facts.record.workers_lost
    if not lost:
        return None
    return Mark(
        sentence=f"{', '.join(lost)} of {len({*lost, *facts.record.workers})} workers {_were(len(lost))} lost before"
        " the cell's end (limit 0): users were missing from the load.",
        invalid=True,
    )


def clocks_apart(facts: CellFacts) -> Mark | Unknown | None:
    """What the workers measured stands on one axis as well as their clocks could be compared."""
    record = facts.record
    if not record.workers or record.window_open_s is None or record.window_close_s is None:
        return None
    unknown = sorted(set(record.workers) - set(record.clock_bound_s))
    if unknown:
        return Unknown(missing=f"the clock of {', '.join(unknown)}")
    name, bound_s = max(record.clock_bound_s.items(), key=lambda item: item[1])
    limit_s = CLOCK_RATIO * (record.window_close_s - record.window_open_s)
    if bound_s <= limit_s:
        return None
    return Mark(
        sentence=f"The clock of {name} is known to {1000 * bound_s:.1f} ms only (limit {1000 * limit_s:.1f} ms, a"
        f" {1 / CLOCK_RATIO:.0f}th of the window): bring it nearer to the master, or lengthen the window.",
        invalid=bound_s > FAR_BEYOND * limit_s,
    )


def word_late(facts: CellFacts) -> Mark | Unknown | None:
    """A worker begins, opens and closes its window, and ends when the master says so."""
    record = facts.record
    unknown = sorted(set(record.workers) - set(record.word_late_s))
    if unknown:
        return Unknown(missing=f"when the master's word reached {', '.join(unknown)}")
    if not record.word_late_s:
        return None
    name, late_s = max(record.word_late_s.items(), key=lambda item: item[1])
    if late_s <= LATE_S:
        return None
    return Mark(
        sentence=f"The master's word reached {name} {1000 * late_s:.0f} ms late (limit {1000 * LATE_S:.0f} ms): it, or"
        " the way to it, was held up.",
        invalid=late_s > STOOD_STILL_S,
    )


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
