"""benchmarks/client: the ground-truth server writes down what it does, and records are held against it rightly."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are no part of the installed package

from benchmarks.client.bench import Bench
from benchmarks.client.compare import Said, compare
from benchmarks.client.figures import FIGURES, growth, number
from benchmarks.client.ground import Answered, NoServer, Programs, Server, build, read_log
from benchmarks.client.machine import Disturbance, cores
from benchmarks.client.workload import Workload

if sys.platform != "linux":
    pytest.skip("the ground-truth server needs Linux: epoll and the kernel's stamps", allow_module_level=True)
ROOT = Path(__file__).parents[2]
needs_cc = pytest.mark.skipif(
    shutil.which("cc") is None, reason="there is no `cc` to build the ground-truth server with"
)
MS = 1_000_000


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return build(tmp_path_factory.mktemp("ground-truth"))


@pytest.fixture
def bench(programs: Programs) -> Bench:
    server_core, client_core = cores(None)
    return Bench(programs=programs, server_core=server_core, client_core=client_core, realtime=False,
                 tries=1)  # fmt: skip


@pytest.fixture
def server(programs: Programs, tmp_path: Path) -> Iterator[Server]:
    core, _ = cores(None)
    with Server(programs, tmp_path / "log.bin", core=core, realtime=False, tls=False, for_s=60) as running:
        yield running


def asked(server: Server, model: str, path: str = "/v1/chat/completions", **fields: object) -> str:
    body = json.dumps({"model": model, "messages": [], "stream": True} | fields).encode()
    request = urllib.request.Request(server.url + path, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def events(text: str) -> list[dict[str, object]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@needs_cc
def test_the_server_sends_what_its_schedule_says_and_logs_it(server: Server, tmp_path: Path) -> None:
    said = events(
        asked(server, "truth-t20-g2.5-n3-k2-r1", stream_options={"include_usage": True, "continuous_usage_stats": True})
    )
    assert [event["usage"]["completion_tokens"] for event in said] == [0, 2, 4, 6, 6, 6]  # type: ignore[index]
    assert [len(event["choices"]) for event in said] == [1, 1, 1, 1, 1, 0]  # type: ignore[arg-type]
    deltas = [event["choices"][0]["delta"] for event in said[:5]]  # type: ignore[index]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [len(delta["content"].split()) for delta in deltas[1:4]] == [2, 2, 2]
    assert deltas[4] == {}
    plain = events(asked(server, "any", "/v1/completions", max_tokens=2))
    assert [event["choices"][0]["finish_reason"] for event in plain] == [None, None, "length"]  # type: ignore[index]
    server.stop()
    log = read_log(tmp_path / "log.bin")
    assert sorted(log) == [1, 2]
    assert (len(log[1].chunk_ns), log[1].tokens, log[1].gap_ns) == (3, 2, 2_500_000)
    assert (len(log[2].chunk_ns), log[2].tokens, log[2].gap_ns) == (2, 1, 20 * MS)
    for row in log.values():
        planned = row.due_ns + row.gap_ns * np.arange(len(row.chunk_ns))
        assert (row.chunk_ns >= planned).all()  # never early
        assert row.arrived_ns < row.due_ns
    assert log[1].due_ns - log[1].arrived_ns >= 20 * MS
    assert (server.counts["requests"], server.counts["chunks"]) == (2, 5)


@needs_cc
def test_step_mode_puts_all_streams_on_one_tick(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        asked(server, "truth-t3-g10-n2-s1")
    asked(server, "truth-t3-g10-n2-f1-p1")
    server.stop()
    log = read_log(tmp_path / "log.bin")
    assert [log[number].due_ns % (10 * MS) for number in (1, 2)] == [0, 0]
    assert log[3].due_ns % (10 * MS) != 0  # put off by a phase of its own


@needs_cc
@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", 404),
        (b"GET /health HTTP/1.1\r\n\r\n", 200),
        (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n", 413),
        (b'POST /v1/completions HTTP/1.1\r\nContent-Length: 22\r\n\r\n{"model": "truth-t5x"}', 404),
        pytest.param(b"x" * 1_100_000, 431, id="endless"),
    ],
)
def test_what_the_server_does_not_speak_is_refused(server: Server, request_text: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=20) as connection:
        connection.sendall(request_text)
        assert connection.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


@needs_cc
def test_the_server_ends_with_its_parent(programs: Programs) -> None:
    code = (
        "import os, subprocess, sys; server = subprocess.Popen([sys.argv[1], '--port', '0'], stdout=subprocess.PIPE);"
        " server.stdout.readline(); print(server.pid, flush=True); os._exit(0)"
    )
    child = subprocess.run([sys.executable, "-c", code, str(programs.server)],
                           capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    pid, until_s = int(child.stdout), time.monotonic() + 30
    while _runs(pid) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    """Whether a process is alive; one that has ended but was not waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@needs_cc
