"""Two stages and budgets over real sockets."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import CHAT, assert_asked_alike, assert_ended, assert_nothing_left, free_port

pytestmark = pytest.mark.e2e
QUICK = ("--set", "generation.max_tokens=16", "--set", "load.think_time=0", "--set", "window.warmup_requests=1")
TWO = ("--levels", "2,6,12", "--set", "plan.stages=two", "--window", "1s", "--blocks", "2", *QUICK)


def _json(path: Path) -> dict:
    return json.loads(path.read_text())


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_whole(folder: Path) -> None:
    """Every planned cell was recorded once, and every request belongs to one, both arms being asked the same."""
    plan, cells = _lines(folder / "plan.jsonl"), _lines(folder / "cells.jsonl")
    assert sorted(cell["cell"] for cell in cells) == [cell["cell"] for cell in plan] == list(range(len(plan)))
    assert {cell["state"] for cell in cells} == {"complete"}
    requests = pq.read_table(folder / "requests.parquet").to_pylist()
    assert {row["cell"] for row in requests} == {cell["cell"] for cell in plan}
    assert_asked_alike(requests)


@pytest.mark.nightly
def test_a_coarse_ladder_chooses_the_levels_that_are_judged(loadtest, servers):
    a, b = servers("baseline"), servers("speculative")
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *TWO, "--baseline", a.url, "--speculative", b.url)
    assert_ended(command)
    assert "First stage: at most 6 cells, 1 block at 2, 6, 12 users" in " ".join(command.text.split())
    folder = command.folder
    run, verdict = _json(folder / "run.json"), _json(folder / "verdict.json")
    assert run["judged_blocks"] == [1, 3]
    assert run["look"] == {"number": 1, "of": 3, "blocks": 2, "confidence": 0.95}
    assert set(run["coarse"]) <= {"2", "6", "12"}
    assert any("the first stage itself is not judged" in note for note in run["notes"])
    assert_whole(folder)
    cells = _lines(folder / "cells.jsonl")
    first = [cell for cell in cells if cell["block"] == 0]
    assert [cell["level"] for cell in first] == sorted(cell["level"] for cell in first)
    for cell in cells:
        window_s = cell["window_close_s"] - cell["window_open_s"]
        assert window_s == pytest.approx(1.0 if cell["block"] else 0.5, abs=0.2)
    judged = {cell["level"] for cell in cells if cell["block"]}
    assert set(verdict["levels"]) == judged
    assert all(any("not judged" in mark for mark in view["marks"]) == (view["block"] == 0) for view in verdict["cells"])
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_kill_between_the_stages_loses_nothing(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, *TWO)
    folder = command.until_requests(cells=4)
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait()
    time.sleep(4.0)  # the driver sees that its parent has gone, and ends
    before = {cell["cell"]: cell for cell in _lines(folder / "cells.jsonl")}
    again = loadtest.run("run", "--resume", folder)
    assert_ended(again)
    run = _json(folder / "run.json")
    assert run["status"] == "complete"
    assert [sitting["state"] for sitting in run["sittings"]] == ["running", "complete"]
    assert_whole(folder)
    after = {cell["cell"]: cell for cell in _lines(folder / "cells.jsonl")}
    assert all(after[number] == before[number] for number in range(4))
    assert_nothing_left(again)


@pytest.mark.nightly
def test_a_budget_ends_in_time_with_an_answer(loadtest):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "2,6", "--window", "1s", "--blocks", "40",
                           "--budget", "75s", *QUICK)  # fmt: skip
    assert_ended(command)
    run = _json(command.folder / "run.json")
    assert run["status"] == "complete"
    took_s = (datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])).total_seconds()
    assert took_s < 75
    assert 1 <= run["look"]["blocks"] <= 3
    assert "Budget: 75 s" in command.text
    assert_whole(command.folder)


def test_a_budget_that_is_too_short_is_refused_before_any_load(loadtest):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "2,6", "--window", "10s", "--budget", "9s")
    assert command.process.returncode == 2
    assert "--budget 9s is too short: one block at 2 and 6 users takes about" in command.text
    assert not loadtest.out.exists()


@pytest.mark.nightly
def test_servers_that_take_turns_are_measured_in_two_stages_and_taken_up_in_the_midst_of_a_pair(loadtest, tmp_path):
    port, log = free_port(), tmp_path / "out-truth.jsonl"
    file = tmp_path / "pair.toml"
    file.write_text(
        "".join(
            f"[arms.{name}]\nrole = '{role}'\nurl = 'http://127.0.0.1:{port}'\nstart = ['{{python}}', '-m',"
            f" 'loadtest.simulate', '--port', '{{port}}', '--arm', '{arm}', '--log', '{log}']\n"
            for name, role, arm in (("plain", "baseline", "baseline"), ("drafted", "candidate", "speculative"))
        )
    )
    command = loadtest("run", CHAT, "--out", loadtest.out, "--servers", file, *TWO)
    folder = command.until_requests(cells=8, timeout_s=150)  # six of the first pair of starts, and two more
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait()
    time.sleep(6.0)
    again = loadtest.run("run", "--resume", folder, timeout_s=200)
    assert_ended(again)
    run = _json(folder / "run.json")
    assert (run["status"], run["judged_blocks"], run["starts"]) == ("complete", [1, 3], 2)
    assert_whole(folder)
    cells = _lines(folder / "cells.jsonl")
    assert {cell["level"] for cell in cells if cell["block"] == 0} == {2.0, 6.0, 12.0}
    arms = [cell["arm"] for cell in sorted(cells, key=lambda cell: cell["started_s"])]
    assert [arm for arm, before in zip(arms, [None, *arms], strict=False) if arm != before] == [
        "plain", "drafted", "plain", "drafted", "plain"
    ]  # fmt: skip
    assert_nothing_left(again)
