"""What several candidates are to each other: values that the report shows. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtest.analyse.estimates import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Two candidates at one load, by the metric that decides."""

    first: str
    second: str
    level: float
    speedup: Estimate  # of the first against the second: above 1 is better for the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How several candidates stand to each other, and what the intervals of their comparisons are worth.

    The intervals against the baseline hold for all candidates together, those of `against` for all pairs and loads
    together, each with `confidence`.
    """

    metric: str
    confidence: float
    of_candidate: float  # confidence of one candidate's own intervals against the baseline
    of_pair: float  # confidence of one interval of `against`
    against: tuple[Against, ...] = ()
    best: dict[float, str] = field(default_factory=dict)  # load → the candidate proven better there than every other
    alike: tuple[tuple[str, str], ...] = ()  # pairs that are told apart at no load
    sentence: str = ""
