"""What a trace is like: rate, burstiness, requests in flight, lengths and classes, by hour where it lasts hours.

All times and rates are those of the log; a replay that runs faster has `speed` times the rates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from loadtest.workload.replay import TraceSource
from loadtest.workload.trace_index import ANSWERED_PER_S, Floats, Index, Ints, cv_of_gaps

HOUR_S, MINUTE_S = 3600.0, 60.0
FIRST_OF_A_CLOCK_S = 1e9  # a later time is a date (2001 and after); an earlier one counts from some start
QUANTILES = (50, 90, 95, 99, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """One hour of a trace, or all of it where it is shorter."""

    begins_s: float  # by the trace's own clock
    lasts_s: float
    requests_per_s: float
    in_flight: float  # by Little's law


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a trace is like."""

    speed: float  # how many times faster than recorded it is replayed
    sessions: int
    requests: int
    begins_s: float
    span_s: float
    hours: tuple[Hour, ...]
    busiest_minute_per_s: float
    cv: float  # of all gaps; NaN below three requests
    cv_in_minutes: float  # median over minutes of at least ten requests; NaN without any
    told_duration: bool  # whether most rows say how long they took
    input_tokens: tuple[int, ...]  # at QUANTILES
    output_tokens: tuple[int, ...]
    classes: tuple[tuple[str, int], ...]  # commonest first
    repeats: int | None  # requests whose text is that of an earlier one; None: there is no text

    @property
    def requests_per_s(self) -> float:
        """Mean rate."""
        return self.requests / self.span_s

    @property
    def busiest(self) -> Hour:
        """The hour of the highest rate."""
        return max(self.hours, key=lambda hour: hour.requests_per_s)


def seen_of(source: TraceSource, repeats: int | None) -> Seen:
    """Return what a trace is like."""
    index, speed = source.index, source.speed
    due_s, span_s, lasted_s = index.due_s * speed, source.span_s * speed, _durations_s(index, speed)
    classes = np.bincount(index.category, minlength=len(index.categories))
    named = sorted(zip(index.categories, classes.tolist(), strict=True), key=lambda item: -item[1])
    minutes = np.bincount((due_s / MINUTE_S).astype(np.int64))
    return Seen(
        speed=speed, sessions=source.sessions, requests=source.requests, begins_s=index.origin_s, span_s=span_s,
        hours=tuple(_hours(index.origin_s, due_s, lasted_s, span_s)),
        busiest_minute_per_s=float(minutes.max()) / min(MINUTE_S, max(span_s, 1e-9)),
        cv=cv_of_gaps(due_s), cv_in_minutes=_cv_in_minutes(due_s),
        told_duration=bool(np.mean(~np.isnan(index.duration_s)) > 0.5),
        input_tokens=_quantiles(index.input_tokens),
        output_tokens=_quantiles(index.output_tokens[index.output_tokens > 0]),
        classes=tuple((name or "(none)", count) for name, count in named if count), repeats=repeats,
    )  # fmt: skip


def _durations_s(index: Index, speed: float) -> Floats:
    """Return how long each request took by the log; the index holds the times of the replay."""
    assumed = np.maximum(index.output_tokens, 0) / ANSWERED_PER_S
    return np.where(np.isnan(index.duration_s), assumed, index.duration_s * speed)


