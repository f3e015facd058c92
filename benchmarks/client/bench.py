"""Running workloads: server and client on their cores, the log read, everything compared; each workload once."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.client.compare import Comparison, compare, read_floor, read_records
from benchmarks.client.ground import REALTIME, Programs, Server, read_log
from benchmarks.client.machine import Disturbance, stolen_s, waited_s
from benchmarks.client.workload import Workload

ROOT = Path(__file__).parents[2]
MARGIN_S = 40.0  # for starting, for the last requests, and for a client that cannot keep up
SETTLE_S = 0.3  # of the C client, as in load.py
MIXED_RATIO = 0.01  # requests that may hold a read without the kernel's stamp
CAP = 4096  # streams: from about 3,000 × 50 chunks/s on, the server itself is late
CLOSE_RATIO = 0.06  # between the highest number of streams that held and the lowest that did not
LONG_RATE_PER_S = 100.0  # requests/s: a long run that is slower is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run: what it cost, what the client said against the truth, and who disturbed it."""

    workload: Workload
    comparison: Comparison | None  # None: a long run, which keeps no records
    cpu_s: float
    wall_s: float
    requests: int
    failed: int
    error: str
    coalesced: int
    stamps: dict[str, int]  # source of a request's stamps → requests
    scheduling: str
    peak_memory_mb: float
    memory: list[tuple[float, int, float]]
    disturbance: Disturbance

    @property
    def cpu_us_per_chunk(self) -> float:
        """CPU time of the client ÷ chunks."""
        chunks = self.comparison.chunks if self.comparison else self.requests * self.workload.chunks
        return self.cpu_s / chunks * 1e6 if chunks else math.nan

    @property
    def cpu_us_per_request(self) -> float:
        """CPU time of the client ÷ requests."""
        return self.cpu_s / self.requests * 1e6 if self.requests else math.nan

    @property
    def wrong(self) -> str:
        """What makes the figures worthless; "" for nothing."""
        if self.failed:
            return f"{self.failed} of {self.requests} requests failed ({self.error})"
        other = self.requests - self.stamps.get(self.workload.stamps, 0)
        if other > MIXED_RATIO * self.requests:
            return f"{other} of {self.requests} requests were not stamped by the {self.workload.stamps}'s clock"
        if self.comparison and not self.comparison.right:
            wrong = self.comparison.missing + self.comparison.differing
            return (
                f"{wrong} of {self.comparison.requests} requests differ from the log" if wrong else "no request ended"
            )
        return ""

    def as_row(self) -> dict[str, Any]:
        """Return the run for the JSON file."""
        figures = self.comparison.as_row() if self.comparison else {}
        return {
            "workload": json.loads(self.workload.as_json()), "cpu_s": self.cpu_s, "wall_s": self.wall_s,
            "cpu_us_per_chunk": self.cpu_us_per_chunk, "failed": self.failed, "error": self.error,
            "coalesced": self.coalesced, "stamps": self.stamps, "scheduling": self.scheduling,
            "peak_memory_mb": self.peak_memory_mb, "disturbance": asdict(self.disturbance), "wrong": self.wrong,
            "memory": self.memory,
        } | figures | {"requests": self.requests}  # fmt: skip


