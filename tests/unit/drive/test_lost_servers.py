"""What is said of servers that were started and are not there any more, or not as they were."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.drive.turns import Managed
from loadtest.servers.control import Arm
from loadtest.servers.file import Start
from loadtest.servers.keeper import processes
from loadtest.servers.process import start_simulated

SERVES = """
import http.server, os, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if os.path.exists(sys.argv[2]) else 200); self.end_headers()
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True
print("ready", flush=True)
Server(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Managed, Arm]]:
    """A server under its keeper; it answers HTTP 500 while `down` is in the test's folder."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    arm = Arm(name="mine", role="baseline", url=f"http://127.0.0.1:{port}")
    start = Start(command=(sys.executable, "-c", SERVES, str(port), str(tmp_path / "down")), env={}, cwd=None,
                  ready_s=20.0, stop_s=5.0, health="/health")  # fmt: skip
    managed = Managed({"mine": start}, tmp_path, lambda event: None)
    managed.start(arm, 1, 1)
    yield managed, arm
    managed.stop()


def _pid(managed: Managed) -> int:
    pid = managed._up["mine"].pid
    assert pid is not None
    return pid


def _said(managed: Managed, asked: str = "", within_s: float = 10.0) -> str:
    deadline = time.monotonic() + within_s
    while not (said := managed.lost(asked)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return said


def test_one_that_is_there_is_not_lost(started):
    managed, _ = started
    assert managed.lost() == managed.lost("mine") == ""


def test_one_whose_worker_died_runs_and_is_not_healthy(started, tmp_path):
    managed, _ = started
    (tmp_path / "down").touch()
    assert managed.lost() == managed.lost("another") == ""
    wanted = "The mine server runs and is not healthy any more (GET /health: HTTP 500); its log ends: ready"
    assert managed.lost("mine") == wanted


def test_one_that_was_killed_is_lost_also_when_another_program_answers_well(started, tmp_path):
    managed, arm = started
    os.kill(_pid(managed), signal.SIGKILL)
    _said(managed)
    other = start_simulated("default", "baseline", tmp_path, port=int(arm.url.rpartition(":")[2]))
    try:
        wanted = "The mine server ended by itself, killed by SIGKILL; its log ends: ready"
        assert managed.lost("mine") == wanted
    finally:
        other.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells a server that its keeper was killed")
def test_one_whose_keeper_was_killed_did_not_end_by_itself(started):
    managed, _ = started
    pid = _pid(managed)
    (keeper,) = {process.parent for process in processes() if process.pid == pid}
    os.kill(keeper, signal.SIGKILL)
    said = "The mine server was ended, since the process that kept it had gone; its log ends: ready"
    assert _said(managed) == said
