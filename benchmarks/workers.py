"""How much more load several workers make: chunks per second and CPU per chunk of a run with none, one and two.

    PYTHONPATH=. python -m benchmarks.workers --users 256,1536 --seconds 8

A server in C (benchmarks/ground_truth) streams 50 chunks/s to every user; `loadtest run --measure-only` loads it, once
for each way. Of the window: chunks that came, what was offered, CPU of the driver or master and of all workers. The
ways are visited twice, in opposite orders, and their means stand side by side. On a machine that does other work only
ratios of ways mean anything, and of those hardly more than the first digit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.client.ground import Server, build
from benchmarks.client.machine import cores, described
from benchmarks.client.workload import Workload
from loadtest.json_files import write_json

ROOT = Path(__file__).parents[1]
WAYS = {"the driver itself": (), "1 worker": ("--workers", "1"), "2 workers": ("--workers", "2")}
CHUNKS = 250  # of an answer: five seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One cell of one way."""

    way: str
    users: int
    chunks_per_s: float
    cpu_ratio: float  # of one core, all processes that make or keep the load together
    busiest_ratio: float
    lateness_p99_s: float | None

    @property
    def us_per_chunk(self) -> float:
        """CPU of all these processes, in microseconds per chunk."""
        return self.cpu_ratio / self.chunks_per_s * 1e6


def run(url: str, way: str, users: list[int], seconds: float) -> list[Seen]:
    """Make one run and return its cells."""
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-m", "loadtest", "run", "scenarios/chat.py", "--server", url, "--out", out,
             "--levels", ",".join(map(str, users)), "--blocks", "1", "--window", f"{seconds:g}s", "--measure-only",
             "--set", "load.think_time=0", "--set", f"generation.max_tokens={CHUNKS}", "--set", "servers.cache=keep",
             "--set", "servers.token_counts=all", "--set", "window.warmup_requests=0.5", "--set", "plan.stages=one",
             "--set", "outputs.prompts=0", *WAYS[way]],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        folders = list(Path(out).iterdir())
        if not folders:
            raise SystemExit(f"{way}: nothing was measured.\n{done.stdout}")
        requests = pq.read_table(folders[0] / "requests.parquet", columns=["cell", "chunk_s"])
        cells = [json.loads(line) for line in (folders[0] / "cells.jsonl").read_text().splitlines()]
    return [seen(way, cell, requests) for cell in cells if cell["window_close_s"]]


def seen(way: str, cell: dict[str, Any], requests: Any) -> Seen:
    """Return what a cell shows."""
    lists = requests.filter([value == cell["cell"] for value in requests.column("cell").to_pylist()]).column("chunk_s")
    came = np.concatenate([chunk.flatten().to_numpy() for chunk in lists.chunks])
    opened, closed = cell["window_open_s"], cell["window_close_s"]
    within = int(((came >= opened) & (came < closed)).sum())
    each = cell["worker_cpu_ratio"] or {"driver": cell["client_cpu_ratio"]}
    return Seen(
        way=way, users=int(cell["level"]), chunks_per_s=within / (closed - opened), cpu_ratio=sum(each.values()),
        busiest_ratio=max(each.values()), lateness_p99_s=cell["lateness_p99_s"],
    )  # fmt: skip


def table(found: list[Seen], level: int) -> None:
    """Print the ways at one level beside each other."""
    offered = level / Workload(users=level, chunks=CHUNKS).request_s * CHUNKS
    print(f"\n{level} users, {offered:,.0f} chunks/s offered")
    heads = ("chunks/s", "× driver", "µs a chunk", "× driver", "busiest", "late p99")
    print(f"{'':20}" + "".join(f"{head:>12}" for head in heads))
    base: tuple[float, float] | None = None
    for way in WAYS:
        own = [one for one in found if one.way == way and one.users == level]
        if not own:
            print(f"{way:20}{'no window':>12}")
            continue
        rate = float(np.mean([one.chunks_per_s for one in own]))
        cost = float(np.mean([one.us_per_chunk for one in own]))
        base = base or (rate, cost)
        late_s, busy = max(one.lateness_p99_s or 0.0 for one in own), max(one.busiest_ratio for one in own)
        print(f"{way:20}{rate:12,.0f}{rate / base[0]:12.2f}{cost:12.1f}{cost / base[1]:12.2f}{busy:12.0%}"
              f"{1000 * late_s:9.0f} ms")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--users", default="256,1536", help="levels")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a window")
    parser.add_argument("--passes", type=int, choices=(1, 2), default=2, help="visits to every way")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    users = [int(word) for word in given.users.split(",")]
    programs, (server_core, client_core) = build(), cores(None)
    schedule = Workload(chunks=CHUNKS).model.removeprefix("truth-")
    found: list[Seen] = []
    with Server(programs, None, core=server_core, realtime=True, tls=False, for_s=1800, schedule=schedule) as server:
        for way in [*WAYS, *reversed(WAYS)][: given.passes * len(WAYS)]:
            found += run(server.url, way, users, given.seconds)
            print(*(one for one in found if one.way == way), sep="\n", file=sys.stderr, flush=True)
    machine = described(server_core, client_core, "rt") | {"cores": f"server on {server_core}, the others anywhere"}
    for name, value in machine.items():
        print(f"{name:13} {value}")
    for level in users:
        table(found, level)
    if given.json:
        rows = [{name: getattr(one, name) for name in Seen.__slots__} for one in found]
        write_json(given.json, {"machine": machine, "cells": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
