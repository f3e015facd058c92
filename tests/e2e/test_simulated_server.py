"""The simulated server as a process: what it answers, when, what it writes down, and how it ends."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.e2e

PROGRAM = (sys.executable, "-m", "loadtest.simulate")
USAGE = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    process: subprocess.Popen[bytes]
    ready: dict[str, Any]
    log: Path
    http: httpx.Client

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in map(json.loads, self.log.read_text(encoding="utf-8").splitlines())}

    def metric(self, name: str) -> float:
        lines = self.http.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))


@contextmanager
def running(folder: Path, world: str, arm: str) -> Iterator[Server]:
    log = folder / f"{world}-{arm}.jsonl"
    command = [*PROGRAM, "--world", world, "--arm", arm, "--port", "0", "--log", str(log), "--watch-stdin"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    try:
        ready = json.loads(process.stdout.readline())
        with httpx.Client(base_url=f"http://127.0.0.1:{ready['port']}", trust_env=False, timeout=20) as client:
            yield Server(process=process, ready=ready, log=log, http=client)
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture(scope="module", params=["baseline", "speculative"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("simulated"), "default", request.param) as started:
        yield started


def chat(words: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}], "max_tokens": 40, "temperature": 0} | more


def streamed(server: Server, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a stream, without the [DONE] that must end it."""
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


def test_it_says_that_it_is_ready_and_what_it_is(server: Server) -> None:
    arm = server.ready["arm"]
    assert {key: server.ready[key] for key in ("ready", "world", "model")} == {
        "ready": True, "world": "default", "model": "simulated-8b"}  # fmt: skip
    assert server.http.get("/health").status_code == 200
    assert server.http.get("/version").json() == {"version": "0.32.0"}
    (card,) = server.http.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"], card["owned_by"]) == ("simulated-8b", 16384, "vllm")
    info = server.http.get("/server_info?config_format=json").json()
    assert info["vllm_env"] == {"LOADTEST_SIMULATED": "default"}
    speculative = info["vllm_config"].pop("speculative_config")
    assert (speculative or {}).get("num_speculative_tokens") == (5 if arm == "speculative" else None)
    assert list(info["vllm_config"]) == ["model_config", "cache_config", "parallel_config", "scheduler_config",
                                         "device_config"]  # fmt: skip


def test_streams_carry_every_token_and_the_log_knows_them(server: Server) -> None:
    events = streamed(server, chat("Tell me about the harbour.", **USAGE))
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert (counts[0], counts[1], counts[-1]) == (0, 1, 40)
    rises = [after - before for before, after in itertools.pairwise(counts[:-1])]
    assert events[-1]["choices"] == []
    row = server.rows()[events[0]["id"]]
    assert row["chunk_tokens"] == rises
    assert (row["output_tokens"], row["finish_reason"], row["category"]) == (40, "length", "chat")
    assert len(row["sent_s"]) == len(rises)
    assert row["arrival_s"] < row["sent_s"][0] <= row["sent_s"][-1] < time.clock_gettime(time.CLOCK_MONOTONIC)
    assert (max(rises) > 1) == (server.ready["arm"] == "speculative")


def test_whole_answers_and_streams_say_the_same(server: Server) -> None:
    body = chat("What is a good name for a boat?")
    whole = server.http.post("/v1/chat/completions", json=body).json()
    parts = [event["choices"][0]["delta"].get("content") or "" for event in streamed(server, body | {"stream": True})]
    assert "".join(parts) == whole["choices"][0]["message"]["content"] != ""
    assert whole["usage"]["completion_tokens"] == 40


def test_both_arms_give_the_same_answer(tmp_path: Path) -> None:
    said = []
    for arm in ("baseline", "speculative"):
        with running(tmp_path, "eagle3", arm) as started:
            answer = started.http.post("/v1/completions", json={"prompt": "Once upon a time", "max_tokens": 30}).json()
            said.append((answer["choices"][0]["text"], answer["usage"]))
    assert said[0] == said[1]


def test_counters_reconcile_with_what_clients_received(server: Server) -> None:
    names = ("generation_tokens_total", "prompt_tokens_total", "request_success_total",
             "inter_token_latency_seconds_count")  # fmt: skip
    before = [server.metric(name) for name in names]
    bodies = [chat(f"Question {number}: what comes next?", **USAGE, max_tokens=30) for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda body: streamed(server, body), bodies))
    rises = [server.metric(name) - had for name, had in zip(names, before, strict=True)]
    usages = [events[-1]["usage"] for events in answers]
    tokens = sum(usage["completion_tokens"] for usage in usages)
    chunks = sum(len(server.rows()[events[0]["id"]]["chunk_tokens"]) for events in answers)
    assert rises == [tokens, sum(usage["prompt_tokens"] for usage in usages), 12, chunks - 12]
    assert server.metric("num_requests_running") == server.metric("num_requests_waiting") == 0
    exposed = "vllm:spec_decode_num_drafts_total" in server.http.get("/metrics").text
    assert exposed == (server.ready["arm"] == "speculative")
    truth = server.http.get("/simulate/truth").json()
    assert truth["in_flight"] == 0
    assert 0 <= truth["late_steps"] <= truth["steps"]


