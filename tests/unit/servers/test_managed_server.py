"""Servers that are started: healthy or not, and always ended, with their children and nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from loadtest.errors import UsageError
from loadtest.servers.control import Arm
from loadtest.servers.file import Start
from loadtest.servers.hiding import clean
from loadtest.servers.keeper import members, processes
from loadtest.servers.managed import ManagedServer, StartFailed, refuse_missing_program
from loadtest.servers.ports import held_against_other_runs, refuse_taken_port

SERVES = """
import http.server, sys
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *words):
        pass
print("serving with", sys.argv[2:], flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[object]:
    """`server(command words, …)` makes a server that has not been launched yet; `{port}` stands for its port."""
    made: list[ManagedServer] = []

    def make(*command: str, **values) -> ManagedServer:
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            port = trial.getsockname()[1]
        given = {"env": {}, "cwd": None, "ready_s": 20.0, "stop_s": 5.0, "health": "/health"} | values
        start = Start(command=tuple(word.replace("{port}", str(port)) for word in command), **given)
        arm = Arm(name="mine", role="baseline", url=f"http://127.0.0.1:{port}")
        made.append(ManagedServer(arm, start, tmp_path / "server-mine-1.log"))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def _serving(server, *more: str, **values) -> ManagedServer:
    one = server(sys.executable, "-c", SERVES, "{port}", *more, **values)
    one.launch()
    assert one.wait_until_healthy(lambda event: None) > 0
    return one


def _gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(process.pid == pid for process in processes()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_it_serves_until_it_is_stopped(server):
    one = _serving(server)
    pid = one.pid
    assert pid is not None
    assert not one.ended
    assert os.getpgid(pid) == pid != os.getpgid(0)
    one.stop()
    assert one.ended
    assert not members(pid)
    assert one.tail(5) == "serving with []"
    one.stop()  # once more is no error


def test_a_port_at_which_something_listens_is_refused_by_name(server):
    one = _serving(server)
    with pytest.raises(UsageError, match=rf"Port {one.arm.url.rpartition(':')[2]} of 127\.0\.0\.1 is in use"):
        refuse_taken_port(one.arm)
    one.stop()
    refuse_taken_port(one.arm)


@pytest.mark.parametrize("reuse", [0, 1])
def test_a_port_that_a_loading_server_holds_is_taken(server, reuse):
    one = server("true")
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        holder.bind(("127.0.0.1", int(one.arm.url.rpartition(":")[2])))
        with pytest.raises(UsageError, match="is in use"):
            one.launch()
    assert one.pid is None
    refuse_taken_port(one.arm)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (("/nonexistent/server",), ["could not be started (/nonexistent/server: No such file or directory)"]),
        ((sys.executable, "-c", "print('no model'); raise SystemExit(3)"), ["with code 3", "no model"]),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), ["killed by SIGKILL", "It wrote nothing"]),
        ((sys.executable, "-c", "import time; print('a\\nb', flush=True); time.sleep(99)"),
         ["was not healthy within 1 s (GET /health: ", "refused", "a\nb"]),
    ],
)  # fmt: skip
def test_one_that_does_not_start_is_shown_with_the_end_of_its_log(server, command, parts):
    one = server(*command, ready_s=1.0 if "was not healthy within 1 s (GET /health: " in parts else 20.0)
    one.launch()
    with pytest.raises(StartFailed) as failed:
        one.wait_until_healthy(lambda event: None)
    for part in ["The mine server", *parts]:
        assert part in str(failed.value)
    assert failed.value.log.name == "server-mine-1.log"
    assert one.pid is None or not members(one.pid)


def test_another_answer_than_200_is_not_healthy(server):
    script = SERVES.replace("200", "503")
    one = server(sys.executable, "-c", script, "{port}", ready_s=3.0)
    one.launch()
    with pytest.raises(StartFailed, match="GET /health: HTTP 503"):
        one.wait_until_healthy(lambda event: None)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are found through the kernel of Linux")
