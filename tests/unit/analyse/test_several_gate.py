"""Objectives of a run of several candidates: of whom they speak, and what passes."""

from __future__ import annotations

import pytest
from several_runs import SPEEDUPS, judged, made

from loadtest.analyse.gate_results import GateOutcome
from loadtest.analyse.gating import Asked
from loadtest.errors import UsageError
from loadtest.experiment import as_document, from_toml

PAIR = {"eagle3": SPEEDUPS["eagle3"], "medusa": SPEEDUPS["medusa"]}
FASTER = '[[slo]]\nmetric = "e2e"\nstatistic = "mean"\nbetter_by = "10 %"\nat = "4 users"\n'
OF_EAGLE = FASTER + 'candidate = "eagle3"\n'
OF_BASELINE = '[[slo]]\nmetric = "e2e"\nstatistic = "mean"\nmax = "5 s"\narm = "baseline"\n'
TRAFFIC = "[traffic]\nloads = [4, 16]\nhours = [12, 12]\n"


def gate_of(source: str, candidate: str = "", speedups=PAIR):
    experiment = as_document(from_toml("[load]\nthink_time = 0\n" + source, "x.toml"))
    what = made(speedups, levels=(4.0, 16.0), run={"experiment": experiment})
    return judged(what, Asked(gate=True, candidate=candidate))


def test_an_objective_speaks_of_every_candidate_and_all_must_meet_it():
    found = gate_of(FASTER + OF_BASELINE)
    assert found.gate is not None
    sentence = "e2e mean at least 10 % better than the baseline at 4 users"
    assert [(r.sentence, r.outcome) for r in found.gate.objectives] == [
        (f"eagle3: {sentence}", GateOutcome.PASS),
        ("e2e mean (baseline) ≤ 5 s at every tested load", GateOutcome.PASS),
        (f"medusa: {sentence}", GateOutcome.FAIL),
    ]
    assert (found.gate.outcome, found.gate.exit_code, found.decision.exit_code) == (GateOutcome.FAIL, 3, 3)
    assert found.gate.notes[0].startswith("Every objective is met by eagle3 alone; gate on one with --candidate NAME")


def test_an_objective_that_names_a_candidate_speaks_of_that_one_alone():
    found = gate_of(OF_EAGLE)
    assert found.gate is not None
    assert [r.sentence for r in found.gate.objectives] == [
        "eagle3: e2e mean (eagle3) at least 10 % better than the baseline at 4 users"
    ]
    assert (found.gate.outcome, found.decision.exit_code) == (GateOutcome.PASS, 0)


@pytest.mark.parametrize(("candidate", "outcome", "code"), [
    ("eagle3", GateOutcome.PASS, 0), ("medusa", GateOutcome.FAIL, 3),
])  # fmt: skip
def test_one_candidate_is_judged_where_it_is_asked_for(candidate, outcome, code):
    found = gate_of(FASTER, candidate)
    assert found.gate is not None
    assert (found.gate.outcome, found.decision.exit_code) == (outcome, code)
    assert len(found.gate.objectives) == 1
    assert len(found.pairs) == 2


def test_nothing_passes_for_lack_of_an_objective_or_of_a_candidate():
    found = gate_of(OF_EAGLE, "medusa")
    assert found.gate is not None
    assert (found.gate.outcome, found.decision.exit_code) == (GateOutcome.NO_DATA, 4)
    with pytest.raises(UsageError, match=r"no candidate of that name. Did you mean `eagle3`\? Candidates are eagle3"):
        gate_of(FASTER, "eagle")
    with pytest.raises(UsageError, match="names the candidate 'draft', which is none here"):
        gate_of(OF_EAGLE.replace("eagle3", "draft"))


@pytest.mark.parametrize(("speedups", "outcome", "code"), [
    (PAIR, GateOutcome.PASS, 0), ({"a": SPEEDUPS["medusa"], "b": SPEEDUPS["medusa"]}, GateOutcome.FAIL, 3),
])  # fmt: skip
def test_without_objectives_the_run_passes_where_some_candidate_does(speedups, outcome, code):
    for source in ("", TRAFFIC):
        found = gate_of(source, speedups=speedups)
        assert found.gate is not None
        assert (found.gate.outcome, found.decision.exit_code) == (outcome, code)


def test_of_one_pair_the_candidate_may_be_named_too():
    experiment = as_document(from_toml("[load]\nthink_time = 0\n" + OF_EAGLE, "x.toml"))
    own = {"experiment": experiment, "candidates": None, "candidate": "eagle3", "schema": 1}
    found = judged(made({"eagle3": SPEEDUPS["eagle3"]}, levels=(4.0, 16.0), run=own), Asked(gate=True))
    assert found.gate is not None
    assert found.gate.outcome is GateOutcome.PASS
    with pytest.raises(UsageError, match="no candidate of that name"):
        judged(made({"eagle3": SPEEDUPS["eagle3"]}, levels=(4.0,), run=own | {"experiment": {"load": {}}}),
               Asked(gate=True, candidate="x"))  # fmt: skip
