"""An objective at every tested level: what was observed, and what its interval says of the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadtest.analyse.carried import NEVER, partly
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.gate_results import IDENTICAL, GateOutcome, SloAt
from loadtest.analyse.objectives import (
    Measurements,
    counter_samples,
    estimates,
    failed_as,
    identical,
    spread,
)
from loadtest.analyse.paired import compared, out_of_reach, paired_samples
from loadtest.analyse.percentiles import QUANTILES, bound_needs
from loadtest.analyse.reach import Loads
from loadtest.analyse.settle import value_noun
from loadtest.analyse.shares import difference
from loadtest.errors import nearest
from loadtest.settings import Experiment
from loadtest.slo import COUNTED, Ask, Slo, Unit

PASS, FAIL, INCONCLUSIVE, NO_DATA, INVALID = (
    GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.INCONCLUSIVE, GateOutcome.NO_DATA, GateOutcome.INVALID,
)  # fmt: skip
ROUNDING = 1e-12  # of the arithmetic between a limit and a bound that equals it
NAMED = 10  # categories in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """What objectives are judged on."""

    found: Measurements
    experiment: Experiment
    baseline: str
    candidate: str | None
    loads: Loads
    refused: str = ""  # why the run is not to be judged
    unproven: str = ""  # why it is not known that speculation was on in the candidate and off in the baseline
    unproven_at: Mapping[float, str] = field(default_factory=dict)  # the same of single levels

    @property
    def subject(self) -> str:
        """The arm that an objective is about: the candidate, or the only one."""
        return self.candidate or self.baseline


def held(observed: Estimate, limit: float, *, lower: bool) -> GateOutcome:
    """Return what an interval says of a limit; the limit itself meets it."""
    low, high = (observed.low, observed.high) if lower else (_turned(observed.high), _turned(observed.low))
    bound = limit if lower else -limit
    bound += abs(bound) * ROUNDING
    if observed.value is None or math.isnan(observed.value):
        return NO_DATA
    if low is not None and low > bound:
        return FAIL
    if high is None:
        return NO_DATA
    return PASS if high <= bound else INCONCLUSIVE


def _turned(value: float | None) -> float | None:
    return None if value is None else -value


def limit_of(slo: Slo) -> tuple[float, bool, str]:
    """Return (limit, whether the observed must lie below it, unit) as the observed is expressed."""
    share = slo.measure.unit is Unit.SHARE
    if slo.ask is Ask.ABSOLUTE:
        return slo.limit, slo.lower, slo.measure.unit.value
    if slo.ask is Ask.BENEFIT:
        return (slo.limit, False, "difference") if share else (1 + slo.limit, False, "speed-up")
    if share:
        return -slo.limit, False, "difference"
    return (1 / (1 + slo.limit) if slo.lower else 1 - slo.limit), False, "speed-up"


def at_levels(slo: Slo, facts: GateFacts) -> dict[float, SloAt]:
    """Return the objective at every tested level."""
    limit, lower, _ = limit_of(slo)
    if absent := _no_category(slo, facts):
        return {x: SloAt(level=x, outcome=NO_DATA, observed=Estimate(), says=absent) for x in facts.loads.levels}
    if slo.ask is Ask.ABSOLUTE:
        arm = facts.baseline if slo.arm == "baseline" else facts.subject
        observed, why = absolute(slo, arm, facts)
    else:
        observed, why = _compared(slo, facts)
    if facts.candidate is not None and (slo.ask is not Ask.ABSOLUTE or slo.arm != "baseline"):
        why = {**facts.unproven_at, **why}
    found = {}
    for level in facts.loads.levels:
        own = observed.get(level, Estimate())
        if level in why:
            found[level] = SloAt(
                level=level, outcome=FAIL if why[level] in (FAILED, NEVER) else NO_DATA, observed=own, says=why[level]
            )
            continue
        outcome = held(own, limit, lower=lower)
        found[level] = SloAt(level=level, outcome=outcome, observed=own, says=why_open(slo, own, outcome))
    return found


def _no_category(slo: Slo, facts: GateFacts) -> str:
    """Return that a run has no request of the category that an objective names; empty where it has."""
    known = [str(name) for name in facts.found.requests.words["category"] if name]
    if not slo.category or slo.category in known:
        return ""
    there = f"Categories are {', '.join(known[:NAMED])}" if known else "This run's requests have no categories"
    none = f"no {slo.subject} was measured: no request is of the category {slo.category!r}"
    return f"{none}.{nearest(slo.category, known)} {there}"


FAILED = "the candidate's failed requests reach it in every block"
NO_BASELINE = "the baseline is no measure there: {}"


def why_open(slo: Slo, own: Estimate, outcome: GateOutcome) -> str:
    """Return why an estimate settles nothing; empty when it does."""
    if outcome is INCONCLUSIVE:
        return "the interval holds the limit"
    if outcome is not NO_DATA:
        return ""
    if own.value is None:
        return f"no {slo.subject} was measured"
    if slo.statistic in QUANTILES and slo.ask is Ask.ABSOLUTE and own.n < bound_needs(QUANTILES[slo.statistic]):
        return f"{own.n} {value_noun(slo)}s do not bound a {slo.statistic}"
    return "one block gives no interval"


def unshown(slo: Slo, arm: str, found: Measurements) -> dict[float, str]:
    """Return the levels at which an arm's figure would rest on a part of what was asked, with the reason."""
    found = found.narrowed(slo.category)
    samples = counter_samples(slo, arm, found) if slo.metric in COUNTED else {}
    why: dict[float, str] = {}
    for level in found.levels:
        cells = found.of(arm, level)
        if slo.metric in COUNTED:
            told = len(samples.get(level, ()))
            if 0 < told < len(cells):
                why[level] = (f"{len(cells) - told} of {len(cells)} cells have no {slo.metric}: their counters were not"
                              " read, or nothing was drafted")  # fmt: skip
        elif slo.statistic == "mean" and slo.measure.unit is Unit.SECONDS:
            cut = failed_as(slo.metric, found.limits)
            failed = sum(int((rows.measured & ~rows.ok).sum()) for rows in map(found.requests.cell, cells))
            if failed and slo.limit >= cut:
                why[level] = f"failed requests count as {cut:g} s in a mean, which this limit lets pass"
    return why


