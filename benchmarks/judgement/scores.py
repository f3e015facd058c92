"""Was a claim true? One experiment's claims held against the truth of its case; nothing here draws or runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.judgement.cases import ARMS, METRICS, QUANTILES, Case
from benchmarks.judgement.truth import ROUNDING, Truth

TAILS = ("ttft", "e2e")
FORMS_FROM_ABOVE = {"pays_up_to": True, "pays_from": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one experiment says to one row: how many of its intervals hold the truth, of how many that exist."""

    held: int
    claimed: int
    possible: int  # claims that there could have been
    widths: tuple[float, ...] = ()  # upper ÷ lower of each interval that has both
    truth_ratio: float = math.nan  # standard error of the truth ÷ half of such a width, both relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """Where a true curve lies above a threshold: the loads at which it crosses, and its sign between them."""

    crossings: Sequence[float]
    bottom: float  # lowest and highest tested load
    top: float
    starts_above: bool

    def above(self, load: float) -> bool:
        """Say whether the curve is above at a load."""
        return self.starts_above != (sum(x < load for x in self.crossings) % 2 == 1)


def holds(found: Mapping[str, Any], truth: Sign) -> bool | None:
    """Say whether everything that a typed break-even claims is true; None where it claims nothing."""
    form, (low, _, high) = found["form"], found["at"]
    if form in ("cannot_tell", "no_data"):
        return None
    if form in ("pays_everywhere", "never_pays"):
        return not truth.crossings and truth.starts_above == (form == "pays_everywhere")
    if form == "band":
        return all(not any(a < x < b for x in truth.crossings) and truth.above((a + b) / 2)
                   for a, b in found["regions"])  # fmt: skip
    above = FORMS_FROM_ABOVE[form]
    between = all((low is None or low <= x) and (high is None or x <= high) for x in truth.crossings)
    begins = low is None or truth.above(truth.bottom) == above
    ends = high is None or truth.above(truth.top) != above
    return between and begins and ends


def scores(case: Case, outcome: Mapping[str, Any], truth: Truth, least_gain: float) -> dict[str, Score]:
    """Return the scores of one experiment by row."""
    rows: dict[str, Score] = {}
    if not case.aa:
        for metric in METRICS:
            if metric in outcome["even"] and case.gain != 0:  # equal arms have no load at which they become so
                rows[f"break-even {metric}"] = _even(outcome["even"][metric], truth, metric, 1.0)
        if not case.guarded and outcome["limit"] is not None and case.gain != least_gain:
            rows["limit e2e"] = _even(outcome["limit"], truth, "e2e", 1 + least_gain)
    for metric in METRICS:
        own = {
            f"speed-up {metric} at {level:g}": _interval(
                outcome["speedup"][metric].get(f"{level:g}"), math.exp(mean), math.exp(mean) * error)
            for level, (mean, error) in truth.ladder[metric].items()
        }  # fmt: skip
        rows |= own if metric == "e2e" else {f"speed-up {metric}": joined(list(own.values()))}
    for metric in TAILS:
        for arm in ARMS:
            for name in QUANTILES:
                keys = [f"{metric} {name} {arm} {level:g}" for level in truth.ladder["e2e"]]
                own_tails = [
                    _interval(outcome["tail"].get(key), *truth.tails[key]) for key in keys if key in truth.tails
                ]
                if own_tails:  # none where failures reach the percentile itself
                    rows[f"tail {metric} {name} {arm}"] = joined(own_tails)
    return rows


def sign_of(truth: Truth, metric: str, threshold: float) -> Sign:
    """Return where the true speed-up is above a threshold, within the tested loads."""
    levels = sorted(truth.ladder[metric])
    crossings = [at for at, _ in truth.crossings(metric, threshold)]
    return Sign(crossings=crossings, bottom=levels[0], top=levels[-1],
                starts_above=truth.above(metric, threshold, levels[0]))  # fmt: skip


def _even(found: Mapping[str, Any], truth: Truth, metric: str, threshold: float) -> Score:
    held = holds(found, sign_of(truth, metric, threshold))
    if held is None:
        return Score(held=0, claimed=0, possible=1)
    low, _, high = found["at"]
    crossings = truth.crossings(metric, threshold)
    if not low or not high or not crossings:
        return Score(held=held, claimed=1, possible=1)
    at, error = crossings[0]
    return Score(held=held, claimed=1, possible=1, widths=(high / low,), truth_ratio=_share(error / at, high / low))


def _interval(bounds: Sequence[float | None] | None, true: float, error: float) -> Score:
    """An interval is claimed where its upper bound exists; a lower bound that does not is open."""
    if bounds is None or bounds[2] is None:
        return Score(held=0, claimed=0, possible=1)
    low, _, high = bounds
    held = (low is None or low <= true * (1 + ROUNDING)) and true <= high * (1 + ROUNDING)
    if not low:
        return Score(held=held, claimed=1, possible=1)
    return Score(held=held, claimed=1, possible=1, widths=(high / low,), truth_ratio=_share(error / true, high / low))


def _share(error: float, width: float) -> float:
    """Return the truth's relative error as a share of the half-width of an interval with this upper ÷ lower."""
    half = (width - 1) / 2
    return 0.0 if error < ROUNDING else error / half if half > 0 else math.inf


def joined(parts: Sequence[Score]) -> Score:
    """Return several scores of one experiment as one."""
    ratios = [part.truth_ratio for part in parts if not math.isnan(part.truth_ratio)]
    return Score(
        held=sum(part.held for part in parts), claimed=sum(part.claimed for part in parts),
        possible=sum(part.possible for part in parts), widths=tuple(w for part in parts for w in part.widths),
        truth_ratio=sum(ratios) / len(ratios) if ratios else math.nan,
    )  # fmt: skip


def false_claims(outcome: Mapping[str, Any], truth: Truth, least_gain: float) -> tuple[bool, bool]:
    """Return whether it says of a load that it pays where it does not, and that it never pays where it does.

    Loads whose truth lies within two standard errors of `least_gain` prove neither, unless it is known exactly: a gain
    of just `least_gain` does not pay by more than that.
    """
    least = math.log1p(least_gain)
    most = {x: mean + 2 * error - least for x, (mean, error) in truth.ladder["e2e"].items()}
    surely = [mean - 2 * error - least for mean, error in truth.ladder["e2e"].values()]
    wrong = any(most[level] <= ROUNDING for level in outcome["pays"])
    return wrong, outcome["answer"] == "never_pays" and max(surely) > ROUNDING


def told_apart(outcome: Mapping[str, Any]) -> bool:
    """Say whether an interval of the deciding metric leaves out 1, at any level."""
    bounds = outcome["speedup"]["e2e"].values()
    return any(low is not None and high is not None and not low <= 1 <= high for low, _, high in bounds)
