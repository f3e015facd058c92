"""The main job over real sockets, as a user starts it, and every way it may end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import CHAT, ROOT, assert_asked_alike, assert_ended, assert_nothing_left, processes_that_mention

pytestmark = pytest.mark.e2e
SHORT = ("--levels", "2,6", "--window", "1s", "--blocks", "2")
SHORTER = ("--levels", "4", "--window", "1s", "--blocks", "2")


def _json(path: Path) -> dict:
    return json.loads(path.read_text())


def test_the_built_in_pair_from_start_to_page(loadtest):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT)
    assert command.process.returncode in (0, 3, 4), command.text
    folder = command.folder
    run, verdict = _json(folder / "run.json"), _json(folder / "verdict.json")
    assert run["status"] == "complete", run["reason"]
    assert run["simulated"]["world"] == "default"
    assert verdict["decision"]["exit_code"] == command.process.returncode
    assert verdict["decision"]["headline"] in " ".join(command.text.split())
    assert "simulated" in command.text.splitlines()[0]
    for arm in ("baseline", "speculative"):
        truth = run["simulated"]["truth"][arm]
        assert truth["requests"] > 50
        assert (truth["missing"], truth["tokens_differ"]) == (0, 0)
        assert truth["first_error_p50_s"] < 0.001
    assert run["calibration"]["tokens_differ"] == 0
    requests = pq.read_table(folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in requests} == {"ok"}
    assert {row["tokens_source"] for row in requests} == {"usage"}
    if sys.platform == "linux":
        assert {row["stamp_source"] for row in requests} <= {"kernel", "mixed"}
    assert_asked_alike(requests)
    page = (folder / "report.html").read_text()
    assert "SIMULATED" in page.upper()
    assert (folder / "summary.md").read_text()
    assert not (folder / "requests.arrows").exists()
    assert_nothing_left(command)


def test_counters_and_records_agree_cell_by_cell(loadtest, servers):
    a, b = servers("baseline"), servers("speculative")
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--baseline", a.url, "--speculative", b.url,
                           "--set", "load.think_time=0", "--set", "generation.max_tokens=32")  # fmt: skip
    assert command.process.returncode in (0, 3, 4), command.text
    verdict = _json(command.folder / "verdict.json")
    assert len(verdict["cells"]) == 8
    for cell in verdict["cells"]:
        assert cell["tokens_client"] == cell["tokens_server"] > 0
        assert cell["requests_client"] == cell["requests_server"] > 0
    for why in verdict["why"]:
        assert why["tau_all_baseline"] == 1.0
        assert 1.2 < why["tau_all"] < 3
    assert a.url in command.text.splitlines()[0]


@pytest.mark.nightly
def test_a_report_is_drawn_again_from_the_records_alone(loadtest):
    first = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORTER)
    folder = first.folder
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    second = loadtest.run("report", folder)
    assert second.process.returncode == first.process.returncode
    assert (folder / "report.html").read_bytes() == page


def test_one_server_alone_is_measured_and_not_judged(loadtest, servers):
    server = servers("baseline")
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORTER, "--server", server.url,
                           "--set", "load.think_time=0", "--set", "generation.max_tokens=32")  # fmt: skip
    assert command.process.returncode == 0, command.text
    verdict = _json(command.folder / "verdict.json")
    assert verdict["decision"]["answer"] == "measured"
    assert (command.folder / "report.html").exists()


def test_a_killed_server_ends_the_run_as_invalid(loadtest, servers):
    a, b = servers("baseline"), servers("speculative")
    command = loadtest("run", CHAT, "--out", loadtest.out, "--baseline", a.url, "--speculative", b.url, "--levels", "4",
                       "--window", "2s", "--blocks", "4", "--set", "load.think_time=0",
                       "--set", "generation.max_tokens=32")  # fmt: skip
    folder = command.until_requests()
    b.process.kill()
    assert command.wait() == 5, command.text
    assert "no longer answers" in command.text
    run = _json(folder / "run.json")
    assert run["status"] == "aborted"
    assert b.url in run["reason"]
    assert pq.read_table(folder / "requests.parquet").num_rows > 0
    assert (folder / "report.html").exists()
    assert_nothing_left(command)


def test_one_interrupt_drains_writes_and_says_so(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, "--levels", "4", "--window", "2s", "--blocks", "9")
    folder = command.until_requests()
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 130, command.text
    assert _json(folder / "run.json")["status"] == "interrupted"
    assert "INTERRUPTED" in (folder / "report.html").read_text().upper()
    assert pq.read_table(folder / "requests.parquet").num_rows > 0
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_second_interrupt_ends_at_once_and_keeps_the_records(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, "--levels", "4", "--window", "30s", "--blocks", "2",
                       "--set", "demo.max_tokens=2000", "--set", "generation.max_tokens=2000")  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(loadtest.out.glob("*/requests.arrows")) or not list(loadtest.out.glob("*/server.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(5)
    command.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    command.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert command.wait() == 130, command.text
    assert time.monotonic() - began < 25
    assert_nothing_left(command)


@pytest.mark.nightly
def test_impatient_interrupts_never_cost_what_was_measured(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, "--levels", "4", "--window", "2s", "--blocks", "9")
    folder = command.until_requests()
    for _ in range(4):
        command.process.send_signal(signal.SIGINT)
        time.sleep(0.15)
    assert command.wait() == 130, command.text
    assert "Traceback" not in command.text
    assert pq.read_table(folder / "requests.parquet").num_rows > 0
    assert _json(folder / "run.json")["status"] == "interrupted"
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_run_goes_on_when_nobody_reads_its_output(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, *SHORTER)
    command.process.stdout.readline()
    command.process.stdout.close()
    code = command.process.wait(120)
    assert code in (0, 3, 4)
    assert _json(command.folder / "run.json")["status"] == "complete"
    assert _json(command.folder / "verdict.json")["decision"]["exit_code"] == code


@pytest.mark.nightly
def test_a_null_server_that_dies_is_noted_and_the_run_goes_on(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, *SHORTER)
    deadline = time.monotonic() + 60
    while not (found := processes_that_mention("--world null", str(loadtest.out))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while not list(loadtest.out.glob("*/calibration.arrows")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(next(iter(found)), signal.SIGKILL)
    command.wait(120)
    assert_ended(command)
    assert any("could not be calibrated" in note for note in _json(command.folder / "run.json")["notes"])


def test_a_killed_driver_leaves_readable_records_and_no_process(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, "--levels", "4", "--window", "2s", "--blocks", "9")
    folder = command.until_requests()
    (pid,) = processes_that_mention("loadtest.drive.driver", str(loadtest.out))
    os.kill(pid, signal.SIGKILL)
    assert command.wait() == 5, command.text
    assert "SIGKILL" in command.text
    assert _json(folder / "run.json")["status"] == "aborted"
    assert pq.read_table(folder / "requests.parquet").num_rows > 0
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_killed_parent_leaves_no_process(loadtest):
    command = loadtest("run", CHAT, "--out", loadtest.out, "--levels", "4", "--window", "2s", "--blocks", "9")
    folder = command.until_requests()
    command.process.kill()
    command.process.wait()
    assert_nothing_left(command)
    report = loadtest.run("report", folder)
    assert report.process.returncode == 5
    assert "never ended" in report.text or "did not end" in report.text or "running" in report.text


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["--server", "http://127.0.0.1:9"], 2, ["http://127.0.0.1:9", "does not answer", "Connection refused"]),
        (["--set", "servers.model=nope", "--simulated"], 2, ["'nope' is unknown", "it serves"]),
        (["--set", "plan.seeed=1"], 2, ["no key `seeed`", "Did you mean `seed`?"]),
        (["--world", "nowhere"], 2, ["nowhere", "default"]),
        (["--prompts", "/nonexistent.jsonl"], 2, ["is not a file"]),
    ],
)
def test_wrong_input_is_refused_in_a_sentence_before_any_load(loadtest, words, code, parts):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *words)
    assert command.process.returncode == code, command.text
    for part in parts:
        assert part in command.text
    assert "Traceback" not in command.text
    assert not list(loadtest.out.glob("*")), "a run that measured nothing leaves no folder"


SCENARIO = """
from loadtest.scenario import LLMUser, task

