"""Does a server carry an open load? Told by the requests in flight when a window opens and when it closes.

A server that ends fewer requests than arrive has no steady state: its times grow as long as it is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from loadtest.checks import LARGEST
from loadtest.settings import Load

BACKLOG_RATIO = 0.05  # of the requests due: a growth below it does not bend their times by as much
BACKLOG_SDS = 3.0

Floats = NDArray[np.float64]


def gap_cv(load: Load, habits: object = None) -> float:
    """Return standard deviation ÷ mean of the gaps between arrivals, at least that of Poisson ones.

    `habits` is what the header of a run tells of its sessions: of a trace its own burstiness. Runs of versions that
    did not tell it are judged by [load] cv, as they were then.
    """
    if load.arrivals not in ("gamma", "weibull", "trace"):
        return 1.0
    told = habits.get("gap_cv") if load.arrivals == "trace" and isinstance(habits, Mapping) else None
    known = isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < LARGEST
    return max(1.0, float(told) if known else load.cv)  # type: ignore[arg-type]  # a number, where it is known


def in_flight(due_s: Floats, end_s: Floats, *moments_s: float) -> tuple[int, ...]:
    """Return how many requests were due and had not ended at each moment."""
    return tuple(int(((due_s <= at) & ~(end_s <= at)).sum()) for at in moments_s)


def most_growth(before: int, after: int, due: int, cv: float) -> float:
    """Return by how many the requests in flight may grow over a window in which `due` requests fell due.

    Counts at two moments far apart differ by chance with a variance of about their sum; gaps with a coefficient of
    variation above 1 make bursts of arrivals, and the variance cv² times as large.
    """
    return max(BACKLOG_RATIO * due, BACKLOG_SDS * math.sqrt((before + after) * max(1.0, cv**2)))
