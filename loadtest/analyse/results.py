"""What the analysis says: values that the report shows and a gate reads. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.analyse.findings import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; None where it does not exist, never 0."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0  # blocks, or requests for a pooled percentile


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


class Crossing(StrEnum):
    """The form of a break-even."""

    PAYS_UP_TO = "pays_up_to"  # above the threshold at the bottom, below it at the top
    PAYS_EVERYWHERE = "pays_everywhere"  # above at every tested load: the limit lies beyond
    NEVER_PAYS = "never_pays"
    PAYS_FROM = "pays_from"  # below at the bottom, above at the top
    BAND = "band"  # more than one crossing
    CANNOT_TELL = "cannot_tell"
    NO_DATA = "no_data"


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
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Decode speed-up at one level: τ_all ÷ step-time ratio, an accounting identity from the servers' counters."""

    level: float
    tau_all_baseline: float | None = None  # tokens per decode step; exactly 1 on a server that does not speculate
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
    kind: str  # equal · expected · consequence · violation · unknown


class GateOutcome(StrEnum):
    """What the gate says of one objective, or of all."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class SloAt:
    """One objective at one load."""

    level: float | None  # None: over the expected traffic
    outcome: GateOutcome
    observed: Estimate = Estimate()  # in the metric's unit; a speed-up, or a difference of shares, against the baseline
    says: str = ""  # what stands in the way, when something does


@dataclass(frozen=True, slots=True, kw_only=True)
class SloResult:
    """One objective, judged."""

    sentence: str  # the objective in words
    metric: str
    statistic: str
    ask: str  # absolute · relative · benefit
    unit: str  # of observed and limit: s · share · tokens/s · requests/s · tokens · speed-up · difference
    limit: float
    lower: bool  # whether the observed must lie below the limit
    outcome: GateOutcome
    category: str = ""
    arm: str = ""
    source: str = ""  # of a published preset
    at: SloAt | None = None  # the load that decides
    levels: tuple[SloAt, ...] = ()
    says: str = ""
    would_settle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The greatest load at which an arm meets every absolute objective."""

    arm: str
    form: Crossing  # pays_up_to: a limit was found · pays_everywhere · never_pays · cannot_tell · no_data
    at: Estimate = Estimate()  # in the controlled load; a bound outside the tested loads is None
    bound_by: str = ""  # the objective that ends it
    gpus: int | None = None
    per_gpu: Estimate = Estimate()
    output_tokens_per_s: Estimate = Estimate()  # carried at that load
    per_million_tokens: Estimate = Estimate()  # price, in the currency of [price]
    currency: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficGain:
    """The expected speed-up over the day of [traffic]."""

    metric: str
    gain: Estimate = Estimate()
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """One metric at one load against the same in another run; above 1 is better for this run."""

    metric: str
    level: float
    ratio: Estimate
    outcome: GateOutcome
    of_ratios: bool  # whether speed-ups over the baseline are compared, rather than the candidates themselves
    judged: bool = True  # else only shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What the gate says: an exit code that a pipeline can trust."""

    outcome: GateOutcome
    exit_code: int
    headline: str
    objectives: tuple[SloResult, ...] = ()
    capacities: tuple[Capacity, ...] = ()  # baseline first
    capacity_ratio: Estimate = Estimate()  # candidate ÷ baseline
    capacity_sentence: str = ""
    traffic: TrafficGain | None = None
    regressions: tuple[Regression, ...] = ()
    inconclusive: str = ""  # what [gate] makes of it: "" (exit 4) · fail · warn
    refused: str = ""  # why nothing is judged at all
    notes: tuple[str, ...] = ()


class OutputVerdict(StrEnum):
    """Whether both arms answer alike; it stands apart from every verdict on speed."""

    SAME = "same"  # as like as the baseline to itself
    DIFFERS = "differs"  # beyond that
    CANNOT_TELL = "cannot_tell"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTest:
    """A permutation test on the answers; `adjusted` is Holm's p-value over the tests of one comparison."""

    name: str  # answers · text · lengths · finish_reasons
    label: str
    p_value: float
    adjusted: float
    rejected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """The candidate's answers against the baseline's, and the baseline's second answers against its first."""

    verdict: OutputVerdict
    exit_code: int
    headline: str
    greedy: bool  # temperature 0
    prompts: int  # with every answer
    left_out: int  # prompts that lack one
    margin: float = 0.0
    identical: Estimate = Estimate()  # share of prompts
    identical_itself: Estimate = Estimate()
    excess: Estimate = Estimate()  # share that differs, less the baseline's own
    first_token: Estimate = Estimate()  # median place of the first difference, from 0, where there is one
    first_character: Estimate = Estimate()
    first_token_itself: Estimate = Estimate()
    first_character_itself: Estimate = Estimate()
    length_ratio: Estimate = Estimate()  # candidate ÷ baseline
    text_coefficient: Estimate = Estimate()  # energy statistic ÷ distance between the arms: 0 alike, 1 apart
    tests: tuple[OutputTest, ...] = ()


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
