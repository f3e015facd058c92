"""A run's folder read back: its header, plan, cells, counters and requests, in whatever state the run left them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadtest.errors import UsageError
from loadtest.reading import (
    check_header,
    checked,
    columns_of,
    is_count,
    numbered_lines,
    parsed,
    read_text,
    refuse_special,
    row_of,
)
from loadtest.record import (
    ADDED,
    REQUEST_SCHEMA,
    SEVERAL_VERSION,
    STREAM_SCHEMA,
    TEXTS,
    CellRecord,
    KeptText,
    PlannedCell,
    Scrape,
)


def read_requests(folder: Path) -> pa.Table:
    """Read the requests of a run: the Parquet file, and the Arrow streams that are not in it as far as they are whole.

    A run that was taken up again has a stream of its own for each time. Dictionary columns come back
    dictionary-encoded (REQUEST_SCHEMA). Raises UsageError for a file that is damaged.
    """
    parquet, tables = folder / "requests.parquet", []
    if parquet.exists():
        tables.append(columns_of(_read_parquet(parquet), REQUEST_SCHEMA, parquet, ADDED))
    for stream in request_streams(folder):
        tables.append(columns_of(_read_stream(stream), REQUEST_SCHEMA, stream, ADDED))
    if not tables:
        raise UsageError(f"{folder} holds neither requests.parquet nor requests.arrows: is it a run folder?")
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries()


STREAMS_IN_IT = b"loadtest_streams"  # metadata of requests.parquet: names of the streams whose rows it holds


def request_streams(folder: Path) -> list[Path]:
    """Return the streams whose rows are not in requests.parquet, in the order in which they were written."""
    parquet = folder / "requests.parquet"
    held = _streams_in(parquet) if parquet.exists() else frozenset[str]()
    streams = [(int(path.stem.partition("-")[2] or 1), path) for path in folder.glob("requests*.arrows")
               if path.stem == "requests" or path.stem.removeprefix("requests-").isdecimal()]  # fmt: skip
    return [path for _, path in sorted(streams) if path.name not in held]


def _streams_in(parquet: Path) -> frozenset[str]:
    refuse_special(parquet)
    try:
        metadata = pq.read_schema(parquet).metadata or {}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{parquet} cannot be read as Parquet ({error}); it may be cut short.") from error
    return frozenset(metadata.get(STREAMS_IN_IT, b"requests.arrows").decode().split())


def _read_parquet(path: Path) -> pa.Table:
    refuse_special(path)
    try:
        with path.open("rb") as source:
            return pq.read_table(source)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as Parquet ({error}); it may be cut short.") from error


def _read_stream(path: Path) -> pa.Table:
    refuse_special(path)
    batches: list[pa.RecordBatch] = []
    try:
        with path.open("rb") as source, suppress(pa.ArrowException, OSError, EOFError):
            batches.extend(iter(pa.ipc.open_stream(source)))  # a kill cuts the last batch; what came before is whole
        return pa.Table.from_batches(batches, schema=None if batches else STREAM_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as an Arrow stream ({error}).") from error


SPOOL = "spool"  # folder of what the workers of a run's own machine measured, until its driver has ended


def left_in_spool(folder: Path, told: pa.Table) -> pa.Table:
    """Return the requests of the plan that such workers had written when their driver was killed, and `told` has not.

    A file that is damaged is read as far as it is whole.
    """
    known = set(_places(told))
    found = [told.slice(0, 0)]
    for stream in sorted(folder.glob(f"{SPOOL}/*/*/*.arrows")):
        with suppress(UsageError):
            table = columns_of(_read_stream(stream), REQUEST_SCHEMA, stream, ADDED)
            new = [place[0] >= 0 and place not in known for place in _places(table)]  # below 0: of no cell of the plan
            found.append(table.filter(pa.array(new, pa.bool_())))
    return pa.concat_tables(found).unify_dictionaries()


def _places(table: pa.Table) -> Iterator[tuple[int, int, int]]:
    """Yield what no two requests of a run have alike: cell, session and turn."""
    return zip(*(table.column(name).to_pylist() for name in ("cell", "session", "turn")), strict=True)


def finish_requests(folder: Path, kept: Collection[int] | None = None) -> int:
    """Turn the streams of requests into requests.parquet (written beside, then renamed) and remove them.

    With `kept`, only the requests of these cells; return how many others there were. The file names the streams that it
    holds, so that a kill between the two steps counts no request twice.
    """
    parquet, streams = folder / "requests.parquet", request_streams(folder)
    table = read_requests(folder)
    if (folder / SPOOL).is_dir():
        table = pa.concat_tables([table, left_in_spool(folder, table)]).unify_dictionaries()
    rows: int = table.num_rows
    if kept is not None:
        table = table.filter(pc.is_in(table.column("cell"), pa.array(sorted(kept), pa.int32())))
    held = _streams_in(parquet) if parquet.exists() else frozenset[str]()
    names = " ".join(sorted({*held, *(stream.name for stream in streams)}))
    part = folder / "requests.parquet.part"
    metadata = (table.schema.metadata or {}) | {STREAMS_IN_IT: names.encode()}
    pq.write_table(table.replace_schema_metadata(metadata), part, compression="zstd")
    part.replace(parquet)
    for stream in folder.glob("requests*.arrows"):
        stream.unlink(missing_ok=True)
    shutil.rmtree(folder / SPOOL, ignore_errors=True)
    return rows - int(table.num_rows)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a line file; a cut last line is left out. A missing file yields nothing."""
    for _, row in numbered_lines(path):
        yield row


