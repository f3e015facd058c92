"""Fixtures: the command line, and simulated servers of a test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from processes import ROOT, Server, Starter

HOW = "build the environment with scripts/vllm-cpu-env DIR and set VLLM_CPU_PYTHON=DIR/bin/python"


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The python of vLLM's CPU build; without one the test is skipped, or fails where one is required."""
    named = os.environ.get("VLLM_CPU_PYTHON", "")
    if not named:
        (pytest.fail if os.environ.get("LOADTEST_REQUIRE_VLLM") else pytest.skip)(f"no vLLM here: {HOW}")
    return Path(named)


@pytest.fixture(scope="session")
def tiny_models(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the three tiny models, made in seconds."""
    folder = tmp_path_factory.mktemp("models")
    command = [vllm_python, ROOT / "scripts" / "tiny-models", folder]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    return folder


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
    """`servers(arm, world=…)` starts a simulated server and returns it; `within` stands before its command."""
    started: list[Server] = []

    def start(arm: str, world: str = "default", log: Path | None = None, *, host: str = "127.0.0.1", port: int = 0,
              within: Sequence[str] = ()) -> Server:  # fmt: skip
        command = [*within, sys.executable, "-m", "loadtest.simulate", "--world", world, "--arm", arm,
                   "--host", host, "--port", str(port), "--watch-stdin"]  # fmt: skip
        if log:
            command += ["--log", str(log)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        started.append(Server(process, f"http://{host}:{ready['port']}", ready["model"]))
        return started[-1]

    yield start
    for server in started:
        server.stop()
