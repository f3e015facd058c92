"""A column that came later is absent in older runs, and read as empty text; any other one is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from loadtest.analyse.table import derive
from loadtest.errors import UsageError
from loadtest.record import ADDED, REQUEST_SCHEMA, Request
from loadtest.record_writer import RequestWriter
from loadtest.run_folder import finish_requests, read_requests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = RequestWriter(tmp_path / "requests.arrows")
    for way in ("continuous", "none", "ids"):
        writer.add(Request(cell=0, due_s=1.0, asked=way, chunk_s=[1.5], chunk_tokens=[1]))
    writer.close()
    finish_requests(tmp_path)
    return tmp_path


def _without(folder: Path, name: str) -> None:
    path = folder / "requests.parquet"
    pq.write_table(pq.read_table(path).drop_columns([name]), path)


def test_who_asked_is_written_and_read(folder: Path) -> None:
    assert read_requests(folder).column("asked").to_pylist() == ["continuous", "none", "ids"]
    assert np.array_equal(derive(read_requests(folder), []).columns["asked"], [True, False, True])


@pytest.mark.parametrize("name", sorted(ADDED))
def test_an_older_run_lacks_a_column_and_is_read(folder: Path, name: str) -> None:
    _without(folder, name)
    table = read_requests(folder)
    assert table.schema.equals(REQUEST_SCHEMA)
    assert table.column(name).to_pylist() == ["", "", ""]
    assert derive(table, []).columns["asked"].all()


def test_another_column_must_be_there(folder: Path) -> None:
    _without(folder, "tokens_source")
    with pytest.raises(UsageError, match=r"lacks the column\(s\) tokens_source"):
        read_requests(folder)
