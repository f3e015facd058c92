"""Each rule for a run: broken, kept, and without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from made_run import BASE, SPEC, cell, header, request, table_of

from loadtest.analyse.counters import Deltas
from loadtest.analyse.results import ArmLevel
from loadtest.analyse.run_validity import RUN_RULES, RunFacts, run_marks
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.record import Request

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
          candidate: str | None = SPEC, valid: int = 2, rows: Sequence[Request] = (), damage: tuple[str, ...] = (),
          **run: Any) -> list[tuple[str, bool]]:  # fmt: skip
    rows = rows or [request(cell=i, output_tokens=n) for i, n in enumerate(lengths) for _ in range(3)]
    facts = RunFacts(
        run=header(**run), baseline=BASE, candidate=candidate, cells=CELLS, valid=CELLS[:valid],
        measured=measure(derive(table_of(rows), CELLS), CELLS),
        arm_levels=[ArmLevel(arm=arm, level=1.0, requests=3, failed=0, finish_reasons=r)
                    for arm, r in zip((BASE, SPEC), reasons, strict=True)],
        counters={BASE: Deltas(counters=base), SPEC: Deltas(counters=spec)}, bodies_differ=bodies, pairs=80,
        damage=damage,
    )  # fmt: skip
    return [(mark.sentence, mark.invalid) for mark in run_marks(facts)]


def test_a_good_run_has_no_mark() -> None:
    assert marks() == []
    assert len(set(RUN_RULES)) == 13


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


def _answers(outcomes: Sequence[tuple[str, int]], due_s: float = 100.0) -> list[Request]:
    """Three good answers of the baseline, and those given of the candidate."""
    base = [request(session=i) for i in range(3)]
    return base + [
        request(cell=1, arm=SPEC, session=i, outcome=outcome, http_status=status, due_s=due_s)
        for i, (outcome, status) in enumerate(outcomes)
    ]


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([("http_error", 500)] * 3, "HTTP 500"),
        ([("rate_limited", 429)] * 3, "HTTP 429, too many requests"),
        ([("truncated", 200)] * 3, "an answer that broke off"),
        ([("stalled", 200)] * 3, "tokens that stopped coming"),
        ([("protocol_error", 200)] * 3, "an answer that could not be read"),
        ([("connect_error", 0)] * 3, "no connection"),
        ([("http_error", 503), ("http_error", 503), ("timeout", 0)], "most often HTTP 503"),
    ],
)
def test_a_server_that_answers_nothing_is_said_to_fail_and_not_to_lack_speculation(
    outcomes: list[tuple[str, int]], words: str
) -> None:
    found = marks(rows=_answers(outcomes), spec={**DRAFTS, "drafts": 0.0})
    assert found == [(f"All 3 requests to the speculative server failed: {words}.", True)]


def test_a_server_that_answers_only_before_the_window_was_not_measured() -> None:
    warm = request(cell=1, arm=SPEC, session=9, due_s=98.5)
    found = marks(rows=[*_answers([("http_error", 500)] * 2), warm], spec={**DRAFTS, "drafts": 0.0})
    said = "All 2 requests to the speculative server that fell due in a window failed: HTTP 500."
    assert found == [(said, True)]


def test_one_answer_is_enough_to_be_judged_by_its_failures() -> None:
    assert marks(rows=_answers([("http_error", 500)] * 30 + [("ok", 200)])) == []


def test_an_arm_without_a_valid_cell_says_how_much_failed() -> None:
    found = marks(rows=_answers([("http_error", 500)] * 3 + [("ok", 200)]), valid=1)
    said = "No valid cell of speculative. 3 of 4 requests to the speculative server failed: HTTP 500."
    assert found[0] == (said, True)


def test_records_that_contradict_each_other_stop_a_complete_run() -> None:
    assert marks(damage=("One.", "Two.")) == [("One. Two.", True)]
    assert marks(damage=("One.",), status="interrupted") == [("The run was interrupted.", True)]
