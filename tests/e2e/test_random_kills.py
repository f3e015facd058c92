"""Killed at any moment, again and again: at most the last second is lost, nothing stays behind, and the run goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from processes import CHAT, Command, assert_ended, assert_nothing_left, processes_that_mention
from test_two_stages import assert_whole

from loadtest.run_folder import read_lines, read_requests

pytestmark = pytest.mark.e2e
LOST_S = 1.5  # the second that may be lost, and what a busy machine adds


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        pytest.param(5, 1, marks=pytest.mark.timeout(400)),
        pytest.param(50, 2, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_random_kills_lose_at_most_the_last_second(loadtest, servers, tmp_path, kills, seed):
    rng = random.Random(seed)
    logs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    baseline, candidate = servers("baseline", log=logs[0]), servers("speculative", log=logs[1])
    command = loadtest("run", CHAT, "--out", loadtest.out, "--baseline", baseline.url, "--speculative", candidate.url,
                       "--levels", "4", "--window", "1s", "--blocks", kills, "--set", "load.think_time=0", "--set",
                       "generation.max_tokens=16", "--set", "outputs.prompts=0", "--set",
                       "servers.token_counts=all")  # fmt: skip
    folder = command.until_requests(cells=1)
    known: set[str] = set()
    killed = 0
    while killed < kills and command.process.poll() is None:
        at_s = _kill(rng.choice(["parent", "driver"]), command)
        killed += 1
        known |= _assert_kept(folder, logs, at_s, known)
        command = loadtest("run", "--resume", folder)
        _until_driven(command, rng.uniform(0.0, 5.0))
    command.wait(300)
    assert killed >= 0.8 * kills  # the last ones may find the run at its end
    assert_ended(command)
    assert_whole(folder)
    assert json.loads((folder / "run.json").read_text())["status"] == "complete"
    assert_nothing_left(command)


def _until_driven(command: Command, further_s: float) -> None:
    """Wait until a driver has begun, and some time more; a run may end before."""
    deadline = time.monotonic() + 60
    while not processes_that_mention("loadtest.drive.driver", str(command.out)) and command.process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(further_s)


def _kill(victim: str, command: Command) -> float:
    """Kill one of a run's processes; return when, once all have gone."""
    drivers = list(processes_that_mention("loadtest.drive.driver", str(command.out)))
    pid = drivers[0] if victim == "driver" and drivers else command.process.pid
    at_s = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    command.wait(60)
    assert_nothing_left(command)
    return at_s


def _assert_kept(folder: Path, logs: list[Path], killed_s: float, known: set[str]) -> set[str]:
    """Hold the records against what the servers sent before the kill; return the requests that are there."""
    there = set(read_requests(folder).column("response_id").to_pylist())
    sent = {row["id"]: row["sent_s"][-1] for log in logs for row in read_lines(log)}
    fresh = [sent[one] for one in there - known if one in sent]
    if fresh:  # what was sent before the first record of this sitting was asked to learn what the servers are
        due = {one for one, at_s in sent.items() if min(fresh) <= at_s < killed_s - LOST_S}
        assert due <= there, f"{len(due - there)} of {len(due)} answers are lost"
    return there
