"""Each rule for a run: broken, kept, and without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from made_run import BASE, SPEC, cell, header, request, table_of

from loadtest.analyse.counters import Deltas
from loadtest.analyse.run_validity import RunFacts, run_marks, twin_requests
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
COUNT = 66


def twins(lengths: tuple[int, int] = (100, 100), reasons: tuple[int, int] = (0, 0)) -> list[Request]:
    """Requests that both arms answered: lengths spread by 10 tokens about a mean, so many that end by their limit."""
    return [
        request(cell=side, arm=arm, session=i, body_hash=f"{i:x}", output_tokens=lengths[side] - 5 + i % 11,
                finish_reason="length" if i < reasons[side] else "stop")
        for side, arm in enumerate((BASE, SPEC)) for i in range(COUNT)
    ]  # fmt: skip


def facts_of(base: dict[str, float] = PLAIN, spec: dict[str, float] = DRAFTS, bodies: int = 0,
             candidate: str | None = SPEC, valid: int = 2, rows: Sequence[Request] = (),
             damage: tuple[str, ...] = (), **run: Any) -> RunFacts:  # fmt: skip
    requests = derive(table_of(rows or twins()), CELLS)
    return RunFacts(
        run=header(**run), baseline=BASE, candidate=candidate, cells=CELLS, valid=CELLS[:valid],
        measured=measure(requests, CELLS), arm_levels=(), requests=requests,
        counters={BASE: Deltas(counters=base), SPEC: Deltas(counters=spec)}, bodies_differ=bodies, pairs=80,
        damage=damage, twins=twin_requests(requests.frame, CELLS[:valid], BASE, SPEC),
    )  # fmt: skip


def marks(base: dict[str, float] = PLAIN, spec: dict[str, float] = DRAFTS, **given: Any) -> list[tuple[str, bool]]:
    """The marks without the note on what could not be checked."""
    found = [(mark.sentence, mark.invalid) for mark in run_marks(facts_of(base, spec, **given))]
    return [mark for mark in found if not mark[0].startswith("Not checked for want of data")]


def test_a_good_run_has_no_mark() -> None:
    assert marks() == []


def test_what_could_not_be_checked_is_one_note() -> None:
    (note,) = [m.sentence for m in run_marks(facts_of()) if m.sentence.startswith("Not checked")]
    assert "not steady (two blocks with five requests in each half of a window missing)" in note
    assert "random prompts (300 words of the prompts missing)" in note
    assert "preemption (the server's count of preemptions missing in every cell)" in note
    assert "speculation not active" not in note


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


NOTHING_DRAFTED = (
    "Speculation was not active in speculative: its server drafted nothing; see its log, and its speculative"
    " configuration."
)
UNREAD = "could not be read from its counters, nor from a level with 1 user: publish /metrics, or add that level."
START = "start it without a speculative configuration."
LENGTHS = (
    "Answers to the same requests differ in length: {} times the baseline's tokens over all levels (limit 0.90 to"
    " 1.10): this is not the same work; see `loadtest compare-outputs`."
)
FINISHES = (
    "Answers to the same requests end differently: `length` in 9 % (baseline) and 27 % (candidate) (limit 2 points):"
    " see `loadtest compare-outputs`."
)
BODIES = (
    "4 of 80 paired requests have different bodies (limit 0): draw what the scenario asks from self.rng(), which is"
    " alike in both arms."
)
TIMED = [replace(row, tokens_source="timings") for row in twins()]  # an event for each token, drafted or not
UNCOUNTED = [replace(row, chunk_tokens=[], tokens_source="none") for row in twins()]


@pytest.mark.parametrize(
    ("arms", "sentence", "invalid"),
    [
        ({"spec": {**DRAFTS, "drafts": 0.0}}, NOTHING_DRAFTED, True),
        ({"spec": PLAIN}, "Speculation was not active in speculative: 1.000 tokens per step (limit 1.01).", True),
        ({"spec": {}, "rows": UNCOUNTED}, f"Whether speculative speculated {UNREAD}", False),
        ({"spec": {}, "rows": TIMED}, f"Whether speculative speculated {UNREAD}", False),
        ({"base": {}, "rows": [replace(row, spec_drafted=3) for row in UNCOUNTED]},
         f"baseline speculates: its answers tell of 198 drafted tokens (limit 0); {START}", True),
        ({"base": DRAFTS}, f"baseline speculates: its server drafted 50 times (limit 0); {START}", True),
        (
            {"base": {**PLAIN, "steps": 118.0}},
            f"baseline speculates: 1.017 tokens per step (limit 1.01); {START}",
            True,
        ),
        ({"base": {}}, f"That baseline does not speculate {UNREAD}", False),
        ({"spec": {**DRAFTS, "accepted": 1.0}},
         "Only 0.67 % of drafted tokens were accepted (limit 1 %): does the draft fit the model?", False),
        ({"rows": twins((100, 115))}, LENGTHS.format("1.15 [1.15, 1.15]"), True),
        ({"rows": twins((100, 85))}, LENGTHS.format("0.85 [0.85, 0.85]"), True),
        ({"rows": twins(reasons=(6, 18))}, FINISHES, False),
        ({"bodies": 4}, BODIES, False),
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
        {"rows": twins((100, 110))},
        {"rows": twins((100, 90))},
        {"rows": [replace(row, output_tokens=-1) for row in twins()]},
        {"spec": {}, "rows": [replace(row, spec_drafted=3) for row in TIMED]},  # its answers tell of drafts
        {"spec": {}},  # more than one token per chunk where one user was alone
        {"rows": twins(reasons=(6, 14))},
    ],
)
def test_the_arms_need_not_be_marked(arms: dict[str, Any]) -> None:
    assert marks(**arms) == []


def test_an_arm_without_a_valid_cell() -> None:
    assert marks(valid=1)[0] == ("No valid cell of speculative.", True)
    assert ("1 of 2 cells is invalid and left out.", False) in marks(valid=1)


@pytest.mark.parametrize("valid", [0, 1])
def test_nothing_is_said_of_the_counters_of_an_arm_without_a_valid_cell(valid: int) -> None:
    assert not [said for said, _ in marks(base={} if not valid else PLAIN, spec={}, valid=valid) if "counters" in said]


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


def test_what_a_server_says_to_most_failed_requests_is_quoted() -> None:
    said = ["max_tokens is too large", "no \x1b[31mtokens left\n", "no \x1b[31mtokens left\n"]
    rows = [
        replace(row, error=said[row.session]) if row.arm == SPEC else row for row in _answers([("http_error", 400)] * 3)
    ]
    ((sentence, _),) = marks(rows=rows, spec={**DRAFTS, "drafts": 0.0})
    assert sentence.endswith('failed: HTTP 400. The error met most often: "no [31mtokens left".')


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


def test_lengths_outside_the_limits_that_are_not_proven_are_a_flag() -> None:
    """Six and eight long answers among 63: the ratio is 1.21, and its interval reaches far below 1.10."""
    long = (range(6), range(6, 14))
    rows = [
        request(cell=side, arm=arm, session=i, body_hash=f"{i:x}", output_tokens=400 if i in long[side] else 20)
        for side, arm in enumerate((BASE, SPEC))
        for i in range(63)
    ]
    ((sentence, invalid),) = marks(rows=rows)
    assert not invalid
    assert "differ in length: 1.21 [" in sentence
    assert sentence.endswith("which is not proven: more blocks would tell.")


def test_finish_reasons_less_than_two_points_apart_are_no_mark_however_many_requests_say_so() -> None:
    many = [
        request(cell=side, arm=arm, session=i, body_hash=f"{i:x}",
                finish_reason="length" if i < reasons else "stop")
        for side, (arm, reasons) in enumerate(((BASE, 0), (SPEC, 19)))
        for i in range(1000)
    ]  # fmt: skip
    assert marks(rows=many) == []
    more = [replace(row, finish_reason="length") if row.arm == SPEC and row.session < 21 else row for row in many]
    assert [invalid for _, invalid in marks(rows=more)] == [False]
