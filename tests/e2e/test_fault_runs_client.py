"""Whole runs whose client, or its machine, is at fault: marked invalid with the figure, and never laid to a server."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from faulty import Faulty
from processes import Command, Starter, assert_nothing_left

pytestmark = pytest.mark.e2e
linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

# Block 0: every task computes for 150 ms, and the wall clock goes forward by an hour. Block 1: the test stops the
# client for a while. Block 2: no more files can be opened once three users have theirs.
SCENARIO = """
import resource
import time

from loadtest.scenario import LLMUser, task

true_ns = time.time_ns
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

class Mine(LLMUser):
    full = False

    def burn(self):
        until = time.perf_counter() + 0.15
        while time.perf_counter() < until:
            pass
        if self.cell.phases.window_open_s is not None:
            time.time_ns = lambda: true_ns() + 3600 * 10**9

    def use_up_files(self):
        if Mine.full:
            return
        Mine.full = True
        with open("/dev/null") as next_one:
            resource.setrlimit(resource.RLIMIT_NOFILE, (next_one.fileno(), HARD))

    @task
    def ask(self):
        number = self.cell.cell.cell  # below 0 while the client is calibrated
        if number == 0:
            self.burn()
        if number == 2 and self.number == 3:  # before it has a connection
            self.use_up_files()
        self.chat([{"role": "user", "content": f"say {self.rng().random()}"}])
"""
PLAIN = """
from loadtest.scenario import LLMUser, task

class Mine(LLMUser):
    @task
    def ask(self):
        self.chat([{"role": "user", "content": f"say {self.rng().random()}"}])
"""
QUICK = ("--set", "load.think_time=0", "--set", "servers.token_counts=all", "--set", "generation.max_tokens=4")
STOPPED_S = 1.4


@pytest.fixture(scope="module")
def server() -> Iterator[Faulty]:
    """A good server."""
    made = Faulty()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def run(server: Faulty, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A run of one arm, one level and three blocks, each with a fault of the client's own."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "mine.py").write_text(SCENARIO)
    start = Starter(folder / "out")
    command = start("run", folder / "mine.py", "--out", folder / "out", "--server", server.url, "--levels", "6",
                    "--window", "2s", "--blocks", "3", *QUICK)  # fmt: skip
    command.until_requests(1)
    time.sleep(0.7)  # the pause before the next cell is over, and its window open
    (pid,) = _drivers(folder)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)
    command.wait()
    yield command
    assert_nothing_left(command)


def _drivers(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "loadtest.drive.driver" in line and str(folder) in line:
            found.append(int(entry.parent.name))
    return found


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def _cell(run: Command, block: int) -> dict[str, Any]:
    (cell,) = [cell for cell in _json(run.folder / "verdict.json")["cells"] if cell["block"] == block]
    return cell


def _rows(run: Command, block: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run.folder / "requests.parquet").to_pylist()
    return [row for row in rows if row["block"] == block]


@linux
def test_a_saturated_client_invalidates_the_cell_with_figures(run: Command) -> None:
    cell = _cell(run, 0)
    assert not cell["valid"]
    assert cell["hub_lag_p99_s"] > 0.1
    assert any("The client's timers fired late: p99 " in mark for mark in cell["marks"])


@linux
def test_a_step_of_the_wall_clock_is_noted_and_leaves_durations_alone(run: Command) -> None:
    cell, rows = _cell(run, 0), _rows(run, 0)
    assert len(rows) > 10
    for row in rows:
        assert row["outcome"] == "ok"
        assert row["due_s"] <= row["sent_s"] < row["chunk_s"][0] <= row["chunk_s"][-1] <= row["end_s"] + 0.01
        assert row["end_s"] - row["due_s"] < 10
    assert any("The wall clock was set within the window (1 seen, limit 0)" in mark for mark in cell["marks"])


@linux
def test_a_client_that_was_stopped_invalidates_the_cell_with_the_time(run: Command) -> None:
    cell = _cell(run, 1)
    assert not cell["valid"]
    (mark,) = [mark for mark in cell["marks"] if "stood still" in mark]
    assert float(mark.split(" s ")[0].rpartition(" ")[2]) == pytest.approx(STOPPED_S, abs=0.3)
    assert {row["outcome"] for row in _rows(run, 1)} == {"ok"}


@linux
def test_no_file_descriptor_left_is_the_clients_failure(run: Command) -> None:
    cell, rows = _cell(run, 2), _rows(run, 2)
    assert not cell["valid"]
    own = [row for row in rows if row["outcome"] == "client_error"]
    assert own
    assert {row["outcome"] for row in rows} == {"ok", "client_error"}
    assert all("Too many open files" in row["error"] for row in own)
    assert any("failed in the client" in mark or "client_error" in mark for mark in cell["marks"])


@linux
def test_a_run_without_a_valid_cell_is_invalid_and_has_its_report(run: Command) -> None:
    assert run.process.returncode == 5, run.text
    verdict = _json(run.folder / "verdict.json")
    assert verdict["decision"]["headline"].startswith("This run is invalid and not judged. ")
    assert verdict["decision"]["headline"] in " ".join(run.text.split())
    assert "INVALID" in (run.folder / "report.html").read_text().upper()
    assert "invalid" in (run.folder / "summary.md").read_text()


def test_more_users_than_open_files_are_refused_before_any_load(loadtest: Starter, server: Faulty) -> None:
    scenario = loadtest.out.parent / "mine.py"
    scenario.write_text(PLAIN)
    words = ["run", scenario, "--out", loadtest.out, "--server", server.url, "--levels", "200"]
    command = loadtest.under("ulimit -n 256", *words)
    command.wait()
    assert command.process.returncode == 2, command.text
    said = " ".join(command.text.split())
    assert "200 connections need 328 open files, and this machine allows a process 256" in said
    assert not list(loadtest.out.glob("*"))


def test_a_place_that_cannot_be_written_is_refused_before_any_load(loadtest: Starter, server: Faulty) -> None:
    scenario = loadtest.out.parent / "mine.py"
    scenario.write_text(PLAIN)
    command = loadtest.run("run", scenario, "--out", "/dev/null", "--server", server.url)
    assert command.process.returncode == 2, command.text
    assert "--out /dev/null cannot be written" in " ".join(command.text.split())
