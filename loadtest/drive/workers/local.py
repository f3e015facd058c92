"""Workers on this machine: processes of the driver's own session, which end with it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import gevent
from gevent import subprocess

from loadtest.run_folder import SPOOL
from loadtest.servers.process import killed_by

WATCH_S = 0.1


class LocalWorkers:
    """A number of worker processes; `lost` is told the name of each that ends, and how."""

    def __init__(self, count: int, port: int, folder: Path, lost: Callable[[str, str], None]) -> None:
        """Start them; what they write goes to `worker-N.log` in the run's folder."""
        self._folder, self._lost = folder, lost
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.names = [f"worker-{number}" for number in range(1, count + 1)]
        self._logs: list[IO[bytes]] = []
        for name in self.names:
            log = (folder / f"{name}.log").open("ab")
            self._logs.append(log)
            settings = {"host": "127.0.0.1", "port": port, "name": name, "spool": str(spool_of(folder, name)),
                        "wait_s": 60.0, "local": True}  # fmt: skip
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", "loadtest.drive.workers.worker", json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=log, stderr=log,
            )  # fmt: skip
        self._watcher = gevent.spawn(self._watch)

    def _watch(self) -> None:
        while self._processes:
            gevent.sleep(WATCH_S)
            for name, process in list(self._processes.items()):
                code = process.poll()
                if code is not None:
                    del self._processes[name]
                    self._lost(name, self._how(name, code))

    def _how(self, name: str, code: int) -> str:
        if code < 0:
            return f"it was killed by {killed_by(code)}"
        tail = (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"it ended with code {code}; the last that it wrote: {tail[-1] if tail else 'nothing'}"

    def close(self, wait_s: float = 3.0) -> None:
        """Wait for their end, which the master has told them, and see that it comes; logs that are empty go."""
        self._watcher.kill()
        until_s = time.monotonic() + wait_s
        for process in self._processes.values():
            try:
                process.wait(max(0.1, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self._logs:
            log.close()
            if not Path(log.name).stat().st_size:
                Path(log.name).unlink()


def spool_of(folder: Path, name: str) -> Path:
    """Return where a local worker keeps its records until the master has them."""
    return folder / SPOOL / name
