"""The control plane against servers that answer oddly, slowly or too much, and keys that must not be shown."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from loadtest.errors import UsageError
from loadtest.servers.control import Arm, Control, answers, reset_prefixes, resolve_model
from loadtest.servers.fetch import LARGEST_BYTES, NoAnswer
from loadtest.servers.identity import identify

KEY = "KEYCANARY777"
Piece = bytes | float  # what to send, and for how many seconds to wait


def whole(body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> list[Piece]:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return [head.encode() + body]


def told(**said: object) -> list[Piece]:
    return whole(json.dumps(said).encode())


class OddServer:
    """Answers each path with its pieces, any other with 404."""

    def __init__(self, paths: dict[str, list[Piece]]) -> None:
        self._paths, self._stopping = paths, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        self._listener.settimeout(0.05)
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
                self._threads[-1].start()
        self._listener.close()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            path = request.split(b" ")[1].decode().partition("?")[0]
            for piece in self._paths.get(path, whole(b"{}", "404 Not Found")):
                if isinstance(piece, bytes):
                    connection.sendall(piece)
                elif self._stopping.wait(piece):
                    return

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Control]]:
    """`control(paths, …)`: the control plane of a server that answers so, asked with the key."""
    monkeypatch.setenv("KEYV", KEY)
    servers: list[OddServer] = []
    controls: list[Control] = []

    def make(paths: dict[str, list[Piece]], name: str = "baseline") -> Control:
        servers.append(OddServer(paths))
        controls.append(Control(Arm(name=name, role="baseline", url=servers[-1].url, api_key_env="KEYV")))
        return controls[-1]

    yield make
    for each in controls:
        each.close()
    for server in servers:
        server.stop()


DRIPS: list[Piece] = [piece for _ in range(100) for piece in (b"x", 0.1)]


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n", b"HTTP/1.1 200 OK\r\na: "])
def test_an_answer_that_drips_has_an_end(control, head):
    dripping = control({"/v1/models": [head, *DRIPS]})
    began = time.monotonic()
    with pytest.raises(NoAnswer, match=r"no whole answer within 0\.4 s"):
        dripping.fetch("/v1/models", 0.4)
    assert time.monotonic() - began < 2


def test_an_answer_without_end_is_cut(control):
    endless = control({"/metrics": [b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 2**20] * (LARGEST_BYTES // 2**20 + 2)]})
    with pytest.raises(NoAnswer, match="more than 64 MiB"):
        endless.fetch("/metrics")
    assert endless.scrape()[3] == "an answer of more than 64 MiB"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (whole(b"", "500 Internal Server Error"), "answers GET /v1/models with HTTP 500;"),
        (whole(b"<html>", kind="text/html; charset=utf-8"), "with 'text/html' that is no JSON object;"),
        (whole(b"[" * 100_000), "with 'application/json' that is no JSON object;"),
        (whole(b'{"data":' * 90 + b"1" + b"}" * 90), "that is no JSON object;"),
        (whole(b'{"data": 1e999999}'), "with JSON that holds no list `data`;"),
        (whole(b'{"data": ' + b"9" * 5000 + b"}"), "that is no JSON object;"),
        (told(data={"id": "m"}), "with JSON that holds no list `data`;"),
        (told(data=[]), "lists no model;"),
        (told(data=[7, {"id": {"a": 1}}]), "lists no model;"),
        ([b"HTTP/1.1 200 OK\r\n"], "answers GET /v1/models not at all ("),
    ],
)
def test_why_the_model_is_not_known(control, answer, said):
    with pytest.raises(UsageError) as refused:
        resolve_model(control({"/v1/models": answer}), "")
    assert said in str(refused.value)
    assert resolve_model(control({"/v1/models": answer}), "mine") == "mine"


def test_a_server_alone_is_called_the_server(control):
    with pytest.raises(UsageError, match=r"^The server at http://127\.0\.0\.1:\d+ lists no model"):
        resolve_model(control({"/v1/models": told(data=[])}, name="server"), "")
    with pytest.raises(UsageError, match=r"^The baseline server at http://127\.0\.0\.1:\d+ refuses the key"):
        control({"/v1/models": whole(b"", "401 Unauthorized")}).reach()


@pytest.mark.parametrize(
    ("value", "said"),
    [("CANARY\nX", "line break"), ("CANARY\x01", "control character"), ("CANARY ", "ends with a blank"),
     ("\tCANARY", "begins with a blank"), ("CANARYé", "outside ASCII"), ("CANARY\udcff", "outside ASCII"),
     (" ", "is empty")],
)  # fmt: skip
def test_a_key_that_cannot_be_sent_is_named_and_not_shown(monkeypatch, value, said):
    monkeypatch.setenv("KEYV", value)
    for arm in (Arm(name="server", role="single", url="http://a", api_key_env="KEYV"),
                Arm(name="server", role="single", url="http://a", headers_env={"X-Key": "KEYV"})):  # fmt: skip
        with pytest.raises(UsageError) as refused:
            Control(arm)
        assert said in str(refused.value)
        assert "KEYV" in str(refused.value)
        assert "CANARY" not in str(refused.value)


def test_a_server_that_repeats_the_key_does_not_get_it_shown(control):
    moved = whole(b"", "307 Temporary Redirect", more=f"location: http://b/?key={KEY}\r\n")
    with pytest.raises(UsageError, match=r"redirects to 'http://b/\?key=\(hidden\)'"):
        control({"/v1/models": moved}).reach()
    broken = control({"/metrics": [f"HTTP/1.1 Bearer {KEY}\r\n\r\n".encode()]})
    error = broken.scrape()[3]
    assert error
    assert KEY not in error


@pytest.mark.parametrize("config", ["VllmConfig(model='m')", ["a"], None, 7])
def test_a_configuration_that_is_no_table_is_not_told(control, config):
    server = {"/v1/models": told(data=[{"id": "m"}]),
              "/server_info": told(vllm_config=config, vllm_env={"VLLM_X": "1"})}  # fmt: skip
    identity = identify(control(server), "m")
    assert identity.config == {"env.VLLM_X": "1"}
    assert identity.method is None


def test_an_introduction_is_kept_without_secrets_and_without_what_cannot_be_written(control):
    config = {"a": f"--api-key {KEY}", "b": [KEY, 1], "c": float("nan"), "d": "\ud800", "speculative_config": None}
    server = {
        "/v1/models": told(data=[{"id": "m", "root": "org/m", "max_model_len": 10**400}]),
        "/server_info": told(vllm_config=config, vllm_env={"VLLM_API_KEY": "another", "VLLM_X": "1"}),
    }
    identity = identify(control(server), "m")
    assert identity.config == {
        "a": "--api-key (hidden)", "b": ["(hidden)", 1], "c": None, "d": "?", "speculative_config": None,
        "env.VLLM_API_KEY": "(hidden)", "env.VLLM_X": "1",
    }  # fmt: skip
    assert (identity.model_root, identity.max_model_len) == ("org/m", None)


def test_where_nothing_answers(control):
    assert answers("http://127.0.0.1:1") is False
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert answers(f"http://127.0.0.1:{silent.getsockname()[1]}") is False
        assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("kind", "paths", "said"),
    [
        ("vllm", {"/reset_prefix_cache": told(success=True)}, ""),
        ("vllm", {"/reset_prefix_cache": whole(b"")}, ""),  # before 0.28: nothing but the status
        ("vllm", {}, "HTTP 404: vLLM needs VLLM_SERVER_DEV_MODE=1"),
        ("vllm", {"/reset_prefix_cache": told(success=False)}, "answered with HTTP 200, 5 times"),
        ("sglang", {"/flush_cache": whole(b"busy", "400 Bad Request")}, "POST /flush_cache was answered with HTTP 400"),
        ("llamacpp", {}, "has no way to empty its prefix cache"),
        ("", {}, "has no way to empty its prefix cache"),
    ],
)
def test_the_prefix_cache_is_emptied_or_it_is_said_why_not(control, monkeypatch, kind, paths, said):
    monkeypatch.setattr("loadtest.servers.control.RESET_PAUSE_S", 0.0)
    server = control(paths)
    server.arm = replace(server.arm, kind=kind)
    assert said in reset_prefixes(server)
    assert bool(reset_prefixes(server)) == bool(said)
