"""One server, or a baseline and one candidate: their records judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from loadtest.analyse import wording
from loadtest.analyse.against_itself import judge_against_itself
from loadtest.analyse.breakeven import Translation, break_even, translated
from loadtest.analyse.carried import uncarried
from loadtest.analyse.cells import cell_facts, cell_view
from loadtest.analyse.client_notes import client_notes
from loadtest.analyse.compare import Curve, Pairs, curves, pair_requests, speedups
from loadtest.analyse.damage import run_damage
from loadtest.analyse.decide import EXITS, Evidence, decide, recommended
from loadtest.analyse.detail import detail
from loadtest.analyse.detail_results import Detail
from loadtest.analyse.explain import ByCell, explain_level, scrapes_by_cell, window_growth
from loadtest.analyse.further import Parts, findings
from loadtest.analyse.further import notes as further_notes
from loadtest.analyse.gating import Asked, with_gate
from loadtest.analyse.guards import by_arm_level, guards
from loadtest.analyse.looks import begun, judged_cells, many_starts, of_candidate, unjudged
from loadtest.analyse.metrics import BY_NAME, Kind
from loadtest.analyse.remarks import described
from loadtest.analyse.results import (
    Answer,
    ArmLevel,
    BreakEven,
    CellView,
    Comparability,
    Decision,
    Judgement,
)
from loadtest.analyse.run_validity import RunFacts, run_marks, twin_requests
from loadtest.analyse.summary import Measured, arm_levels, measure
from loadtest.analyse.table import Requests, derive
from loadtest.analyse.validity import LOAD_REACHED, Mark, cell_marks
from loadtest.record import CellRecord, PlannedCell, Scrape
from loadtest.settings import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Analysed:
    """A run, reduced."""

    run: Mapping[str, Any]
    experiment: Experiment
    baseline: str
    candidate: str | None
    cells: Sequence[CellRecord]
    valid: Sequence[CellRecord]
    levels: tuple[float, ...]
    requests: Requests
    measured: Mapping[int, Measured]
    scrapes: ByCell
    rows: tuple[ArmLevel, ...]
    damage: tuple[str, ...]

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms, baseline first."""
        return (self.baseline,) if self.candidate is None else (self.baseline, self.candidate)

    def of(self, arm: str, level: float | None = None) -> list[CellRecord]:
        """Return the valid cells of an arm, at one level or at all."""
        return [c for c in self.valid if c.arm == arm and level in (None, c.level)]


def judged(
    run: Mapping[str, Any], experiment: Experiment, cells: Sequence[CellRecord], scrapes: Sequence[Scrape],
    requests_table: pa.Table, plan: Sequence[PlannedCell] | None, asked: Asked, *, detailed: bool,
) -> Judgement:  # fmt: skip
    """Judge a run of one arm, or of a baseline and one candidate; `plan` where it has one.

    `detailed`: with what a reader looks at and nothing is decided by.
    """
    plan, requests_table = begun(run, cells, plan, requests_table)
    requests = derive(requests_table, cells, experiment.decision.reading_pace)
    grouped = scrapes_by_cell(scrapes)
    measured = measure(requests, cells)
    habits = run.get("habits")
    marks = {c.cell: cell_marks(cell_facts(c, measured[c.cell], grouped, experiment, requests.cell(c), habits))
             for c in cells}  # fmt: skip
    judged = judged_cells(run, cells)
    valid = [c for c in judged if not any(mark.invalid for mark in marks[c.cell])]
    marks |= {c.cell: (*marks[c.cell], mark) for c in cells if (mark := unjudged(run, c))}
    baseline, candidate = str(run["baseline"]), run.get("candidate") or None
    levels = tuple(sorted({c.level for c in judged}))
    arms = [baseline] if candidate is None else [baseline, str(candidate)]
    analysed = _Analysed(
        run=run, experiment=experiment, baseline=baseline, candidate=candidate, cells=judged, valid=valid,
        levels=levels, requests=requests, measured=measured, scrapes=grouped,
        rows=arm_levels(requests, valid, measured, grouped, arms, levels, varying=experiment.load.kind == "open",
                        restarted=many_starts(run)),
        damage=run_damage(cells, plan, requests),
    )  # fmt: skip
    views = tuple(cell_view(c, measured[c.cell], marks[c.cell], grouped) for c in cells)
    judgement = _alone(analysed, views) if candidate is None else _compared(analysed, views)
    if detailed:
        judgement = replace(judgement, detail=_detail(analysed, cells))
    return with_gate(judgement, run, experiment, requests, valid, grouped, asked, uncarried(judged))