def test_a_server_that_cannot_start_says_why(programs: Programs, tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="No such file or directory"):
        Server(programs, tmp_path / "nowhere" / "log.bin", core=0, realtime=False, tls=False, for_s=60)


SHORT = Workload(users=2, first_s=0.05, chunks=6, seconds=0.4, ramp_s=0.05)


@needs_cc
@pytest.mark.parametrize(
    "workload",
    [
        replace(SHORT, tokens=3, usage=True, split=True, tls=True),
        replace(SHORT, usage=True, through="cell"),
        replace(SHORT, through="c"),
    ],
    ids=lambda workload: workload.words,
)
def test_the_client_writes_down_every_chunk_that_was_sent(bench: Bench, workload: Workload) -> None:
    if not bench.programs.tls:
        workload = replace(workload, tls=False)  # cc found no OpenSSL headers
    result = bench.run(workload)
    assert result.wrong == ""
    assert result.comparison is not None
    assert result.comparison.requests == result.requests >= 2
    assert result.comparison.chunks == result.requests * 6
    assert result.cpu_s > 0
    assert bench.run(workload) is result  # measured once


@needs_cc
def test_open_load_sends_at_its_times_and_the_user_clock_is_chosen(bench: Bench) -> None:
    result = bench.run(Workload(rate_per_s=20.0, first_s=0.01, gap_s=0.0, chunks=1, seconds=0.5, stamps="user"))
    assert result.wrong == ""
    assert result.requests == 10
    assert result.stamps == {"user": 10}


@needs_cc
def test_a_long_run_watches_memory_and_keeps_no_records(bench: Bench) -> None:
    result = bench.run(Workload(users=4, first_s=0.4, chunks=2, requests=12, seconds=1.0, ramp_s=0.1))
    assert result.wrong == ""
    assert result.comparison is None
    assert 12 <= result.requests <= 15  # users ask until the last of them has been counted
    assert result.memory
    assert result.peak_memory_mb > 20


def row(chunk_ms: list[float], arrived_ms: float = 0.0, tokens: int = 1) -> Answered:
    times = (np.array(chunk_ms) * MS).astype(np.int64)
    return Answered(arrived_ns=int(arrived_ms * MS), due_ns=int(times[0]), gap_ns=10 * MS, tokens=tokens, delayed=0,
                    chunk_ns=times)  # fmt: skip


def said(chunk_ms: list[float], sent_ms: float = 0.0, due_ms: float = 0.0, tokens: int = -1) -> Said:
    return Said(due_ns=due_ms * MS, sent_ns=sent_ms * MS, chunk_ns=np.array(chunk_ms) * MS, tokens=tokens)


def test_errors_are_those_of_gaps_first_chunks_and_sends() -> None:
    true = {7: row([100.0, 110.0, 121.0], arrived_ms=3.0)}
    found = compare({7: said([100.5, 110.5, 125.5], sent_ms=2.0, due_ms=1.0)}, true, (0.0, 1e12))
    assert found.right
    assert (found.gap_error_p50_s, found.gap_error_p99_s) == pytest.approx((0.0, 0.004))
    assert (found.gap_said_p99_s, found.gap_true_p99_s) == pytest.approx((0.015, 0.011))
    assert found.ttft_said_p50_s == pytest.approx(0.0985)
    assert found.ttft_true_p50_s == pytest.approx(0.097)
    assert found.ttft_error_p99_s == pytest.approx(0.0015)
    assert found.send_error_p50_s == pytest.approx(0.002)
    assert found.server_late_p99_s == pytest.approx(0.001)


