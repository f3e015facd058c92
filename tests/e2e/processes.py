"""Real processes: the command line as a user starts it, and simulated servers of the test's own."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHAT = ROOT / "scenarios" / "chat.py"
INVALID = 5
ATTEMPTS = 3


@dataclass
class Command:
    """A `loadtest` process under way."""

    process: subprocess.Popen[str]
    out: Path
    text: str = ""

    def wait(self, timeout_s: float = 90.0) -> int:
        """Return its exit code and keep what it printed."""
        try:
            self.text, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.text, _ = self.process.communicate()
            pytest.fail(f"still running after {timeout_s} s; it printed:\n{self.text}")
        return self.process.returncode

    @property
    def busy(self) -> bool:
        """Whether it says that the simulated servers could not keep their own clock."""
        return "this machine was too busy" in " ".join(self.text.split())

    @property
    def folder(self) -> Path:
        """The folder of its one run."""
        (folder,) = self.out.iterdir()
        return folder

    def until_requests(self, cells: int = 1, timeout_s: float = 60.0) -> Path:
        """Wait until `cells` cells have ended and a further one is under way; return the run's folder."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            lines = list(self.out.glob("*/cells.jsonl"))
            if lines and lines[0].read_text().count("\n") >= cells:
                time.sleep(1.0)
                return lines[0].parent
            if self.process.poll() is not None:
                pytest.fail(f"ended early with {self.process.returncode}: {self.process.communicate()[0]}")
            time.sleep(0.05)
        pytest.fail("no cell ended in time")


@dataclass
class Starter:
    """Starts `loadtest` commands and ends what a test left."""

    out: Path
    started: list[Command] = field(default_factory=list)

    def __call__(self, *words: object, cwd: Path = ROOT, **environment: str) -> Command:
        command = [sys.executable, "-m", "loadtest", *map(str, words)]
        process = subprocess.Popen(
            command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | environment,
        )  # fmt: skip
        self.started.append(Command(process, self.out))
        return self.started[-1]

    def under(self, limit: str, *words: object, before: Sequence[str] = (), **environment: str) -> Command:
        """Start a command under a limit of the shell, such as `ulimit -n 256`, with another command before it."""
        line = f"{limit} && exec {shlex.join([*before, sys.executable, '-m', 'loadtest', *map(str, words)])}"
        process = subprocess.Popen(
            ["bash", "-c", line], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | environment,
        )  # fmt: skip
        self.started.append(Command(process, self.out))
        return self.started[-1]

    def run(self, *words: object, timeout_s: float = 120.0, **environment: str) -> Command:
        """Start a command and wait for its end; a run that found this machine too busy to be judged is made again."""
        out = Path(str(words[words.index("--out") + 1])) if "--out" in words else self.out
        for attempt in range(1, ATTEMPTS + 1):
            before = set(out.glob("*"))
            command = self(*words, **environment)
            command.wait(timeout_s)
            if command.process.returncode != INVALID or not command.busy or attempt == ATTEMPTS:
                break
            for folder in set(out.glob("*")) - before:
                shutil.rmtree(folder)
        return command


def processes_that_mention(*words: str) -> dict[int, str]:
    """Return the command lines, by process, of the living processes that mention all the words; zombies have none."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words) and entry.parent.name != str(os.getpid()):
            found[int(entry.parent.name)] = line
    return found


def assert_ended(command: Command) -> None:
    """Fail unless the run came to its end: with an answer, or with none for the machine's sake."""
    code = command.process.returncode
    assert code in (0, 3, 4) or (code == INVALID and command.busy), command.text


def assert_asked_alike(rows: Sequence[Mapping[str, Any]], *, more_than: int = 0) -> None:
    """Fail unless both arms were asked so many requests, each with the same body; `rows` are those of the records."""
    bodies: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        key = (row["level"], row["block"], row["session"], row["turn"])
        bodies.setdefault(key, {})[row["arm"]] = row["body_hash"]
    pairs = [hashes for hashes in bodies.values() if len(hashes) == 2]
    assert len(pairs) > more_than
    assert all(len(set(hashes.values())) == 1 for hashes in pairs)


def assert_nothing_left(command: Command) -> None:
    """Fail unless every process that the run started has ended, within seconds."""
    deadline = time.monotonic() + 10
    while left := processes_that_mention(str(command.out)):
        if time.monotonic() > deadline:
            pytest.fail(f"still alive: {list(left.values())}")
        time.sleep(0.1)


@dataclass
class Server:
    """A simulated server of the test's own."""

    process: subprocess.Popen[str]
    url: str
    model: str

    def stop(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
