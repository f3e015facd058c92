"""Servers that the run starts itself: whole runs, and every way in which a server or a run may end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import CHAT, ROOT, Command, assert_nothing_left, processes_that_mention

pytestmark = pytest.mark.e2e
QUICK = ("--window", "1s", "--blocks", "2", "--set", "load.think_time=0", "--set", "generation.max_tokens=24")
SHORT = ("--levels", "3", *QUICK)
LONG = ("--levels", "3,5", "--window", "3s", "--blocks", "2", *QUICK[4:])  # two cells of each start
SIMULATE = '"{python}", "-m", "loadtest.simulate", "--port", "{port}"'
FAILS = """
import http.server, sys
class Fails(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"data": [{"id": "m"}]}')
    def do_POST(self):
        print("CUDA out of memory", flush=True)
        self.send_response(500); self.end_headers()
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Fails).serve_forever()
"""
HANGS = '"{python}", "-c", "import time; print(\'loading\', flush=True); time.sleep(999)"'


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@pytest.fixture
def servers_file(tmp_path: Path):
    """`servers_file(baseline=words, candidate=words, top=…, port=…)` writes a file; commands name the test's folder."""

    def write(baseline: str = f'{SIMULATE}, "--arm", "baseline"',
              candidate: str = f'{SIMULATE}, "--arm", "speculative"', top: str = "", more: str = "",
              ports: tuple[int, int] | None = None) -> Path:  # fmt: skip
        first, second = ports or (_free_port(),) * 2
        mention = f'"--log", "{tmp_path / "out-truth.jsonl"}"'
        path = tmp_path / "pair.toml"
        path.write_text(
            f"{top}\n[arms.baseline]\nrole = 'baseline'\nurl = 'http://127.0.0.1:{first}'\n{more}"
            f"start = [{baseline}, {mention}]\n"
            f"[arms.drafted]\nrole = 'candidate'\nurl = 'http://127.0.0.1:{second}'\n{more}"
            f"start = [{candidate}, {mention}]\n"
        )
        return path

    return write


def _until(condition, command: Command, timeout_s: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert command.process.poll() is None, command.process.communicate()[0]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def _run_json(command: Command) -> dict:
    return json.loads((command.folder / "run.json").read_text())


def test_one_server_at_a_time_from_start_to_page(loadtest, servers_file):
    file = servers_file(more="env = {HF_TOKEN = 'hf-written-down', SIM_KEY = '${HELD}'}\n")
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "2,6", *QUICK, "--servers", file,
                           HELD="held-outside")  # fmt: skip
    assert command.process.returncode in (0, 3, 4), command.text
    assert "One server at a time: 4 starts, baseline drafted drafted baseline." in command.text
    assert "each of 4 starts" in command.text
    folder, run = command.folder, _run_json(command)
    assert run["status"] == "complete"
    assert run["starts"] == 2
    assert run["aa"] is False
    assert [row["kind"] for row in run["comparability"] if row["item"] == "speculation"] == ["expected"]
    assert [(arm["name"], arm["role"], bool(arm["identity"])) for arm in run["arms"]] == [
        ("baseline", "baseline", True),
        ("drafted", "candidate", True),
    ]
    assert run["servers_file"]["contents"]["arms"]["baseline"]["env"] == {"HF_TOKEN": "(hidden)", "SIM_KEY": "${HELD}"}
    assert "hf-written-down" not in (folder / "run.json").read_text()
    assert "held-outside" not in (folder / "run.json").read_text()
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    assert [cell["arm"] for cell in cells] == ["baseline"] * 2 + ["drafted"] * 4 + ["baseline"] * 2
    verdict = json.loads((folder / "verdict.json").read_text())
    for cell in verdict["cells"]:
        assert cell["tokens_client"] == cell["tokens_server"] > 0
    assert "SIMULATED" in command.text
    assert set(run["simulated"]["late_ratio"]) == {"baseline", "drafted"}
    assert all(0 <= ratio < 1 for ratio in run["simulated"]["late_ratio"].values())
    assert {path.name for path in folder.glob("server-*.log")} == {
        f"server-{arm}-{start}.log" for arm in ("baseline", "drafted") for start in (1, 2)
    }
    assert_nothing_left(command)