def test_only_the_window_counts() -> None:
    true = {1: row([100.0, 110.0, 120.0, 130.0], arrived_ms=95.0)}
    record = {1: said([100.0, 112.0, 120.0, 135.0], sent_ms=95.0)}
    found = compare(record, true, (105.0 * MS, 125.0 * MS))
    assert found.chunks_per_s == pytest.approx(2 / 0.020)
    assert found.gap_error_p99_s == pytest.approx(0.002)  # not the last gap, which is off by 5 ms
    assert math.isnan(found.ttft_error_p50_s)  # it was sent before the window


@pytest.mark.parametrize(
    ("record", "missing", "differing"),
    [
        ({1: said([100.0, 110.0], tokens=4)}, 0, 0),
        ({1: said([100.0, 110.0])}, 0, 0),
        ({1: said([100.0])}, 0, 1),  # a chunk was lost
        ({1: said([100.0, 110.0, 110.0])}, 0, 1),  # one was made up
        ({1: said([100.0, 110.0], tokens=3)}, 0, 1),
        ({2: said([100.0, 110.0])}, 1, 0),  # the server knows nothing of it
    ],
)
def test_a_record_that_disagrees_with_the_log_is_counted(record: dict[int, Said], missing: int, differing: int) -> None:
    found = compare(record, {1: row([100.0, 110.0], tokens=2)}, (0.0, 1e12))
    assert (found.missing, found.differing) == (missing, differing)
    assert found.right == (missing + differing == 0)


def test_figures_hold_while_they_are_within_a_tenth_and_the_rate_is_kept() -> None:
    chunks = [100.0 + 10 * i for i in range(50)]
    true = {1: row(chunks)}
    window = (0.0, 500.0 * MS)
    exact = compare({1: said(chunks)}, true, window)
    assert exact.chunks_per_s == pytest.approx(82.0)  # 41 of them lie in the half second
    assert exact.holds(84.0)
    assert not exact.holds(85.0)  # less than 97 % of it
    late_first = [111.0, *chunks[2:], 600.0]
    assert not compare({1: said(late_first)}, true, window).holds(80.0)
    stretched = [100.0 + 11.5 * i for i in range(50)]
    assert not compare({1: said(stretched)}, true, window).holds(80.0)
    assert not compare({}, true, window).holds(0.0)


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(b"x" * 64)
    with pytest.raises(ValueError, match="no log of the ground-truth server"):
        read_log(path)
    path.write_bytes(b"x" * 10)
    with pytest.raises(ValueError, match="ends within a record"):
        read_log(path)


def test_a_run_whose_core_was_taken_is_suspect() -> None:
    assert Disturbance(wall_s=10.0, client_s=0.2, server_s=0.2, stolen_s=0.2).reasons == []
    reasons = Disturbance(wall_s=10.0, client_s=0.5, server_s=0.0, stolen_s=4.0).reasons
    assert reasons == ["the client waited for its core 5% of the time", "the host took the cores 40% of the time"]


def test_memory_is_compared_after_a_fifth_and_at_the_end() -> None:
    assert growth([(1.0, 10, 100.0), (2.0, 19, 101.0), (3.0, 21, 102.0), (4.0, 100, 103.0)]) == (102.0, 103.0)
    assert all(math.isnan(value) for value in growth([]))


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "–"), (0.1234, "0.12"), (12.34, "12.3"), (1234.5, "1,234"), (math.inf, "–")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_figure_is_explained(figure: object) -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {figure.name} \|", text, re.MULTILINE)  # type: ignore[attr-defined]


def test_the_schedule_is_written_as_the_server_reads_it() -> None:
    assert (
        Workload(users=1, gap_s=0.0025, chunks=7, tokens=3, split=True).model == "truth-t200-g2.5-n7-k3-r1-s0-p1-x1-f0"
    )
    assert Workload(users=2, first_s=0.1, gap_s=0.02, chunks=11).offered_chunks_per_s == pytest.approx(2 * 11 / 0.31)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "speed"], "--only speed: no such figure; there are saturation, cpu"),
        (["--cores", "0"], "--cores is '0', not two numbers such as 0,1"),
        (["--long", "-1"], "give a number of requests above 0"),
    ],
)
def test_bad_options_are_refused_in_words(words: list[str], sentence: str) -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.client", *words], cwd=ROOT, capture_output=True, text=True,
                          timeout=120, check=False, env=os.environ | {"PATH": ""})  # fmt: skip
    assert done.returncode == 2
    assert sentence in done.stderr
