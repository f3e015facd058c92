"""An open load over real sockets: the same sessions at the same times on both servers, later turns after answers."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
from processes import CHAT, assert_nothing_left

pytestmark = pytest.mark.e2e


@pytest.mark.nightly
def test_sessions_arrive_at_their_times_on_both_servers(loadtest):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--simulated", "--rates", "30", "--window", "1s",
                           "--blocks", "1", "--arrivals", "gamma", "--set", "load.max_in_flight=200")  # fmt: skip
    assert command.process.returncode in (0, 3, 4), command.text
    folder = command.folder
    run, verdict = (json.loads((folder / name).read_text()) for name in ("run.json", "verdict.json"))
    assert run["status"] == "complete", run["reason"]
    assert verdict["unit"] == "requests/s"
    assert "30 requests/s" in " ".join(command.text.split())
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    opened = {cell["cell"]: cell["window_open_s"] for cell in cells}
    lengths = {round(cell["window_close_s"] - cell["window_open_s"], 9) for cell in cells}
    assert len(lengths) == 1  # decided beforehand, not by what a server does
    assert all(cell["lateness_p99_s"] >= 0 for cell in cells)
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}
    arrived: dict[str, dict[int, float]] = {"baseline": {}, "speculative": {}}
    sessions = defaultdict(list)
    for row in rows:
        sessions[row["cell"], row["session"]].append(row)
        if row["turn"] == 0:
            arrived[row["arm"]][row["session"]] = row["due_s"] - opened[row["cell"]]
    shared = set(arrived["baseline"]) & set(arrived["speculative"])
    assert len(shared) > 20
    assert all(arrived["baseline"][n] == pytest.approx(arrived["speculative"][n], abs=1e-6) for n in shared)
    later = [(a, b) for one in sessions.values() for a, b in pairwise(sorted(one, key=lambda row: row["turn"]))]
    assert later
    assert all(b["due_s"] >= a["end_s"] for a, b in later)
    assert "load, requests/s, log scale" in (folder / "report.html").read_text()
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_server_that_cannot_keep_up_costs_its_cell_and_no_other(loadtest):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--simulated", "--rates", "10,400", "--window", "1s",
                           "--blocks", "1", "--set", "load.max_in_flight=40")  # fmt: skip
    assert command.process.returncode == 4, command.text
    cells = [json.loads(line) for line in (command.folder / "cells.jsonl").read_text().splitlines()]
    assert {cell["state"] for cell in cells if cell["level"] == 10} == {"complete"}
    given_up = [cell for cell in cells if cell["level"] == 400]
    assert {cell["state"] for cell in given_up} == {"not_carried"}
    assert all("40 requests were in flight (load.max_in_flight)" in cell["reason"] for cell in given_up)
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    turned_away = [row for row in rows if row["outcome"] == "client_error"]
    assert turned_away
    assert all(row["error"] == "not sent: 40 requests were in flight (load.max_in_flight)" for row in turned_away)
    assert_nothing_left(command)
