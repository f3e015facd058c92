"""What a comparison of answers says, in sentences."""

from __future__ import annotations

import math

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.output_results import OutputComparison, OutputVerdict

Z_SQUARED = 3.8415  # of a two-sided 95 % interval
NUMERICS = (
    "Rounding that depends on the batch's shape flips near ties, at scattered places; a fault shows early, or in"
    " lengths and finish reasons."
)


def headline(found: OutputComparison) -> str:
    """Return the answer in a few sentences."""
    how = "greedy answers" if found.greedy else "answers"
    if found.verdict is OutputVerdict.SAME:
        return f"The candidate's {how} are as like the baseline's as those are to each other: {_evidence(found)}."
    if found.verdict is OutputVerdict.DIFFERS:
        which = " and ".join(f"{test.label} (p = {test.adjusted:.2g})" for test in found.tests if test.rejected)
        said = f"The candidate's {how} differ beyond the baseline's own: by {which}; {_evidence(found)}."
        return f"{said} {NUMERICS}" if found.greedy else said
    return f"Whether the candidate's {how} differ cannot be told: {_evidence(found)}. {_would_settle(found)}"


def _evidence(found: OutputComparison) -> str:
    if not found.greedy:
        return (
            f"text coefficient {_shown(found.text_coefficient)} (0 alike, 1 apart), length {_shown(found.length_ratio)}"
            f" times the baseline's, over {found.prompts} prompts"
        )
    itself = f"{_percent(found.identical_itself.value)} of the baseline's second answers are"
    said = f"{_interval(found.identical)} of {found.prompts} are identical, where {itself}"
    place = found.first_token if found.first_token.value is not None else found.first_character
    if place.value is None:
        return said
    unit = "token" if place is found.first_token else "character"
    return f"{said}; the first difference is at {unit} {place.value + 1:.0f} in the median"


def _would_settle(found: OutputComparison) -> str:
    if found.greedy and found.excess.value == 0:
        least = math.floor(Z_SQUARED * (1 - found.margin) / found.margin) + 1
        return f"At least {max(least, found.prompts + 1)} prompts would tell (outputs.prompts)."
    return "More prompts would tell (outputs.prompts)."


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _interval(share: Estimate) -> str:
    if share.low is None or share.high is None:
        return _percent(share.value)
    return f"{_percent(share.value)} [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "unknown"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