def test_a_later_turn_finds_its_beginning_cached_under_its_own_salt(server: Server) -> None:
    first = chat("A long opening. " * 20, cache_salt="one", max_tokens=2)
    turns = [*first["messages"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
    hits = []
    for body in (first, first | {"messages": turns}, first | {"messages": turns, "cache_salt": "two"}):
        before = server.metric("prefix_cache_hits_total")
        server.http.post("/v1/chat/completions", json=body)
        hits.append(server.metric("prefix_cache_hits_total") - before)
    assert hits == [0, 80, 0]
    assert server.http.post("/reset_prefix_cache").json() == {"success": True}
    before = server.metric("prefix_cache_hits_total")
    server.http.post("/v1/chat/completions", json=first)
    assert server.metric("prefix_cache_hits_total") == before


def test_bad_requests_get_json_errors(server: Server) -> None:
    post = server.http.post
    assert post("/v1/completions", json={"prompt": "x", "model": "nope"}).status_code == 404
    assert post("/v1/completions", content=b"{").json()["error"]["code"] == 400
    assert post("/v1/completions", json={"prompt": "x", "max_tokens": 16_384}).json()["error"]["param"] == "max_tokens"
    assert server.http.get("/v1/nope").json() == {"detail": "Not Found"}
    refused = server.http.get("/v1/completions")
    assert (refused.status_code, refused.json()) == (405, {"detail": "Method Not Allowed"})
    counted = post("/tokenize", json={"prompt": "abcdefgh!"}).json()
    assert (counted["count"], len(counted["tokens"])) == (3, 3)


def test_a_client_that_leaves_is_forgotten(server: Server) -> None:
    before = server.metric("request_success_total")
    body = chat("Go on for long.", max_tokens=4000, ignore_eos=True, stream=True)
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        assert server_load(server) == 1
    deadline = time.monotonic() + 5
    while server_load(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server_load(server) == 0
    assert server.metric("num_requests_running") == 0
    assert server.metric("request_success_total") == before
    assert server.http.get("/simulate/truth").json()["cancelled"] == 1


def server_load(server: Server) -> int:
    with httpx.Client(base_url=server.http.base_url, trust_env=False) as client:
        return int(client.get("/load").json()["server_load"])


def test_steps_keep_their_schedule(tmp_path: Path) -> None:
    with running(tmp_path, "null", "baseline") as started:
        (events,) = [streamed(started, chat("Tick.", **USAGE, max_tokens=50, ignore_eos=True))]
        sent = started.rows()[events[0]["id"]]["sent_s"]
    assert len(sent) == 50
    # An absolute schedule: a late step does not move the ones after it.
    errors = sorted(abs(at - sent[0] - 0.020 * step) for step, at in enumerate(sent))
    assert errors[len(errors) // 2] < 0.002


def test_failures_are_server_errors_for_a_share_of_the_prompts(tmp_path: Path) -> None:
    with running(tmp_path, "failures", "speculative") as started:
        bodies = [{"prompt": f"p{number}", "max_tokens": 1} for number in range(150)]
        answers = [started.http.post("/v1/completions", json=body) for body in bodies]
    failed = [answer.json()["error"] for answer in answers if answer.status_code == 500]
    assert 1 <= len(failed) <= 15
    assert all(error["type"] == "InternalServerError" for error in failed)
    assert {answer.status_code for answer in answers} == {200, 500}


def test_an_idle_connection_is_closed_after_five_seconds(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.ready["port"])) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        connection.settimeout(10)
        assert connection.recv(4096) == b""
        assert 4 < time.monotonic() - began < 8


@pytest.mark.parametrize("end", ["sigterm", "stdin"])
def test_it_ends_at_once_though_it_is_busy(tmp_path: Path, end: str) -> None:
    with running(tmp_path, "default", "baseline") as started:
        begun = threading.Event()

        def read() -> None:
            body = chat("Go on for long.", max_tokens=4000, ignore_eos=True, stream=True)
            try:
                with started.http.stream("POST", "/v1/chat/completions", json=body) as response:
                    for _ in response.iter_lines():
                        begun.set()
            except httpx.HTTPError:
                pass

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(10)
        asked = time.monotonic()
        if end == "sigterm":
            started.process.send_signal(signal.SIGTERM)
        else:
            assert started.process.stdin
            started.process.stdin.close()
        assert started.process.wait(10) == 0
        assert time.monotonic() - asked < 3
        reader.join(10)
        assert not reader.is_alive()


def test_an_unknown_world_is_a_usage_error() -> None:
    ended = subprocess.run([*PROGRAM, "--world", "mars"], capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"there is no world 'mars'; there are default, eagle3" in ended.stderr