def test_children_are_ended_even_those_that_left_the_group_or_ignore_the_signal(server, tmp_path):
    script = (
        "trap '' TERM; setsid sleep 1001 & setsid sh -c 'setsid sleep 1002 & echo $! >> \"$0\"' \"$0\" &"
        ' echo $! >> "$0"; sh -c "trap \'\' TERM; sleep 1003" & echo $! >> "$0"; sleep 1; exec "$@"'
    )
    pids = tmp_path / "pids"
    one = server("sh", "-c", script, str(pids), sys.executable, "-c", SERVES, "{port}", stop_s=0.5)
    one.launch()
    one.wait_until_healthy(lambda event: None)
    family = [int(line) for line in pids.read_text().split()] + [p.pid for p in members(one.pid)]
    assert len(family) >= 4
    one.stop()
    assert all(_gone(pid, 0.1) for pid in family)


def test_a_bystander_of_the_same_parent_is_left_alone(server):
    first, second = _serving(server), _serving(server)
    first.stop()
    assert second.pid is not None
    assert members(second.pid)
    assert not second.ended


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells a server that its keeper was killed")
def test_a_killed_keeper_takes_its_server_with_it(server):
    one = _serving(server)
    pid = one.pid
    assert pid is not None
    (keeper,) = {process.parent for process in processes() if process.pid == pid}
    os.kill(keeper, signal.SIGKILL)
    assert _gone(pid)
    assert one.ended
    one.stop()


def test_a_lost_parent_is_enough(server):
    one = _serving(server)
    pid = one.pid
    assert pid is not None
    assert one._keeper is not None
    assert one._keeper.stdin is not None
    one._keeper.stdin.close()  # what the kernel does for a parent that was killed
    one._keeper.stdin = None
    assert _gone(pid)


def test_secrets_are_hidden_in_the_tail_and_in_the_log_that_stays(server):
    one = _serving(server, "--api-key", "s3cret", secrets=("s3cret",))
    assert "s3cret" not in one.tail(5)
    assert "s3cret" in one.log.read_text()
    one.stop()
    assert one.log.read_text() == "serving with ['--api-key', '(hidden)']\n"


def test_the_environment_and_folder_are_the_commands_own(server, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    script = SERVES.replace("print(", "import os; print(os.getcwd(), os.environ['MINE'], ")
    one = server(sys.executable, "-c", script, "{port}", env={"MINE": "so"}, cwd=folder)
    one.launch()
    one.wait_until_healthy(lambda event: None)
    assert one.tail(1).startswith(f"{folder} so ")
    assert "MINE" not in os.environ


def test_a_server_has_ended_before_what_it_left_has(server):
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    script = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE).stdout.readline()
sys.exit(7)
"""
    one = server(sys.executable, "-c", script, stop_s=3.0)
    one.launch()
    deadline = time.monotonic() + 20
    while not one.ended:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert one.pid is not None
    assert len(members(one.pid)) == 1
    assert one.how_it_ended() == ", with code 7"
    one.stop()
    assert not members(one.pid)


def test_one_that_was_healthy_is_asked_again(server, tmp_path):
    down = tmp_path / "down"
    script = SERVES.replace("send_response(200)", f"send_response(503 if os.path.exists({str(down)!r}) else 200)")
    one = server(sys.executable, "-c", script.replace("import", "import os,"), "{port}")
    one.launch()
    one.wait_until_healthy(lambda event: None)
    assert one.unhealthy() == ""
    down.touch()
    assert one.unhealthy() == "GET /health: HTTP 503"
    assert not one.ended


def test_what_outlives_the_server_is_cleared_away_after_its_end(server, tmp_path):
    seen = tmp_path / "seen"
    serving = f"curl -s localhost:{{port}} >/dev/null && echo up >> {seen}; echo $WORD >> {seen}; echo cleared"
    one = _serving(server, stop=("sh", "-c", serving), env={"PATH": os.environ["PATH"], "WORD": "mine"})
    one.stop()
    assert seen.read_text() == "mine\n"
    assert one.log.read_text().endswith("cleared\n")


def test_a_server_that_ends_by_itself_is_cleared_away_too(server, tmp_path):
    one = server("sh", "-c", "exit 3", stop=("touch", str(tmp_path / "cleared")))
    one.launch()
    with pytest.raises(StartFailed, match="ended at its start, with code 3"):
        one.wait_until_healthy(lambda event: None)
    assert (tmp_path / "cleared").exists()


def test_a_stop_that_hangs_or_is_missing_is_bounded_and_said(server):
    slow = _serving(server, stop=("sleep", "60"), stop_s=0.5)
    slow.stop()
    missing = _serving(server, stop=("no-such-program",))
    missing.stop()
    assert "`stop` could not be run: No such file or directory" in missing.log.read_text()


def test_a_killed_keeper_still_clears_away(server, tmp_path):
    one = _serving(server, stop=("touch", str(tmp_path / "cleared")))
    keeper = next(p.parent for p in processes() if p.pid == one.pid)
    os.kill(keeper, signal.SIGKILL)
    one.stop()
    assert (tmp_path / "cleared").exists()


def test_ctrl_c_while_a_server_ends_waits_for_its_end_and_cleans_its_log(server, tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(
        SERVES.replace(
            "import http.server, sys",
            """
