"""`loadtest worker`: one worker for a run of another machine, with a null server of its own; imports no gevent."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadtest.drive.launch import SAME_ORDER
from loadtest.drive.truth import NULL
from loadtest.drive.workers.wanted import WAIT, place_of, waited
from loadtest.errors import ExitCode, Interrupted, RunError, UsageError
from loadtest.servers.process import killed_by, start_simulated

STOP_S = 10.0
AGAIN = os.EX_TEMPFAIL  # a worker's process ends with it when another is to join the master that answers now
Say = Callable[[str], None]


def work(master: str, name: str | None, spool: Path, wait: str | None, say: Say) -> None:
    """Work for one run to its end, also when it is resumed meanwhile.

    Raises UsageError, RunError or Interrupted, with what was kept and where.
    """
    host, port = place_of(master, "--master")
    if not port:
        raise UsageError(f"--master is {master!r}; write HOST:PORT, as the run that awaits workers says it.")
    settings: dict[str, Any] = {
        "host": host, "port": port, "name": name or socket.gethostname(), "spool": str(spool.resolve()),
        "wait_s": waited(wait or WAIT), "local": False, "why_left": "it was ended from outside",
    }  # fmt: skip
    try:
        spool.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--spool {spool} cannot be written: {error.strerror}.") from error
    code, said = AGAIN, ""
    while code == AGAIN:
        code, said = _live(settings, say)
    try:
        _conclude(code, said, settings, say)
    finally:
        with contextlib.suppress(OSError):
            spool.rmdir()  # unless something is left in it


def _live(settings: dict[str, Any], say: Say) -> tuple[int, str]:
    """Work for one master, beside a null server; return the code that it ended with and the last that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        null = start_simulated(NULL, "baseline", Path(folder), seed=1, name=NULL)
        try:
            own = {"url": f"http://127.0.0.1:{null.announced['port']}", "model": null.announced["model"],
                   "truth": str(Path(folder) / f"truth-{NULL}.jsonl")}  # fmt: skip
            log = Path(folder) / "worker.log"
            code = _run(settings | {"null": own}, log, say)
        finally:
            null.stop()
        return code, log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]


def _run(settings: dict[str, Any], log: Path, say: Say) -> int:
    """Run the worker itself and pass on what it says; a KeyboardInterrupt stops it."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loadtest.drive.workers.worker", json.dumps(settings)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", start_new_session=True,
            env=os.environ | SAME_ORDER,
        )  # fmt: skip
    with process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                say(line.rstrip("\n"))
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return int(ExitCode.INTERRUPTED)


def _conclude(code: int, said: str, settings: dict[str, Any], say: Say) -> None:
    """Raise what the worker ended with; of one that was killed or stopped what it had not sent is delivered first."""
    if code == ExitCode.PASS:
        return
    if code < 0 or code == ExitCode.INTERRUPTED:
        how = f"it was killed by {killed_by(code)}" if code < 0 else "it was stopped"
        with tempfile.TemporaryDirectory() as folder:
            kept = _run(settings | {"only_left": True, "why_left": how}, Path(folder) / "worker.log", say)
        if code < 0:
            raise RunError(f"The worker is gone: {how}.")
        whole = "what was measured is with the master" if kept == ExitCode.PASS else "the master has not taken all"
        raise Interrupted(f"Stopped; the cell under way is invalid, {whole}.")
    raise (UsageError if code == ExitCode.USAGE else RunError)(said or f"The worker ended with code {code}.")
