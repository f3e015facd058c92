"""What a reader looks at behind the answer: by class of request, single slow requests, the run over time.

Nothing here computes, and nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtest.analyse.estimates import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLevel:
    """One class of requests at one level: the candidate against the baseline, paired by block."""

    name: str  # the category of the request
    level: float
    requests_baseline: int  # that ended well
    requests_candidate: int
    means_baseline: dict[str, float] = field(default_factory=dict)  # metric → mean over blocks, where all have one
    means_candidate: dict[str, float] = field(default_factory=dict)
    speedups: dict[str, Estimate] = field(default_factory=dict)  # e2e · ttft · tpot; above 1 is better


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRequest:
    """One of the requests that make the tail: times in seconds, absent is None."""

    arm: str
    level: float
    block: int
    cell: int
    category: str
    session: int
    turn: int
    outcome: str
    due_s: float  # on the run's clock
    sent_late_s: float | None
    ttft_s: float | None
    e2e_s: float | None  # None where the request failed
    worst_stall_s: float | None
    tokens: int
    prompt_tokens: int | None
    twin_s: float | None  # end-to-end time of the same request in the other arm
    cause: str  # failed · late first token · one stall · long answer · slow throughout


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpread:
    """How the same requests compare at one level: quantiles of baseline ÷ candidate end-to-end time."""

    level: float
    pairs: int
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One moment of the run: what the client had in flight, and the server's own gauges where it has them."""

    t_s: float
    arm: str
    level: float
    block: int
    in_flight: int
    running: float | None = None
    waiting: float | None = None
    kv_use: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Everything that is looked at and not decided by; `instants` and `slowest` are chosen from many."""

    classes: tuple[ClassLevel, ...] = ()
    slowest: tuple[SlowRequest, ...] = ()
    spreads: tuple[PairSpread, ...] = ()
    instants: tuple[Instant, ...] = ()
