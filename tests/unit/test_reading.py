"""Damaged files: every one ends in a usage error that names its file and its line or key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadtest.errors import ExitCode, UsageError
from loadtest.record import REQUEST_SCHEMA, Request
from loadtest.record_writer import batch_of
from loadtest.run_folder import read_cells, read_plan, read_requests, read_run, read_scrapes

HEADER: dict[str, Any] = {
    "schema": 1, "status": "complete", "baseline": "a", "candidate": "b", "experiment": {"plan": {"seed": 1}},
    "comparability": [{"item": "dtype", "kind": "equal"}], "simulated": {"late_ratio": {"a": None, "b": 0.1}},
    "aa": False, "starts": 1,
}  # fmt: skip
CELL: dict[str, Any] = {
    "cell": 0, "arm": "a", "level": 1.0, "block": 0, "order": 0, "state": "complete", "started_s": 1.5,
    "window_close_s": 9,
}  # fmt: skip
SCRAPE: dict[str, Any] = {
    "t_s": 2.0, "arm": "a", "cell": 0, "moment": "sample", "values": {"x": 1}, "per_position": [2.0],
}  # fmt: skip


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        read()
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[1]", "is '[1]'"), ("", "is not JSON"), ("[" * 100_000, "is not JSON"), ("{\"schema\": " + "9" * 5000, "not"),
    ],
)  # fmt: skip
def test_a_header_that_is_no_object(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / "run.json").write_text(text)
    said = refused(lambda: read_run(tmp_path))
    assert said.startswith(f"{tmp_path / 'run.json'} is")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", -1), ("schema", 0), ("schema", True), ("schema", None), ("schema", "1"),
        ("status", None), ("status", 3), ("baseline", ""), ("baseline", ["a"]), ("baseline", "b"), ("candidate", 4),
        ("experiment", None), ("experiment", []), ("experiment", {"plan": 3}), ("comparability", [1]),
        ("comparability", {"item": "x"}), ("comparability", [{"kind": "violation"}]), ("simulated", "yes"),
        ("simulated", {"late_ratio": "0.1"}), ("simulated", {"late_ratio": {"a": "0.1"}}), ("aa", "no"),
        ("smoke", 1), ("measure_only", None), ("starts", 0), ("starts", "2"), ("reason", 5), ("plan_sha256", 1),
        ("sittings", 1e308), ("sittings", "NaN"), ("sittings", ["x"]),
        ("servers_file", "x"), ("prompts", -0.5), ("prompts", {"words": "x"}),
        ("prompts", {"coincidence": [1]}),
    ],
)  # fmt: skip
def test_a_header_with_a_wrong_value_names_its_key(tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps(HEADER))
    assert read_run(tmp_path) == HEADER
    (tmp_path / "run.json").write_text(json.dumps(HEADER | {key: value}))
    said = refused(lambda: read_run(tmp_path))
    assert str(tmp_path / "run.json") in said
    assert key in said


@pytest.mark.parametrize("key", ["schema", "status", "baseline", "experiment"])
def test_a_header_without_a_key_names_it(tmp_path: Path, key: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps({k: v for k, v in HEADER.items() if k != key}))
    assert f"`{key}`" in refused(lambda: read_run(tmp_path))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "must be a JSON object"), ("5", "must be a JSON object"), ('{"cell":9}', "has no `arm`"),
        (json.dumps(CELL | {"level": "x"}), "`level` 'x'; it must be a finite number"),
        (json.dumps(CELL | {"level": 0}), "`level` 0; it must be above 0"),
        (json.dumps(CELL | {"level": -2}), "`level` -2; it must be above 0"),
        (json.dumps(CELL | {"level": 10**400}), "it must be a finite number"),
        (json.dumps(CELL | {"cell": 2**40}), "it must be a whole number"),
        (json.dumps(CELL | {"cell": -1}), "`cell` -1; it must be 0 or more"),
        (json.dumps(CELL | {"cell": True}), "`cell` True; it must be a whole number"),
        (json.dumps(CELL | {"block": -1}), "`block` -1; it must be 0 or more"),
        (json.dumps(CELL | {"arm": ""}), "it must be the name of an arm"),
        (json.dumps(CELL | {"window_close_s": "a"}), "`window_close_s` 'a'; it must be a finite number or null"),
        (json.dumps(CELL | {"window_close_s": 7.5}).replace("7.5", "1e400"), "`window_close_s` inf; it must be"),
        (json.dumps(CELL | {"lateness_p99_s": float("nan")}), "`lateness_p99_s` nan; it must be"),
        (json.dumps(CELL), "line 2, repeats the cell of line 1: a at level 1"),
        (json.dumps(CELL | {"cell": 5}), "line 2, repeats the cell of line 1: a at level 1"),
    ],
)  # fmt: skip
def test_a_damaged_line_of_cells_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(json.dumps(CELL) + "\n")
    assert [(c.cell, c.window_close_s) for c in read_cells(tmp_path)] == [(0, 9)]
    path.write_text(json.dumps(CELL) + "\n" + line + "\n")
    said = refused(lambda: read_cells(tmp_path))
    assert said.startswith(f"{path}, line 2, ")
    assert words in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "has no `t_s`"), (json.dumps(SCRAPE | {"t_s": "2"}), "`t_s`"),
        (json.dumps(SCRAPE | {"values": {"x": "1"}}), "`values`"), (json.dumps(SCRAPE | {"values": [1]}), "`values`"),
        (json.dumps(SCRAPE | {"values": {"x": float("inf")}}), "`values`"),
        (json.dumps(SCRAPE | {"per_position": {"0": 1}}), "`per_position`"),
        (json.dumps(SCRAPE | {"error": None}), "`error`"),
    ],
)  # fmt: skip
def test_a_damaged_line_of_scrapes_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "server.jsonl"
    path.write_text(json.dumps(SCRAPE) + "\n" + line + "\n")
    said = refused(lambda: read_scrapes(tmp_path))
    assert said.startswith(f"{path}, line 2, ")
    assert words in said


@pytest.mark.parametrize("name", ["cells.jsonl", "server.jsonl", "requests.parquet", "requests.arrows"])
def test_a_folder_where_a_file_belongs_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    readers: dict[str, Callable[[Path], object]] = {"cells.jsonl": read_cells, "server.jsonl": read_scrapes}
    read: Callable[[Path], object] = readers.get(name, read_requests)
    assert f"{tmp_path / name} cannot be read" in refused(lambda: read(tmp_path))


def test_the_plan_is_that_of_the_header(tmp_path: Path) -> None:
    assert read_plan(tmp_path, {}) is None
    text = '{"cell":0,"block":0,"level":4.0,"arm":"a"}\n'
    run = {"plan_sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert "plan.jsonl is missing" in refused(lambda: read_plan(tmp_path, run))
    (tmp_path / "plan.jsonl").write_text(text)
    found = read_plan(tmp_path, run)
    assert found is not None
    assert [(c.cell, c.block, c.level, c.arm) for c in found] == [(0, 0, 4.0, "a")]
    (tmp_path / "plan.jsonl").write_text(text * 2)
    assert "SHA-256 differs" in refused(lambda: read_plan(tmp_path, run))
    (tmp_path / "plan.jsonl").write_text('{"cell":0}\n')
    assert "line 1, has no `block`" in refused(lambda: read_plan(tmp_path, {}))


def stored(folder: Path, **columns: pa.Array) -> None:
    rows = [Request(cell=i, due_s=1.0, chunk_s=[1.5, 2.0], chunk_tokens=[1, 2]) for i in range(3)]
    table = pa.Table.from_batches([batch_of(rows)]).cast(REQUEST_SCHEMA)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table, folder / "requests.parquet")


TIMES = pa.list_(pa.float64())


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("cell", pa.array(["a", "b", "c"]), "column cell: "),
        ("cell", pa.array([0, 1, 2**40]), "column cell: "),
        ("cell", pa.array([0, None, 2], pa.int32()), "column cell: row 1 holds nothing"),
        ("cell", pa.array([[1], [2], [3]]), "column cell: "),
        ("due_s", pa.array([1.0, 2.0, float("inf")]), "column due_s: row 2 is infinite"),
        ("arm", pa.array([1.0, 2.0, 3.0]), "column arm: "),
        ("chunk_s", pa.array([[1.0], [], [2.0, float("nan")]], TIMES), "column chunk_s: row 2 holds a time that is"),
        ("chunk_s", pa.array([[1.0], [None], [2.0]], TIMES), "column chunk_s: row 1 holds nothing"),
        ("chunk_s", pa.array([[1.0], None, [2.0]], TIMES), "column chunk_s: row 1 holds nothing"),
        ("chunk_tokens", pa.array([[], [1, -2], [3]], pa.list_(pa.int32())), "row 1 holds a number below 0"),
        ("chunk_tokens", pa.array([1, 2, 3]), "column chunk_tokens: "),
    ],
)
def test_a_damaged_column_of_requests_is_named(tmp_path: Path, name: str, values: pa.Array, words: str) -> None:
    stored(tmp_path)
    assert read_requests(tmp_path).num_rows == 3
    stored(tmp_path, **{name: values})
    said = refused(lambda: read_requests(tmp_path))
    assert said.startswith(f"{tmp_path / 'requests.parquet'}, column {name}: ")
    assert words in said


def test_a_stream_of_something_else_is_refused(tmp_path: Path) -> None:
    with pa.ipc.new_stream(tmp_path / "requests.arrows", pa.schema([("x", pa.int32())])) as writer:
        writer.write_batch(pa.record_batch({"x": pa.array([1], pa.int32())}))
    assert "lacks the column(s) cell, arm" in refused(lambda: read_requests(tmp_path))
