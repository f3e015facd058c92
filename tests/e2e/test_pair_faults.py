"""What befalls a pair of servers and the way to them in the midst of a run: the right verdict, or an invalid cell."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from networks import FAR, Cable
from processes import CHAT, Command, assert_nothing_left

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]
PLAIN = ("--set", "load.think_time=0", "--set", "outputs.prompts=0", "--set", "servers.token_counts=all",
         "--set", "generation.max_tokens=64", "--set", "window.warmup_max_s=2")  # fmt: skip


@pytest.fixture
def cable() -> Iterator[Cable]:
    try:
        made = Cable()
    except OSError as error:
        pytest.skip(str(error))
    yield made
    made.close()


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _cells(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]


def _marks(folder: Path) -> dict[int, str]:
    cells = _json(folder / "verdict.json")["cells"]
    return {cell["cell"]: " ".join(cell["marks"]) for cell in cells if not cell["valid"]}


def _in_cell(command: Command, number: int) -> None:
    """Wait until the cell has begun, and two seconds of warm-up and two of its window are over."""
    command.until_requests(cells=number, timeout_s=120)
    time.sleep(4.0)


def test_a_server_that_was_started_again_costs_the_cell_it_fell_into(loadtest, servers):
    baseline, candidate = servers("baseline"), servers("speculative")
    command = loadtest("run", CHAT, "--out", loadtest.out, "--baseline", baseline.url, "--speculative", candidate.url,
                       "--levels", "8", "--window", "6s", "--blocks", "2", *PLAIN)  # fmt: skip
    _in_cell(command, 1)
    candidate.process.kill()
    candidate.process.wait()
    servers("speculative", port=int(candidate.url.rpartition(":")[2]))
    assert command.wait(180) == 4, command.text
    cells = {cell["cell"]: cell["arm"] for cell in _cells(command.folder)}
    (number,) = _marks(command.folder)
    assert cells[number] == "speculative"
    assert "The server was started again within the cell" in _marks(command.folder)[number]
    assert_nothing_left(command)


def test_a_server_that_stands_still_shows_in_its_tail_and_moves_no_request(loadtest, servers):
    baseline, candidate = servers("baseline"), servers("speculative")
    command = loadtest("run", CHAT, "--out", loadtest.out, "--baseline", baseline.url, "--speculative", candidate.url,
                       "--rates", "8", "--window", "14s", "--blocks", "1", *PLAIN)  # fmt: skip
    _in_cell(command, 1)
    os.kill(candidate.process.pid, signal.SIGSTOP)
    time.sleep(6.0)
    os.kill(candidate.process.pid, signal.SIGCONT)
    assert command.wait(180) in (3, 4), command.text
    folder = command.folder
    opened = {cell["cell"]: (cell["window_open_s"], cell["window_close_s"]) for cell in _cells(folder)}
    due: dict[str, list[float]] = {"baseline": [], "speculative": []}
    longest = dict.fromkeys(due, 0.0)
    for row in pq.read_table(folder / "requests.parquet").to_pylist():
        begin, end = opened[row["cell"]]
        if row["turn"] == 0 and begin <= row["due_s"] < end:
            due[row["arm"]].append(row["due_s"] - begin)
            longest[row["arm"]] = max(longest[row["arm"]], row["end_s"] - row["due_s"])
            assert row["sent_s"] - row["due_s"] < 1.0
    assert sorted(due["speculative"]) == pytest.approx(sorted(due["baseline"]), abs=1e-6)
    assert longest["speculative"] > 5.5
    assert longest["baseline"] < 3.0
    assert _json(folder / "verdict.json")["decision"]["recommendation"] != "on"
    assert_nothing_left(command)


def test_a_narrow_way_that_loses_packets_holds_for_both_and_every_token_is_counted(loadtest, servers, cable):
    baseline, candidate = (servers(arm, host=FAR, within=cable.far) for arm in ("baseline", "speculative"))
    cable.shape(kbit=4000, queue_ms=3)
    command = loadtest.under("true", "run", CHAT, "--out", loadtest.out, "--baseline", baseline.url, "--speculative",
                             candidate.url, "--levels", "8", "--window", "6s", "--blocks", "3", *PLAIN,
                             before=cable.near)  # fmt: skip
    assert command.wait(240) in (0, 3, 4, 5), command.text
    folder = command.folder
    assert cable.dropped() > 0
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}
    assert all(sum(row["chunk_tokens"]) == row["output_tokens"] for row in rows)
    found = _json(folder / "verdict.json")
    assert all(cell["tokens_client"] == cell["tokens_server"] for cell in found["cells"])
    assert not any("started again" in mark for cell in found["cells"] for mark in cell["marks"])
    marks = " ".join(mark for cell in found["cells"] for mark in cell["marks"])
    assert "sent late" not in marks  # nor is the client blamed for what the way takes
    assert "client read up to" not in marks
    assert found["decision"]["exit_code"] != 5, found["decision"]["reasons"]
    assert_nothing_left(command)


def test_a_way_that_is_cut_without_a_word_ends_in_stalls(loadtest, servers, cable):
    baseline, candidate = (servers(arm, host=FAR, within=cable.far) for arm in ("baseline", "speculative"))
    command = loadtest.under("true", "run", CHAT, "--out", loadtest.out, "--baseline", baseline.url, "--speculative",
                             candidate.url, "--levels", "8", "--window", "6s", "--blocks", "2", *PLAIN, "--set",
                             "limits.stall_s=3", "--set", "limits.first_token_s=3", "--set", "limits.connect_s=3",
                             before=cable.near)  # fmt: skip
    _in_cell(command, 1)
    cable.pull()
    assert command.wait(180) == 5, command.text
    outcomes = {row["outcome"] for row in pq.read_table(command.folder / "requests.parquet").to_pylist()}
    assert "stalled" in outcomes
    assert _json(command.folder / "run.json")["status"] == "aborted"
    assert_nothing_left(command)
