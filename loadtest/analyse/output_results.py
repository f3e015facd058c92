"""What the comparison of both arms' answers says: values. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from loadtest.analyse.estimates import Estimate


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