class Mine(LLMUser):
    @task
    def ask(self):
        {body}
"""


OWN_INIT = """    def __init__(self, environment):
        pass

    @task"""

ON_START = """
from loadtest.scenario import LLMUser, task

class Mine(LLMUser):
    def on_start(self):
        1 / 0

    @task
    def ask(self):
        pass
"""


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("import nonsense_of_mine\n", ["line 1", "ModuleNotFoundError", "nonsense_of_mine"]),
        pytest.param("def broken(:\n", ["line 1", "not valid Python"], marks=pytest.mark.nightly),
        ("x = 1\n", ["exactly one user class", "none"]),
        pytest.param(
            "from locust import HttpUser, task\nclass U(HttpUser):\n    @task\n    def t(self): pass\n",
            ["LLMUser", "U"],
            marks=pytest.mark.nightly,
        ),
        (SCENARIO.format(body="raise KeyError('mine')"), ["KeyError", "mine", "line 7", "ask"]),
        pytest.param(SCENARIO.format(body="self.next_session()"), ["names no `source`"], marks=pytest.mark.nightly),
        (SCENARIO.format(body="pass"), ["without sending a request"]),
        pytest.param(SCENARIO.format(body="while True: pass"), ["without giving way"], marks=pytest.mark.nightly),
        pytest.param(
            SCENARIO.format(body="import sys; sys.exit(3)"), ["SystemExit: 3", "line 7"], marks=pytest.mark.nightly
        ),
        pytest.param(
            SCENARIO.format(body="raise KeyboardInterrupt"), ["KeyboardInterrupt", "line 7"], marks=pytest.mark.nightly
        ),
        pytest.param(
            SCENARIO.format(body="self.think(80_000)"), ["without sending a request"], marks=pytest.mark.nightly
        ),
        pytest.param(
            SCENARIO.replace("def ask", "async def ask").format(body="pass"), ["`async def`"], marks=pytest.mark.nightly
        ),
        pytest.param(
            SCENARIO.format(body="pass").replace("    @task", "    def __init__(self, e): pass\n\n    @task"),
            ["AssertionError"],
            marks=pytest.mark.nightly,
        ),
        pytest.param("raise KeyboardInterrupt\n", ["line 1", "KeyboardInterrupt"], marks=pytest.mark.nightly),
        pytest.param(ON_START, ["ZeroDivisionError", "on_start"], marks=pytest.mark.nightly),
    ],
)
def test_a_scenario_that_is_wrong_or_raises_is_named(loadtest, tmp_path, source, parts):
    scenario = tmp_path / "mine.py"
    scenario.write_text(source)
    command = loadtest.run("run", scenario, "--out", loadtest.out, "--levels", "2", "--window", "1s", "--blocks", "1")
    assert command.process.returncode == 2, command.text
    for part in parts:
        assert part in command.text, command.text
    assert "Traceback" not in command.text
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_scenario_of_ones_own_runs(loadtest, tmp_path):
    scenario = tmp_path / "mine.py"
    scenario.write_text(
        SCENARIO.format(body="self.chat([{'role': 'user', 'content': f'Say {self.rng().random()}'}], category='own')")
    )
    command = loadtest.run("run", scenario, "--out", loadtest.out, "--levels", "2", "--window", "1s", "--blocks", "2")
    assert command.process.returncode in (0, 3, 4), command.text
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    assert {row["category"] for row in rows} == {"own"}
    by_key: dict[tuple, set] = {}
    for row in rows:
        by_key.setdefault((row["block"], row["user"], row["turn"]), set()).add(row["body_hash"])
    assert all(len(hashes) == 1 for hashes in by_key.values())


def test_plain_locust_runs_the_scenario_and_its_table_lives(servers):
    server = servers("speculative")
    command = [sys.executable, "-m", "locust", "-f", str(CHAT), "--host", server.url, "--headless", "--json"]
    done = subprocess.run(
        [*command, "-u", "12", "-r", "12", "-t", "10s"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    rows = json.loads(re.search(r"^\[.*^\]", done.stdout, re.DOTALL | re.MULTILINE)[0])
    names = {row["name"] for row in rows}
    assert names == {"ttft", "tpot", "e2e"}, done.stderr
    assert all(row["num_failures"] == 0 and row["num_requests"] > 0 for row in rows)


def test_plan_sends_nothing_and_names_the_time(loadtest):
    command = loadtest.run("plan", CHAT, "--server", "http://127.0.0.1:9", "--levels", "1,2", "--blocks", "3")
    assert command.process.returncode == 0
    assert "6 cells: 1 arm × 2 levels (1, 2 users) × 3 blocks." in command.text
    assert "Time: " in command.text
    assert not processes_that_mention(str(loadtest.out))
