"""From a reduced run to the gate's answer: objectives, capacity, expected traffic, one outcome and one exit code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadtest.analyse import capacity, gate_words, wording
from loadtest.analyse.carried import Uncarried
from loadtest.analyse.counters import tokens_per_step
from loadtest.analyse.explain import ByCell, window_growth
from loadtest.analyse.gate import GRAVEST, judge_slo
from loadtest.analyse.gate_results import Gate, GateOutcome, TrafficGain
from loadtest.analyse.looks import many_starts, of_candidate
from loadtest.analyse.objectives import Measurements
from loadtest.analyse.reach import Loads
from loadtest.analyse.results import Answer, Decision, Judgement
from loadtest.analyse.server_validity import is_faked
from loadtest.analyse.slo_levels import GateFacts
from loadtest.analyse.table import Requests
from loadtest.analyse.traffic import expected_day, expected_gain
from loadtest.errors import ExitCode
from loadtest.loads import unit_of
from loadtest.record import GIVEN_UP, CellRecord
from loadtest.settings import Experiment
from loadtest.slo import BY_DESIGN, MEASURES, TRAFFIC, Ask, Load, Slo
from loadtest.slo_tables import objectives

EXITS = {
    GateOutcome.PASS: ExitCode.PASS,
    GateOutcome.FAIL: ExitCode.FAILED,
    GateOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    GateOutcome.NO_DATA: ExitCode.INCONCLUSIVE,
    GateOutcome.INVALID: ExitCode.INVALID,
}
CHOSEN = {"": ExitCode.INCONCLUSIVE, "fail": ExitCode.FAILED, "warn": ExitCode.PASS}
STRENGTH = {
    Answer.PAYS_UP_TO: GateOutcome.PASS, Answer.PAYS_EVERYWHERE: GateOutcome.PASS,
    Answer.PAYS_IN_BAND: GateOutcome.PASS, Answer.NEVER_PAYS: GateOutcome.FAIL,
    Answer.CANNOT_TELL: GateOutcome.INCONCLUSIVE, Answer.INVALID: GateOutcome.INVALID,
    Answer.MEASURED: GateOutcome.INVALID,
}  # fmt: skip
DECLARED = "declared speculation"
FAKED = "acceptance was faked: drafts were accepted by chance, so that nothing is shown for a rollout"
SIMULATED = "the servers were simulated: nothing is shown of real ones (--allow-simulated judges them all the same)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a run is to be judged: by `loadtest gate`, or by the run and the report themselves."""

    gate: bool = False  # a gate passes nothing that was not judged
    allow_simulated: bool = False
    confidence: float | None = None  # of every interval, in place of the run's own; at a look at a run that goes on
    candidate: str = ""  # of several, the one that is judged; empty: all


RUN = Asked()


def slos_of(experiment: Experiment, *, compared: bool) -> tuple[Slo, ...]:
    """Return the objectives of an experiment; with traffic and none of them, the gain expected over it decides."""
    asked = objectives(experiment.slo.rules)
    if asked or not compared or not experiment.traffic.loads:
        return asked
    metric = experiment.decision.metric
    return (Slo(metric=metric, statistic="mean" if MEASURES[metric].tails else "", ask=Ask.BENEFIT,
                limit=experiment.decision.min_gain, load=Load(unit=TRAFFIC)),)  # fmt: skip


def why_refused(run: Mapping[str, Any], decision: Decision, asked: Asked) -> str:
    """Return why a gate does not judge a run at all; empty when it does."""
    if decision.answer is Answer.INVALID:
        return decision.reasons[0] if decision.reasons else decision.headline
    if run.get("smoke"):
        return "a smoke run judges nothing"
    if run.get("aa"):
        return "an A/A run compares a server with itself"
    if run.get("candidate") and (run.get("servers_file") or {}).get("comparison") == "isolated":
        return "an isolated comparison says why speculation pays or not, never whether to roll it out"
    if asked.gate and run.get("simulated") is not None and not asked.allow_simulated:
        return SIMULATED
    if is_faked(run):
        return FAKED
    return ""


