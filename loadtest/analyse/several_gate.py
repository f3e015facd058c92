"""The gate of several candidates: an objective speaks of every candidate unless it names one, and all must be met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loadtest.analyse.gate_results import Capacity, Gate, GateOutcome, SloResult
from loadtest.analyse.gating import Asked, concluded
from loadtest.analyse.results import Decision, Judgement
from loadtest.errors import ExitCode
from loadtest.settings import Experiment

HOPEFUL = (GateOutcome.PASS, GateOutcome.INCONCLUSIVE, GateOutcome.NO_DATA, GateOutcome.FAIL, GateOutcome.INVALID)


def together(pairs: Mapping[str, Judgement], decision: Decision, experiment: Experiment, asked: Asked) -> Gate | None:
    """Return the gate over all candidates, or that of the one which is asked for; None where nothing is asked.

    Without objectives of its own a run passes where some candidate does, as its decision says; with objectives, only
    where every candidate meets those that speak of it.
    """
    gates = {name: pair.gate for name, pair in pairs.items() if pair.gate is not None}
    if asked.candidate:
        found = gates.get(asked.candidate)
        return _unspoken(asked.candidate) if found is None and asked.gate else found and _named(found, asked.candidate)
    if not gates:
        return None
    if not experiment.slo.rules:
        return _hopeful(gates, decision)
    results = _objectives(gates)
    first = next(iter(gates.values()))
    refused = first.refused if all(gate.refused for gate in gates.values()) else ""
    gate = Gate(
        outcome=first.outcome, exit_code=first.exit_code, headline=first.headline, objectives=results,
        capacities=_capacities(gates), inconclusive=first.inconclusive, refused=refused,
        capacity_sentence=" ".join(f"{name}: {gate.capacity_sentence}" for name, gate in gates.items()
                                   if gate.capacity_sentence),
        unproven="; ".join(dict.fromkeys(gate.unproven for gate in gates.values() if gate.unproven)),
        notes=(*_met(gates), *_traffic(gates), *dict.fromkeys(n for gate in gates.values() for n in gate.notes)),
    )  # fmt: skip
    return concluded(gate)


def _unspoken(name: str) -> Gate:
    """Return the gate of a candidate of which no objective speaks: nothing passes for lack of one."""
    return Gate(outcome=GateOutcome.NO_DATA, exit_code=int(ExitCode.INCONCLUSIVE),
                headline=f"Gate: not passed: no objective speaks of {name}.")  # fmt: skip


def _named(gate: Gate, name: str) -> Gate:
    return replace(gate, notes=(f"Only {name} is judged; what is asked of the other candidates is left out.",
                                *gate.notes))  # fmt: skip


def _hopeful(gates: Mapping[str, Gate], decision: Decision) -> Gate:
    """Return the gate of the candidate that gets furthest; where the decision is the gate, in the decision's words."""
    name = min(gates, key=lambda one: HOPEFUL.index(gates[one].outcome))
    best = gates[name]
    plain = not best.objectives and best.outcome not in (GateOutcome.INVALID, GateOutcome.NO_DATA)
    return replace(
        best, headline=decision.headline if plain else f"{name}: {best.headline}", objectives=_objectives(gates),
        traffic=None, notes=(*_traffic(gates), *best.notes),
    )  # fmt: skip


def _objectives(gates: Mapping[str, Gate]) -> tuple[SloResult, ...]:
    """Return every candidate's objectives under its name; the baseline's own, the same for all, stand once."""
    found: dict[str, SloResult] = {}
    for name, gate in gates.items():
        for result in gate.objectives:
            own = result.arm and result.arm not in gates
            sentence = result.sentence if own else f"{name}: {result.sentence}"
            found.setdefault(sentence, replace(result, sentence=sentence))
    return tuple(found.values())


def _capacities(gates: Mapping[str, Gate]) -> tuple[Capacity, ...]:
    found = {capacity.arm: capacity for gate in gates.values() for capacity in gate.capacities}
    return tuple(found.values())


def _met(gates: Mapping[str, Gate]) -> Sequence[str]:
    """Say which candidates meet all that is asked of them, where not all do."""
    met = [name for name, gate in gates.items() if gate.outcome is GateOutcome.PASS]
    if len(met) == len(gates):
        return ()
    said = f"Every objective is met by {', '.join(met)} alone" if met else "No candidate meets every objective"
    more = "; gate on one with --candidate NAME, or name it in the objective (candidate = …)" if met else ""
    return (f"{said}{more}.",)


def _traffic(gates: Mapping[str, Gate]) -> Sequence[str]:
    return [f"{name}: {gate.traffic.sentence}" for name, gate in gates.items() if gate.traffic]