def _hours(origin_s: float, due_s: Floats, lasted_s: Floats, span_s: float) -> Iterator[Hour]:
    """Yield the hours of the clock that the trace touches, the first and last as far as they are covered."""
    if span_s < 2 * HOUR_S:
        count = len(due_s)
        yield Hour(begins_s=origin_s, lasts_s=span_s, requests_per_s=count / span_s,
                   in_flight=float(lasted_s.sum()) / span_s)  # fmt: skip
        return
    clock_s = origin_s + due_s
    lasted_before_s = np.concatenate(([0.0], np.cumsum(lasted_s)))
    ends_s = origin_s + span_s
    for hour in range(int(origin_s // HOUR_S), int(ends_s // HOUR_S) + 1):
        begins_s = max(hour * HOUR_S, origin_s)
        lasts_s = min((hour + 1) * HOUR_S, ends_s) - begins_s
        if lasts_s < HOUR_S / 10:  # a sliver tells no rate
            continue
        first, last = np.searchsorted(clock_s, (begins_s, begins_s + lasts_s))
        yield Hour(begins_s=begins_s, lasts_s=lasts_s, requests_per_s=float(last - first) / lasts_s,
                   in_flight=float(lasted_before_s[last] - lasted_before_s[first]) / lasts_s)  # fmt: skip


def _cv_in_minutes(due_s: Floats) -> float:
    bounds = np.searchsorted(due_s, np.arange(0.0, float(due_s[-1]) + MINUTE_S, MINUTE_S))
    found = [cv_of_gaps(due_s[a:b]) for a, b in pairwise(bounds) if b - a >= 10]
    found = [cv for cv in found if cv == cv]
    return float(np.median(found)) if found else float("nan")


def _quantiles(tokens: Ints) -> tuple[int, ...]:
    if not len(tokens):
        return ()
    return tuple(int(value) for value in np.percentile(tokens, QUANTILES, method="inverted_cdf"))


def seen_in_words(seen: Seen) -> Iterator[str]:
    """Yield what was seen, line by line, for the terminal."""
    begins, ends = clock(seen.begins_s), clock(seen.begins_s + seen.span_s)
    yield f"time        {begins} to {ends}, {_lasting(seen.span_s)}"
    if seen.speed != 1:
        yield (
            f"replayed    {seen.speed:g} times as fast, in {_lasting(seen.span_s / seen.speed)}, at"
            f" {seen.requests_per_s * seen.speed:.3g} requests/s on average; what follows is by the log's own clock"
        )
    hourly = f" {seen.busiest.requests_per_s:.3g} in the busiest hour," if len(seen.hours) > 1 else ""
    yield (
        f"rate        {seen.requests_per_s:.3g} requests/s on average,{hourly} {seen.busiest_minute_per_s:.3g} in the"
        " busiest minute"
    )
    yield f"burstiness  CV of the gaps {_figure(seen.cv)}, within minutes {_figure(seen.cv_in_minutes)} (Poisson: 1)"
    average = sum(hour.in_flight * hour.lasts_s for hour in seen.hours) / sum(hour.lasts_s for hour in seen.hours)
    how = "by the durations told" if seen.told_duration else f"if answers come at {ANSWERED_PER_S:g} tokens/s"
    hourly = f" {max(h.in_flight for h in seen.hours):.3g} in the busiest hour," if len(seen.hours) > 1 else ""
    yield f"in flight   {average:.3g} on average,{hourly} {how}"
    yield f"sessions    {seen.sessions:,} of {seen.requests / seen.sessions:.3g} requests on average"
    yield f"input       {_lengths(seen.input_tokens)}"
    yield f"output      {_lengths(seen.output_tokens)}"
    if seen.repeats is not None:
        yield f"repeats     {100 * seen.repeats / seen.requests:.3g} % of the requests ask what an earlier one asked"
    shares = ", ".join(f"{name} {100 * count / seen.requests:.3g} %" for name, count in seen.classes[:8])
    yield f"classes     {shares}{' …' if len(seen.classes) > 8 else ''}"
    if len(seen.hours) > 1:
        yield "hour              requests/s  in flight"
        for hour in seen.hours[:48]:
            yield f"{clock(hour.begins_s):16s}  {hour.requests_per_s:10.3g}  {hour.in_flight:9.3g}"
        if len(seen.hours) > 48:
            yield f"… and {len(seen.hours) - 48} hours more"


def clock(t_s: float) -> str:
    """Return a time of a trace's clock: a date in UTC, or the time since its start."""
    if t_s < FIRST_OF_A_CLOCK_S:
        return _lasting(t_s)
    return datetime.fromtimestamp(t_s, UTC).strftime("%Y-%m-%d %H:%M")


def _lasting(seconds: float) -> str:
    return f"{seconds / HOUR_S:.3g} h" if seconds >= HOUR_S else f"{seconds:.3g} s"


def _figure(value: float) -> str:
    return "unknown" if value != value else f"{value:.2f}"


def _lengths(tokens: tuple[int, ...]) -> str:
    if not tokens:
        return "not told"
    names = [f"p{q}" for q in QUANTILES[:-1]] + ["longest"]
    return ", ".join(f"{name} {value:,}" for name, value in zip(names, tokens, strict=True)) + " tokens"
