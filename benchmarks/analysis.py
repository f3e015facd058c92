"""How long a judgement takes, and how much memory: `python benchmarks/analysis.py [REQUESTS] [CHUNKS]`.

Makes a run of two arms, 7 levels and 6 blocks with the given number of requests (default 100 000) of the given
number of chunks (default 64) and judges it in a process of its own, which prints its time and peak memory.
`--judge FOLDER` judges a run that is there. Goal: 1 000 000 requests of 100 chunks in under 60 s and 4 GB on two cores.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loadtest.analyse.judge import judge
from loadtest.analyse.verdict import as_json
from loadtest.experiment import as_document
from loadtest.json_files import LineWriter, write_json
from loadtest.record import REQUEST_SCHEMA, CellRecord, Request, Scrape
from loadtest.settings import Experiment, Load

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
BLOCKS = 6
ARMS = ("baseline", "speculative")
TTFT_S, GAP_S = 0.05, 0.02


def make(folder: Path, requests: int, chunks: int) -> None:
    """Write a run of `requests` requests with `chunks` chunks each."""
    rng = np.random.default_rng(1)
    cells: list[CellRecord] = []
    tables: list[pa.Table] = []
    clock = 0.0
    per_cell = max(1, requests // (len(LEVELS) * BLOCKS * len(ARMS)))
    for block in range(BLOCKS):
        for level in LEVELS:
            for arm in ARMS:
                gap = GAP_S * (1 + level / 50) / (1.8 - 0.2 * np.log2(level) if arm == ARMS[1] else 1.0)
                length = TTFT_S + gap * (chunks - 1)
                window = per_cell * length / level
                number = len(cells)
                tables.append(cell_table(rng, number, arm, level, block, clock, per_cell, chunks, gap, length))
                cells.append(CellRecord(cell=number, arm=arm, level=level, block=block, order=number, state="complete",
                                        started_s=clock, window_open_s=clock, window_close_s=clock + window,
                                        in_flight_mean=level))  # fmt: skip
                clock += window + 10
    pq.write_table(pa.concat_tables(tables), folder / "requests.parquet", compression="zstd")
    lines = LineWriter(folder / "cells.jsonl")
    for cell in cells:
        lines.write(cell)
    lines.close()
    lines = LineWriter(folder / "server.jsonl")
    for scrape in scrapes(cells, per_cell * chunks):
        lines.write(scrape)
    lines.close()
    write_json(folder / "run.json", {
        "schema": 1, "status": "complete", "experiment": as_document(Experiment(load=Load(think_time=0))),
        "baseline": ARMS[0], "candidate": ARMS[1],
    })  # fmt: skip


def scrapes(cells: list[CellRecord], drafts: int) -> list[Scrape]:
    """Return counters of a server that drafts 3 tokens a step and accepts 1, and of one that drafts nothing."""
    made, before = [], dict.fromkeys(ARMS, 0.0)
    for cell in cells:
        for t_s, moment in ((cell.window_open_s, "window_open"), (cell.window_close_s, "window_close")):
            assert t_s is not None
            before[cell.arm] += drafts if moment == "window_close" and cell.arm == ARMS[1] else 0
            steps = before[cell.arm]
            names = {"num_drafts": steps, "num_draft_tokens": 3 * steps, "num_accepted_tokens": steps}
            values = {f"vllm:spec_decode_{name}_total": v for name, v in names.items()} if cell.arm == ARMS[1] else {}
            made.append(Scrape(t_s=t_s, arm=cell.arm, cell=cell.cell, moment=moment,
                               values={"vllm:num_requests_running": cell.level, **values},
                               per_position=[0.6 * steps, 0.3 * steps, 0.1 * steps] if values else []))  # fmt: skip
    return made


def cell_table(rng: np.random.Generator, number: int, arm: str, level: float, block: int, clock: float, n: int,
               chunks: int, gap: float, length: float) -> pa.Table:  # fmt: skip
    """Return the requests of one cell."""
    due = clock + np.arange(n) * length / level
    factor = np.exp(rng.normal(0, 0.01))
    gaps = gap * factor * rng.gamma(20, 1 / 20, (n, chunks))
    gaps[:, 0] = TTFT_S * factor * rng.gamma(50, 1 / 50, n)
    arrivals = due[:, None] + np.cumsum(gaps, axis=1)
    offsets = pa.array(np.arange(n + 1) * chunks, pa.int32())
    columns: dict[str, object] = {
        "cell": np.full(n, number), "arm": [arm] * n, "level": np.full(n, level), "block": np.full(n, block),
        "session": np.arange(n), "turn": np.zeros(n), "body_hash": [f"{level:g}/{block}/{i}" for i in range(n)],
        "due_s": due, "sent_s": due, "headers_s": arrivals[:, 0], "first_visible_s": arrivals[:, 0],
        "end_s": arrivals[:, -1], "outcome": ["ok"] * n, "finish_reason": ["stop"] * n,
        "output_tokens": np.full(n, chunks), "prompt_tokens": np.full(n, 20),
        "chunk_s": pa.ListArray.from_arrays(offsets, pa.array(arrivals.ravel())),
        "chunk_tokens": pa.ListArray.from_arrays(offsets, pa.array(np.ones(n * chunks, dtype=np.int32))),
    }  # fmt: skip
    absent = asdict(Request())
    arrays = [_array(columns.get(f.name, [absent[f.name]] * n), f.type) for f in REQUEST_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=REQUEST_SCHEMA)


def _array(values: object, kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values).cast(kind)


def measure(folder: Path) -> None:
    """Judge the folder and print time and peak memory of this process."""
    started, began = time.perf_counter(), time.process_time()
    judgement = judge(folder)
    as_json(judgement)
    took, cpu = time.perf_counter() - started, time.process_time() - began
    scale = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20
    print(judgement.decision.headline)
    print(f"judged in {took:.1f} s ({cpu:.1f} s of CPU), peak memory {peak:.0f} MiB")


def main() -> None:
    if sys.argv[1:2] == ["--judge"]:
        measure(Path(sys.argv[2]))
        return
    requests, chunks = ([int(word) for word in sys.argv[1:3]] + [100_000, 64][len(sys.argv[1:3]) :])[:2]
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), requests, chunks)
        size = (Path(name) / "requests.parquet").stat().st_size / 2**20
        print(f"{requests} requests × {chunks} chunks, {size:.0f} MiB as Parquet")
        subprocess.run([sys.executable, __file__, "--judge", name], check=True)


if __name__ == "__main__":
    main()