@pytest.mark.nightly
def test_both_stay_up_on_machines_of_their_own(loadtest, servers_file):
    file = servers_file(top="machine = 'own'", ports=(_free_port(), _free_port()))
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", file)
    assert command.process.returncode in (0, 3, 4), command.text
    cells = [json.loads(line) for line in (command.folder / "cells.jsonl").read_text().splitlines()]
    assert all({a["arm"], b["arm"]} == {"baseline", "drafted"} for a, b in zip(cells[::2], cells[1::2], strict=True))
    assert _run_json(command)["starts"] == 1
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_server_against_itself_measures_the_smallest_effect(loadtest, servers_file):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", servers_file(),
                           "--arms", "baseline,baseline")  # fmt: skip
    assert command.process.returncode == 0, command.text
    verdict = json.loads((command.folder / "verdict.json").read_text())
    assert verdict["decision"]["answer"] == "measured"
    assert verdict["decision"]["headline"].startswith("A/A: two starts of baseline differ by at most ")
    assert "smallest effect this set-up can claim: " in verdict["decision"]["headline"]
    assert verdict["arms"] == ["baseline", "baseline-2"]
    assert verdict["break_evens"] == []
    assert _run_json(command)["aa"] is True
    assert "A/A: Both arms are the same server" in command.text
    assert_nothing_left(command)


@pytest.mark.nightly
def test_the_simulated_baseline_against_itself(loadtest):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "4", "--window", "1s", "--blocks", "2",
                           "--simulated", "--arms", "baseline,baseline")  # fmt: skip
    assert command.process.returncode in (0, 5), command.text  # 5: this machine was too busy for the servers' clock
    assert "A/A: Both arms are the same server" in command.text
    assert _run_json(command)["simulated"]["truth"]["baseline-2"]["requests"] > 10


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (HANGS, ["The baseline server was not healthy within 1.5 s", "Connection refused", "loading"]),
        ('"{python}", "-c", "print(\'no such model\'); raise SystemExit(3)"',
         ["The baseline server ended at its start, with code 3", "no such model"]),
    ],
)  # fmt: skip
def test_a_server_that_does_not_start_is_shown_with_the_end_of_its_log(loadtest, servers_file, words, parts):
    file = servers_file(baseline=words, more="ready_s = 1.5\n")
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", file)
    assert command.process.returncode == 2, command.text
    for part in parts:
        assert part in command.text
    assert "Traceback" not in command.text
    assert [path.name for path in command.folder.iterdir()] == ["server-baseline-1.log"]
    assert_nothing_left(command)


def test_a_port_in_use_is_named_and_nothing_is_started(loadtest, servers_file):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # held, and not even listened at
        port = other.getsockname()[1]
        file = servers_file(ports=(port, port))
        command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", file)
    assert command.process.returncode == 2, command.text
    assert f"Port {port} of 127.0.0.1 is in use" in command.text
    assert not list(loadtest.out.glob("*"))


@pytest.mark.nightly
def test_servers_that_differ_end_the_run_before_the_candidates_first_cell(loadtest, servers_file):
    file = servers_file(candidate=f'{SIMULATE}, "--arm", "speculative", "--model", "another"')
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", file)
    assert command.process.returncode == 5, command.text
    assert "differ in more than speculation" in command.text
    assert "What was measured before is in" in command.text
    assert {row["arm"] for row in pq.read_table(command.folder / "requests.parquet").to_pylist()} == {"baseline"}
    run = _run_json(command)
    assert run["status"] == "aborted"
    assert "model" in [row["item"] for row in run["comparability"] if row["kind"] == "violation"]
    assert_nothing_left(command)
    report = loadtest.run("report", command.folder)
    assert report.process.returncode == 5, report.text
    assert "The servers differ in more than speculation: model," in " ".join(report.text.split())


@pytest.mark.nightly
def test_a_later_start_that_is_another_server_ends_the_run_and_keeps_what_was_measured(
    loadtest, servers_file, tmp_path
):
    once = tmp_path / "once"
    turns = f"w=default; [ -e {once} ] && w=eagle3; touch {once}; exec"
    other = f'"sh", "-c", "{turns} {{python}} -m loadtest.simulate --port {{port}} --arm speculative --world $w"'
    file = servers_file(candidate=other)
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", file)
    assert command.process.returncode == 5, command.text
    assert "Start 2 of drafted is not the server that start 1 was" in " ".join(command.text.split())
    assert (command.folder / "requests.parquet").exists()
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_candidate_that_does_not_start_keeps_what_was_measured(loadtest, servers_file):
    file = servers_file(candidate='"{python}", "-c", "raise SystemExit(\'out of memory\')"')
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", file)
    assert command.process.returncode == 2, command.text
    assert "The drafted server ended at its start, with code 1" in command.text
    assert "out of memory" in command.text
    assert pq.read_table(command.folder / "requests.parquet").num_rows > 0
    assert_nothing_left(command)
    assert loadtest.run("report", command.folder).process.returncode == 5


