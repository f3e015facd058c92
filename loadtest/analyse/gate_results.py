"""What the gate says of objectives, capacity, traffic and regressions: values. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from loadtest.analyse.estimates import Crossing, Estimate

IDENTICAL = "every block gives the same figure to the last digit, which no measurement does"


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
class DayLoad:
    """One load of the expected day: between two tested levels its speed-up is interpolated."""

    level: float  # in the controlled load
    hours: float
    weight: float  # its share of the baseline's day, by what the gain is averaged over
    speedup: Estimate = Estimate()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficGain:
    """The expected speed-up over the day of [traffic]."""

    metric: str
    gain: Estimate = Estimate()
    sentence: str = ""
    loads: tuple[DayLoad, ...] = ()  # in order of the load


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
    unproven: str = ""  # why it is not known that only the candidate speculated

    @property
    def outcomes(self) -> tuple[GateOutcome, ...]:
        """What was said of each objective, and of each judged metric against another run."""
        judged = [r.outcome for r in self.regressions if r.judged]
        return (*(r.outcome for r in self.objectives), *judged)

    notes: tuple[str, ...] = ()
