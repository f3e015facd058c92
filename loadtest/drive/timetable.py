"""When the window of a cell opens and closes in an open load: known before its first request, alike in both arms."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.errors import UsageError
from loadtest.settings import Experiment
from loadtest.workload.arrivals import Pattern
from loadtest.workload.sessions import SessionKey, SessionSource

SAMPLE = 400  # sessions of a source that are looked at
MOST_PAUSES = 0.9  # share of the sessions whose pauses the warm-up waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the sessions of a source are like."""

    turns: float  # requests of a session, on average
    most_turns: float  # that most sessions do not exceed
    pauses_s: float  # between the turns of one session, that most do not exceed; without the pause before the first


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


def shape_of(source: SessionSource | None, experiment: Experiment) -> Shape:
    """Return what sessions are like, from a sample of the source's own; `load.turns` goes before its turns.

    Raises UsageError where a rate of requests is asked for and nothing says how many a session has.
    """
    load = experiment.load
    if source is None:
        if load.turns is None and load.per == "requests":
            raise UsageError(
                "The levels are requests/s, and the scenario's class names no `source` that says how many requests a"
                ' session has: give load.turns, or set load.per = "sessions" for levels in sessions/s.'
            )
        turns = load.turns or 1.0
        return Shape(turns=turns, most_turns=turns, pauses_s=0.0)
    sessions = [
        source.session(SessionKey(seed=experiment.plan.seed, level=0.0, block=0, number=n)) for n in range(SAMPLE)
    ]
    counts = sorted(len(session.turns) for session in sessions)
    pauses = sorted(
        sum(turn.think_s * (1.0 if turn.from_tool else load.think_time) for turn in session.turns[1:])
        for session in sessions
    )
    most = int(MOST_PAUSES * (SAMPLE - 1))
    requests, of_sessions = getattr(source, "requests", None), getattr(source, "sessions", None)
    exact = requests / of_sessions if isinstance(requests, int) and isinstance(of_sessions, int) and of_sessions else 0
    return Shape(turns=load.turns or exact or sum(counts) / SAMPLE, most_turns=counts[most], pauses_s=pauses[most])


def timetable(experiment: Experiment, level: float, shape: Shape, request_s: float) -> Timetable:
    """Return the timetable of a cell when a request takes about `request_s`.

    The window opens when a session that came first is at its end, and is as long as brings `min_requests`.
    """
    load, window = experiment.load, experiment.window
    sessions_per_s = level if load.per == "sessions" else level / shape.turns
    whole_s = max(window.warmup_requests, shape.most_turns) * request_s + shape.pauses_s if window.warmup_requests else 0.0
    opens_s = min(request_s + window.warmup_max_s, request_s + whole_s)
    expected_s = window.min_requests / (sessions_per_s * shape.turns)
    window_s = min(window.max_s, max(window.min_s, expected_s))
    return Timetable(sessions_per_s=sessions_per_s, opens_s=opens_s, window_s=window_s, cut=whole_s > window.warmup_max_s)


def pattern_of(experiment: Experiment) -> Pattern:
    """Return how sessions arrive, as [load] says."""
    load = experiment.load
    return Pattern(arrivals=load.arrivals, cv=load.cv, shape=load.shape, factor=load.factor)