def read_cells(folder: Path) -> list[CellRecord]:
    """Read cells.jsonl. Raises UsageError for a value that no run writes, and for a cell that stands there twice."""
    cells: list[CellRecord] = []
    known: dict[object, int] = {}
    for where, row in numbered_lines(folder / "cells.jsonl"):
        cell = row_of(CellRecord, row, where)
        _check_place(cell, where)
        for key in (cell.cell, (cell.arm, cell.level, cell.block)):
            if key in known:
                raise UsageError(f"{where} repeats the cell of line {known[key]}: {cell.arm} at level {cell.level:g}.")
            known[key] = len(cells) + 1
        cells.append(cell)
    return cells


def read_plan(folder: Path, run: Mapping[str, Any]) -> list[PlannedCell] | None:
    """Read plan.jsonl; None where the run has none. Raises UsageError when it is not the plan named in the header.

    A plan may grow while it is run: lines beyond the header's `plan_cells` were written, and not yet begun, when the
    run was killed.
    """
    path, told = folder / "plan.jsonl", run.get("plan_sha256")
    if not path.exists():
        if told:
            raise UsageError(f"{path} is missing: whether every cell was measured cannot be said without it.")
        return None
    text = read_text(path)
    if is_count(run.get("plan_cells")):
        text = "".join(text.splitlines(keepends=True)[: run["plan_cells"]])
    if told and hashlib.sha256(text.encode()).hexdigest() != told:
        raise UsageError(f"{path} is not the plan of this run: its SHA-256 differs from `plan_sha256` in run.json.")
    plan: list[PlannedCell] = []
    for where, row in numbered_lines(path):
        if len(plan) == run.get("plan_cells"):
            break
        plan.append(row_of(PlannedCell, row, where))
        _check_place(plan[-1], where)
    return plan


def _check_place(cell: CellRecord | PlannedCell, where: str) -> None:
    """Refuse a number, arm, level or block that no plan holds."""
    checked(cell.arm, bool, "the name of an arm", where, "arm")
    checked(cell.level, lambda value: value > 0, "above 0", where, "level")
    for name in ("cell", "block"):
        checked(getattr(cell, name), lambda value: value >= 0, "0 or more", where, name)


def read_scrapes(folder: Path) -> list[Scrape]:
    """Read server.jsonl. Raises UsageError for a value that no run writes."""
    return [row_of(Scrape, row, where) for where, row in numbered_lines(folder / "server.jsonl")]


def read_texts(folder: Path) -> list[KeptText]:
    """Read the kept prompts and answers; none where none was kept. Raises UsageError for a value that no run writes."""
    return [row_of(KeptText, row, where) for where, row in numbered_lines(folder / TEXTS)]


def read_run(folder: Path) -> dict[str, Any]:
    """Read run.json, refusing a folder that is none, a schema that is not known, and values of the wrong kind."""
    path = folder / "run.json"
    if not path.is_file():
        raise UsageError(f"{folder} holds no run.json: give a run's folder, such as reports/20261129T210000Z-chat.")
    run = parsed(read_text(path), str(path))
    version = run.get("schema")
    if version is None or not is_count(version):
        raise UsageError(f"{path} is not a run header: its `schema` is {version!r}.")
    if version < 1:
        raise UsageError(f"{path} is not a run header: its `schema` is {version!r}, and the first was 1.")
    if version > SEVERAL_VERSION:
        raise UsageError(
            f"{path} has schema {version!r}; this loadtest reads up to {SEVERAL_VERSION}: use a newer one."
        )
    check_header(run, str(path))
    return run
