"""Whole runs against servers that fail: what is kept, how it is counted, the exit code, and that a report is written.

One run has every fault of a server's answers in it, some twenty at a time; the others end before the first load.
"""

from __future__ import annotations

import json
import math
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from faulty import (
    CLOSE,
    DONE,
    END,
    HEAD,
    HOLD,
    RESET,
    Asked,
    Faulty,
    Script,
    by_case,
    chunked,
    event,
    response,
    token,
    usage,
)
from processes import Command, Starter, assert_nothing_left

from loadtest.analyse.judge import judge
from loadtest.analyse.results import Judgement

pytestmark = pytest.mark.e2e
TLS = Path(__file__).parents[1] / "data" / "tls"

LONG = b'{"error":{"message":"This model\'s maximum context length is 4096 tokens.","code":400}}'
OOM = b'{"error":{"message":"CUDA out of memory"}}'
TWO = [HEAD, token(1), 0.01, token(2)]

# Case → what the server does, outcome, part of the error, tokens that are kept.
CASES: dict[str, tuple[Script, str, str, list[int]]] = {
    "too-long": ([response("400 Bad Request", LONG)], "http_error", "HTTP 400: This model's maximum context", []),
    "rate-limited": ([response("429 Too Many Requests", b"{}", "application/json", "retry-after: 7")], "rate_limited",
                     "HTTP 429, Retry-After 7", []),
    "loading": ([response("503 Service Unavailable", b'{"message":"loading"}')], "http_error", "HTTP 503: loading", []),
    "html": ([response("500 Oops", b"<script>alert(1)</script>" * 40_000, "text/html"), CLOSE], "http_error",
             "HTTP 500: <script>alert(1)", []),
    "redirect": ([response("302 Found", b"", "text/plain", "location: http://127.0.0.1:9/v1")], "http_error",
                 "redirects are not followed", []),
    "json": ([response("200 OK", b'{"choices":[{"message":{"content":"hi"}}]}')], "protocol_error",
             "not with an event stream", []),
    "error-200": ([response("200 OK", OOM)], "stream_error", "CUDA out of memory", []),
    "silent": ([HOLD], "timeout", "no token came within 0.6 s", []),
    "error-event": ([*TWO, event(error={"message": "engine died"}), chunked(DONE) + END], "stream_error", "engine died",
                    [1, 1]),
    "error-first": ([HEAD, event(error={"message": "no room"})], "stream_error", "no room", []),
    "done-only": ([HEAD, chunked(DONE) + END], "empty", "without a token", []),
    "no-finish": ([*TWO, END], "truncated", "without a finish_reason", [1, 1]),
    "reset": ([*TWO, token(3), 0.05, RESET], "truncated", "the connection was reset", [1, 1, 1]),
    "cut": ([*TWO, 0.05, CLOSE], "truncated", "the server closed the connection", [1, 1]),
    "stall": ([*TWO, HOLD], "stalled", "", [1, 1]),
    "loris": ([*TWO, *[0.2, chunked(b": ping\n\n")] * 20], "stalled", "", [1, 1]),
    "not-json": ([*TWO, chunked(b'data: {"choices": [\n\n')], "protocol_error", "not JSON", [1, 1]),
    "gzip": ([HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"), chunked(b"\x1f\x8b")], "protocol_error",
             "compressed (gzip)", []),
    "uncounted": ([HEAD, token(1, counted=False, finish="stop"), chunked(DONE) + END], "empty", "no token count", []),
    "count-falls": ([*TWO, token(1)], "protocol_error", "fell from 2 to 1", [1, 1]),
}  # fmt: skip
# What looks like a fault and is none: tokens of the answer.
FINE: dict[str, tuple[Script, list[int]]] = {
    "bursts": ([HEAD, token(3) + token(5), 0.01, token(9, finish="stop") + usage(9) + chunked(DONE) + END], [3, 2, 4]),
    "keep-alive": ([HEAD, chunked(b": ping\n\n"), 0.02, token(1), chunked(b": ping\n\n"), 0.02,
                    token(2, finish="length") + usage(2) + chunked(DONE) + END], [1, 1]),
    "one-token": ([HEAD, token(1, finish="stop") + usage(1) + chunked(DONE) + END], [1]),
}  # fmt: skip

SCENARIO = f"""
from loadtest.scenario import LLMUser, task

CASES = {[*CASES, *FINE]}

class Mine(LLMUser):
    asked = 0

    @task
    def ask(self):
        self.asked += 1
        case = CASES[self.number % len(CASES)] if self.asked % 3 == 0 else "good"
        self.chat([{{"role": "user", "content": f"[{{case}}] {{self.number}}/{{self.asked}}"}}], category=case)
"""
USERS = len(CASES) + len(FINE)


def script(asked: Asked) -> Script:
    """Fail on the speculative server as the prompt asks for; `answer` where it asks for nothing."""
    return by_case({name: case[0] for name, case in {**CASES, **FINE}.items()})(asked)


class Run:
    """What a run with faults left."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.code = command.process.returncode
        self.folder = command.folder
        self.rows: list[dict[str, Any]] = pq.read_table(self.folder / "requests.parquet").to_pylist()
        self.verdict = json.loads((self.folder / "verdict.json").read_text())
        self.judgement: Judgement = judge(self.folder)

    def of(self, case: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["category"] == case and row["arm"] == "speculative"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run of a good baseline and a candidate that fails in every way."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "mine.py").write_text(SCENARIO)
    good, bad = Faulty(), Faulty(script)
    try:
        settings = {
            "load.think_time": 0, "servers.token_counts": "all", "generation.max_tokens": 4,
            "limits.first_token_s": 0.6, "limits.stall_s": 0.5, "limits.total_s": 2,
        }  # fmt: skip
        command = Starter(folder / "out").run(
            "run", folder / "mine.py", "--out", folder / "out", "--baseline", good.url, "--speculative", bad.url,
            "--levels", USERS, "--window", "2s", "--blocks", "1",
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
        )  # fmt: skip
        yield Run(command)
        assert_nothing_left(command)
    finally:
        good.stop()
        bad.stop()


@pytest.mark.parametrize("case", CASES)
def test_a_failed_request_is_named_and_keeps_what_came(run: Run, case: str) -> None:
    _, outcome, error, tokens = CASES[case]
    rows = run.of(case)
    assert rows, "the case did not occur"
    for row in rows:
        assert (row["outcome"], row["chunk_tokens"]) == (outcome, tokens), row["error"]
        assert error in row["error"]
        assert row["error"].isprintable()
        assert len(row["error"]) < 500
        assert len(row["chunk_s"]) == (1 if case == "uncounted" else len(tokens))
        assert row["sent_s"] <= row["end_s"] < row["due_s"] + 3


@pytest.mark.parametrize("case", FINE)
def test_what_only_looks_like_a_fault_is_none(run: Run, case: str) -> None:
    rows = run.of(case)
    assert rows, "the case did not occur"
    for row in rows:
        assert (row["outcome"], row["chunk_tokens"]) == ("ok", FINE[case][1]), row["error"]


def test_a_failure_is_not_retried_and_the_user_goes_on_after_a_second(run: Run) -> None:
    for case in ("rate-limited", "reset", "done-only"):
        for row in run.of(case):
            after = [r for r in run.rows if (r["cell"], r["user"]) == (row["cell"], row["user"])]
            later = [r["due_s"] for r in after if r["due_s"] > row["due_s"]]
            assert min(later, default=math.inf) >= row["end_s"] + 0.99


def test_every_failure_counts_and_a_tail_reaches_infinity(run: Run) -> None:
    windows = {
        cell["cell"]: (cell["opened_s"], cell["closed_s"]) for cell in run.verdict["cells"] if cell["arm"] != "baseline"
    }
    due = [r for r in run.rows if r["cell"] in windows and windows[r["cell"]][0] <= r["due_s"] < windows[r["cell"]][1]]
    failed = [row for row in due if row["outcome"] != "ok"]
    assert len(failed) > 10
    (bad,) = [row for row in run.judgement.arm_levels if row.arm == "speculative"]
    (good,) = [row for row in run.judgement.arm_levels if row.arm == "baseline"]
    assert (bad.requests, bad.failed, good.failed) == (len(due), len(failed), 0)
    assert bad.outcomes == Counter(row["outcome"] for row in due)
    for name in ("ttft", "e2e"):
        assert bad.tails[name].p99.value == math.inf
        assert good.tails[name].p99.value is not None
        assert good.tails[name].p99.value < 1
        value = bad.tails[name].p50.value
        assert value is not None
        assert value < 1
    assert run.verdict["arm_levels"][1]["tails"]["e2e"]["p99"]["value"] == "inf"
    ratios = [cell["failed"] / cell["requests"] for cell in run.verdict["cells"] if cell["arm"] == "speculative"]
    assert bad.means["error_ratio"].value == pytest.approx(sum(ratios) / len(ratios))


def test_a_candidate_that_fails_does_not_pass_and_the_report_says_why(run: Run) -> None:
    assert run.code in (3, 4), run.command.text
    assert run.verdict["decision"]["exit_code"] == run.code
    (guard,) = [g for g in run.verdict["decision"]["guards"] if g["name"] == "error_ratio"]
    assert guard["finding"] != "holds"
    headline = run.verdict["decision"]["headline"]
    assert headline in " ".join(run.command.text.split())
    assert "requests failed" in " ".join(mark for cell in run.verdict["cells"] for mark in cell["marks"])
    assert headline.split(",")[0] in (run.folder / "summary.md").read_text().replace("\\", "")
    page = (run.folder / "report.html").read_text()
    assert "Failed requests" in page or "failed" in page
    assert "<script>alert" not in page
    assert json.loads((run.folder / "run.json").read_text())["status"] == "complete"


def refuse(asked: Asked) -> Script:
    return [response("200 OK", b'{"choices":[{"message":{"content":"hi"}}]}')]


BEFORE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "redirect": ({"models": response("302 Found", b"", "text/plain", "location: http://elsewhere.invalid/")},
                 ["redirects to 'http://elsewhere.invalid/'", "Give the final URL"]),
    "loading": ({"models": response("503 Service Unavailable", b"loading")}, ["answers GET /v1/models with HTTP 503"]),
    "no stream": ({"script": refuse}, ["did not answer a first chat request", "not with an event stream"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_what_cannot_work_ends_before_any_load(loadtest: Starter, name: str) -> None:
    given, parts = BEFORE[name]
    server = Faulty(**given)
    try:
        command = loadtest.run("run", _scenario(loadtest), "--out", loadtest.out, "--server", server.url)
    finally:
        server.stop()
    _assert_refused(command, loadtest, parts)
    assert len(server.asked) <= 1


def test_a_certificate_that_nobody_vouches_for_is_refused(loadtest: Starter) -> None:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(TLS / "localhost.pem", TLS / "server.key")
    server = Faulty(tls=made)
    try:
        command = loadtest.run("run", _scenario(loadtest), "--out", loadtest.out, "--server", server.url)
        plain = loadtest.run(
            "run", _scenario(loadtest), "--out", loadtest.out, "--server", server.url.replace("https", "http")
        )
    finally:
        server.stop()
    _assert_refused(command, loadtest, ["CERTIFICATE_VERIFY_FAILED"])
    _assert_refused(plain, loadtest, [" does not answer "])
    assert server.asked == []


def _scenario(loadtest: Starter) -> Path:
    path = loadtest.out.parent / "mine.py"
    path.write_text(SCENARIO.split("CASES")[0] + (
        "class Mine(LLMUser):\n    @task\n    def ask(self):\n"
        "        self.chat([{'role': 'user', 'content': 'hello'}])\n"
    ))  # fmt: skip
    return path


def _assert_refused(command: Command, loadtest: Starter, parts: list[str]) -> None:
    assert command.process.returncode == 2, command.text
    for part in parts:
        assert part in " ".join(command.text.split())
    assert "Traceback" not in command.text
    assert not list(loadtest.out.glob("*")), "a run that measured nothing leaves no folder"