def absolute(slo: Slo, arm: str, facts: GateFacts) -> tuple[dict[float, Estimate], dict[float, str]]:
    """Return an arm's estimates by level, and the levels where they are not to be used, with the reason."""
    observed, why = estimates(slo, arm, facts.found), unshown(slo, arm, facts.found) | _gave_in(arm, facts.found)
    if slo.metric in COUNTED or slo.metric in ("error_ratio", "goodput"):
        return observed, why
    same = spread(slo, arm, facts.found)
    return observed, {level: IDENTICAL for level, alike in same.items() if alike} | why


def _gave_in(arm: str, found: Measurements) -> dict[float, str]:
    """Return the levels at which an arm's server did not carry the load, with the reason."""
    left = {level: len(found.of(arm, level)) for level in found.levels}
    lost = {level: found.uncarried.get((arm, level), 0) for level in found.levels}
    return {level: partly(n, left[level]) if left[level] else NEVER for level, n in lost.items() if n}


def _compared(slo: Slo, facts: GateFacts) -> tuple[dict[float, Estimate], dict[float, str]]:
    assert facts.candidate is not None
    found, candidate = facts.found, facts.candidate
    its = {x: NO_BASELINE.format(says) for x, says in _gave_in(facts.baseline, found).items()}
    gave_in = _gave_in(candidate, found) | its
    if slo.metric in ("error_ratio", "goodput"):
        arms = [estimates(slo, arm, found) for arm in (facts.baseline, candidate)]
        return {x: difference(arms[0][x], arms[1][x], lower=slo.lower) for x in found.levels}, gave_in
    pairs = paired_samples(slo, facts.baseline, candidate, found)
    curve = compared(slo, pairs, found)
    why: dict[float, str] = {}
    if slo.measure.unit is Unit.SHARE:
        observed = {x: curve.difference(x) for x in found.levels}
    else:
        observed = {x: curve.ratio(x) for x in found.levels}
        why = {x: _unratioed(own) for x, own in pairs.items() if out_of_reach(own)}
    for level, own in pairs.items():
        if level not in why and all(identical(slo, figures) for figures in zip(*own, strict=True)):
            why[level] = IDENTICAL
    return observed, why | _too_short(slo, facts) | gave_in


def _unratioed(pairs: Sequence[tuple[float, float]]) -> str:
    if all(math.isinf(c) and not math.isinf(b) for b, c in pairs):
        return FAILED
    return (
        "failed requests reach it in some blocks"
        if any(math.isinf(v) for p in pairs for v in p)
        else "nothing was carried"
    )


def _too_short(slo: Slo, facts: GateFacts) -> dict[float, str]:
    """Return the levels at which a percentile of a cell rests on less than one request beyond it."""
    if slo.statistic not in QUANTILES:
        return {}
    found, q = facts.found.narrowed(slo.category), QUANTILES[slo.statistic]
    why = {}
    for level in found.levels:
        due = [int(found.requests.cell(c).measured.sum()) for arm in (facts.baseline, facts.subject)
               for c in found.of(arm, level)]  # fmt: skip
        if due and min(due) * (1 - q) < 1 - 1e-9:
            needed = math.ceil(1 / (1 - q) - 1e-9)
            why[level] = f"a cell of {min(due)} requests has no {slo.statistic}; {needed} have"
    return why
