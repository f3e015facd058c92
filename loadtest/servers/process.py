"""Server processes of our own: started, told apart by their id, and always stopped with their children."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.checks import shown
from loadtest.errors import ExitCode, RunError, UsageError, nearest
from loadtest.simulate.worlds import WORLDS

START_S = 30.0
STOP_S = 5.0
LAST_PORT = 65535


@dataclass(slots=True)
class ServerProcess:
    """A process that announced `{"ready": true, …}` on its stdout."""

    process: subprocess.Popen[bytes]
    announced: dict[str, Any]

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it: its stdin is closed, then TERM, then KILL, to its own process group."""
        if self.process.stdin:
            self.process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.alive:
                break
            _signal_group(self.process.pid, number)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                continue
        if self.process.stdout:
            self.process.stdout.close()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may end by itself in between
        os.killpg(pid, number)


def start_announcing(command: list[str], log: Path) -> ServerProcess:
    """Start a command in its own process group and wait for its announcement; stderr goes to `log`.

    Raises UsageError when it was given something wrong, RunError with the tail of the log when it ends or stays silent.
    """
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                   start_new_session=True)  # fmt: skip
    line = _first_line(process, time.monotonic() + START_S)
    try:
        announced = json.loads(line)
        if announced.get("ready"):
            return ServerProcess(process, announced)
    except (ValueError, AttributeError):
        pass
    ServerProcess(process, {}).stop()
    if process.returncode == ExitCode.USAGE:  # its last line says what was wrong
        said = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2].rpartition("error: ")[2]
        raise UsageError(f"The simulated server did not start: {said}.")
    tail = log.read_text(encoding="utf-8", errors="replace")[-800:].strip()
    raise RunError(f"{' '.join(command[:4])} … did not become ready within {START_S:g} s."
                   f" It wrote: {tail or 'nothing'}")  # fmt: skip


def _first_line(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(process.stdout.fileno(), 65536) if ready else b""
        if not part:
            break
        line += part
    return line


def refuse_unknown_world(name: str, named: str) -> None:
    """Raise UsageError, with the nearest name, for a world that there is not."""
    if name not in WORLDS:
        raise UsageError(f"{named} is {shown(name)}, which is no world.{nearest(name, WORLDS)}"
                         f" There are {', '.join(WORLDS)}.")  # fmt: skip


def start_simulated(
    world: str, arm: str, folder: Path, *, seed: int = 1, name: str = "", port: int = 0
) -> ServerProcess:
    """Start one simulated server; its log of true emission times is `truth-NAME.jsonl` in `folder`."""
    name = name or arm
    command = [sys.executable, "-P", "-m", "loadtest.simulate", "--world", world, "--arm", arm, "--port", str(port),
               "--seed", str(seed), "--watch-stdin", "--log", str(folder / f"truth-{name}.jsonl")]  # fmt: skip
    return start_announcing(command, folder / f"server-{name}.log")


def serve_simulated(world: str, ports: dict[str, int], seed: int, say: Callable[[str], None]) -> None:
    """Run simulated servers (arm → port, 0 for any) until the process is interrupted; `say` is told their URLs."""
    refuse_unknown_world(world, "--world")
    if max(ports.values()) > LAST_PORT:
        raise UsageError(
            f"--port {min(ports.values())} leaves no port for the second server; ports end at {LAST_PORT}."
        )
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = []
        for arm, port in ports.items():
            server = start_simulated(world, arm, Path(folder), seed=seed, port=port)
            stack.callback(server.stop)
            servers.append(server)
            say(f"{arm:12s} http://127.0.0.1:{server.announced['port']}  (model {server.announced['model']})")
        while all(server.alive for server in servers):
            time.sleep(0.2)
    raise RunError("A simulated server ended by itself.")


def killed_by(code: int) -> str:
    """Return the name of the signal that an exit code below 0 tells of; those for real-time use have only a number."""
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
