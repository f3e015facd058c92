"""Runs whose load several processes make: the same plan and prompts, one set of records, and what a death costs."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import CHAT, Starter, assert_nothing_left, processes_that_mention

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
QUICK = ("--simulated", "--blocks", "1", "--window", "2s", "--set", "demo.max_tokens=24", "--measure-only")
WORKER = "loadtest.drive.workers.worker"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "requests.parquet").to_pylist()
    return rows


def cells_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]


def ran(starter: Starter, out: Path, *words: object, code: int = 0) -> Path:
    command = starter.run("run", CHAT, "--out", out, *QUICK, *words, timeout_s=170)
    assert command.process.returncode == code, command.text
    (folder,) = out.iterdir()
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """One seed with one worker and with three."""
    base = tmp_path_factory.mktemp("workers")
    starter = Starter(base)
    yield tuple(
        ran(starter, base / str(count), "--levels", "6", "--workers", count, "--set", "load.think_time=0")
        for count in (1, 3)
    )  # type: ignore[misc]
    for command in starter.started:
        assert_nothing_left(command)


def test_plan_and_prompts_are_the_same_byte_for_byte_with_one_worker_and_with_three(folders: tuple[Path, Path]) -> None:
    one, three = folders
    assert (one / "plan.jsonl").read_bytes() == (three / "plan.jsonl").read_bytes()
    asked = [{(r["cell"], r["arm"], r["session"], r["turn"]): r["body_hash"] for r in rows_of(f)} for f in folders]
    both = asked[0].keys() & asked[1].keys()
    assert {key: asked[0][key] for key in both} == {key: asked[1][key] for key in both}
    assert len(both) > 0.6 * max(map(len, asked))  # the rest is what the one had time for and the other had not
    first = {(cell, arm, session, 0) for cell, arm in ((0, "baseline"), (1, "speculative")) for session in range(6)}
    swapped = {(1 - cell, arm, session, 0) for cell, arm, session, _ in first}
    assert first <= both or swapped <= both  # every user's first


def test_each_worker_drives_its_own_users_and_no_other(folders: tuple[Path, Path]) -> None:
    for cell in cells_of(folders[1]):
        assert cell["state"] == "complete", cell["reason"]
        assert sorted(cell["workers"]) == ["worker-1", "worker-2", "worker-3"]
        assert list(cell["workers"].values()) == [2.0, 2.0, 2.0]
        assert set(cell["clock_bound_s"]) == set(cell["word_late_s"]) == set(cell["workers"])
        assert cell["in_flight_mean"] == pytest.approx(6.0, rel=0.05)
    places = [(r["cell"], r["session"], r["turn"]) for r in rows_of(folders[1])]
    assert len(places) == len(set(places))
    assert {r["user"] for r in rows_of(folders[1])} == set(range(6))


def test_all_that_the_servers_answered_is_in_the_records_once(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        header = json.loads((folder / "run.json").read_text())
        assert header["status"] == "complete"
        assert all(truth["missing"] == truth["tokens_differ"] == 0 for truth in header["simulated"]["truth"].values())
        for arm in ("baseline", "speculative"):
            answered = [json.loads(line)["id"] for line in (folder / f"truth-{arm}.jsonl").read_text().splitlines()]
            kept = {row["response_id"] for row in rows_of(folder) if row["arm"] == arm}
            assert len([one for one in answered if one not in kept]) <= 3  # the first requests, before any cell
        assert not (folder / "spool").exists()
        assert json.loads((folder / "verdict.json").read_text())["cells"][0]["valid"]


@pytest.mark.nightly
def test_a_dead_worker_makes_its_cell_invalid_and_what_it_measured_stays(loadtest: Starter) -> None:
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "6", "--blocks", "2", "--workers", "3",
                       "--window", "4s")  # fmt: skip
    folder = command.until_requests(1)
    time.sleep(1.5)
    (pid,) = processes_that_mention(WORKER, '"worker-2"', str(loadtest.out))
    os.kill(pid, signal.SIGKILL)
    assert command.wait(120) == 0, command.text
    cells = cells_of(folder)
    assert [cell["state"] for cell in cells] == ["complete", "interrupted", "complete", "complete"]
    assert cells[1]["workers_lost"] == ["worker-2"]
    assert "worker-2 was lost: it was killed by SIGKILL" in cells[1]["reason"]
    assert sorted(cells[2]["workers"]) == ["worker-1", "worker-3"]
    judged = json.loads((folder / "verdict.json").read_text())["cells"]
    assert [cell["valid"] for cell in judged] == [True, False, True, True]
    rows = rows_of(folder)
    assert len({(r["cell"], r["session"], r["turn"]) for r in rows}) == len(rows)
    answered = [json.loads(line)["id"] for arm in ("baseline", "speculative")
                for line in (folder / f"truth-{arm}.jsonl").read_text().splitlines()]  # fmt: skip
    kept = {row["response_id"] for row in rows}
    lacking = [one for one in answered if one not in kept]
    assert len(lacking) <= 6 + 2 * 4  # those before any cell, and what its two users did in the last two tenths
    assert_nothing_left(command)


@pytest.mark.nightly
def test_without_any_worker_left_the_run_ends_with_what_there_is(loadtest: Starter) -> None:
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "4", "--blocks", "3", "--workers", "1")
    folder = command.until_requests(1)
    (pid,) = processes_that_mention(WORKER, str(loadtest.out))
    os.kill(pid, signal.SIGKILL)
    assert command.wait(120) == 5, command.text
    assert "No worker is left" in command.text
    assert "SIGKILL" in command.text
    assert rows_of(folder)
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_scenarios_error_on_a_worker_is_said_as_without_workers(loadtest: Starter, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from loadtest.scenario import LLMUser, task\n\n\nclass Mine(LLMUser):\n    @task\n"
                     "    def ask(self):\n        raise KeyError('gone')\n")  # fmt: skip
    said = []
    for words in ((), ("--workers", "2")):
        command = loadtest(
            "run", wrong, "--out", loadtest.out, "--simulated", "--levels", "2", "--window", "2s", *words
        )
        assert command.wait(90) == 2, command.text
        said.append([line for line in command.text.splitlines() if "KeyError" in line])
    assert said[0] == said[1] != []


@pytest.mark.nightly
def test_sessions_that_arrive_are_dealt_to_the_workers_at_the_same_times(loadtest: Starter, tmp_path: Path) -> None:
    times = []
    for count in (1, 3):
        folder = ran(loadtest, tmp_path / str(count), "--rates", "30", "--workers", count)
        assert [cell["state"] for cell in cells_of(folder)] == ["complete", "complete"]
        rows = [row for row in rows_of(folder) if row["turn"] == 0 and row["cell"] == 0]
        begun_s = min(row["due_s"] for row in rows)
        times.append({row["session"]: row["due_s"] - begun_s for row in rows})
    both = times[0].keys() & times[1].keys()
    assert len(both) > 20
    assert all(times[0][session] == pytest.approx(times[1][session], abs=1e-6) for session in both)


@pytest.mark.nightly
def test_workers_set_the_cells_apart_in_the_servers_caches_as_one_driver_does(loadtest: Starter) -> None:
    folder = ran(loadtest, loadtest.out, "--levels", "4", "--workers", "2", "--keep-text", "--set",
                 "servers.cache=nonce")  # fmt: skip
    begun: dict[int, set[str]] = {}
    for line in (folder / "texts.jsonl").read_text().splitlines():
        text = json.loads(line)
        begun.setdefault(text["cell"], set()).update(re.findall(r"\[\d{16}\]", text["prompt"]))
    assert sorted(begun) == [0, 1]
    assert [len(numbers) for numbers in begun.values()] == [1, 1]
    assert begun[0] != begun[1]


@pytest.mark.nightly
def test_an_interrupt_drains_the_workers_and_leaves_none(loadtest: Starter) -> None:
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "4", "--blocks", "9", "--workers", "2")
    folder = command.until_requests(1)
    os.kill(command.process.pid, signal.SIGINT)
    assert command.wait(60) == 130, command.text
    assert rows_of(folder)
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_killed_driver_takes_its_workers_with_it_and_what_they_had_written_is_kept(loadtest: Starter) -> None:
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "4", "--blocks", "9", "--workers", "2")
    folder = command.until_requests(1)
    (pid,) = processes_that_mention("loadtest.drive.driver", str(loadtest.out))
    os.kill(command.process.pid, signal.SIGSTOP)  # what is left is looked at before it is taken up
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    written = {path: path.read_bytes() for path in (folder / "spool").rglob("*.arrows")}
    os.kill(command.process.pid, signal.SIGCONT)
    assert len(written) == 2
    assert command.wait(60) == 5, command.text
    places = [(r["cell"], r["session"], r["turn"]) for r in rows_of(folder)]
    assert len(places) == len(set(places))
    for data in written.values():  # as it was when the driver was killed, or shorter
        with suppress(pa.ArrowException), pa.ipc.open_stream(data) as stream:
            for batch in stream:
                assert {(r["cell"], r["session"], r["turn"]) for r in batch.to_pylist() if r["cell"] >= 0} <= {*places}
    assert not (folder / "spool").exists()
    assert_nothing_left(command)


@pytest.mark.nightly
def test_what_killed_workers_had_kept_of_a_cell_that_is_measured_again_is_not_mixed_with_it(loadtest: Starter) -> None:
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "4", "--workers", "2")
    folder = command.until_requests(1)
    for pid in (command.process.pid, *processes_that_mention("loadtest.drive.driver", str(loadtest.out))):
        os.kill(pid, signal.SIGKILL)
    command.wait(30)
    assert list((folder / "spool").rglob("*.arrows"))
    resumed = loadtest("run", "--resume", folder)
    assert resumed.wait(120) == 0, resumed.text
    assert re.search(r"note: \d+ requests of what is measured again are taken out of the records", resumed.text)
    places = [(r["cell"], r["session"], r["turn"]) for r in rows_of(folder)]
    assert len(places) == len(set(places))
    assert [cell["state"] for cell in cells_of(folder)] == ["complete", "complete"]
    assert not (folder / "spool").exists()
    assert_nothing_left(resumed)
