"""Workers elsewhere: in networks and on clocks of their own, over a line that is cut, and when they die."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from processes import CHAT, ROOT, Starter, free_port, processes_that_mention

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]
SCRIPT = Path(__file__).with_name("worker_networks.sh")
CUT_S = 5.0  # half of the silence after which a worker is taken as lost
QUICK = ("--simulated", "--window", "4s", "--set", "demo.max_tokens=24", "--measure-only")
CHILD = "loadtest.drive.workers.worker"


def namespaces() -> bool:
    """Whether this system lets a user have networks and clocks of their own."""
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    tried = "ip link add lt0 type veth peer name lt1 && unshare -T --monotonic 9 --fork true"
    return subprocess.run(["unshare", "-rn", "bash", "-c", tried], capture_output=True, check=False).returncode == 0


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "requests.parquet").to_pylist()
    return rows


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(what: Any, limit_s: float = 90.0) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.skipif(not namespaces(), reason="this system gives no networks and clocks of one's own (unshare -rn, -T)")
def test_a_worker_on_another_clock_over_a_line_that_is_cut_loses_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["unshare", "-rn", "--fork", "--kill-child", "bash", str(SCRIPT), sys.executable, str(tmp_path), str(CHAT)],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"},
    )  # fmt: skip
    until(lambda: any(lines_of(path) for path in tmp_path.glob("out/*/cells.jsonl")))
    time.sleep(5.0)  # the window of the next cell is open
    master = min(processes_that_mention("loadtest.drive.driver", str(tmp_path)))
    for state, pause_s in (("down", CUT_S), ("up", 0.0)):
        command = ["nsenter", "-t", str(master), "-U", "-n", "--preserve-credentials", "ip", "link", "set", "line0"]
        subprocess.run([*command, state], check=True)
        time.sleep(pause_s)
    said, _ = process.communicate(timeout=200)
    assert re.search(r"ended with [05]$", said, re.MULTILINE), said  # 5: a busy machine, or the word that came late
    [folder] = (tmp_path / "out").iterdir()
    cells = lines_of(folder / "cells.jsonl")
    assert [cell["state"] for cell in cells] == ["complete"] * 3, said
    for cell in cells:  # the worker's monotonic clock is an hour ahead of the master's
        assert cell["clock_offset_s"]["far"] == pytest.approx(-3600.0, abs=cell["clock_bound_s"]["far"] + 1e-9)
        assert 0 < cell["clock_bound_s"]["far"] < 0.005
    rows = rows_of(folder)
    assert len({(r["cell"], r["session"], r["turn"]) for r in rows}) == len(rows)
    assert {row["outcome"] for row in rows} == {"ok"}
    truth = {row["id"]: row for row in lines_of(tmp_path / "truth.jsonl")}
    kept = {row["response_id"] for row in rows}
    assert kept <= truth.keys()
    assert len(truth.keys() - kept) <= 8  # the first requests, before any cell
    origin_s = json.loads((folder / "run.json").read_text())["clock"]["origin_monotonic_ns"] * 1e-9
    late_s = sorted(row["chunk_s"][0] - (truth[row["response_id"]]["sent_s"][0] - origin_s) for row in rows)
    assert late_s[0] > -0.001  # nothing arrives before it was sent
    assert late_s[len(late_s) // 2] < 0.005


def test_a_killed_worker_is_delivered_for_and_another_takes_its_place(loadtest: Starter, tmp_path: Path) -> None:
    port = free_port()
    place, spool = f"127.0.0.1:{port}", tmp_path / "spool"

    def worker(name: str) -> Any:
        return loadtest("worker", "--master", place, "--name", name, "--spool", spool, "--wait", "60s")

    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "6", "--blocks", "3", "--bind", place,
                       "--expect-workers", "2")  # fmt: skip
    first, second = worker("first"), worker("second")
    folder = command.until_requests(1, 120)
    time.sleep(2.0)
    [pid] = processes_that_mention(CHILD, '"second"', str(spool))
    os.kill(pid, signal.SIGKILL)
    assert second.wait(60) == 5, second.text
    assert "Delivered what a worker that ended had not sent" in second.text
    assert "killed by SIGKILL" in second.text
    third = worker("third")
    assert command.wait(180) == 0, command.text
    assert first.wait(30) == third.wait(30) == 0, first.text + third.text
    cells = lines_of(folder / "cells.jsonl")
    lost = [cell for cell in cells if cell["workers_lost"]]
    assert [(cell["state"], cell["workers_lost"]) for cell in lost] == [("interrupted", ["second"])]
    assert "killed by SIGKILL" in lost[0]["reason"]
    assert sorted(cells[-1]["workers"]) == ["first", "third"]
    rows = rows_of(folder)
    assert len({(r["cell"], r["session"], r["turn"]) for r in rows}) == len(rows)
    kept = {row["response_id"] for row in rows}
    answered = [row["id"] for arm in ("baseline", "speculative") for row in lines_of(folder / f"truth-{arm}.jsonl")]
    assert len([one for one in answered if one not in kept]) <= 6 + 3 * 3
    assert not spool.exists()  # nothing is left to deliver


def test_workers_that_outlive_their_master_join_the_run_when_it_is_resumed(loadtest: Starter, tmp_path: Path) -> None:
    place, spool = f"127.0.0.1:{free_port()}", tmp_path / "spool"
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "4", "--blocks", "2", "--bind", place,
                       "--expect-workers", "2")  # fmt: skip
    workers = [loadtest("worker", "--master", place, "--name", name, "--spool", spool / name, "--wait", "60s")
               for name in ("first", "second")]  # fmt: skip
    folder = command.until_requests(2, 120)
    for pid in (command.process.pid, *processes_that_mention("loadtest.drive.driver", str(loadtest.out))):
        os.kill(pid, signal.SIGKILL)
    command.wait(30)
    time.sleep(11.0)  # the workers end the load, and wait
    resumed = loadtest("run", "--resume", folder)
    assert resumed.wait(180) == 0, resumed.text
    for worker in workers:
        assert worker.wait(30) == 0, worker.text
        assert worker.text.count("joined run") == 2
        assert "is not heard of, and the load has ended. Waiting up to 60 s (--wait)" in worker.text
        assert "The master has gone, and run 20" in worker.text
    cells = lines_of(folder / "cells.jsonl")
    assert [(cell["state"], sorted(cell["workers"])) for cell in cells] == [("complete", ["first", "second"])] * 4
    rows = rows_of(folder)
    assert len({(r["cell"], r["session"], r["turn"]) for r in rows}) == len(rows)


def test_a_cell_in_which_the_master_stood_still_is_measured_again(loadtest: Starter, tmp_path: Path) -> None:
    place, spool = f"127.0.0.1:{free_port()}", tmp_path / "spool"
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "4", "--blocks", "2", "--bind", place,
                       "--expect-workers", "2")  # fmt: skip
    workers = [loadtest("worker", "--master", place, "--name", name, "--spool", spool) for name in ("one", "two")]
    folder = command.until_requests(1, 120)
    [pid] = processes_that_mention("loadtest.drive.driver", str(loadtest.out))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(13.0)
    os.kill(pid, signal.SIGCONT)
    assert command.wait(120) in (0, 5), command.text
    for worker in workers:
        assert worker.wait(30) == 0, worker.text
        assert "Waiting up to 300 s (--wait)" in worker.text
    cells = lines_of(folder / "cells.jsonl")
    assert [cell["state"] for cell in cells] == ["complete", "interrupted", "complete", "complete"]
    assert cells[1]["workers_lost"] == ["one", "two"]
    assert re.search(r"(two were|one was|two was) lost: the master itself stood still for 1\d s", cells[1]["reason"])


def test_a_worker_whose_master_does_not_come_back_says_what_it_kept_and_what_to_do(
    loadtest: Starter, tmp_path: Path
) -> None:
    place, spool = f"127.0.0.1:{free_port()}", tmp_path / "spool"
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "4", "--blocks", "2", "--bind", place,
                       "--expect-workers", "1")  # fmt: skip
    worker = loadtest("worker", "--master", place, "--spool", spool, "--wait", "15s")
    command.until_requests(1, 120)
    for pid in (command.process.pid, *processes_that_mention("loadtest.drive.driver", str(loadtest.out))):
        os.kill(pid, signal.SIGKILL)
    command.wait(30)
    assert worker.wait(60) == 5, worker.text
    assert re.search(r"has gone: nothing was heard of it for 1[5-7] s \(--wait\)", worker.text), worker.text
    assert f"start it again: loadtest worker --master {place}" in worker.text
    [kept] = spool.glob("*/requests.arrows")
    assert str(kept.parent) in worker.text


def test_too_few_workers_end_the_run_before_any_load_and_say_what_to_do(loadtest: Starter) -> None:
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "2", "--expect-workers", "2", "--wait",
                       "2s", "--bind", f"127.0.0.1:{free_port()}")  # fmt: skip
    assert command.wait(60) == 5, command.text
    assert "0 of 2 workers were ready after 2 s" in command.text
    assert not list(loadtest.out.glob("*"))


def test_a_worker_without_the_key_says_which_one_it_lacks_before_any_load(loadtest: Starter, tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "2", "--expect-workers", "1", "--bind",
                       place, "--set", "servers.api_key_env=WORKER_KEY", WORKER_KEY="secret-of-the-master")  # fmt: skip
    worker = loadtest("worker", "--master", place, "--spool", tmp_path / "spool", "--wait", "60s")
    assert command.wait(60) == 2, command.text
    assert "WORKER_KEY, named for api_key_env, is not set in the environment" in command.text
    assert worker.wait(30) == 2, worker.text
    assert "This worker could not do its part: WORKER_KEY" in worker.text
    assert "secret-of-the-master" not in worker.text + command.text


def test_a_scenario_that_is_changed_while_workers_are_awaited_is_refused(loadtest: Starter, tmp_path: Path) -> None:
    place, scenario = f"127.0.0.1:{free_port()}", tmp_path / "mine.py"
    shutil.copy(CHAT, scenario)
    command = loadtest("run", scenario, "--out", loadtest.out, *QUICK, "--levels", "2", "--expect-workers", "1",
                       "--bind", place)  # fmt: skip
    until(lambda: list(loadtest.out.glob("*/job.json")))
    time.sleep(3.0)  # the master has read it
    scenario.write_text(scenario.read_text() + "# changed\n")
    worker = loadtest("worker", "--master", place, "--spool", tmp_path / "spool", "--wait", "60s")
    assert command.wait(60) == worker.wait(30) == 2, command.text + worker.text
    for text in (command.text, worker.text):
        assert f"{scenario} is not what it was when the run began" in text


def test_a_worker_of_another_version_is_refused_and_the_run_says_so(loadtest: Starter, tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    shutil.copytree(ROOT / "loadtest", tmp_path / "loadtest")
    (tmp_path / "loadtest" / "__init__.py").write_text('"""Another."""\n\n__version__ = "0.0.9"\n')
    command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "2", "--expect-workers", "1", "--wait",
                       "20s", "--bind", place)  # fmt: skip
    worker = loadtest("worker", "--master", place, "--spool", tmp_path / "spool", "--wait", "60s", cwd=tmp_path,
                      PYTHONPATH=str(tmp_path))  # fmt: skip
    assert worker.wait(60) == 2, worker.text
    assert "refuses this worker: the master is loadtest" in worker.text
    assert command.wait(60) == 5, command.text
    assert re.search(
        r"note: A worker on \S+ was refused: the master is loadtest .*, the worker '0\.0\.9'", command.text
    )


def test_no_key_is_in_what_master_and_worker_say(loadtest: Starter, tmp_path: Path) -> None:
    port, onward = free_port(), free_port()
    heard = tmp_path / "heard"
    relay = subprocess.Popen([sys.executable, "-c", RELAY, str(port), str(onward), str(heard)])
    try:
        command = loadtest("run", CHAT, "--out", loadtest.out, *QUICK, "--levels", "2", "--blocks", "1", "--window",
                           "1s", "--expect-workers", "1", "--bind", f"127.0.0.1:{onward}",
                           "--set", "servers.api_key_env=WORKER_KEY", WORKER_KEY="secret-of-both")  # fmt: skip
        worker = loadtest("worker", "--master", f"127.0.0.1:{port}", "--spool", tmp_path / "spool", "--wait", "60s",
                          WORKER_KEY="secret-of-both")  # fmt: skip
        assert command.wait(120) == 0, command.text
        assert worker.wait(30) == 0, worker.text
    finally:
        relay.kill()
        relay.wait()
    said = heard.read_bytes()
    assert b"WORKER_KEY" in said  # its name is
    assert len(said) > 100_000
    assert b"secret-of-both" not in said


RELAY = """
import socket, sys, threading
port, onward, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
heard = open(path, "wb", buffering=0)
def pass_on(source, to):
    try:
        while data := source.recv(65536):
            heard.write(data)
            to.sendall(data)
    except OSError:
        pass
    to.close()
server = socket.create_server(("127.0.0.1", port))
while True:
    near, _ = server.accept()
    try:
        far = socket.create_connection(("127.0.0.1", onward))
    except OSError:
        near.close()
        continue
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pass_on, args=pair, daemon=True).start()
"""
