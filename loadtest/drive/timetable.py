"""When the window of a cell opens and closes in an open load: known before its first request, alike in both arms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

from loadtest.errors import UsageError
from loadtest.settings import Experiment, Load
from loadtest.workload.arrivals import TRACE, Pattern, Trace, cv_of
from loadtest.workload.replay import TraceSource
from loadtest.workload.sessions import SessionKey, SessionSource

SAMPLE = 400  # sessions of a source that are looked at
MOST = 0.9  # share of the sessions whose pauses the warm-up waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What the sessions of a source are like."""

    turns: float  # requests of a session, on average
    most_turns: float  # that most sessions do not exceed
    pauses_s: float  # between the turns of one session, that most do not exceed; without the pause before the first
    gap_cv: float = 1.0  # standard deviation ÷ mean of the gaps between the arrivals of sessions

    def told(self) -> dict[str, float]:
        """Return what a run's header says of them."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """One cell of an open load; times in seconds from its start."""

    sessions_per_s: float
    opens_s: float
    window_s: float
    cut: bool  # whether the longest warm-up is shorter than most sessions

    @property
    def closes_s(self) -> float:
        """When the window closes."""
        return self.opens_s + self.window_s


def habits_of(source: SessionSource | None, experiment: Experiment) -> Habits:
    """Return what sessions are like, from a sample of the source's own; `load.turns` goes before its turns.

    Raises UsageError where a rate of requests is asked for and nothing says how many a session has, or when it arrives.
    """
    load = experiment.load
    if load.kind == "open" and load.arrivals == TRACE:
        trace_of(source)
    if source is None:
        if load.turns is None and load.per == "requests":
            raise UsageError(
                "The levels are requests/s, and the scenario's class names no `source` that says how many requests a"
                ' session has: give load.turns, or set load.per = "sessions" for levels in sessions/s.'
            )
        return habits_from([1], [0.0], load)
    sessions = [
        source.session(SessionKey(seed=experiment.plan.seed, level=0.0, block=0, number=n)) for n in range(SAMPLE)
    ]
    pauses_s = [
        sum(turn.think_s * (1.0 if turn.from_tool else load.think_time) for turn in session.turns[1:])
        for session in sessions
    ]
    found = habits_from([len(session.turns) for session in sessions], pauses_s, load)
    if not isinstance(source, TraceSource):
        return found
    own = load.arrivals == TRACE and math.isfinite(source.gap_cv)  # it knows all of its own
    return replace(found, turns=load.turns or source.requests / source.sessions,
                   gap_cv=source.gap_cv if own else found.gap_cv)  # fmt: skip


def habits_from(turns: Sequence[int], pauses_s: Sequence[float], load: Load) -> Habits:
    """Return what sessions of so many turns, and pauses between them, are like; `load.turns` goes before the mean."""
    return Habits(
        turns=load.turns or sum(turns) / len(turns), most_turns=sorted(turns)[int(MOST * (len(turns) - 1))],
        pauses_s=sorted(pauses_s)[int(MOST * (len(pauses_s) - 1))], gap_cv=cv_of(load.arrivals, load.cv),
    )  # fmt: skip


def timetable(experiment: Experiment, level: float, habits: Habits, request_s: float) -> Timetable:
    """Return the timetable of a cell when a request takes about `request_s`.

    The window opens when a session that came first is at its end, and is as long as brings `min_requests`.
    """
    load, window = experiment.load, experiment.window
    sessions_per_s = level if load.per == "sessions" else level / habits.turns
    whole_s = 0.0
    if window.warmup_requests:  # 0: measured from the first arrival on, as the server fills
        whole_s = request_s + max(window.warmup_requests, habits.most_turns) * request_s + habits.pauses_s
    opens_s = min(request_s + window.warmup_max_s, whole_s)
    expected_s = window.min_requests / (sessions_per_s * habits.turns)
    window_s = min(window.max_s, max(window.min_s, expected_s))
    return Timetable(sessions_per_s=sessions_per_s, opens_s=opens_s, window_s=window_s, cut=opens_s < whole_s)


def trace_of(source: SessionSource | None) -> Trace:
    """Return where the arrivals of a trace come from. Raises UsageError for sessions that were not recorded."""
    if not callable(getattr(source, "arrivals", None)):
        raise UsageError(
            'load.arrivals is "trace", and the sessions are no trace, so that nothing says when they arrived: name one'
            " in [trace] file, or choose another process, such as poisson."
        )
    return cast(Trace, source)


def pattern_of(experiment: Experiment) -> Pattern:
    """Return how sessions arrive, as [load] says."""
    load = experiment.load
    return Pattern(arrivals=load.arrivals, cv=load.cv, shape=load.shape, factor=load.factor)
