"""The gate: every objective judged on its interval, at the loads that it names.

pass: the whole interval meets the limit · fail: none of it does · inconclusive: it holds the limit · no data: there is
no interval, or it would rest on something that was not shown · invalid: the run is not to be judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loadtest.analyse import settle
from loadtest.analyse.gate_results import GateOutcome, SloAt, SloResult
from loadtest.analyse.reach import Reach, reach
from loadtest.analyse.slo_levels import (
    FAIL,
    INCONCLUSIVE,
    INVALID,
    NO_DATA,
    PASS,
    GateFacts,
    at_levels,
    held,
    limit_of,
    why_open,
)
from loadtest.analyse.traffic import expected_gain
from loadtest.slo import TRAFFIC, Ask, Slo, Unit

GRAVEST = (INVALID, FAIL, NO_DATA, INCONCLUSIVE, PASS)


def judge_slo(slo: Slo, facts: GateFacts) -> SloResult:
    """Judge one objective."""
    arm = facts.baseline if slo.arm == "baseline" else facts.subject
    limit, lower, unit = limit_of(slo)
    result = SloResult(
        sentence=slo.sentence, metric=slo.metric, statistic=slo.statistic, ask=slo.ask.value, unit=unit, limit=limit,
        lower=lower, category=slo.category, arm=arm if slo.ask is Ask.ABSOLUTE else "", source=slo.source,
        outcome=INVALID, says=facts.refused,
    )  # fmt: skip
    if facts.refused:
        return result
    if slo.ask is not Ask.ABSOLUTE and facts.candidate is None:
        return replace(result, outcome=NO_DATA, says="one server was measured: there is no baseline to compare with")
    if facts.unproven and arm != facts.baseline and facts.candidate is not None:
        return replace(result, outcome=NO_DATA, says=facts.unproven)
    levels = at_levels(slo, facts)
    found = _at(slo, facts, levels)
    settles = ""
    if found.at:
        there = 0 if found.at.level is None else len(facts.found.of(arm, found.at.level))
        settles = settle.sentence(slo, found.at, limit, lower=lower, blocks=there)
    return replace(result, outcome=found.outcome, at=found.at, levels=tuple(levels.values()), says=found.says,
                   would_settle=found.would_settle or settles)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    outcome: GateOutcome
    at: SloAt | None = None
    says: str = ""
    would_settle: str = ""


def _at(slo: Slo, facts: GateFacts, levels: Mapping[float, SloAt]) -> _Found:
    if slo.load.unit == TRAFFIC and slo.ask is not Ask.ABSOLUTE and _has_mean(slo):
        return _over_traffic(slo, facts)
    within = reach(slo.load, facts.loads, facts.experiment.traffic)
    inside = [levels[level] for level in within.inside]
    if within.either:
        return _between(inside, slo)
    failing = _gravest(inside)
    if failing is not None and failing.outcome is FAIL:
        return _Found(outcome=FAIL, at=failing, says=failing.says)
    if within.missing:
        return _Found(outcome=NO_DATA, says=within.missing, would_settle="Test the loads that it names.")
    return _all_of(inside, within, levels)


def _has_mean(slo: Slo) -> bool:
    return slo.measure.unit is not Unit.SHARE and slo.statistic in ("", "mean")


def _gravest(found: Sequence[SloAt]) -> SloAt | None:
    return min(found, key=lambda at: GRAVEST.index(at.outcome), default=None)


def _all_of(inside: Sequence[SloAt], within: Reach, levels: Mapping[float, SloAt]) -> _Found:
    """Every level inside must hold; where the ladder jumps over the load, the level beyond it as well."""
    if within.beyond is not None:
        beyond = levels[within.beyond]
        if lacking := _lacking([*inside, beyond]):
            return lacking
        if beyond.outcome is not PASS:
            says = f"{within.beyond:g} does not hold, and the load asked for was not tested itself"
            return _Found(outcome=INCONCLUSIVE, at=replace(beyond, outcome=INCONCLUSIVE), says=says,
                          would_settle="Test the load that it names.")  # fmt: skip
        inside = [*inside, beyond]
    worst = _gravest(inside)
    if worst is None:
        return _Found(outcome=NO_DATA, says="no level was measured")
    if worst.outcome is PASS:
        worst = inside[-1]
    return _Found(outcome=worst.outcome, at=worst, says=worst.says)


def _lacking(found: Sequence[SloAt]) -> _Found | None:
    """Return the first level without data: where one says nothing, what lies between levels is not even open."""
    lacking = next((at for at in found if at.outcome is NO_DATA), None)
    return None if lacking is None else _Found(outcome=NO_DATA, at=lacking, says=lacking.says)


def _between(inside: Sequence[SloAt], slo: Slo) -> _Found:
    if lacking := _lacking(inside):
        return lacking
    outcomes = {at.outcome for at in inside}
    worst = _gravest(inside)
    assert worst is not None
    if len(outcomes) == 1:
        worst = inside[-1] if worst.outcome is PASS else worst
        return _Found(outcome=worst.outcome, at=worst, says=worst.says)
    names = " and ".join(f"{at.level:g}" for at in inside)
    says = f"{slo.load.value:g} was not tested, and {names} do not agree"
    return _Found(outcome=INCONCLUSIVE, at=replace(worst, outcome=INCONCLUSIVE), says=says,
                  would_settle="Test the load that it names.")  # fmt: skip


def _over_traffic(slo: Slo, facts: GateFacts) -> _Found:
    assert facts.candidate is not None
    gain, why = expected_gain(slo, facts.baseline, facts.candidate, facts.found, facts.loads, facts.experiment.traffic)
    if why:
        return _Found(outcome=NO_DATA, says=why)
    limit, lower, _ = limit_of(slo)
    outcome = held(gain, limit, lower=lower)
    says = why_open(slo, gain, outcome)
    return _Found(outcome=outcome, at=SloAt(level=None, outcome=outcome, observed=gain, says=says), says=says)
