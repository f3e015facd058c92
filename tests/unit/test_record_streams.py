"""Requests of a run that was taken up again: every row once, whatever moment a kill struck."""

from __future__ import annotations

import hashlib
import resource
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadtest.errors import UsageError
from loadtest.record import Request
from loadtest.record_writer import RequestWriter, stream_name
from loadtest.run_folder import finish_requests, left_in_spool, read_plan, read_requests


def _write(folder: Path, sitting: int, cells: list[int], *, close: bool = True) -> None:
    writer = RequestWriter(folder / stream_name(sitting))
    for cell in cells:
        writer.add(Request(cell=cell, arm="a", level=1.0, block=0, category=f"kind {cell}", due_s=float(cell)))
    writer.close()
    if not close:  # a kill: no end mark, and a batch that is cut
        whole = (folder / stream_name(sitting)).read_bytes()
        (folder / stream_name(sitting)).write_bytes(whole[:-8] + b"\xff\xff\xff\xff\x10")


def add(writer: RequestWriter, sessions: range) -> None:
    for session in sessions:
        writer.add(Request(cell=0, arm="a", level=1.0, block=0, category="c", due_s=1.0, session=session))
    writer.flush()


def _cells(folder: Path) -> list[int]:
    return read_requests(folder).column("cell").to_pylist()


def test_streams_are_read_in_the_order_of_their_sittings(tmp_path):
    for sitting, cells in ((1, [0, 1]), (2, [2]), (10, [4]), (9, [3])):
        _write(tmp_path, sitting, cells, close=sitting != 9)
    assert _cells(tmp_path) == [0, 1, 2, 3, 4]
    assert read_requests(tmp_path).column("category").to_pylist() == [f"kind {i}" for i in range(5)]


def test_the_final_form_holds_all_streams_and_a_later_one_is_added_to_it(tmp_path):
    _write(tmp_path, 1, [0, 1])
    finish_requests(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["requests.parquet"]
    _write(tmp_path, 2, [2])
    assert _cells(tmp_path) == [0, 1, 2]
    finish_requests(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["requests.parquet"]
    assert _cells(tmp_path) == [0, 1, 2]


def _spooled(folder: Path, worker: str, rows: list[tuple[int, int]]) -> Path:
    place = folder / "spool" / worker / "node"
    place.mkdir(parents=True)
    writer = RequestWriter(place / "requests.arrows")
    for cell, session in rows:
        writer.add(Request(cell=cell, arm="a", level=1.0, block=0, category="c", due_s=1.0, session=session, turn=0))
        writer.flush()
    writer.close()
    return place / "requests.arrows"


def test_what_workers_of_a_killed_driver_had_kept_is_among_the_records_once(tmp_path):
    writer = RequestWriter(tmp_path / stream_name(1))
    for session in range(3):
        writer.add(Request(cell=0, arm="a", level=1.0, block=0, category="c", due_s=1.0, session=session, turn=0))
    writer.close()
    cut = _spooled(tmp_path, "worker-1", [(-1, 0), (0, 0), (0, 2), (0, 4), (1, 0), (1, 2)])
    _spooled(tmp_path, "worker-2", [(0, 1), (0, 3)])
    (tmp_path / "spool" / "worker-3" / "node").mkdir(parents=True)
    (tmp_path / "spool" / "worker-3" / "node" / "requests.arrows").write_bytes(b"")  # killed before it had begun
    cut.write_bytes(cut.read_bytes()[:-40])  # as a kill cuts it: the last batch is not whole
    assert left_in_spool(tmp_path, read_requests(tmp_path)).num_rows == 3
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*.arrows")}
    assert finish_requests(tmp_path) == 0
    rows = read_requests(tmp_path).select(["cell", "session"]).to_pylist()
    assert [(row["cell"], row["session"]) for row in rows] == [(0, 0), (0, 1), (0, 2), (0, 4), (1, 0), (0, 3)]
    assert [path.name for path in tmp_path.iterdir()] == ["requests.parquet"]
    for path, data in kept.items():  # a kill before they were removed
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert finish_requests(tmp_path, kept={0}) == 1
    assert read_requests(tmp_path).column("session").to_pylist() == [0, 1, 2, 4, 3]
    assert not (tmp_path / "spool").exists()  # what is measured again would be mixed with it


def test_a_kill_before_the_streams_are_removed_counts_nothing_twice(tmp_path):
    _write(tmp_path, 1, [0, 1])
    _write(tmp_path, 2, [2])
    kept = {name: (tmp_path / name).read_bytes() for name in (stream_name(1), stream_name(2))}
    finish_requests(tmp_path)
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    assert _cells(tmp_path) == [0, 1, 2]
    _write(tmp_path, 3, [3])
    assert _cells(tmp_path) == [0, 1, 2, 3]
    finish_requests(tmp_path)
    assert _cells(tmp_path) == [0, 1, 2, 3]
    assert not list(tmp_path.glob("*.arrows"))


def test_a_kill_in_the_midst_of_writing_leaves_the_streams(tmp_path):
    _write(tmp_path, 1, [0, 1])
    (tmp_path / "requests.parquet.part").write_bytes(b"PAR1 cut")
    assert _cells(tmp_path) == [0, 1]
    finish_requests(tmp_path)
    assert _cells(tmp_path) == [0, 1]


def test_what_a_full_disk_took_in_part_spoils_nothing_that_follows(tmp_path):
    path, whole = tmp_path / "requests.arrows", resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = RequestWriter(path)
    add(writer, range(50))
    held = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (held + 1000, whole[1]))  # as a full disk: a part is taken
    try:
        with pytest.raises(OSError, match="File too large"):
            add(writer, range(50, 100))
        assert path.stat().st_size == held
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, whole)
    add(writer, range(100, 120))
    writer.close()
    with pa.ipc.open_stream(path) as stream:
        assert stream.read_all()["session"].to_pylist() == list(range(120))