def _detail(a: _Analysed, cells: Sequence[CellRecord]) -> Detail:
    return detail(a.requests, cells, a.valid, a.scrapes, a.arms, confidence=of_candidate(a.run),
                  restarted=many_starts(a.run))  # fmt: skip


def _run_marks(a: _Analysed, pairs: Pairs | None) -> tuple[Mark, ...]:
    return run_marks(
        RunFacts(
            run=a.run, baseline=a.baseline, candidate=a.candidate, cells=a.cells, valid=a.valid, measured=a.measured,
            arm_levels=a.rows, counters={arm: window_growth(a.of(arm), a.scrapes) for arm in a.arms},
            bodies_differ=pairs.bodies_differ if pairs else 0, pairs=pairs.count if pairs else 0, damage=a.damage,
            requests=a.requests, scrapes=a.scrapes, experiment=a.experiment,
            twins=twin_requests(a.requests.frame, a.valid, *a.arms) if a.candidate else None,
        )
    )  # fmt: skip


def _notes(a: _Analysed, marks: Sequence[Mark]) -> tuple[str, ...]:
    return (*(mark.sentence for mark in marks if not mark.invalid), *client_notes(a.run))


def _alone(a: _Analysed, views: tuple[CellView, ...]) -> Judgement:
    """One server: curves and tails, and no word on speculation."""
    marks = _run_marks(a, None)
    return Judgement(
        decision=_refused(marks) or _measured(a),
        arms=a.arms,
        levels=a.levels,
        arm_levels=a.rows,
        speedups=(),
        break_evens=(),
        why=(),
        cells=views,
        comparability=(),
        notes=_notes(a, marks),
    )


def _compared(a: _Analysed, views: tuple[CellView, ...]) -> Judgement:
    candidate = str(a.candidate)
    given_up = {level for _, level in uncarried(a.cells)}  # what is left there are the blocks in which it went well
    figures = {
        (c.arm, c.level, c.block): a.measured[c.cell].figures for c in a.valid if c.level not in given_up
    }  # fmt: skip
    restarted = many_starts(a.run)
    sure = of_candidate(a.run)
    by_metric = curves(figures, a.baseline, candidate, restarted=restarted, confidence=sure)
    pairs = pair_requests(a.requests.frame, [c.cell for c in a.valid], a.baseline, candidate)
    marks = _run_marks(a, pairs)
    index = by_arm_level(a.rows)
    evidence = Evidence(
        levels=a.levels, rules=a.experiment.decision, curves=_with_break_even(a, by_metric), rows=index,
        baseline=a.baseline, candidate=candidate, in_flight=_translation(a, "in_flight"),
        running=_translation(a, "running"),
        guards=guards(figures, index, a.baseline, candidate, a.levels, a.experiment.decision, restarted=restarted,
                      confidence=sure),
    )  # fmt: skip
    decision = _refused(marks) or _unjudged(a) or _against_itself(a, by_metric) or decide(evidence)
    found = findings(
        Parts(run=a.run, baseline=a.baseline, candidate=candidate, levels=a.levels, valid=a.valid, measured=a.measured,
              scrapes=a.scrapes, requests=a.requests, rows=index, curves=by_metric, pairs=pairs,
              in_flight=evidence.in_flight, restarted=restarted, confidence=sure,
              closed=a.experiment.load.kind == "closed", metric=a.experiment.decision.metric,
              recommended=recommended(decision, a.levels))
    )  # fmt: skip
    return Judgement(
        decision=decision,
        arms=a.arms,
        levels=a.levels,
        arm_levels=a.rows,
        speedups=speedups(by_metric),
        break_evens=() if a.run.get("aa") else _break_evens(evidence),
        why=tuple(
            explain_level(level, a.of(a.baseline, level), a.of(candidate, level), a.scrapes) for level in a.levels
        ),
        cells=views,
        comparability=tuple(_comparability(row) for row in a.run.get("comparability") or []),
        notes=(*_notes(a, marks), *further_notes(found)),
        slower_share=pairs.slower,
        median_pair=pairs.median,
        findings=found,
    )


