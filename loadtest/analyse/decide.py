"""The decision: does speculation pay, up to what load, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loadtest.analyse import wording
from loadtest.analyse.breakeven import Translation, break_even, leading_limit, translated
from loadtest.analyse.compare import Curve, together
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.guards import Rows
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.remarks import described, growth_remark, second_sentence, would_settle
from loadtest.analyse.results import Answer, BreakEven, Decision, Finding, Guard
from loadtest.errors import ExitCode
from loadtest.settings import Decision as Rules

PAYS, OPEN, NOT = "pays", "open", "not"

EXITS = {
    Answer.PAYS_UP_TO: ExitCode.PASS,
    Answer.PAYS_EVERYWHERE: ExitCode.PASS,
    Answer.PAYS_IN_BAND: ExitCode.PASS,
    Answer.MEASURED: ExitCode.PASS,
    Answer.NEVER_PAYS: ExitCode.FAILED,
    Answer.CANNOT_TELL: ExitCode.INCONCLUSIVE,
    Answer.INVALID: ExitCode.INVALID,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a decision rests on; levels ascend."""

    levels: Sequence[float]
    rules: Rules
    curves: Mapping[str, Curve]
    guards: Sequence[Guard]
    rows: Rows
    baseline: str
    candidate: str
    in_flight: Translation
    running: Translation

    @property
    def curve(self) -> Curve:
        """The curve of the metric that decides."""
        return self.curves[self.rules.metric]

    @property
    def label(self) -> str:
        """The deciding metric as it stands in a sentence."""
        return BY_NAME[self.rules.metric].label


def level_state(evidence: Evidence, level: float) -> str:
    """Return whether it pays at a level: the whole interval beyond the least gain, and no guard proven broken.

    A guard without data leaves it open.
    """
    own = [guard.finding for guard in evidence.guards if guard.level == level]
    ratio, threshold = evidence.curve.ratio(level), 1 + evidence.rules.min_gain
    if Finding.BROKEN in own or (ratio.high is not None and ratio.high < threshold):
        return NOT
    if ratio.low is None or ratio.low <= threshold or Finding.NO_DATA in own:
        return OPEN
    return PAYS


def level_states(evidence: Evidence) -> list[str]:
    """Return the state of every level, such that any of them says "pays" wrongly with at most the intervals' own error.

    Of many levels some interval errs by chance. A claim therefore either begins at the lowest level and goes on level
    by level (a fixed sequence of tests: each is asked only when those before it held, so that none costs the others
    confidence), or rests on a level whose interval holds for all levels together. Half of the error, the side that
    matters, is spent on each.
    """
    states = [level_state(evidence, level) for level in evidence.levels]
    curve, threshold = together(evidence.curve), 1 + evidence.rules.min_gain
    start = 0
    while start < len(states):
        stop = start
        while stop < len(states) and states[stop] == PAYS:
            stop += 1
        lows = [curve.ratio(level).low for level in evidence.levels[start:stop]]
        if start and not any(low is not None and low > threshold for low in lows):
            states[start:stop] = [OPEN] * (stop - start)
        start = max(stop, start + 1)
    return states


def answer_of(states: Sequence[str]) -> Answer:
    """Turn the levels' states, in ascending order of load, into an answer."""
    if PAYS not in states:
        return Answer.NEVER_PAYS if states and set(states) == {NOT} else Answer.CANNOT_TELL
    if set(states) == {PAYS}:
        return Answer.PAYS_EVERYWHERE
    leading = next(i for i, state in enumerate(states) if state != PAYS)
    return Answer.PAYS_UP_TO if leading and PAYS not in states[leading:] else Answer.PAYS_IN_BAND


