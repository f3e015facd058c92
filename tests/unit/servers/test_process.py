"""Simulated servers that cannot be started: the user's mistake, in one sentence."""

from __future__ import annotations

import socket

import pytest

from loadtest.errors import UsageError
from loadtest.servers.arm import Arm
from loadtest.servers.file import Start
from loadtest.servers.managed import ManagedServer, StartFailed
from loadtest.servers.process import killed_by, serve_simulated, start_simulated


def test_an_unknown_world_is_named_with_the_nearest():
    with pytest.raises(
        UsageError, match=r"^--world is 'defalt', which is no world\. Did you mean `default`\? There are"
    ):
        serve_simulated("defalt", {"baseline": 0}, 1, print)


def test_the_pair_needs_two_ports():
    with pytest.raises(UsageError, match="--port 65535 leaves no port for the second server"):
        serve_simulated("default", {"baseline": 65535, "speculative": 65536}, 1, print)


def test_a_taken_port_is_said_in_a_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UsageError) as refused:
            start_simulated("default", "baseline", tmp_path, port=port)
    assert f"The simulated server did not start: it cannot listen at 127.0.0.1:{port}" in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_modules_of_the_working_folder_hide_none_of_a_servers_own(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    (work / "types.py").write_text("raise RuntimeError('hidden')")
    monkeypatch.chdir(work)
    server = start_simulated("default", "baseline", tmp_path)
    server.stop()
    assert server.announced["ready"] is True
    managed = ManagedServer(
        Arm(name="mine", role="baseline", url=f"http://127.0.0.1:{server.announced['port']}"),
        Start(command=("sh", "-c", "exit 3"), env={}, cwd=None, ready_s=20.0, stop_s=5.0, health="/health"),
        tmp_path / "server-mine-1.log",
    )
    managed.launch(patience_s=5.0)
    with pytest.raises(StartFailed, match="ended at its start, with code 3"):
        managed.wait_until_healthy(lambda event: None)


@pytest.mark.parametrize(
    ("world", "port", "said"), [("defalt", 0, "there is no world"), ("default", 70000, "is no port")]
)
def test_what_the_simulated_server_refuses_is_a_usage_error(tmp_path, world, port, said):
    with pytest.raises(UsageError) as refused:
        start_simulated(world, "baseline", tmp_path, port=port)
    assert said in str(refused.value)
    assert "usage:" not in str(refused.value)


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (-15, "SIGTERM"), (-40, "signal 40")])
def test_what_ended_a_process_is_named_and_numbered_where_it_has_no_name(code, name):
    assert killed_by(code) == name
