"""Derived columns, literal in and literal out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_run import cell, request, table_of

from loadtest.analyse.table import derive
from loadtest.errors import UsageError
from loadtest.record import REQUEST_SCHEMA, Request
from loadtest.record_writer import RequestWriter
from loadtest.run_folder import read_requests


def one(row: Request, pace: float = 15.0) -> dict[str, float]:
    frame = derive(table_of([row]), [cell()], pace).frame
    return {str(name): value for name, value in frame.iloc[0].items()}


def test_a_request_of_four_chunks() -> None:
    row = one(request())
    assert row["ttft_s"] == pytest.approx(0.11)
    assert row["ttft_visible_s"] == pytest.approx(0.11)
    assert row["e2e_s"] == pytest.approx(0.25)
    assert row["tpot_s"] == pytest.approx(0.14 / 6)
    assert row["worst_stall_s"] == pytest.approx(0.06)
    assert row["on_time"] == 1.0
    assert (row["tokens"], row["chunks"]) == (7, 4)
    assert row["ok"]
    assert row["in_window"]
    assert row["counted"]


def test_late_tokens_are_counted_against_the_reading_pace() -> None:
    # At 50 tokens/s token i is due 20·i ms after the first; of seven, tokens 1 (40 ms) and 6 (140 ms) come late.
    assert one(request(), pace=50.0)["on_time"] == pytest.approx(5 / 7)
    assert one(request(chunk_s=[100.0, 101.0, 101.0, 101.0]), pace=15.0)["on_time"] == pytest.approx(1 / 7)


def test_a_burst_is_credited() -> None:
    # 3 tokens at once, then nothing for 180 ms: at 15 tokens/s the fourth is due after 200 ms.
    assert one(request(chunk_s=[100.0, 100.18], chunk_tokens=[3, 1]))["on_time"] == 1.0
    assert one(request(chunk_s=[100.0, 100.21], chunk_tokens=[3, 1]))["on_time"] == 0.75


@pytest.mark.parametrize(
    ("values", "absent"),
    [
        ({"chunk_s": [], "chunk_tokens": []}, {"ttft_s", "e2e_s", "tpot_s", "worst_stall_s", "on_time"}),
        ({"chunk_s": [100.1], "chunk_tokens": [5]}, {"tpot_s", "worst_stall_s"}),
        ({"chunk_tokens": []}, {"tpot_s", "on_time"}),  # the server gave no counts
        ({"first_visible_s": math.nan}, {"ttft_visible_s"}),
    ],
)
def test_absent_is_nan_and_never_zero(values: dict[str, object], absent: set[str]) -> None:
    row = one(request(**values))
    derived = ("ttft_s", "ttft_visible_s", "e2e_s", "tpot_s", "worst_stall_s", "on_time")
    assert {name for name in derived if math.isnan(row[name])} == absent


@pytest.mark.parametrize(
    ("due", "inside"), [(98.999, False), (99.0, True), (108.999, True), (109.0, False), (math.nan, False)]
)
def test_window_is_closed_below_and_open_above(due: float, inside: bool) -> None:
    assert one(request(due_s=due))["in_window"] == inside


def test_a_cell_without_a_window_measures_nothing() -> None:
    table = table_of([request(), request(cell=7)])
    assert not derive(table, [cell(window_close_s=None)]).frame["in_window"].any()


def test_rows_are_sorted_by_cell_and_keep_their_chunks() -> None:
    rows = [
        request(cell=2, chunk_s=[100.5, 100.9], chunk_tokens=[1, 2]),
        request(cell=0, chunk_s=[], chunk_tokens=[]),
        request(cell=2, chunk_s=[100.7], chunk_tokens=[4]),
        request(cell=1, chunk_s=[100.2, 100.3], chunk_tokens=[]),
    ]
    cells = [cell(0), cell(1), cell(2), cell(3)]
    requests = derive(table_of(rows), cells)
    assert list(requests.frame["cell"]) == [0, 1, 2, 2]
    assert requests.bounds == {0: (0, 1), 1: (1, 2), 2: (2, 4)}
    last = requests.cell(cells[2])
    assert list(last.chunks.times) == [100.5, 100.9, 100.7]
    assert list(last.chunks.tokens) == [1, 2, 4]
    assert list(last.chunks.offsets) == [0, 2, 3]
    assert list(requests.cell(cells[1]).chunks.tokens) == [0, 0]
    assert len(requests.cell(cells[3]).measured) == 0


def test_bodies_are_equal_where_their_hashes_are() -> None:
    body = derive(table_of([request(body_hash=h) for h in ("x", "y", "x", "")]), [cell()]).frame["body"]
    assert body[0] == body[2] != body[1]
    assert body[3] == -1


def test_no_requests() -> None:
    requests = derive(REQUEST_SCHEMA.empty_table(), [cell()])
    assert len(requests.frame) == 0
    assert "tpot_s" in requests.frame
    assert requests.cell(cell()).measured.sum() == 0


def test_reading_a_folder(tmp_path: Path) -> None:
    writer = RequestWriter(tmp_path / "requests.arrows")
    writer.add(request())
    writer.close()
    assert derive(read_requests(tmp_path), [cell()]).frame["e2e_s"][0] == pytest.approx(0.25)
    with pytest.raises(UsageError, match="is it a run folder"):
        read_requests(tmp_path / "none")


chunk_lists = st.lists(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 6)), max_size=8), min_size=1, max_size=12)


@settings(deadline=None)  # a busy machine is no failure
@given(chunk_lists, st.floats(1, 100))
def test_columns_equal_a_loop_over_tokens(steps: list[list[tuple[float, int]]], pace: float) -> None:
    rows = []
    for chunks in steps:
        arrivals = (100.1 + np.cumsum([gap for gap, _ in chunks])).tolist()
        rows.append(request(chunk_s=arrivals, chunk_tokens=[k for _, k in chunks]))
    frame = derive(table_of(rows), [cell()], pace).frame
    for i, row in enumerate(rows):
        tokens = [t for t, k in zip(row.chunk_s, row.chunk_tokens, strict=True) for _ in range(k)]
        if not tokens:
            assert math.isnan(frame["e2e_s"][i])
            continue
        late = [(t - tokens[0]) * pace - j for j, t in enumerate(tokens)]
        if all(abs(x) > 1e-6 or j == 0 for j, x in enumerate(late)):  # a tie is decided by rounding
            assert frame["on_time"][i] == pytest.approx(sum(x <= 1e-9 for x in late) / len(tokens))
        rest = len(tokens) - row.chunk_tokens[0]
        expected = (tokens[-1] - tokens[0]) / rest if rest else math.nan
        assert frame["tpot_s"][i] == pytest.approx(expected, nan_ok=True)
        gaps = np.diff(row.chunk_s)
        assert frame["worst_stall_s"][i] == pytest.approx(max(gaps) if len(gaps) else math.nan, nan_ok=True)
