"""Several candidates and one baseline: each is judged against it as if the two were alone, with intervals that hold
for all candidates together, and the candidates are compared with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loadtest.analyse import several_gate, several_words, wording
from loadtest.analyse.compare import Figures
from loadtest.analyse.decide import EXITS
from loadtest.analyse.gating import Asked
from loadtest.analyse.looks import candidates_in, confidence, judged_cells, many_starts
from loadtest.analyse.pair import judged
from loadtest.analyse.ranking import rank
from loadtest.analyse.ranking_results import Ranking
from loadtest.analyse.results import Answer, ArmLevel, CellView, Decision, Judgement
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.record import CellRecord, PlannedCell, Scrape
from loadtest.settings import Experiment

OF_SIMULATED = ("late_ratio", "truth")  # of `simulated`: by arm


def pair_header(run: Mapping[str, Any], candidate: str) -> dict[str, Any]:
    """Return the header of a run of several candidates as that of the baseline and one of them.

    It still lists the candidates, since their number decides what an interval is worth.
    """
    arms = (run["baseline"], candidate)
    own: dict[str, Any] = {**run, "candidate": candidate}
    own["arms"] = [arm for arm in run.get("arms") or () if arm.get("name") in arms]
    own["comparability"] = [row for row in run.get("comparability") or () if row.get("arm") == candidate]
    if run.get("simulated"):
        kept = {
            name: {arm: value for arm, value in run["simulated"][name].items() if arm in arms}
            for name in OF_SIMULATED
            if isinstance(run["simulated"].get(name), Mapping)
        }
        own["simulated"] = {**run["simulated"], **kept}
    return own


def judged_several(
    run: Mapping[str, Any], experiment: Experiment, cells: Sequence[CellRecord], scrapes: Sequence[Scrape],
    requests: pa.Table, plan: Sequence[PlannedCell] | None, asked: Asked, *, detailed: bool,
) -> Judgement:  # fmt: skip
    """Judge a run whose header lists `candidates`."""
    names = [str(name) for name in run["candidates"]]
    pairs: dict[str, Judgement] = {}
    for name in names:
        arms = (str(run["baseline"]), name)
        own = requests.filter(pc.is_in(requests.column("arm").cast(pa.string()), pa.array(arms)))
        pairs[name] = judged(
            pair_header(run, name), experiment, [c for c in cells if c.arm in arms],
            [s for s in scrapes if s.arm in arms], own,
            None if plan is None else [c for c in plan if c.arm in arms], asked, detailed=detailed,
        )  # fmt: skip
    levels = tuple(sorted({level for pair in pairs.values() for level in pair.levels}))
    views = _views(pairs)
    ranking = _ranked(run, experiment, cells, requests, pairs, views, levels)
    decision = _decision(pairs, experiment, levels, ranking)
    found = Judgement(
        decision=decision,
        arms=(str(run["baseline"]), *names),
        levels=levels,
        arm_levels=_arm_levels(pairs),
        speedups=(),
        break_evens=(),
        why=(),
        cells=views,
        comparability=(),
        notes=_notes(pairs, ranking),
        gate=several_gate.together(pairs, decision, experiment, asked),
        pairs=tuple(pairs.values()),
        ranking=ranking,
    )
    if found.gate is None:
        return found
    return replace(found, decision=replace(found.decision, exit_code=found.gate.exit_code))


def _views(pairs: Mapping[str, Judgement]) -> tuple[CellView, ...]:
    """Return every cell once, in running order; what marks a cell is its own."""
    found = {view.cell: view for pair in pairs.values() for view in pair.cells}
    return tuple(found[number] for number in sorted(found))


def _arm_levels(pairs: Mapping[str, Judgement]) -> tuple[ArmLevel, ...]:
    """Return the baseline's summaries, then each candidate's."""
    found = {(row.arm, row.level): row for pair in pairs.values() for row in pair.arm_levels}
    baseline = next(iter(pairs.values())).arms[0]
    return tuple(row for arm in (baseline, *pairs) for row in found.values() if row.arm == arm)


def _ranked(
    run: Mapping[str, Any], experiment: Experiment, cells: Sequence[CellRecord], requests: pa.Table,
    pairs: Mapping[str, Judgement], views: Sequence[CellView], levels: Sequence[float],
) -> Ranking:  # fmt: skip
    """Compare the candidates that are judged with each other, by their valid cells."""
    valid = {view.cell for view in views if view.valid}
    own = [c for c in judged_cells(run, cells) if c.cell in valid and c.arm in pairs]
    sound = [name for name, pair in pairs.items() if pair.decision.answer is not Answer.INVALID]
    measured = measure(derive(requests, cells, experiment.decision.reading_pace), own)
    figures: Figures = {(c.arm, c.level, c.block): measured[c.cell].figures for c in own}
    ranking = rank(figures, sound, levels, experiment.decision.metric, among=candidates_in(run),
                   restarted=many_starts(run), confidence=confidence(run))  # fmt: skip
    return replace(ranking, sentence=several_words.relations(ranking) if len(sound) > 1 else "")


def _decision(
    pairs: Mapping[str, Judgement], experiment: Experiment, levels: Sequence[float], ranking: Ranking
) -> Decision:
    """Return what the run as a whole says: the strongest answer of a candidate, and all of them in words."""
    order = several_words.by_strength(pairs)
    strongest = pairs[order[0]].decision
    if strongest.answer is Answer.INVALID:
        return _invalid(pairs)
    if strongest.answer is Answer.MEASURED:
        return strongest
    rules = experiment.decision
    return Decision(
        answer=strongest.answer,
        exit_code=int(EXITS[strongest.answer]),
        headline=several_words.headline(pairs, rules.metric, rules.min_gain, levels, ranking),
        second=_second(pairs, ranking),
        recommendation=several_words.recommendation(pairs, ranking),
        would_settle=_of_each(pairs, {name: pair.decision.would_settle for name, pair in pairs.items()
                                      if pair.decision.answer is Answer.CANNOT_TELL}),
        reasons=tuple(f"{name}: {reason}" for name, pair in pairs.items() for reason in pair.decision.reasons),
    )  # fmt: skip


def _invalid(pairs: Mapping[str, Judgement]) -> Decision:
    """Return the answer of a run none of whose candidates is judged: what is wrong of all is said once."""
    first = next(iter(pairs.values())).decision
    shared = [reason for reason in first.reasons if all(reason in pair.decision.reasons for pair in pairs.values())]
    own = [f"{name}: {reason}" for name, pair in pairs.items() for reason in pair.decision.reasons
           if reason not in shared]  # fmt: skip
    reasons = (*shared, *own)
    return replace(first, headline=f"This run is invalid and not judged. {reasons[0]}", reasons=reasons)


def _second(pairs: Mapping[str, Judgement], ranking: Ranking) -> str:
    """Return what stands next to the answer: how the candidates compare, and why one of them is not judged."""
    lost = [f"{name} is not judged: {pair.decision.reasons[0]}" for name, pair in pairs.items()
            if pair.decision.answer is Answer.INVALID and pair.decision.reasons]  # fmt: skip
    own = [f"{name}: {pair.decision.second}" for name, pair in pairs.items() if pair.decision.second]
    return " ".join(part for part in (ranking.sentence, *lost, *own) if part)


def _of_each(pairs: Mapping[str, Judgement], said: Mapping[str, str]) -> str:
    return " ".join(f"{name}: {said[name]}" for name in pairs if said.get(name))


def _notes(pairs: Mapping[str, Judgement], ranking: Ranking) -> tuple[str, ...]:
    """Return the notes that all pairs share, once, then those of one or some, with their names."""
    by_note: dict[str, list[str]] = {}
    for name, pair in pairs.items():
        for note in pair.notes:
            by_note.setdefault(note, []).append(name)
    every = [note for note, of in by_note.items() if len(of) == len(pairs)]
    some = [f"{several_words.listed(of)}: {note}" for note, of in by_note.items() if len(of) < len(pairs)]
    return (*every, *some, _family(len(pairs), ranking))


def _family(count: int, ranking: Ranking) -> str:
    """Say what the intervals of several candidates are worth."""
    return (
        f"{count} candidates are held against one baseline: intervals of speed-ups, limits and guards hold for all of"
        f" them together with {wording.percent(ranking.confidence)} (Bonferroni: each with"
        f" {100 * ranking.of_candidate:.4g} %), those between candidates for all pairs and loads together (each with"
        f" {100 * ranking.of_pair:.5g} %)."
    )
