"""Fixtures: the command line, and simulated servers of a test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import ROOT, Server, Starter


@pytest.fixture
def loadtest(tmp_path: Path) -> Iterator[Starter]:
    """The command line; runs go to an `out` folder of the test's own."""
    starter = Starter(tmp_path / "out")
    yield starter
    for command in starter.started:
        if command.process.poll() is None:
            os.killpg(command.process.pid, signal.SIGKILL)
            command.process.wait()
        if command.process.stdout:
            command.process.stdout.close()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[object]:
    """`servers(arm, world=…)` starts a simulated server and returns it."""
    started: list[Server] = []

    def start(arm: str, world: str = "default", log: Path | None = None) -> Server:
        command = [
            sys.executable,
            "-m",
            "loadtest.simulate",
            "--world",
            world,
            "--arm",
            arm,
            "--port",
            "0",
            "--watch-stdin",
        ]
        if log:
            command += ["--log", str(log)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        started.append(Server(process, f"http://127.0.0.1:{ready['port']}", ready["model"]))
        return started[-1]

    yield start
    for server in started:
        server.stop()
