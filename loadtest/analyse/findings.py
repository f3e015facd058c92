"""What explains and qualifies the answer: values that the report shows. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from loadtest.analyse.estimates import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRatio:
    """A percentile of one latency metric in both arms at one level; without enough requests it has no interval."""

    metric: str
    level: float
    statistic: str  # p50 … p99
    speedup: Estimate = Estimate()  # baseline ÷ candidate: above 1 is better for the candidate
    difference_s: Estimate = Estimate()  # candidate − baseline: below 0 is better
    requests: int = 0  # of the arm that has fewer
    requests_needed: int = 0  # for an interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Latency of one arm as a straight line in its requests in flight: C1 + C2 · in flight, in seconds."""

    arm: str
    c1_s: Estimate
    c2_s: Estimate
    lack_of_fit_p: float | None = None  # of the F test against the error between blocks; None with fewer than 3 levels
    points: tuple[tuple[float, float], ...] = ()  # (in flight, mean latency), one a level


class LineCrossing(StrEnum):
    """What the two lines say of a crossing."""

    PAYS_BELOW = "pays_below"  # the candidate is ahead below the crossing
    PAYS_ABOVE = "pays_above"
    NOT_SHOWN = "not_shown"  # the slopes do not differ beyond error: the interval is unbounded
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The linear law (closed loop, no queue) beside the model-free break-even of mean end-to-end time."""

    lines: tuple[Line, ...] = ()  # baseline, candidate
    crossing: LineCrossing = LineCrossing.NO_DATA
    at: Estimate = Estimate()  # in requests in flight, by Fieller
    outside: bool = False  # the crossing lies beyond the tested loads: an extrapolation
    levels: tuple[float, ...] = ()  # users of the levels used: no queue and no preemption in either arm
    agrees: bool | None = None  # with the model-free break-even; None where either says nothing
    sentence: str = ""
    note: str = ""  # why they disagree


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """Where the time to first token of an arm at a level goes; seconds, means over blocks.

    `front_s` is what the server counts neither as queue nor as prefill. client = outside + front + queue + prefill.
    """

    arm: str
    level: float
    client_s: float | None = None
    outside_s: float | None = None  # client − server: network, HTTP, and the client's own floor
    front_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    cache_hit_ratio: float | None = None  # prompt tokens found in the prefix cache ÷ looked up
    kv_use: float | None = None
    preemptions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenChange:
    """Candidate − baseline of every term of the time to first token at a level, in seconds, paired by block."""

    level: float
    total_s: Estimate
    terms_s: dict[str, Estimate]  # outside · front · queue · prefill
    term: str = ""  # the one that grew most; "" where the total did not grow
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Acceptance of one draft slot."""

    slot: int  # from 1
    survival: Estimate
    conditional: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A figure of a group: a level, a category of prompt, a range of positions in the output."""

    name: str
    value: Estimate
    count: int = 0  # requests, or chunks by position
    low: float = 0.0  # of the range, where it is one
    high: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A straight-line trend of acceptance over the cells, the other trend taken out."""

    per: str  # doubling of the load · hour
    slope: Estimate = Estimate()  # change of the acceptance ratio per unit
    p_value: float | None = None
    change: float | None = None  # over the tested range, as a share of the mean
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Acceptance of one cell and when it was measured."""

    t_s: float
    level: float
    block: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Acceptance of the candidate's drafts by everything that it may depend on; intervals over blocks or sessions.

    `of_requests` says what the figures by request, category and position are: "acceptance ratio" from the server's own
    per-request figures, or "tokens per chunk", a bound, since a busy server merges chunks.
    """

    ratio: Estimate = Estimate()  # accepted ÷ drafted
    slots: tuple[Slot, ...] = ()
    levels: tuple[Group, ...] = ()
    flat: Trend | None = None  # over load: it should be
    drift: Trend | None = None  # over time: there should be none
    over_time: tuple[Moment, ...] = ()
    of_requests: str = ""
    requests: dict[str, Estimate] = field(default_factory=dict)  # p5 p25 p50 p75 p95 over requests
    requests_sd: float | None = None
    categories: tuple[Group, ...] = ()
    positions: tuple[Group, ...] = ()  # tokens per chunk by tokens already out, of the answers that are so long


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One range of running requests and the draft tokens that were better in it."""

    start: int
    end: int
    draft_tokens: int
    settled: bool  # a tested load inside it proves the choice
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTable:
    """Input for vLLM's `num_speculative_tokens_per_batch_size`; without rows `why_not` says why there is none."""

    rows: tuple[BatchRow, ...] = ()
    setting: str = ""  # as JSON, for --speculative-config
    warning: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What an A/A run measured: how far equal servers differ."""

    effects: dict[str, float] = field(default_factory=dict)  # metric → smallest effect that can be claimed, as a share
    slower: dict[float, float] = field(default_factory=dict)  # level → share of pairs slower by over 10 %
    median: dict[float, float] = field(default_factory=dict)  # level → median of paired ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A speed-up that is told from 1 and yet no larger than what equal servers may show."""

    metric: str
    level: float
    speedup: float
    effect: float  # the A/A's smallest effect, as a share


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAgainst:
    """The run's claims beside the A/A run that it names."""

    path: str
    noise: Noise
    within: tuple[Within, ...] = ()
    slower_beyond: dict[float, float] = field(default_factory=dict)  # level → share slower − the A/A's share
    median_beyond: dict[float, float] = field(default_factory=dict)  # level → median of pairs ÷ the A/A's
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything beside the answer that explains or qualifies it."""

    tails: tuple[TailRatio, ...] = ()
    law: Law | None = None
    first_tokens: tuple[FirstToken, ...] = ()
    first_token_changes: tuple[FirstTokenChange, ...] = ()
    acceptance: Acceptance | None = None
    batch_table: BatchTable | None = None
    noise: Noise | None = None  # of this run, when it is an A/A
    held_against: HeldAgainst | None = None
