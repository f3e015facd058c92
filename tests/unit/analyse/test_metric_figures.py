"""Every metric on a cell small enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_run import cell, request, table_of

from loadtest.analyse.metrics import BY_NAME, METRICS, Kind
from loadtest.analyse.table import CellRows, derive
from loadtest.record import Request

DESIGNED = [
    "ttft", "ttft_visible", "e2e", "tpot", "token_gap", "chunk_gap", "worst_stall", "tokens_per_chunk", "on_time",
    "output_tokens_per_s", "requests_per_s", "error_ratio",
]  # fmt: skip


def rows_of(*rows: Request) -> CellRows:
    record = cell()
    return derive(table_of(list(rows)), [record]).cell(record)


FAILED = request(outcome="timeout", chunk_s=[100.3, 100.4], chunk_tokens=[1, 1], output_tokens=-1, end_s=101.0)
BEFORE = request(due_s=98.5, chunk_s=[98.9, 99.5, 110.0], chunk_tokens=[2, 4, 8], end_s=110.0)
TWO = request(due_s=101.0, chunk_s=[101.2, 101.3], chunk_tokens=[2, 2], first_visible_s=101.25, end_s=101.31)


def test_the_list_is_the_designs() -> None:
    assert [m.name for m in METRICS] == DESIGNED
    assert list(BY_NAME) == DESIGNED


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_each_row_is_complete_and_absent_on_an_empty_cell(metric: object) -> None:
    assert metric in METRICS
    row = next(m for m in METRICS if m is metric)
    assert row.label
    assert row.unit
    assert row.doc.endswith(".")
    assert row.better in ("lower", "higher", None)
    empty = derive(table_of([]), [cell()]).cell(cell())
    value = row.figure(empty)
    assert value == 0 if row.kind is Kind.RATE and row.name == "requests_per_s" else math.isnan(value)
    if row.values is not None:
        assert row.values(empty).size == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ttft", (0.11 + 0.20) / 2),
        ("ttft_visible", (0.11 + 0.25) / 2),
        ("e2e", (0.25 + 0.30) / 2),
        ("tpot", (0.14 / 6 + 0.10 / 2) / 2),
        ("token_gap", (0.14 + 0.10) / (6 + 3)),
        ("chunk_gap", (0.04 + 0.04 + 0.06 + 0.10) / 4),
        ("worst_stall", (0.06 + 0.10) / 2),
        ("tokens_per_chunk", (3 + 2 + 1 + 2) / 4),
        ("on_time", (1.0 + 1.0 + 0.0) / 3),
        ("output_tokens_per_s", (7 + 4 + 2 + 4) / 10),
        ("requests_per_s", 2 / 10),
        ("error_ratio", 1 / 3),
    ],
)
def test_figures_of_two_good_requests_a_failed_one_and_one_due_before(name: str, expected: float) -> None:
    cell_rows = rows_of(request(), TWO, FAILED, BEFORE)
    assert BY_NAME[name].figure(cell_rows) == pytest.approx(expected)


def ranked(name: str, *rows: Request) -> list[float]:
    values = BY_NAME[name].values
    assert values is not None
    sample = values(rows_of(*rows))
    return [sample.at(rank) for rank in range(1, sample.size + 1)]


def test_percentiles_rank_a_failure_last() -> None:
    assert ranked("ttft", request(), TWO, FAILED, BEFORE) == pytest.approx([0.11, 0.20, math.inf])
    assert ranked("worst_stall", request(), TWO, FAILED) == pytest.approx([0.06, 0.10, math.inf])


def test_gaps_of_a_failed_request_end_in_one_that_never_did() -> None:
    assert ranked("chunk_gap", request(), FAILED) == pytest.approx([0.04, 0.04, 0.06, 0.10, math.inf])
    assert ranked("token_gap", request()) == pytest.approx([0, 0, 0, 0.04, 0.04, 0.06])


def test_without_token_counts_nothing_is_called_a_token() -> None:
    plain = request(chunk_tokens=[], tokens_source="none")
    for name in ("tpot", "token_gap", "tokens_per_chunk", "on_time"):
        assert math.isnan(BY_NAME[name].figure(rows_of(plain))), name
    silent = request(chunk_tokens=[], tokens_source="none", output_tokens=-1)
    assert math.isnan(BY_NAME["output_tokens_per_s"].figure(rows_of(silent)))
    assert BY_NAME["chunk_gap"].figure(rows_of(plain)) == pytest.approx(0.14 / 3)
    assert ranked("token_gap", plain) == []


def test_the_tokens_of_a_whole_answer_are_spread_over_its_chunks() -> None:
    """Seven tokens in four chunks, all in the window of 10 s; then two of the four chunks; a failure has no total."""
    plain = request(asked="none", chunk_tokens=[], tokens_source="none")
    assert BY_NAME["output_tokens_per_s"].figure(rows_of(plain)) == pytest.approx(0.7)
    late = request(asked="none", chunk_tokens=[], tokens_source="none", chunk_s=[108.0, 109.0, 109.1, 109.2])
    assert BY_NAME["output_tokens_per_s"].figure(rows_of(late)) == pytest.approx(0.35)
    broken = request(asked="none", chunk_tokens=[], tokens_source="none", outcome="truncated", output_tokens=-1)
    assert BY_NAME["output_tokens_per_s"].figure(rows_of(plain, broken, request())) == pytest.approx(1.4)


def test_where_a_sample_asked_what_needs_counts_is_of_the_sample() -> None:
    """One request in the sample ended well and one failed; those outside it, failed or not, are not counted."""
    silent = {"asked": "none", "chunk_tokens": [], "tokens_source": "none"}
    sample = [request(asked="continuous"), request(asked="continuous", outcome="timeout", chunk_s=[], chunk_tokens=[])]
    others = [request(**silent) for _ in range(5)] + [request(outcome="timeout", **silent) for _ in range(3)]
    for rows in (sample, [*sample, *others]):
        assert ranked("tpot", *rows) == pytest.approx([0.14 / 6, math.inf])
        assert ranked("token_gap", *rows) == pytest.approx([0, 0, 0, 0.04, 0.04, 0.06, math.inf])
        assert BY_NAME["tokens_per_chunk"].figure(rows_of(*rows)) == pytest.approx(2.0)
        assert BY_NAME["on_time"].figure(rows_of(*rows)) == pytest.approx(0.5)
    assert BY_NAME["error_ratio"].figure(rows_of(*sample, *others)) == pytest.approx(0.4)
    assert len(ranked("e2e", *sample, *others)) == 10


def test_only_failures() -> None:
    cell_rows = rows_of(FAILED)
    assert math.isnan(BY_NAME["e2e"].figure(cell_rows))
    assert BY_NAME["error_ratio"].figure(cell_rows) == 1.0
    assert ranked("e2e", FAILED) == [math.inf]
    assert np.isnan(BY_NAME["on_time"].figure(cell_rows))
