"""Damaged records: each kind makes its cell or the run invalid, with a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_run import BASE, SPEC, Made, cell, request, table_of

from loadtest.analyse.cells import cell_facts
from loadtest.analyse.damage import run_damage
from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Answer
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.analyse.validity import cell_marks
from loadtest.record import CellRecord, PlannedCell, Request
from loadtest.settings import Experiment

SAID = "The records are damaged"
LACK = "2 of the 4 cells of plan.jsonl were not recorded"
GOOD = [request(session=i, turn=i % 2) for i in range(20)]


def damage(rows: list[Request], **record: Any) -> tuple[str, ...]:
    one = cell(**record)
    measured = measure(derive(table_of(rows), [one]), [one])[0]
    marks = cell_marks(cell_facts(one, measured, {}, Experiment()))
    said = [mark for mark in marks if mark.sentence.startswith("The records are damaged")]
    assert all(mark.invalid for mark in said)
    return measured.damage


def test_sound_records_are_not_damaged() -> None:
    assert damage(GOOD) == ()
    assert damage([]) == ()
    failed = request(session=20, outcome="connect_error", sent_s=float("nan"), headers_s=float("nan"),
                     first_visible_s=float("nan"), output_tokens=-1, chunk_s=[], chunk_tokens=[])  # fmt: skip
    assert damage([*GOOD, failed]) == ()
    uncounted = request(session=20, chunk_tokens=[], output_tokens=-1, tokens_source="none")
    assert damage([*GOOD, uncounted]) == ()


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"session": 0, "turn": 0}, "recorded twice"),
        ({"arm": SPEC}, "of another arm, level or block"),
        ({"level": 2.0}, "of another arm, level or block"),
        ({"block": 1}, "of another arm, level or block"),
        ({"due_s": float("nan")}, "due, sent or ended in an order that cannot be"),
        ({"end_s": -3.0}, "due, sent or ended in an order that cannot be"),
        ({"end_s": float("nan")}, "due, sent or ended in an order that cannot be"),
        ({"end_s": 100.2}, "due, sent or ended in an order that cannot be"),
        ({"sent_s": 99.5}, "due, sent or ended in an order that cannot be"),
        ({"chunk_s": [99.9, 100.15, 100.19, 100.25]}, "due, sent or ended in an order that cannot be"),
        ({"chunk_s": [100.25, 100.19, 100.15, 100.11]}, "made of chunks that arrive backwards"),
        ({"chunk_s": [100.11, 100.15, 100.1495, 100.25]}, None),  # within what a clock may be set back
        ({"chunk_tokens": [1, 2_000_000_000, 2, 1]}, "of more tokens than can be"),
        ({"chunk_tokens": [1, 4, 2, 1]}, "of more tokens than can be"),
        ({"chunk_tokens": [1, 4, 2, 1], "tokens_source": "ids"}, None),
        ({"output_tokens": 2_000_000_000}, "of more tokens than can be"),
    ],
)
def test_a_request_that_cannot_be_true_makes_its_cell_invalid(row: dict[str, Any], what: str | None) -> None:
    found = damage([*GOOD, request(**{"session": 20, **row})])
    assert found == ((f"The records are damaged: 1 of 21 requests is {what}.",) if what else ())


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"window_open_s": 109.0, "window_close_s": 99.0}, "window_close_s is before window_open_s"),
        ({"started_s": 99.5}, "window_open_s is before started_s"),
        ({"drained_s": 108.0}, "drained_s is before window_close_s"),
    ],
)
def test_a_cell_whose_times_are_out_of_order(record: dict[str, Any], words: str) -> None:
    assert damage(GOOD, **record)[0] == f"The records are damaged: {words}."


def plan(*arms: str) -> list[PlannedCell]:
    return [PlannedCell(cell=i, block=0, level=1.0, arm=arm) for i, arm in enumerate(arms)]


@pytest.mark.parametrize(
    ("cells", "planned", "sentences"),
    [
        ([cell(0), cell(1, arm=SPEC)], plan(BASE, SPEC), ()),
        ([cell(0), cell(1, arm=SPEC)], None, ()),
        ([cell(0), cell(1, arm=SPEC)], plan(BASE, SPEC, BASE, SPEC),
         (f"{SAID}: the run is said to be complete, and {LACK} (cells 2, 3).",)),
        ([cell(0), cell(1, arm=SPEC)], plan(BASE, BASE),
         ("The records are damaged: cell 1 is not what plan.jsonl says.",)),
        ([cell(0)], plan(BASE),
         ("The records are damaged: there are requests of cell 1 without a line in cells.jsonl.",)),
    ],
)  # fmt: skip
def test_plan_cells_and_requests_must_agree(
    cells: list[CellRecord], planned: list[PlannedCell] | None, sentences: tuple[str, ...]
) -> None:
    rows = [request(), request(cell=1, arm=SPEC)]
    assert run_damage(cells, planned, derive(table_of(rows), cells)) == sentences


def test_half_of_the_cells_gone_is_an_invalid_run() -> None:
    run, cells, scrapes, table = Made(blocks=3, levels=(1.0, 4.0)).build()
    planned = [PlannedCell(cell=c.cell, block=c.block, level=c.level, arm=c.arm) for c in cells]
    assert judge_data(run, cells, scrapes, table, planned).decision.answer is Answer.PAYS_EVERYWHERE
    decision = judge_data(run, cells[:6], scrapes, table, planned).decision
    assert (decision.answer, decision.exit_code) == (Answer.INVALID, 5)
    assert "6 of the 12 cells of plan.jsonl were not recorded" in decision.headline


def _reversed(row: Request) -> Request:
    row.chunk_s = row.chunk_s[::-1]
    return row


def _late(record: CellRecord) -> CellRecord:
    assert record.window_close_s is not None
    return replace(record, window_close_s=record.window_close_s + 1e9)


@pytest.mark.parametrize(
    ("edits", "words"),
    [({"edit_request": _reversed}, "chunks that arrive backwards"), ({"edit_cell": _late}, "drained_s is before")],
)
def test_a_run_of_damaged_cells_is_not_judged(edits: dict[str, Any], words: str) -> None:
    found = judge_data(*Made(blocks=3, levels=(1.0, 4.0), **edits).build())
    assert found.decision.answer is Answer.INVALID
    assert all(words in one.marks[0] for one in found.cells)