import http.server, signal, sys, time
def ends(*_):
    time.sleep(1.5)
    sys.exit(0)
signal.signal(signal.SIGTERM, ends)
print("my token is hf-canary-1", flush=True)
""",
        )
    )
    one = server(sys.executable, str(slow), "{port}", stop_s=8.0, secrets=("hf-canary-1",))
    one.launch()
    one.wait_until_healthy(lambda event: None)
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        one.stop()
    assert one.ended
    assert _gone(one.pid or 0)
    assert "my token is (hidden)" in one.log.read_text()


def test_the_keeper_cleans_the_log_when_nobody_else_is_left(server):
    one = _serving(server, "hf-canary-2", secrets=("hf-canary-2",))
    assert "hf-canary-2" in one.log.read_text()
    one._keeper.stdin.close()  # as when the run was killed
    one._keeper.stdin = None
    assert one._keeper.wait(20) == 0
    assert "hf-canary-2" not in one.log.read_text()


def test_what_a_stop_command_started_ends_with_it(server, tmp_path):
    pids = tmp_path / "pids"
    one = _serving(
        server, stop=("sh", "-c", f"sleep 771 & echo $! >> {pids}; sleep 772 & echo $! >> {pids}; wait"), stop_s=0.5
    )
    one.stop()
    assert all(_gone(int(pid)) for pid in pids.read_text().split())


def test_a_missing_program_is_refused_with_what_is_there_instead(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("exit 0")
    script = tmp_path / "my script"
    script.write_text("#!/no/such/sh -e\nexit 0\n")
    script.chmod(0o755)
    for word, said in (
        ("no-such-program", "there is no program 'no-such-program' in any folder of PATH"),
        ("./missing", f"there is no program './missing' in {tmp_path}"),
        (f"{tmp_path}/missing", f"there is no program '{tmp_path}/missing'"),
        (f"{tmp_path}", f"'{tmp_path}' is a folder, not a program"),
        ("./plain", "'./plain' is not executable (chmod +x)"),
        ("./my script", f"the first line of {script} names /no/such/sh, which is not there"),
    ):
        one = server(word, "{port}")
        with pytest.raises(UsageError) as refused:
            refuse_missing_program(one.arm, one._start)
        assert str(refused.value) == f"The mine server cannot be started: {said}."
    script.write_text("#! /bin/sh\nexit 0\n")
    for word in (sys.executable, "./my script", "sh"):
        refuse_missing_program(one.arm, server(word)._start)


LATE = """
import http.server, sys, time
began = time.time()
class Loading(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        loading = self.path == "/v1/models" and time.time() - began < 1.5
        self.send_response(503 if loading else 200); self.end_headers()
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Loading).serve_forever()
"""


def test_health_before_the_model_is_there_is_not_yet_healthy(server):
    one = server(sys.executable, "-c", LATE, "{port}")
    one.launch()
    assert one.wait_until_healthy(lambda event: None) > 1.5


def test_a_command_that_leaves_its_server_behind_is_told_to_stay(server):
    one = server("sh", "-c", "sleep 977 & exit 0")
    one.launch()
    with pytest.raises(
        StartFailed, match="with code 0; `start` must serve in the foreground, not leave a server behind"
    ):
        one.wait_until_healthy(lambda event: None)


def test_the_end_of_a_log_is_a_few_short_plain_lines(server):
    one = server("true")
    bar = "".join(f"\rLoading: {i} %" for i in range(101))
    colours = "\x1b[31;1mERROR\x1b[0m \x1b]0;title\x07no \x1b[2Jmemory \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"
    one.log.write_bytes(f"first\n{bar}\n\n\0\x01\n{colours}\n".encode() + b"\xff\n" + b"y" * 1_000_000)
    assert one.tail(9) == "y" * 300 + " … " + "y" * 100
    one.log.write_bytes(f"first\n{bar}\n\n\0\x01\n{colours}\n".encode() + b"\xff\n" + b"y" * 401)
    assert one.tail(4).splitlines() == [
        "Loading: 100 %",
        "ERROR no memory link",
        "\ufffd",
        f"{'y' * 300} … {'y' * 100}",
    ]


def test_no_part_of_a_secret_is_left_where_the_end_of_a_log_begins_or_it_has_lines(server):
    many = "\n".join(f"line-{i:02d}-of-the-key" for i in range(30))
    one = server("true", secrets=("s3cret-" + "q" * 40, many))
    for filled in (16384 - 3, 16384 - 20, 16384 - 43):
        one.log.write_text("s3cret-" + "q" * 40 + "z" * filled)
        assert "qqqq" not in one.tail(3)
    one.log.write_text(many)
    assert one.tail(3) == "(hidden)"


@pytest.mark.parametrize("way", [repr, json.dumps, lambda word: json.dumps(word, ensure_ascii=False), quote])
def test_a_secret_is_hidden_in_whatever_form_a_program_prints_it(server, way):
    secret = 'it\'s\\a "sécret"\nof two lines'
    one = server("true", secrets=(secret,))
    one.log.write_text(f"environ: {way(secret)}", encoding="utf-8")
    assert "cret" not in one.tail(3)


def test_a_log_is_cleaned_in_place(server):
    one = server("true", secrets=("s3cret",))
    one.log.write_text("a s3cret and s3cret\n")
    node = one.log.stat().st_ino
    clean(one.log, ["s3cret"])
    assert (one.log.read_text(), one.log.stat().st_ino) == ("a (hidden) and (hidden)\n", node)


def test_a_log_that_cannot_be_written_keeps_no_stop_command_from_running(server, tmp_path):
    one = _serving(server, stop=("touch", str(tmp_path / "cleared")))
    one.log.unlink()
    one.log.mkdir()
    one.stop()
    assert (tmp_path / "cleared").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="who listens is known from /proc")
def test_two_servers_that_share_a_port_are_told_from_one_with_workers(server):
    reuses = SERVES.replace(
        "http.server.HTTPServer((",
        "import os; os.fork(); http.server.HTTPServer.allow_reuse_port = True\nhttp.server.HTTPServer((",
    )
    one = server(sys.executable, "-c", reuses, "{port}", "workers")
    one.launch()
    one.wait_until_healthy(lambda event: None)
    assert not one.shares_its_port
    port = int(one.arm.url.rpartition(":")[2])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        assert one.shares_its_port
        with pytest.raises(StartFailed, match="shares its port with another program"):
            one.wait_until_healthy(lambda event: None)


def test_a_port_that_is_free_in_a_moment_is_waited_for(server):
    one = server(sys.executable, "-c", SERVES, "{port}")
    holder = socket.socket()
    holder.bind(("127.0.0.1", int(one.arm.url.rpartition(":")[2])))
    threading.Timer(0.5, holder.close).start()
    one.launch(patience_s=20.0)
    assert one.wait_until_healthy(lambda event: None) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="held by names that Linux alone has")
def test_a_port_is_held_against_another_run(server):
    one = server("true")
    with held_against_other_runs([one.arm, one.arm]):
        code = (
            "import sys; from loadtest.servers.arm import Arm\n"
            "from loadtest.servers.ports import held_against_other_runs\n"
            "with held_against_other_runs([Arm(name='a', role='baseline', url=sys.argv[1])]): print('held')"
        )
        other = subprocess.run([sys.executable, "-c", code, one.arm.url], capture_output=True, text=True, check=False)
        assert f"Another run of loadtest starts its servers at {one.arm.url}. Wait for its end" in other.stderr
    free = subprocess.run([sys.executable, "-c", code, one.arm.url], capture_output=True, text=True, check=False)
    assert free.stdout == "held\n"
