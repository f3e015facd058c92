"""Prompts and answers of slow requests are kept and shown where a run was told so, and nowhere else."""

from __future__ import annotations

import html
import json
import stat
from pathlib import Path

import pytest
from processes import CHAT, Starter

pytestmark = pytest.mark.e2e


def short(loadtest: Starter, *more: str) -> Path:
    """Run one short cell of one simulated server and return the run's folder."""
    command = loadtest.run(
        "run", CHAT, "--out", loadtest.out, "--simulated", "--arms", "baseline", "--levels", "4", "--window", "2s",
        "--blocks", "1", "--set", "generation.max_tokens=16", "--set", "load.think_time=0", "--set",
        "window.warmup_requests=1", *more,
    )  # fmt: skip
    assert command.process.returncode in (0, 4, 5), command.text
    return command.folder


def test_a_run_keeps_the_text_of_its_slowest_requests_where_it_was_told_so(loadtest: Starter, tmp_path: Path) -> None:
    folder = short(loadtest, "--keep-text")
    texts = [json.loads(line) for line in (folder / "texts.jsonl").read_text().splitlines()]
    assert all(row["prompt"] and row["answer"] for row in texts)
    verdict = (folder / "verdict.json").read_text()
    slow = {(row["cell"], row["session"], row["turn"]) for row in json.loads(verdict)["detail"]["slowest"]}
    assert slow
    assert slow <= {(row["cell"], row["session"], row["turn"]) for row in texts}
    page = (folder / "report.html").read_text()
    for row in texts:
        if (row["cell"], row["session"], row["turn"]) in slow:
            assert html.escape(row["answer"], quote=False).replace("'", "&#39;").replace('"', "&#34;") in page
        for name in ("verdict.json", "summary.md", "junit.xml", "run.json", "cells.jsonl", "server.jsonl"):
            assert row["answer"] not in (folder / name).read_text(), name
        assert row["answer"].encode() not in (folder / "requests.parquet").read_bytes()
    for name in ("texts.jsonl", "report.html"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert loadtest.run("report", folder).process.returncode in (0, 4, 5)
    assert (folder / "report.html").read_text() == page
