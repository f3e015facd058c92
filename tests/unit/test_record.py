"""The seam: what is written is read back, and a kill loses only what was not yet flushed."""

import json
import math
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.json_files import LineWriter, write_json
from loadtest.record import SCHEMA_VERSION, SEVERAL_VERSION, CellRecord, Outcome, Request, Scrape
from loadtest.record_writer import RequestWriter
from loadtest.run_folder import finish_requests, read_cells, read_lines, read_requests, read_run, read_scrapes


def _request(number: int) -> Request:
    return Request(
        cell=2, arm="baseline", level=8.0, block=1, user=3, session=number, category="maths", due_s=100.0,
        sent_s=100.001, end_s=101.5, outcome=Outcome.OK, output_tokens=3, tokens_source="usage",
        chunk_s=[100.11, 100.15], chunk_tokens=[1, 2], error="naïve \x00 “quotes”",
    )  # fmt: skip


def test_rows_come_back_as_they_were_written(tmp_path: Path):
    writer = RequestWriter(tmp_path / "requests.arrows")
    for number in range(5):
        writer.add(_request(number))
    writer.close()
    for _ in ("stream", "parquet"):
        rows = read_requests(tmp_path).to_pylist()
        assert [row["session"] for row in rows] == [0, 1, 2, 3, 4]
        assert rows[0]["chunk_s"] == [100.11, 100.15]
        assert rows[0]["chunk_tokens"] == [1, 2]
        assert rows[0]["arm"] == "baseline"
        assert rows[0]["error"] == "naïve \x00 “quotes”"
        assert math.isnan(rows[0]["headers_s"])
        finish_requests(tmp_path)
    assert not (tmp_path / "requests.arrows").exists()


@pytest.mark.parametrize("cut", [1, 9, 200])
def test_a_stream_cut_anywhere_keeps_its_whole_batches(tmp_path: Path, cut):
    path = tmp_path / "requests.arrows"
    writer = RequestWriter(path)
    writer.add(_request(0))
    writer.flush()
    whole = path.stat().st_size
    writer.add(_request(1))
    writer.flush()
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "requests.arrows").write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    assert path.stat().st_size - cut > whole
    assert [row["session"] for row in read_requests(killed).to_pylist()] == [0]
    writer.close()


def test_what_was_flushed_is_there_without_a_close(tmp_path: Path):
    writer = RequestWriter(tmp_path / "requests.arrows")
    assert read_requests(tmp_path).num_rows == 0
    writer.add(_request(0))
    assert read_requests(tmp_path).num_rows == 0
    writer.flush()
    assert read_requests(tmp_path).num_rows == 1
    writer.close()


@pytest.mark.parametrize("most", [1, 100, 10**6])
def test_a_batch_is_written_in_one_call_or_in_as_many_as_the_system_wants(tmp_path: Path, monkeypatch, most):
    calls: list[int] = []

    class Sink(FileIO):
        def write(self, data: Any) -> int:
            calls.append(len(data))
            return super().write(memoryview(data)[:most])

    monkeypatch.setattr(Path, "open", lambda self, mode, buffering: Sink(self, mode))
    writer = RequestWriter(tmp_path / "requests.arrows")
    calls.clear()
    for number in range(5):
        writer.add(_request(number))
    writer.flush()
    assert len(calls) == -(-calls[0] // most)
    writer.close()
    monkeypatch.undo()
    assert read_requests(tmp_path)["session"].to_pylist() == [0, 1, 2, 3, 4]


def test_cells_and_scrapes_come_back(tmp_path: Path):
    cell = CellRecord(cell=0, arm="baseline", level=1.0, block=0, order=0, state="complete", started_s=1.5)
    scrape = Scrape(
        t_s=2.0, arm="baseline", cell=0, moment="window_open", values={"vllm:x_total": 3.0}, per_position=[2.0]
    )
    for name, row in (("cells.jsonl", cell), ("server.jsonl", scrape)):
        lines = LineWriter(tmp_path / name)
        lines.write(row)
        lines.close()
    assert read_cells(tmp_path) == [cell]
    assert read_scrapes(tmp_path) == [scrape]


def test_a_cut_last_line_is_left_out_and_a_broken_one_is_named(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a":1}\n{"a":2')
    assert list(read_lines(path)) == [{"a": 1}]
    path.write_text('{"a":1}\nnonsense\n{"a":3}\n')
    with pytest.raises(UsageError, match="not JSON"):
        list(read_lines(path))
    assert list(read_lines(tmp_path / "missing.jsonl")) == []


def test_folders_that_are_no_run_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"neither requests\.parquet nor"):
        read_requests(tmp_path)
    with pytest.raises(UsageError, match=r"holds no run\.json"):
        read_run(tmp_path)
    for content in ("", "[]", "{", '{"schema": "x"}', '{"no": 1}'):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(UsageError, match=r"run\.json"):
            read_run(tmp_path)
    write_json(tmp_path / "run.json", {"schema": SEVERAL_VERSION + 1})
    with pytest.raises(UsageError, match="use a newer one"):
        read_run(tmp_path)
    run = {"schema": SCHEMA_VERSION, "status": "complete", "baseline": "a", "experiment": {}}
    write_json(tmp_path / "run.json", run)
    assert read_run(tmp_path)["status"] == "complete"


def test_a_parquet_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "requests.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        read_requests(tmp_path)


def test_json_holds_no_number_that_json_has_not_and_any_text(tmp_path: Path):
    write_json(tmp_path / "x.json", {"a": float("nan"), "b": [float("inf"), 1.5], "c": "lone \udc80", "d": ("x", -0.0)})
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": None, "b": [None, 1.5], "c": "lone \udc80", "d": ["x", 0.0]}
    lines = LineWriter(tmp_path / "x.jsonl")
    lines.write({"a": float("-inf"), "b": {"c": float("nan")}})
    lines.close()
    assert list(read_lines(tmp_path / "x.jsonl")) == [{"a": None, "b": {"c": None}}]


def test_a_row_that_does_not_fit_takes_no_other_with_it(tmp_path: Path):
    writer = RequestWriter(tmp_path / "requests.arrows")
    writer.add(_request(0))
    writer.add(Request(category=5))  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)):
        writer.flush()
    writer._rows.pop()
    writer.close()
    assert [row["session"] for row in read_requests(tmp_path).to_pylist()] == [0]
