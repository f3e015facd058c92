"""Whole runs that end early: every request fails, the disk is full, the run is told to end. They run side by side."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from faulty import Faulty, by_case, response
from processes import Command, Starter, assert_nothing_left

pytestmark = pytest.mark.e2e
OOM = b'{"error":{"message":"CUDA out of memory"}}'
SCENARIO = """
from loadtest.scenario import LLMUser, task

class Mine(LLMUser):
    @task
    def ask(self):
        self.chat([{"role": "user", "content": f"[load] {self.rng().random()}"}])
"""
SET = ("load.think_time=0", "servers.token_counts=all", "generation.max_tokens=4")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Command]]:
    """The runs, once all have ended."""
    folder = tmp_path_factory.mktemp("ends")
    (folder / "mine.py").write_text(SCENARIO)
    good = Faulty()
    # It answers the first requests of the run, so that only the load finds out that it fails.
    failing = Faulty(by_case({"load": [response("500 Internal Server Error", OOM)]}))
    starters = {name: Starter(folder / name) for name in ("failing", "full", "told")}

    def words(name: str, server: Faulty, *more: object) -> list[object]:
        settings = [word for setting in SET for word in ("--set", setting)]
        return [
            "run",
            folder / "mine.py",
            "--out",
            folder / name,
            "--server",
            server.url,
            "--levels",
            "4",
            *settings,
            *more,
        ]

    try:
        runs = {
            "failing": starters["failing"](*words("failing", failing, "--window", "20s", "--blocks", "1")),
            # A limit on the size of a file fails a write as a full disk does, here in the middle of a run.
            "full": starters["full"].under("ulimit -f 64", *words("full", good, "--window", "30s", "--blocks", "1")),
            "told": starters["told"](*words("told", good, "--window", "1s", "--blocks", "50")),
        }
        runs["told"].until_requests()
        runs["told"].process.send_signal(signal.SIGTERM)
        for run in runs.values():
            run.wait()
        yield runs
        for run in runs.values():
            assert_nothing_left(run)
    finally:
        good.stop()
        failing.stop()


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def _rows(run: Command) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run.folder / "requests.parquet").to_pylist()
    return rows


def test_a_server_that_fails_every_request_is_invalid_and_said_to(ended: dict[str, Command]) -> None:
    run = ended["failing"]
    assert run.process.returncode == 5, run.text
    verdict, rows = _json(run.folder / "verdict.json"), _rows(run)
    assert verdict["decision"]["answer"] == "invalid"
    assert f"All {len(rows)} requests to the server failed: HTTP 500." in verdict["decision"]["headline"]
    assert verdict["decision"]["headline"] in " ".join(run.text.split())
    assert {row["error"] for row in rows} == {"HTTP 500: CUDA out of memory"}
    assert 10 <= len(rows) < 40, "a cell without a success is given up"
    assert "requests in a row failed" in verdict["cells"][0]["marks"][0]
    assert (run.folder / "report.html").exists()
    assert "HTTP 500" in (run.folder / "summary.md").read_text()


def test_a_full_disk_ends_the_run_with_a_sentence_and_no_page(ended: dict[str, Command], loadtest: Starter) -> None:
    run = ended["full"]
    assert run.process.returncode == 5, run.text
    assert "cannot be written" in run.text
    assert "Traceback" not in run.text
    assert "The scenario raised" not in run.text
    assert not (run.folder / "report.html").exists()
    header = _json(run.folder / "run.json")
    assert header["status"] == "aborted"
    assert "File too large" in header["reason"]
    assert _rows(run), "what was measured before can be read"
    assert {row["outcome"] for row in _rows(run)} <= {"ok", "cancelled"}
    report = loadtest.run("report", run.folder)
    assert report.process.returncode == 5, report.text
    assert "was aborted" in report.text


def test_sigterm_ends_a_run_as_an_interrupt_does(ended: dict[str, Command]) -> None:
    run = ended["told"]
    assert run.process.returncode == 130, run.text
    assert _json(run.folder / "run.json")["status"] == "interrupted"
    assert "INTERRUPTED" in (run.folder / "report.html").read_text().upper()
    assert _rows(run)
