"""Did an open load arrive as asked for, and did the server carry it? Rules for a cell; a closed load passes them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from loadtest.analyse import wording
from loadtest.analyse.rules import CellFacts, Mark, Unknown
from loadtest.backlog import in_flight, most_growth
from loadtest.loads import SESSIONS, said

RATE_RATIO = 0.10  # of the rate asked for: arrivals of one window differ by that much by chance alone
RATE_SDS = 4.0
DRAWN = (
    "give load.turns as your sessions have them, or let the warm-up last until later turns come as often"
    " (window.warmup_requests, window.warmup_max_s)"
)
RECORDED = (
    "the trace's own rate moves by as much from one stretch to another, or later turns do not yet come as often; take a"
    " steadier stretch of it (trace.start_s, trace.length_s), or longer windows (window.min_s, window.warmup_max_s)"
)


def rate_not_reached(facts: CellFacts) -> Mark | Unknown | None:
    """As many requests must fall due as the level says, as far as chance allows (`most_by_chance`)."""
    if facts.closed:
        return None
    rows = facts.rows
    if rows is None or not math.isfinite(rows.window_s) or not rows.measured.any():
        return Unknown(missing="requests due in the window")
    counted = rows.measured & ((rows.column("turn") == 0) if facts.unit == SESSIONS else True)
    count, expected = int(counted.sum()), facts.record.level * rows.window_s
    each = np.unique(rows.column("user")[counted], return_counts=True)[1]
    if abs(count - expected) <= max(RATE_RATIO * expected, most_by_chance(expected, each, facts.gap_cv)):
        return None
    found = said(wording.load(count / rows.window_s))
    return Mark(
        sentence=f"{found} fell due where {wording.load(facts.record.level)} were asked for (limit"
        f" {100 * RATE_RATIO:.0f} %, and chance): {RECORDED if facts.recorded else DRAWN}."
    )


def most_by_chance(expected: float, each: NDArray[np.int64], gap_cv: float) -> float:
    """Return by how many requests a window's count may miss the `expected` one by chance alone: RATE_SDS deviations.

    `each` is how many of them every session brought that brought any. Let a session that arrives at time a bring X(a).
    Of Poisson arrivals at rate λ the count has the variance λ ∫ E[X(a)²] da (Campbell's theorem), of which the sum of
    the squares is an estimate without bias, whatever the number of turns and however long sessions last. Gaps with a
    coefficient of variation c add (c² − 1) λ ∫ E[X(a)]² da, for c > 1 no more than (c² − 1) times that: where turns
    vary, a rate that is off is then seen a little less readily; for c < 1 it is left at the variance of chance.
    """
    per_request = float((each.astype(float) ** 2).sum() / each.sum()) if len(each) else 1.0
    return RATE_SDS * math.sqrt(expected * per_request * max(1.0, gap_cv**2))


def arrivals_exceed(facts: CellFacts) -> Mark | Unknown | None:
    """Requests in flight may grow over the window by what chance allows, unless the rate is meant to move."""
    if facts.closed or not facts.steady:
        return None
    rows = facts.rows
    if rows is None or not math.isfinite(rows.window_s) or not rows.measured.any():
        return Unknown(missing="requests due in the window")
    before, after = in_flight(rows.column("due_s"), rows.column("end_s"), rows.open_s, rows.close_s)
    growth, due = after - before, facts.measured.requests
    most = most_growth(before, after, due, facts.gap_cv)
    if growth <= most:
        return None
    return Mark(
        sentence=f"Arrivals exceed completions: {due} requests fell due in the window, {before} were in flight when it"
        f" opened and {after} when it closed (limit of the growth {most:.0f}). The server does"
        " not carry this load, so that its times grow with the window."
    )
