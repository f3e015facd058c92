"""What the analysis says: values that the report shows and a gate reads. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from loadtest.analyse.detail_results import Detail
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.gate_results import Gate
from loadtest.analyse.output_results import OutputComparison
from loadtest.analyse.ranking_results import Ranking

if TYPE_CHECKING:
    from loadtest.analyse.findings import Findings

SEVERAL = {"several": True}  # on a field that stands in verdict.json of several candidates alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Percentiles of one latency metric over all requests due in the windows of an arm at a level.

    Failures count as +inf (nearest rank). `deepest` is the deepest of p50, p90, p95, p99 whose upper bound exists.
    """

    metric: str
    p50: Estimate = Estimate()
    p90: Estimate = Estimate()
    p95: Estimate = Estimate()
    p99: Estimate = Estimate()
    deepest: str = ""  # "p50" … "p99", "" when none exists
    design_effect: dict[str, float] = field(default_factory=dict)  # by percentile: how many requests count as one


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLevel:
    """One arm at one level, over all blocks."""

    arm: str
    level: float
    requests: int  # due in the windows
    failed: int
    means: dict[str, Estimate] = field(default_factory=dict)  # metric name → mean over blocks of the cell aggregate
    tails: dict[str, Tail] = field(default_factory=dict)  # ttft, e2e, tpot, token_gap, chunk_gap, worst_stall
    in_flight: float | None = None  # client side, mean over windows
    running: float | None = None  # the server's gauge
    waiting: float | None = None
    kv_use: float | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    finish_reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Candidate against baseline at one level by one metric, turned so that above 1 is better for the candidate."""

    metric: str
    level: float
    ratio: Estimate
    blocks: tuple[float, ...] = ()  # the paired ratios themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The load at which a metric's speed-up equals `threshold` (1, or 1 + min_gain), typed and with its interval."""

    metric: str
    threshold: float
    form: Crossing
    at: Estimate = Estimate()  # in the controlled load
    in_flight: Estimate = Estimate()  # translated for the candidate's own and the baseline's mean in flight
    running: Estimate = Estimate()
    regions: tuple[tuple[float, float], ...] = ()  # loads where the whole interval is above the threshold
    ended_by: str = ""  # of the decision's limit: the guard that bounds it above, in words; "" where the metric does
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Decode speed-up at one level: τ_all ÷ step-time ratio, an accounting identity from the servers' counters."""

    level: float
    tau_all_baseline: float | None = None  # tokens per decode step; without speculation 1, but for a cut step
    tau_all: float | None = None
    tau_drafting: float | None = None  # over the steps that had a draft
    step_baseline_s: float | None = None
    step_candidate_s: float | None = None
    step_ratio: float | None = None
    decode_speedup: float | None = None
    tau_needed: float | None = None  # = step ratio: τ at which decoding breaks even
    acceptance_ratio: float | None = None
    drafted_per_step: float | None = None
    survival: tuple[float, ...] = ()  # S_1 … S_k
    running_baseline: float | None = None
    running_candidate: float | None = None
    edge_error_ratio: float | None = None  # share of the window by which the scrapes may have missed its edges


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One cell with its quality marks."""

    cell: int
    arm: str
    level: float
    block: int
    valid: bool
    marks: tuple[str, ...]  # sentences; on an invalid cell the first says why
    window_s: float | None
    requests: int
    failed: int
    in_flight: float | None
    output_tokens_per_s: float | None
    ttft_p50_s: float | None
    e2e_mean_s: float | None
    lateness_p99_s: float | None
    cpu_ratio: float | None
    hub_lag_p99_s: float | None
    coalesced_ratio: float | None
    tokens_client: int | None  # from idle to idle
    tokens_server: int | None
    requests_client: int | None
    requests_server: int | None
    opened_s: float | None
    closed_s: float | None


class Finding(StrEnum):
    """State of a guard."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNPROVEN = "unproven"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One guard at one level."""

    name: str  # ttft · on_time · error_ratio
    level: float
    finding: Finding
    ratio: Estimate = Estimate()  # candidate ÷ baseline (difference for on_time and error_ratio)
    statistic: str = ""  # such as "p90"
    baseline: float | None = None  # of a difference: the mean share of the blocks that both arms have
    candidate: float | None = None
    sentence: str = ""


class Answer(StrEnum):
    """What the run as a whole says."""

    PAYS_UP_TO = "pays_up_to"
    PAYS_EVERYWHERE = "pays_everywhere"
    PAYS_IN_BAND = "pays_in_band"
    NEVER_PAYS = "never_pays"
    CANNOT_TELL = "cannot_tell"
    INVALID = "invalid"
    MEASURED = "measured"  # one arm, a smoke run, or --measure-only: nothing was judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer, in words and as an exit code (loadtest.errors.ExitCode)."""

    answer: Answer
    exit_code: int
    headline: str
    second: str = ""  # disagreement of other metrics, or what the reader must know next
    recommendation: str = ""  # on · on up to N · off · measure more
    would_settle: str = ""
    more_blocks: int | None = None  # that would settle it, where blocks can
    limit: BreakEven | None = None  # threshold 1 + min_gain
    break_even: BreakEven | None = None  # threshold 1
    guards: tuple[Guard, ...] = ()
    reasons: tuple[str, ...] = ()  # why invalid, or why it cannot be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparability:
    """One line of the comparability table."""

    item: str
    baseline: str
    candidate: str
    source: str  # verified · declared · unknown
    kind: str  # equal · expected · consequence · violation · waived · unknown
    note: str = ""  # what is wrong with it, or what it costs the verdict that it is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Everything the analysis found; the report draws from this and from the run header alone."""

    decision: Decision
    arms: tuple[str, ...]  # baseline first
    levels: tuple[float, ...]
    arm_levels: tuple[ArmLevel, ...]
    speedups: tuple[Speedup, ...]
    break_evens: tuple[BreakEven, ...]  # one per metric that has a direction, threshold 1
    why: tuple[Why, ...]
    cells: tuple[CellView, ...]
    comparability: tuple[Comparability, ...]
    notes: tuple[str, ...] = ()  # flags on the whole run that do not invalidate it
    slower_share: dict[float, float] = field(
        default_factory=dict
    )  # level → share of paired requests slower by over 10 %
    median_pair: dict[float, float] = field(default_factory=dict)  # level → median of paired e2e speed-ups
    findings: Findings | None = None  # what explains and qualifies the answer; None in a run of one arm
    gate: Gate | None = None  # None: no objective was asked for
    outputs: OutputComparison | None = None  # None: the answers were not compared
    unit: str = "users"  # of levels and loads: users · requests/s · sessions/s
    detail: Detail | None = None  # what is looked at and not decided by; None where it was not asked for
    # Of several candidates: each against the baseline, as a run of these two arms says, but that the intervals of all
    # hold together; and the candidates against each other. What is of one pair is empty above.
    pairs: tuple[Judgement, ...] = field(default=(), metadata=SEVERAL)
    ranking: Ranking | None = field(default=None, metadata=SEVERAL)
