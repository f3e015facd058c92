"""The tables: coverage with its standard error, widths, what cannot be told, and how often answers are wrong."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.judgement.cases import (
    CORE_AT_LEAST,
    DEEP_CEILING,
    FALSE_AT_MOST,
    MEAN_WITHIN,
    REST_AT_LEAST,
    SPEEDUP_CEILING,
    TAIL_CEILINGS,
    TRUTH_AT_MOST,
    Case,
)
from benchmarks.judgement.scores import Score, false_claims, scores, told_apart
from benchmarks.judgement.truth import Truth

SURE = 3.0  # standard errors: what is further off than this is not luck


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One estimator on one case."""

    case: str
    estimator: str
    intervals: int
    coverage: float | None  # None where nothing was claimed
    error: float  # standard error of the coverage, over experiments
    width: float | None  # median of upper ÷ lower − 1
    cannot_tell: float  # share of claims that were not made
    ceiling: float
    truth_ratio: float | None  # standard error of the truth ÷ half-width, median
    least: float | None  # coverage asked for
    off: tuple[str, ...]  # what does not hold

    @property
    def held(self) -> bool:
        """Whether everything asked of it holds."""
        return not self.off

    @property
    def broken(self) -> bool:
        """Whether its coverage is too low by more than luck."""
        if self.coverage is None or self.least is None or math.isnan(self.error):
            return False
        return self.coverage + SURE * self.error < self.least


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often an answer was wrong."""

    case: str
    what: str
    count: int
    of: int
    at_most: float | None

    @property
    def held(self) -> bool:
        """Whether the share is within its limit."""
        return self.at_most is None or self.count <= self.at_most * self.of + 1e-9

    @property
    def broken(self) -> bool:
        """Whether the share is too high by more than luck."""
        if self.at_most == 0:
            return self.count > 0
        return self.at_most is not None and self.count / self.of - SURE * self.error > self.at_most

    @property
    def error(self) -> float:
        """Standard error of the share."""
        share = self.count / self.of
        return math.sqrt(share * (1 - share) / self.of)


def coverage_rows(case: Case, outcomes: Sequence[Mapping[str, Any]], truth: Truth, least_gain: float) -> list[Row]:
    """Return the rows of a case."""
    by_row: dict[str, list[Score]] = defaultdict(list)
    for outcome in outcomes:
        for name, score in scores(case, outcome, truth, least_gain).items():
            by_row[name].append(score)
    return [row_of(case, name, found) for name, found in by_row.items()]


def row_of(case: Case, name: str, found: Sequence[Score]) -> Row:
    """Reduce the scores of many experiments. Intervals of one experiment are not independent: it counts as one."""
    each = [score.held / score.claimed for score in found if score.claimed]
    coverage = statistics.fmean(each) if each else None
    error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    possible, claimed = sum(score.possible for score in found), sum(score.claimed for score in found)
    cannot_tell = 1 - claimed / possible
    ratios = [score.truth_ratio for score in found if not math.isnan(score.truth_ratio)]
    truth_ratio = statistics.median(ratios) if ratios else None
    widths = [width for score in found for width in score.widths]
    least = (CORE_AT_LEAST if case.core else REST_AT_LEAST) if case.counted else None
    ceiling, off = ceiling_of(case, name), []
    if least is not None and coverage is not None and coverage < least:
        off.append(f"coverage below {least:.0%}")
    if cannot_tell > ceiling:
        off.append(f"cannot tell in more than {ceiling:.0%}")
    if truth_ratio is not None and truth_ratio > TRUTH_AT_MOST:
        off.append("truth not known well enough")
    return Row(
        case=case.name, estimator=name, intervals=claimed, coverage=coverage, error=error,
        width=statistics.median(widths) - 1 if widths else None, cannot_tell=cannot_tell, ceiling=ceiling,
        truth_ratio=truth_ratio, least=least, off=tuple(off),
    )  # fmt: skip


def ceiling_of(case: Case, name: str) -> float:
    """Return the stated ceiling for the share of claims that are not made."""
    if name.startswith("tail "):
        return TAIL_CEILINGS.get(name.split()[2], DEEP_CEILING if case.deep else 1.0)
    if name.startswith("speed-up "):
        return SPEEDUP_CEILING
    return case.cannot_tell if name == "break-even e2e" else 1.0


def rates(case: Case, outcomes: Sequence[Mapping[str, Any]], truth: Truth, least_gain: float) -> list[Rate]:
    """Return how often the answers of a case were wrong."""
    of = len(outcomes)
    if case.aa:
        apart = sum(told_apart(outcome) for outcome in outcomes)
        return [Rate(case=case.name, what="told apart, though equal", count=apart, of=of, at_most=FALSE_AT_MOST)]
    wrong = [false_claims(outcome, truth, least_gain) for outcome in outcomes]
    found = [Rate(case=case.name, what="says of a load that it pays, falsely", count=sum(a for a, _ in wrong), of=of,
                  at_most=FALSE_AT_MOST if case.counted else None)]  # fmt: skip
    if not case.guarded:
        found.append(Rate(case=case.name, what="says that it never pays, falsely", count=sum(b for _, b in wrong),
                          of=of, at_most=FALSE_AT_MOST if case.counted else None))  # fmt: skip
    if case.pays_at_most is not None:
        paying = sum(bool(outcome["pays"]) for outcome in outcomes)
        found.append(Rate(case=case.name, what="says that it pays", count=paying, of=of, at_most=case.pays_at_most))
    return found


def answers(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """Return how often each answer was given."""
    counted = Counter(outcome["answer"] for outcome in outcomes).most_common()
    return ", ".join(f"{answer} {count}" for answer, count in counted)


def mean_coverage(rows: Sequence[Row], cases: Mapping[str, Case]) -> float | None:
    """Return the mean coverage over the rows that count."""
    found = [row.coverage for row in rows if row.coverage is not None and cases[row.case].counted]
    return statistics.fmean(found) if found else None


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the rows as text."""
    head = f"{'estimator':<32}{'intervals':>10}{'coverage':>16}{'width':>9}{'cannot tell':>19}{'truth':>8}"
    return [head, *(_line(row) for row in rows)]


def _line(row: Row) -> str:
    coverage = "–" if row.coverage is None else f"{row.coverage:.1%} ± {row.error:.1%}"
    width = "–" if row.width is None else f"{row.width:.1%}"
    told = f"{row.cannot_tell:.1%} of {row.ceiling:.0%}"
    truth = "–" if row.truth_ratio is None else f"{row.truth_ratio:.2f}"
    off = f"  OFF: {'; '.join(row.off)}" if row.off else ""
    return f"{row.estimator:<32}{row.intervals:>10}{coverage:>16}{width:>9}{told:>19}{truth:>8}{off}"


def rate_line(rate: Rate) -> str:
    """Return a rate as text."""
    share, limit = rate.count / rate.of, "" if rate.at_most is None else f" (at most {rate.at_most:.1%})"
    off = "" if rate.held else "  OFF"
    return f"{rate.what}: {rate.count} of {rate.of}, {share:.1%} ± {rate.error:.1%}{limit}{off}"


def mean_line(rows: Sequence[Row], cases: Mapping[str, Case]) -> str:
    """Return the sentence on the mean of all rows."""
    mean, (low, high) = mean_coverage(rows, cases), MEAN_WITHIN
    if mean is None:
        return "no row claims anything"
    off = "" if low <= mean <= high else "  OFF"
    return f"mean coverage of all rows: {mean:.1%} (from {low:.0%} to {high:.0%}){off}"
