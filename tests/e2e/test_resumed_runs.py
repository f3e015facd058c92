"""Going on with a run: broken by a kill or an interrupt, or finished and to be looked at once more."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import CHAT, assert_ended, assert_nothing_left
from test_two_stages import assert_whole

pytestmark = pytest.mark.e2e
SHORT = ("--levels", "2,4", "--window", "1s", "--blocks", "2", "--set", "generation.max_tokens=16")
GONE_S = 4.0  # after which a driver whose parent was killed has ended


def _json(path: Path) -> dict:
    return json.loads(path.read_text())


def _cells(folder: Path) -> dict[int, dict]:
    return {row["cell"]: row for row in map(json.loads, (folder / "cells.jsonl").read_text().splitlines())}


def _kill(command) -> None:
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait()
    time.sleep(GONE_S)


def _asked(folder: Path) -> dict[tuple, str]:
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    return {(row["level"], row["block"], row["session"], row["turn"]): row["body_hash"] for row in rows}


@pytest.mark.nightly
def test_a_run_that_was_killed_twice_is_what_an_unbroken_one_is(loadtest, tmp_path):
    whole = loadtest.run("run", CHAT, "--out", tmp_path / "whole", *SHORT)
    assert_ended(whole)
    (unbroken,) = (tmp_path / "whole").iterdir()
    command = loadtest("run", CHAT, "--out", loadtest.out, *SHORT)
    folder = command.until_requests(cells=3)
    _kill(command)
    first = _cells(folder)
    again = loadtest("run", "--resume", folder)
    deadline = time.monotonic() + 60
    while len(_cells(folder)) < 5:
        assert time.monotonic() < deadline, again.process.poll()
        time.sleep(0.05)
    _kill(again)
    last = loadtest.run("run", "--resume", folder)
    assert_ended(last)
    assert "4 of 8 planned cells are there" in " ".join(last.text.split())
    assert_whole(folder)
    assert (folder / "plan.jsonl").read_bytes() == (unbroken / "plan.jsonl").read_bytes()
    assert _cells(folder)[0] == first[0]
    starts = [cell["started_s"] for _, cell in sorted(_cells(folder).items())]
    assert starts == sorted(starts)
    ours, theirs = _asked(folder), _asked(unbroken)
    shared = ours.keys() & theirs.keys()
    assert len(shared) > 20
    assert all(ours[key] == theirs[key] for key in shared)
    run = _json(folder / "run.json")
    assert run["status"] == "complete"
    assert len(run["sittings"]) == 3
    assert run["simulated"]["truth"]["baseline"]["missing"] == 0
    assert {path.name for path in folder.glob("requests*")} == {"requests.parquet"}
    assert set(_json(folder / "verdict.json")) == set(_json(unbroken / "verdict.json"))
    assert_nothing_left(last)


def test_an_interrupted_run_goes_on_and_a_running_one_is_left_alone(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, *SHORT)
    folder = command.until_requests(cells=2)
    refused = loadtest.run("run", "--resume", folder)
    assert refused.process.returncode == 2
    assert "is being measured by another process" in refused.text
    os.kill(command.process.pid, signal.SIGINT)
    assert command.wait() == 130
    again = loadtest.run("run", "--resume", folder)
    assert_ended(again)
    assert_whole(folder)


@pytest.mark.nightly
def test_a_finished_run_gets_the_blocks_of_its_next_look(loadtest, servers):
    a, b = servers("baseline"), servers("speculative")
    pair = ("--baseline", a.url, "--speculative", b.url)
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, *pair, "--set", "load.think_time=0")
    folder = command.folder
    before, answer = _cells(folder), _json(folder / "verdict.json")["decision"]
    between = loadtest.run("run", "--resume", folder, "--budget", "+2s")  # no block fits
    assert_ended(between)
    assert _json(folder / "verdict.json")["decision"] == answer
    again = loadtest.run("run", "--resume", folder, "--budget", "+5m")
    assert_ended(again)
    run = _json(folder / "run.json")
    assert run["look"] == {"number": 2, "of": 3, "blocks": 4, "confidence": 0.985}
    assert any("Look 2 of 3" in note for note in run["notes"])
    after = _cells(folder)
    assert len(after) == 16
    assert all(after[number] == before[number] for number in before)
    assert_whole(folder)
    assert {len(s["blocks"]) for s in _json(folder / "verdict.json")["speedups"] if s["metric"] == "e2e"} == {4}


@pytest.mark.nightly
def test_other_servers_and_other_plans_are_refused(loadtest, servers):
    a, b = servers("baseline"), servers("speculative")
    command = loadtest("run", CHAT, "--out", loadtest.out, *SHORT, "--baseline", a.url, "--speculative", b.url)
    folder = command.until_requests(cells=2)
    os.kill(command.process.pid, signal.SIGINT)
    command.wait()
    given = loadtest.run("run", "--resume", folder, "--blocks", "9")
    assert given.process.returncode == 2
    assert "leave out --blocks" in given.text
    header = _json(folder / "run.json")
    header["arms"][1]["identity"]["version"] = "0.0.1"
    (folder / "run.json").write_text(json.dumps(header))
    cells = (folder / "cells.jsonl").read_bytes()
    other = loadtest.run("run", "--resume", folder)
    assert other.process.returncode == 2
    assert "The speculative server is not the one" in other.text
    assert "0.0.1 at first" in other.text
    assert (folder / "cells.jsonl").read_bytes() == cells
    nothing = loadtest.run("run", "--resume", folder.parent)
    assert nothing.process.returncode == 2
    assert "holds no run.json" in nothing.text