def _comparability(row: Mapping[str, Any]) -> Comparability:
    known = {f.name: str(row.get(f.name, "")) for f in fields(Comparability)}
    return Comparability(**known | ({"kind": "waived"} if row.get("waived") else {}))


def _with_break_even(a: _Analysed, by_metric: Mapping[str, Curve]) -> dict[str, Curve]:
    """Leave out what is carried per second when users pause, or arrive: it then follows them, not the server."""
    below = [row for row in a.rows if row.in_flight is not None and row.in_flight < LOAD_REACHED * row.level]
    paused = bool(below) or a.experiment.load.kind == "open"
    return {
        name: curve
        for name, curve in by_metric.items()
        if not (paused and BY_NAME[name].kind is Kind.RATE) or name == a.experiment.decision.metric
    }


def _break_evens(evidence: Evidence) -> tuple[BreakEven, ...]:
    found = []
    for name, curve in evidence.curves.items():
        even = translated(break_even(curve, name), evidence.in_flight, evidence.running)
        found.append(described(even, curve, BY_NAME[name].label, evidence.levels))
    return tuple(found)


def _translation(a: _Analysed, quantity: str) -> Translation:
    """Average a measured quantity over the arms at each level where all have it."""
    by_level: dict[float, float] = {}
    for level in a.levels:
        seen = [getattr(row, quantity) for row in a.rows if row.level == level]
        if seen and None not in seen:
            by_level[level] = sum(seen) / len(seen)
    return Translation(by_level=by_level)


def _refused(marks: Sequence[Mark]) -> Decision | None:
    """Return the answer of an invalid run; its figures are shown and not judged."""
    reasons = tuple(mark.sentence for mark in marks if mark.invalid)
    if not reasons:
        return None
    return Decision(
        answer=Answer.INVALID,
        exit_code=int(EXITS[Answer.INVALID]),
        headline=f"This run is invalid and not judged. {reasons[0]}",
        recommendation="measure again",
        reasons=reasons,
    )


def _unjudged(a: _Analysed) -> Decision | None:
    if a.run.get("smoke"):
        return _tried(a)
    if (a.run.get("servers_file") or {}).get("comparison") == "isolated":
        return _measured(a, "an isolated comparison says why speculation pays or not, never whether to roll it out")
    return _measured(a, "the run was asked to measure only") if a.run.get("measure_only") else None


def _against_itself(a: _Analysed, by_metric: Mapping[str, Curve]) -> Decision | None:
    if not a.run.get("aa"):
        return None
    metric = a.experiment.decision.metric
    return judge_against_itself(a.run, by_metric[metric], metric, a.levels)


def _tried(a: _Analysed) -> Decision:
    """Say whether everything is ready to measure; an invalid cell or a failed request says that it is not."""
    lost = len(a.cells) - len(a.valid)
    failed = sum(row.failed for row in a.rows)
    wrong = [f"{lost} of {len(a.cells)} cells {'is' if lost == 1 else 'are'} invalid"] if lost else []
    wrong += [f"{failed} request{'s' if failed > 1 else ''} failed"] if failed else []
    ready = f"Not ready to measure: {' and '.join(wrong)}" if wrong else "Ready to measure: everything worked"
    headline = f"{ready}, at {wording.tested(a.levels)}. A smoke run judges nothing."
    return Decision(answer=Answer.MEASURED, exit_code=int(EXITS[Answer.MEASURED]), headline=headline)


def _measured(a: _Analysed, why: str = "") -> Decision:
    """Say what was measured, and that speculation was not judged: objectives may be, whatever this says."""
    tested = wording.tested(a.levels)
    headline = f"Whether speculation pays was not judged: {why}, at {tested}."
    return Decision(
        answer=Answer.MEASURED,
        exit_code=int(EXITS[Answer.MEASURED]),
        headline=headline if a.candidate else f"One server was measured, at {tested}: nothing was compared.",
    )