def decide(evidence: Evidence) -> Decision:
    """Judge a valid comparison."""
    states = level_states(evidence)
    answer = answer_of(states)
    limit = _limit(evidence, states, answer)
    even = break_even(evidence.curve, evidence.rules.metric)
    even = translated(even, evidence.in_flight, evidence.running)
    even = described(even, evidence.curve, evidence.label, evidence.levels)
    undecided = [x for x, state in zip(evidence.levels, states, strict=True) if state == OPEN]
    settles, more = would_settle(evidence.curve, 1 + evidence.rules.min_gain, undecided, evidence.guards)
    return Decision(
        answer=answer,
        exit_code=int(EXITS[answer]),
        headline=_headline(evidence, states, answer, limit),
        second=second_sentence(evidence.curves, evidence.rules.metric, evidence.levels),
        recommendation=_recommendation(answer, limit),
        would_settle=settles,
        more_blocks=more,
        limit=limit,
        break_even=even,
        guards=tuple(evidence.guards),
        reasons=_reasons(evidence, states),
    )


def _limit(evidence: Evidence, states: Sequence[str], answer: Answer) -> BreakEven:
    """Return the load up to which it pays: the metric's limit, or the first level at which a guard stops it."""
    threshold, levels = 1 + evidence.rules.min_gain, list(evidence.levels)
    limit = break_even(evidence.curve, evidence.rules.metric, threshold)
    if answer is Answer.PAYS_UP_TO:
        stop = next(i for i, state in enumerate(states) if state != PAYS)
        low = evidence.curve.ratio(levels[stop]).low
        if low is None or low > threshold:  # the metric itself is not what stops it here
            last, guarded = levels[stop - 1], states[stop] == NOT
            at = Estimate(value=last, low=last, high=levels[stop] if guarded else None)
        else:
            own = leading_limit(evidence.curve, threshold)
            at = _capped(own, evidence.guards)
            guarded = at.high != own.high
        limit = replace(limit, form=Crossing.PAYS_UP_TO, at=at, regions=((levels[0], at.low or levels[stop - 1]),),
                        ended_by=_worded(evidence, at.high) if guarded else "")  # fmt: skip
    elif answer is Answer.PAYS_IN_BAND:
        limit = replace(limit, form=Crossing.BAND, at=Estimate(), regions=_paying_runs(levels, states))
    elif answer is Answer.NEVER_PAYS:
        limit = replace(limit, form=Crossing.NEVER_PAYS, at=Estimate(), regions=())
    elif answer is Answer.CANNOT_TELL and limit.form is not Crossing.NO_DATA:
        limit = replace(limit, form=Crossing.CANNOT_TELL, regions=())
    limit = translated(limit, evidence.in_flight, evidence.running)
    return described(limit, evidence.curve, evidence.label, evidence.levels)


def _capped(at: Estimate, guards: Sequence[Guard]) -> Estimate:
    """Take back a limit that lies beyond the first level at which a guard is broken."""
    cap = min((g.level for g in guards if g.finding is Finding.BROKEN), default=math.inf)
    high = math.inf if at.high is None else at.high
    if high <= cap:
        return at
    return replace(at, high=cap, value=cap if at.value is None else min(at.value, cap))