def gate_of(run: Mapping[str, Any], decision: Decision, facts: GateFacts, asked: Asked) -> Gate | None:
    """Return the gate's answer; None where nothing was asked for, or where the run says that nothing is judged."""
    experiment = facts.experiment
    every = slos_of(experiment, compared=facts.candidate is not None)
    slos = tuple(slo for slo in every if slo.candidate in ("", facts.candidate))
    if every and not slos:
        return None  # nothing is asked of this one of several candidates
    if not asked.gate and (not slos or run.get("smoke") or run.get("aa") or run.get("measure_only")):
        return None
    facts = replace(facts, refused=why_refused(run, decision, asked))
    if not slos and run.get("status") == GIVEN_UP:
        facts = replace(facts, refused=facts.refused or f"the run was ended early ({run.get('reason')})")
    if not slos:
        return _without_objectives(decision, facts)
    results = tuple(judge_slo(slo, facts) for slo in slos)
    failed = any(r.outcome is GateOutcome.FAIL for r in results)
    if run.get("status") == GIVEN_UP and not failed and not facts.refused:
        facts = replace(facts, refused=f"the run was ended early ({run.get('reason')}): it can fail and not pass")
        results = tuple(judge_slo(slo, facts) for slo in slos)
    arms = capacity.capacities(slos, facts, gpus_of(run), experiment.price)
    ratio = capacity.ratio_of(arms)
    return concluded(Gate(
        outcome=GateOutcome.INVALID, exit_code=int(ExitCode.INVALID), headline=facts.refused, objectives=results,
        capacities=arms, capacity_ratio=ratio, capacity_sentence=capacity.sentence(arms, ratio),
        traffic=traffic_gain(facts), inconclusive=experiment.gate.inconclusive, refused=facts.refused,
        notes=tuple(_notes(slos, run, asked)), unproven=facts.unproven,
    ))  # fmt: skip


def _without_objectives(decision: Decision, facts: GateFacts) -> Gate:
    """The decision is the gate; what was only measured passes nothing."""
    outcome = GateOutcome.INVALID if facts.refused else STRENGTH[decision.answer]
    why = facts.refused or "nothing was judged: the run has no objectives; name them with --slo FILE"
    if outcome in (GateOutcome.PASS, GateOutcome.INCONCLUSIVE) and facts.unproven:
        outcome = GateOutcome.NO_DATA
        why = facts.unproven
    judged = outcome not in (GateOutcome.INVALID, GateOutcome.NO_DATA)
    choice = facts.experiment.gate.inconclusive
    code = CHOSEN[choice] if outcome is GateOutcome.INCONCLUSIVE else EXITS[outcome]
    headline = decision.headline if judged else f"Gate: not passed: {why.rstrip('.')}."
    return Gate(outcome=outcome, exit_code=int(code), headline=headline, inconclusive=choice, refused=facts.refused,
                unproven=facts.unproven)  # fmt: skip


def gpus_of(run: Mapping[str, Any]) -> dict[str, int]:
    """Return the GPUs declared for each arm, over all its replicas."""
    found = {}
    for arm in run.get("arms") or ():
        gpus = arm.get("gpus") if isinstance(arm, Mapping) else None
        if isinstance(gpus, int) and not isinstance(gpus, bool) and gpus > 0:
            found[str(arm.get("name"))] = gpus
    return found


def traffic_gain(facts: GateFacts) -> TrafficGain | None:
    """Return the expected gain of the deciding metric over the traffic; None without traffic or a comparison."""
    experiment = facts.experiment
    if facts.candidate is None or facts.refused or not experiment.traffic.loads:
        return None
    metric = experiment.decision.metric
    slo = Slo(metric=metric, statistic="mean" if MEASURES[metric].tails else "", ask=Ask.BENEFIT, limit=0.0)
    gain, why = expected_gain(slo, facts.baseline, facts.candidate, facts.found, facts.loads, experiment.traffic)
    label = MEASURES[metric].label
    said = f"Expected speed-up by {label} over the traffic: {wording.ratio(gain)}."
    if why:
        said = f"What the traffic would gain is not known: {why}."
    loads = expected_day(slo, facts.baseline, facts.candidate, facts.found, facts.loads, experiment.traffic)
    return TrafficGain(metric=metric, gain=gain, sentence=said, loads=loads)


