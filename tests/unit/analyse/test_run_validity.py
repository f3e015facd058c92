"""Each rule for a run: broken, kept, and without data."""

from __future__ import annotations

from typing import Any

import pytest
from made_run import BASE, SPEC, cell, header, request, table_of

from loadtest.analyse.counters import Deltas
from loadtest.analyse.results import ArmLevel
from loadtest.analyse.run_validity import RUN_RULES, RunFacts, run_marks
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive

CELLS = [cell(0), cell(1, arm=SPEC)]
DRAFTS = {
    "drafts": 50.0,
    "drafted": 150.0,
    "accepted": 60.0,
    "generation_tokens": 130.0,
    "first_tokens": 10.0,
    "steps": 60.0,
}
PLAIN = {"generation_tokens": 130.0, "first_tokens": 10.0, "steps": 120.0}


def marks(base: dict[str, float] = PLAIN, spec: dict[str, float] = DRAFTS, lengths: tuple[int, int] = (100, 100),
          reasons: tuple[dict[str, int], dict[str, int]] = ({"stop": 900}, {"stop": 900}), bodies: int = 0,
          candidate: str | None = SPEC, valid: int = 2, **run: Any) -> list[tuple[str, bool]]:  # fmt: skip
    rows = [request(cell=i, output_tokens=n) for i, n in enumerate(lengths) for _ in range(3)]
    facts = RunFacts(
        run=header(**run), baseline=BASE, candidate=candidate, cells=CELLS, valid=CELLS[:valid],
        measured=measure(derive(table_of(rows), CELLS), CELLS),
        arm_levels=[ArmLevel(arm=arm, level=1.0, requests=3, failed=0, finish_reasons=r)
                    for arm, r in zip((BASE, SPEC), reasons, strict=True)],
        counters={BASE: Deltas(counters=base), SPEC: Deltas(counters=spec)}, bodies_differ=bodies, pairs=80,
    )  # fmt: skip
    return [(mark.sentence, mark.invalid) for mark in run_marks(facts)]


def test_a_good_run_has_no_mark() -> None:
    assert marks() == []
    assert len(set(RUN_RULES)) == 11


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ({"status": "interrupted", "reason": "Ctrl-C"}, "The run was interrupted (Ctrl-C)."),
        ({"status": "running"}, "The run did not end: it is still running, or was killed."),
        ({"status": "aborted", "reason": "baseline died"}, "The run was aborted (baseline died)."),
        ({"simulated": {"world": "default", "late_ratio": {BASE: 0.001, SPEC: 0.034}}},
         "The simulated speculative server was late in 3.4 % of its steps (limit 2 %): this machine was too busy."),
        ({"comparability": [{"item": "dtype", "kind": "violation"}, {"item": "version", "kind": "equal"}]},
         "The servers differ in more than speculation: dtype."),
    ],
)  # fmt: skip
def test_the_header_can_invalidate(run: dict[str, Any], sentence: str) -> None:
    assert marks(**run) == [(sentence, True)]


@pytest.mark.parametrize(
    "run",
    [
        {"simulated": {"world": "default", "late_ratio": {BASE: 0.02, SPEC: 0.0}}},
        {"simulated": {"world": "default", "late_ratio": {BASE: None}}},
        {"simulated": {"world": "default"}},
        {"comparability": [{"item": "dtype", "kind": "violation", "waived": True}]},
        {"comparability": [{"item": "KV blocks", "kind": "consequence"}]},
        {"comparability": None},
    ],
)
def test_the_header_need_not_invalidate(run: dict[str, Any]) -> None:
    assert marks(**run) == []


@pytest.mark.parametrize(
    ("arms", "sentence", "invalid"),
    [
        ({"spec": {**DRAFTS, "drafts": 0.0}},
         "Speculation was not active in speculative: its server drafted nothing.", True),
        ({"spec": PLAIN}, "Speculation was not active in speculative: 1.000 tokens per step.", True),
        ({"spec": {}}, "Whether speculative speculated could not be read from its counters.", False),
        ({"base": DRAFTS}, "baseline speculates: its server drafted 50 times.", True),
        ({"base": {**PLAIN, "steps": 118.0}}, "baseline speculates: 1.017 tokens per step.", True),
        ({"base": {}}, "That baseline does not speculate could not be read from its counters.", False),
        ({"spec": {**DRAFTS, "accepted": 1.0}},
         "Only 0.67 % of drafted tokens were accepted: does the draft fit the model?", False),
        ({"lengths": (100, 111)}, "Answers differ in length: 1.11 times the baseline's tokens at 1 users.", False),
        ({"lengths": (100, 89)}, "Answers differ in length: 0.89 times the baseline's tokens at 1 users.", False),
        ({"reasons": ({"stop": 900, "length": 100}, {"stop": 700, "length": 300})},
         "Answers end differently: `length` in 10 % (baseline), 30 % (candidate).", False),
        ({"bodies": 4}, "4 of 80 paired requests have different bodies.", False),
    ],
)  # fmt: skip
def test_the_arms_can_be_marked(arms: dict[str, Any], sentence: str, invalid: bool) -> None:
    assert marks(**arms) == [(sentence, invalid)]


@pytest.mark.parametrize(
    "arms",
    [
        {"spec": {**PLAIN, "steps": 60.0}},  # no draft counters, two tokens per step
        {"spec": {**DRAFTS, "steps": 120.0}},  # drafts, though hardly any decode step gained by it
        {"base": {**PLAIN, "drafts": 0.0}},
        {"lengths": (100, 110)},
        {"lengths": (100, 90)},
        {"lengths": (-1, -1)},
        {"reasons": ({"stop": 900, "length": 100}, {"stop": 890, "length": 110})},
        {"reasons": ({}, {"stop": 3})},
    ],
)
def test_the_arms_need_not_be_marked(arms: dict[str, Any]) -> None:
    assert marks(**arms) == []


def test_an_arm_without_a_valid_cell() -> None:
    assert marks(valid=1)[0] == ("No valid cell of speculative.", True)
    assert ("1 of 2 cells are invalid and left out.", False) in marks(valid=1)


def test_one_server_alone_is_not_asked_to_speculate() -> None:
    assert marks(base=DRAFTS, spec={}, candidate=None) == []