def test_a_batch_that_was_handed_on_is_not_handed_on_again(tmp_path):
    path, whole, told = tmp_path / "requests.arrows", resource.getrlimit(resource.RLIMIT_FSIZE), []
    writer = RequestWriter(path, told.append)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, whole[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            add(writer, range(50))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, whole)
    writer.close()
    assert [batch.rows for batch in told] == [50]


def test_only_the_cells_that_stay_are_kept(tmp_path):
    _write(tmp_path, 1, [0, 1, 2, 1])
    finish_requests(tmp_path, kept={0, 2})
    assert _cells(tmp_path) == [0, 2]
    finish_requests(tmp_path, kept=set())
    assert _cells(tmp_path) == []


def test_a_parquet_file_of_an_older_version_is_its_stream(tmp_path):
    _write(tmp_path, 1, [0, 1])
    pq.write_table(read_requests(tmp_path), tmp_path / "requests.parquet")
    assert _cells(tmp_path) == [0, 1]


def test_other_files_are_no_streams(tmp_path):
    _write(tmp_path, 1, [0])
    shutil.copy(tmp_path / "requests.arrows", tmp_path / "requests-copy.arrows")
    assert _cells(tmp_path) == [0]


def test_a_plan_that_grew_is_read_as_far_as_the_header_says(tmp_path):
    lines = [f'{{"cell":{i},"block":0,"level":{i + 1}.0,"arm":"a"}}\n' for i in range(3)]
    (tmp_path / "plan.jsonl").write_text("".join(lines))
    told = {"plan_cells": 2, "plan_sha256": _sha256("".join(lines[:2]))}
    assert [cell.cell for cell in read_plan(tmp_path, told)] == [0, 1]
    with pytest.raises(UsageError, match="is not the plan of this run"):
        read_plan(tmp_path, told | {"plan_cells": 3})
    with pytest.raises(UsageError, match="is not the plan of this run"):
        read_plan(tmp_path, told | {"plan_cells": None})


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