def concluded(gate: Gate) -> Gate:
    """Return the gate with its outcome, exit code and headline, from its objectives and regressions."""
    outcomes = [r.outcome for r in gate.objectives] + [r.outcome for r in gate.regressions]
    outcome = min(outcomes, key=GRAVEST.index)
    code = CHOSEN[gate.inconclusive] if outcome is GateOutcome.INCONCLUSIVE else EXITS[outcome]
    return replace(gate, outcome=outcome, exit_code=int(code), headline=gate_words.headline(gate, outcome, outcomes))


def _notes(slos: Sequence[Slo], run: Mapping[str, Any], asked: Asked) -> list[str]:
    notes = []
    lengthened = sorted({slo.metric for slo in slos if slo.metric in BY_DESIGN and slo.ask is not Ask.ABSOLUTE})
    for name in lengthened:
        notes.append(
            f"{name} is longer under speculation by design, since a step brings several tokens; held against the"
            " baseline it fails where users gain: tpot or token_gap is the fair comparison."
        )
    notes += sorted({f"Limits of {slo.source}." for slo in slos if slo.source})
    if asked.gate and asked.allow_simulated and run.get("simulated") is not None:
        notes.append("Simulated servers were allowed: this gate says nothing of real ones.")
    return notes


def with_gate(
    judgement: Judgement, run: Mapping[str, Any], experiment: Experiment, requests: Requests,
    valid: Sequence[CellRecord], scrapes: ByCell, asked: Asked, lost: Uncarried,
) -> Judgement:  # fmt: skip
    """Return the judgement with what the gate says; its exit code is then that of the run.

    `lost` are the cells that were given up because a server did not carry the load.
    """
    found = Measurements(
        requests=requests, cells=valid, scrapes=scrapes, levels=judgement.levels, limits=experiment.limits,
        restarted=many_starts(run),
        varying=experiment.load.kind == "open", confidence=asked.confidence or of_candidate(run), uncarried=lost,
    )  # fmt: skip
    in_flight = {}
    for level in judgement.levels:
        seen = [row.in_flight for row in judgement.arm_levels if row.level == level]
        present = [value for value in seen if value is not None]
        if present and len(present) == len(seen):
            in_flight[level] = sum(present) / len(present)
    baseline, candidate = judgement.arms[0], judgement.arms[1] if len(judgement.arms) > 1 else None
    facts = GateFacts(
        found=found, experiment=experiment, baseline=baseline, candidate=candidate,
        loads=Loads(levels=judgement.levels, unit=unit_of(experiment.load), in_flight=in_flight),
        unproven=_unproven(found.cells, found, baseline, candidate, run, experiment),
        unproven_at={level: f"at {level:g} {why}" for level in found.levels if (why := _unproven(
            [c for c in found.cells if c.level == level], found, baseline, candidate, run, experiment))},
    )  # fmt: skip
    gate = gate_of(run, judgement.decision, facts, asked)
    if gate is None:
        return judgement
    return replace(judgement, gate=gate, decision=replace(judgement.decision, exit_code=gate.exit_code))


def _unproven(
    cells: Sequence[CellRecord], found: Measurements, baseline: str, candidate: str | None, run: Mapping[str, Any],
    experiment: Experiment,
) -> str:  # fmt: skip
    """Return why it is not known that only the candidate speculated: a declaration is not enough unless accepted."""
    if candidate is None or run.get("aa"):
        return ""
    for arm, what in ((candidate, "on"), (baseline, "off")):
        own = [c for c in cells if c.arm == arm]
        grown = window_growth(own, found.scrapes)
        told = not own or not math.isnan(grown.get("drafts")) or tokens_per_step(grown) is not None
        if not told and DECLARED not in experiment.gate.accept:
            return (f"that speculation was {what} in {arm} could not be read from its counters"
                    f' ([gate] accept = ["{DECLARED}"] takes it on trust)')  # fmt: skip
    return ""