def _paying_runs(levels: Sequence[float], states: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """Return the tested loads that pay, neighbours joined."""
    runs: list[tuple[float, float]] = []
    for i, level in enumerate(levels):
        if states[i] != PAYS:
            continue
        joined = i > 0 and states[i - 1] == PAYS
        runs[-1:] = [(runs[-1][0], level)] if joined else [*runs[-1:], (level, level)]
    return tuple(runs)


def _headline(evidence: Evidence, states: Sequence[str], answer: Answer, limit: BreakEven) -> str:
    by = f"by {evidence.label}, by at least {wording.percent(evidence.rules.min_gain)}"
    levels = evidence.levels
    match answer:
        case Answer.PAYS_UP_TO:
            stop = next(i for i, state in enumerate(states) if state != PAYS)
            known = wording.estimated(limit, levels)
            end = (f"; {known}" if known else "") + ("" if limit.ended_by else _broken(evidence, levels[stop]))
            return f"Speculation pays up to {wording.pays_up_to(limit)} {by}{end}."
        case Answer.PAYS_EVERYWHERE:
            growth = growth_remark(evidence.rows, evidence.baseline, levels)
            return f"Speculation pays at every tested load ({wording.tested(levels)}) {by}{growth}."
        case Answer.PAYS_IN_BAND:
            return f"Speculation pays {wording.ranges(limit.regions)} {by}; elsewhere it does not, or cannot be told."
        case Answer.NEVER_PAYS:
            return f"Speculation pays at none of the tested loads ({wording.tested(levels)}) {by}{_best(evidence)}."
        case _:
            asked = f"at least {wording.percent(evidence.rules.min_gain)} must be gained by {evidence.label}"
            return f"Whether speculation pays cannot be told yet{_best(evidence)}; {asked}."


def _best(evidence: Evidence) -> str:
    curve = evidence.curve
    if not len(curve.levels):
        return next((said for level in evidence.levels if (said := _broken(evidence, level))), "")
    level = float(curve.levels[int(curve.mean.argmax())])
    broken = _broken(evidence, level)
    return f": the best speed-up is {wording.ratio(curve.ratio(level))}, at {wording.with_unit(level)}{broken}"


def _broken(evidence: Evidence, level: float) -> str:
    found = _worded(evidence, level)
    return f"; at {wording.with_unit(level)} {found}" if found else ""


def _worded(evidence: Evidence, level: float | None, finding: Finding = Finding.BROKEN) -> str:
    """Return what the guards of a level say that are broken, or found otherwise."""
    return " and ".join(g.sentence for g in evidence.guards if g.level == level and g.finding is finding)


def _recommendation(answer: Answer, limit: BreakEven) -> str:
    match answer:
        case Answer.PAYS_EVERYWHERE:
            return "on"
        case Answer.PAYS_UP_TO:
            return f"on up to {wording.claimed(limit.at)}"
        case Answer.PAYS_IN_BAND:
            return f"on {wording.ranges(limit.regions)}"
        case Answer.NEVER_PAYS:
            return "off"
        case _:
            return "measure more"


def recommended(decision: Decision, levels: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return the ranges of load in which the recommendation switches speculation on; none where nothing is claimed."""
    limit = decision.limit
    if limit is None or not levels:
        return ()
    match decision.answer:
        case Answer.PAYS_EVERYWHERE:
            return ((levels[0], levels[-1]),)
        case Answer.PAYS_UP_TO:
            return ((levels[0], max(levels[0], wording.claimed_load(limit.at))),)
        case Answer.PAYS_IN_BAND:
            return limit.regions
        case _:
            return ()


def _reasons(evidence: Evidence, states: Sequence[str]) -> tuple[str, ...]:
    """Say why levels are open, and which a guard alone stops."""
    threshold, found = 1 + evidence.rules.min_gain, []
    for level, state in zip(evidence.levels, states, strict=True):
        ratio, where = evidence.curve.ratio(level), f"At {wording.with_unit(level)}"
        if state == NOT and (ratio.high is None or ratio.high >= threshold):
            found.append(f"{where} {_worded(evidence, level)}.")
        if state != OPEN:
            continue
        missing, told = _worded(evidence, level, Finding.NO_DATA), wording.ratio(ratio, threshold)
        if ratio.value is None:
            found.append(f"{where} no valid pair of cells exists.")
        elif ratio.low is None or ratio.high is None:
            found.append(f"{where} the speed-up {told} has no interval.")
        elif ratio.low <= threshold:
            found.append(f"{where} the speed-up {told} contains {threshold:.2f}.")
        elif missing:
            found.append(f"{where} {missing}.")
        else:
            found.append(f"{where} the speed-up {told} is beyond {threshold:.2f}, but not surely so when"
                         f" {len(evidence.levels)} levels are looked at.")  # fmt: skip
    return tuple(found)
