"""Did an open load arrive as asked for, and did the server carry it? Rules for a cell; a closed load passes them."""

from __future__ import annotations

import math

from loadtest.analyse import wording
from loadtest.analyse.rules import CellFacts, Mark, Unknown
from loadtest.backlog import in_flight, most_growth
from loadtest.loads import SESSIONS, said

RATE_RATIO = 0.10  # of the rate asked for: arrivals of one window differ by that much by chance alone
RATE_SDS = 4.0


def rate_not_reached(facts: CellFacts) -> Mark | Unknown | None:
    """As many requests must fall due as the level says, as far as chance allows.

    Sessions of T turns, whose gaps have a coefficient of variation c, make a count of requests whose variance is about
    T · max(1, c²) times its mean.
    """
    if facts.closed:
        return None
    rows = facts.rows
    if rows is None or not math.isfinite(rows.window_s) or not rows.measured.any():
        return Unknown(missing="requests due in the window")
    first = int((rows.measured & (rows.column("turn") == 0)).sum())
    count = first if facts.unit == SESSIONS else facts.measured.requests
    expected = facts.record.level * rows.window_s
    spread = math.sqrt(expected * max(1.0, count / first if first else 1.0) * max(1.0, facts.gap_cv**2))
    if abs(count - expected) <= max(RATE_RATIO * expected, RATE_SDS * spread):
        return None
    found = said(wording.load(count / rows.window_s))
    return Mark(
        sentence=f"{found} fell due where {wording.load(facts.record.level)} were asked for (limit"
        f" {100 * RATE_RATIO:.0f} %, and chance): give load.turns as your sessions have them, or let the warm-up last"
        " until later turns come as often (window.warmup_requests, window.warmup_max_s)."
    )


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