def test_a_server_that_dies_in_a_cell_ends_the_run_with_the_end_of_its_log(loadtest, servers_file):
    command = loadtest("run", CHAT, "--out", loadtest.out, *LONG, "--servers", servers_file())
    folder = command.until_requests()
    os.kill(_pid_of("loadtest.simulate\0--port", loadtest.out), signal.SIGKILL)
    assert command.wait() == 5, command.text
    assert "no longer answers" in command.text
    assert "The baseline server ended by itself, killed by SIGKILL; its log ends: {" in " ".join(command.text.split())
    assert json.loads((folder / "run.json").read_text())["status"] == "aborted"
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    assert [cell["state"] for cell in cells] == ["complete"] * (len(cells) - 1) + [
        "interrupted"
    ]  # measured again later
    assert "no longer answers" in cells[-1]["reason"]
    assert_nothing_left(command)


@pytest.mark.nightly
def test_another_server_at_the_port_of_one_that_ended_is_not_measured(loadtest, servers_file, tmp_path):
    end = tmp_path / "end"
    waits = f'"sh", "-c", "while [ ! -e {end} ]; do sleep 0.1; done; echo address already in use; exit 1"'
    port = _free_port()
    command = loadtest("run", CHAT, "--out", loadtest.out, *LONG, "--servers",
                       servers_file(baseline=waits, ports=(port, port)))  # fmt: skip
    _until(lambda: list(loadtest.out.glob("*/server-baseline-1.log")), command)
    other = subprocess.Popen([sys.executable, "-m", "loadtest.simulate", "--port", str(port)], cwd=ROOT,
                             stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        folder = command.until_requests()
        end.touch()
        assert command.wait() == 5, command.text
    finally:
        other.terminate()
        other.wait(10)
    said = "The baseline server ended by itself, with code 1; its log ends: address already in use"
    assert said in json.loads((folder / "run.json").read_text())["reason"]
    last = json.loads((folder / "cells.jsonl").read_text().splitlines()[-1])
    assert last["state"] == "interrupted"  # although every request was answered: measured again by --resume
    assert "another program may have answered" in last["reason"]
    assert_nothing_left(command)


@pytest.mark.parametrize("kind", ["openai", pytest.param("vllm", marks=pytest.mark.nightly)])
def test_the_log_of_a_server_that_is_healthy_and_of_no_use_is_kept_and_shown(loadtest, servers_file, tmp_path, kind):
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    port = _free_port()
    file = servers_file(baseline=f'"{{python}}", "{script}", "{port}"', ports=(port, port), more=f"kind = '{kind}'\n")
    command = loadtest.run("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", file)
    assert command.process.returncode == 2, command.text
    assert "HTTP 500" in command.text
    (log,) = command.folder.iterdir()
    assert log.name == "server-baseline-1.log"
    assert "out of memory" in log.read_text()
    assert str(log.parent) in command.text
    assert kind == "vllm" or "out of memory" in command.text
    assert_nothing_left(command)


def test_an_interrupt_while_a_server_starts_leaves_nothing(loadtest, servers_file):
    command = loadtest("run", CHAT, "--out", loadtest.out, *SHORT, "--servers", servers_file(baseline=HANGS))
    _until(lambda: list(loadtest.out.glob("*/server-baseline-1.log")), command)
    _until(lambda: any("sleep(999)" in line for line in processes_that_mention(str(loadtest.out)).values()), command)
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 130, command.text
    assert not list(loadtest.out.glob("*"))
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_termination_in_a_cell_drains_and_ends_the_server(loadtest, servers_file):
    command = loadtest("run", CHAT, "--out", loadtest.out, *LONG, "--servers", servers_file())
    folder = command.until_requests()
    command.process.send_signal(signal.SIGTERM)
    assert command.wait() == 130, command.text
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert [path.name for path in folder.glob("server-*.log")] == ["server-baseline-1.log"]  # no further one is started
    assert_nothing_left(command)


@pytest.mark.parametrize("victim", ["parent", pytest.param("driver", marks=pytest.mark.nightly)])
def test_whatever_is_killed_no_server_is_left(loadtest, servers_file, victim):
    command = loadtest("run", CHAT, "--out", loadtest.out, *LONG, "--servers", servers_file())
    command.until_requests()
    if victim == "parent":
        command.process.kill()
        command.process.wait()
    else:
        os.kill(_pid_of("loadtest.drive.driver", loadtest.out), signal.SIGKILL)
        assert command.wait() == 5, command.text
    assert_nothing_left(command)


def _pid_of(word: str, out: Path) -> int:
    (pid,) = [
        int(entry.parent.name)
        for entry in Path("/proc").glob("[0-9]*/cmdline")
        if word.encode() in (line := _read(entry)) and str(out).encode() in line
    ]
    return pid


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