class RunFailed(Exception):
    """The client's process did not come to its end; the text says how it died."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """Two cores, the programs, and the results so far."""

    programs: Programs
    server_core: int
    client_core: int
    realtime: bool
    quick: bool = False
    tries: int = 2  # a disturbed run is made once more
    long_requests: int = 0  # of the long run; 0: as many as come in a minute
    tell: Callable[[str], None] = lambda text: None
    results: dict[Workload, Result] = field(default_factory=dict)

    def run(self, workload: Workload) -> Result:
        """Return the result of a workload, measuring it on the first call. Raises RunFailed, NoServer."""
        if self.quick:
            workload = shortened(workload)
        if workload not in self.results:
            self.results[workload] = self._measured(workload)
        return self.results[workload]

    def highest(self, workload: Workload, start: int) -> tuple[int, Result | None]:
        """Return the most streams at which the workload's figures hold, and that run; (0, None) when none do.

        Doubles from `start` until a run does not hold, then halves the distance.
        """
        low, best, high = 0, None, start
        while high <= CAP:
            result = self._holding(workload, high)
            if result is None:
                break
            low, best, high = high, result, high * 2
        while low and high <= CAP and high - low > max(8, CLOSE_RATIO * low):
            middle = (low + high) // 2
            result = self._holding(workload, middle)
            low, best, high = (middle, result, high) if result else (low, best, middle)
        while best is None and high > 8:
            high //= 2
            best = self._holding(workload, high)
        if best is None:
            return 0, None
        self.results[best.workload] = best
        return best.workload.users, best

    def _holding(self, workload: Workload, users: int) -> Result | None:
        for _ in range(self.tries):  # one hiccup of a shared machine is forgiven
            try:
                result = self._once(replace(workload, users=users))
            except RunFailed:  # the kernel ends a real-time process that never sleeps
                continue
            found = result.comparison
            if found and not result.failed and found.holds(result.workload.offered_chunks_per_s):
                return result
        return None

    def _measured(self, workload: Workload) -> Result:
        result = self._once(workload)
        for _ in range(self.tries - 1):
            if not result.disturbance.reasons:
                break
            result = self._once(workload)
        return result

    def _once(self, workload: Workload) -> Result:
        self.tell(workload.words)
        length_s = workload.requests / LONG_RATE_PER_S + workload.seconds + workload.request_s * 2 + MARGIN_S
        with tempfile.TemporaryDirectory(prefix="loadtest-client-") as name:
            folder = Path(name)
            log = None if workload.requests else folder / "server.bin"
            stolen = stolen_s(self.server_core) + stolen_s(self.client_core)
            began_s = time.monotonic()
            with Server(self.programs, log, core=self.server_core, realtime=self.realtime, tls=workload.tls,
                        for_s=length_s + MARGIN_S) as server:  # fmt: skip
                before_s = waited_s(server.process.pid)
                run = self._floor if workload.through == "c" else self._client
                told = run(workload, server.url, folder, length_s)
                server_waited_s = waited_s(server.process.pid) - before_s
            stolen = stolen_s(self.server_core) + stolen_s(self.client_core) - stolen
            wall_s = time.monotonic() - began_s
            disturbance = Disturbance(wall_s=wall_s, client_s=told["waited_s"], server_s=server_waited_s,
                                      stolen_s=stolen)  # fmt: skip
            comparison = self._compared(workload, told, folder, log)
        return Result(
            workload=workload, comparison=comparison, cpu_s=told["cpu_s"], wall_s=told["wall_s"],
            requests=told["requests"], failed=told["failed"], error=told["error"], coalesced=told["coalesced"],
            stamps=told["stamps"],
            scheduling=told["scheduling"], peak_memory_mb=told["peak_memory_mb"],
            memory=[tuple(row) for row in told["memory"]], disturbance=disturbance,
        )  # fmt: skip

    @staticmethod
    def _compared(workload: Workload, told: dict[str, Any], folder: Path, log: Path | None) -> Comparison | None:
        if log is None:
            return None
        origin_ns = told["origin_ns"]
        opens_s, closes_s = told["window_s"]
        if workload.through == "c":
            said = read_floor(read_log(folder / "reader.bin"))
        else:
            said = read_records(folder, origin_ns)
        return compare(said, read_log(log), (origin_ns + opens_s * 1e9, origin_ns + closes_s * 1e9))

    def _client(self, workload: Workload, url: str, folder: Path, length_s: float) -> dict[str, Any]:
        """Run the stream client in a process of its own; return what it said."""
        job = {"workload": json.loads(workload.as_json()), "url": url, "core": self.client_core,
               "realtime": self.realtime, "seconds_at_most": length_s}  # fmt: skip
        path = folder / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        self._ended([sys.executable, "-m", "benchmarks.client.load", str(path)], length_s)
        told: dict[str, Any] = json.loads((folder / "client.json").read_text(encoding="utf-8"))
        return told

    def _floor(self, workload: Workload, url: str, folder: Path, length_s: float) -> dict[str, Any]:
        """Run the C client; return what it said in the same form."""
        words = [url.rpartition(":")[2], workload.users, workload.seconds, workload.ramp_s, workload.model,
                 int(workload.usage), folder / "reader.bin", "--cpu", self.client_core]  # fmt: skip
        words += ["--realtime", REALTIME - 1] if self.realtime else []
        told = json.loads(self._ended([str(self.programs.reader), *map(str, words)], length_s))
        wall_s = (told["end_ns"] - told["begin_ns"]) / 1e9
        return {
            "origin_ns": told["begin_ns"], "window_s": (workload.ramp_s + SETTLE_S, workload.seconds),
            "cpu_s": told["cpu_s"], "wall_s": wall_s, "requests": told["requests"], "failed": told["errors"],
            "error": "the C client met an error" if told["errors"] else "", "coalesced": 0,
            "stamps": {"kernel": told["requests"]},
            "waited_s": told["waited_s"], "scheduling": "", "peak_memory_mb": math.nan, "memory": [],
        }  # fmt: skip

    @staticmethod
    def _ended(command: list[str], length_s: float) -> str:
        """Return what a process printed. Raises RunFailed."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            said, error = process.communicate(timeout=length_s + MARGIN_S)
        except BaseException:  # a timeout, or Ctrl-C: nothing is left running
            process.kill()
            process.communicate()
            raise
        if process.returncode == -signal.SIGALRM:
            raise RunFailed(f"a run did not come to its end within {length_s:.0f} s: is the machine busy?")
        if process.returncode:
            last = error.strip().splitlines()[-1:] or ["it said nothing"]
            raise RunFailed(f"{command[0]} ended with code {process.returncode}: {last[0]}")
        return said


def shortened(workload: Workload) -> Workload:
    """Return a workload that takes a third of the time; its figures are coarse."""
    if workload.requests:
        return workload
    return replace(workload, chunks=min(workload.chunks, 25), seconds=1.6, ramp_s=0.3)
