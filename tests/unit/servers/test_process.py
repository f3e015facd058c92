"""Simulated servers that cannot be started: the user's mistake, in one sentence."""

from __future__ import annotations

import socket

import pytest

from loadtest.errors import UsageError
from loadtest.servers.process import serve_simulated, start_simulated


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


@pytest.mark.parametrize(
    ("world", "port", "said"), [("defalt", 0, "there is no world"), ("default", 70000, "is no port")]
)
def test_what_the_simulated_server_refuses_is_a_usage_error(tmp_path, world, port, said):
    with pytest.raises(UsageError) as refused:
        start_simulated(world, "baseline", tmp_path, port=port)
    assert said in str(refused.value)
    assert "usage:" not in str(refused.value)
