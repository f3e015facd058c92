"""Every scenario against one simulated pair, the one of the guide, and what of Locust is honoured in a run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from processes import ROOT, Command, Server, Starter, assert_asked_alike

pytestmark = pytest.mark.e2e
ENDED = (0, 3, 4, 5)  # what one short block says is not tested here, nor whether this machine was quiet enough for it
GUIDE = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
CATEGORIES = {
    "agent": {"coding", "office", "support"},
    "chat": {"code", "extraction", "maths", "planning", "reasoning", "small_talk", "summary", "translation", "writing"},
    "code": {"complete", "explain", "write"},
    "edit": {"code_edit", "text_edit"},
    "mix": {"chat", "code", "edit", "summarize", "rag", "reasoning"},
    "rag": {"handbook", "policy", "software"},
    "reasoning": {"design", "logic", "maths"},
    "summarize": {"gutachten", "meeting", "report", "thread"},
    "trace": {"chat", "code"},
}
LOADS = {"trace": ("--rates", "12")}  # requests/s of the open load; the others have users


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """One simulated pair for all tests of this module; every cell has a cache salt of its own."""
    started = []
    for arm in ("baseline", "speculative"):
        command = [sys.executable, "-m", "loadtest.simulate", "--arm", arm, "--port", "0", "--watch-stdin"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        started.append(Server(process, f"http://127.0.0.1:{ready['port']}", ready["model"]))
    yield started[0], started[1]
    for server in started:
        server.stop()


def short(loadtest: Starter, pair: tuple[Server, Server], scenario: Path, *more: str) -> Command:
    """Run one short cell of each arm."""
    return loadtest.run(
        "run", scenario, "--out", loadtest.out, "--baseline", pair[0].url, "--speculative", pair[1].url,
        *LOADS.get(scenario.stem, ("--levels", "6")), "--window", "2s", "--blocks", "1", "--set", "load.think_time=0",
        "--set", "generation.max_tokens=16", "--set", "window.warmup_requests=1", "--set", "outputs.prompts=0", *more,
    )  # fmt: skip


def rows_of(command: Command) -> list[dict[str, Any]]:
    """Return the requests of a run that ended well, and check that both arms were asked the same."""
    assert command.process.returncode in ENDED, command.text
    assert json.loads((command.folder / "run.json").read_text())["status"] == "complete", command.text
    rows: list[dict[str, Any]] = pq.read_table(command.folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}
    assert not (command.folder / "texts.jsonl").exists(), "text is kept only where that is asked for"
    assert_asked_alike(rows, more_than=10)
    return rows


def cached_ratios(command: Command) -> list[float]:
    """Return, for each cell, the share of its prompts' tokens that the server found in its prefix cache."""
    values: dict[tuple[int, str], dict[str, float]] = {}
    for line in (command.folder / "server.jsonl").read_text().splitlines():
        scrape = json.loads(line)
        values[scrape["cell"], scrape["moment"]] = scrape["values"]
    ratios = []
    for cell in (0, 1):
        before, after = values[cell, "idle_before"], values[cell, "idle_after"]
        hits, asked = (after[f"vllm:prefix_cache_{name}_total"] - before[f"vllm:prefix_cache_{name}_total"]
                       for name in ("hits", "queries"))  # fmt: skip
        ratios.append(hits / asked)
    return ratios


def test_no_scenario_is_left_out() -> None:
    assert set(CATEGORIES) == {path.stem for path in (ROOT / "scenarios").glob("*.py")}


@pytest.mark.parametrize(
    "name",
    [name if name == "mix" else pytest.param(name, marks=pytest.mark.nightly) for name in sorted(CATEGORIES)],
)
def test_every_scenario_runs_against_the_pair(loadtest: Starter, pair: tuple[Server, Server], name: str) -> None:
    command = short(loadtest, pair, ROOT / "scenarios" / f"{name}.py")
    rows = rows_of(command)
    met = {row["category"] for row in rows}
    assert met <= CATEGORIES[name]
    assert len(met) >= min(3, len(CATEGORIES[name]))
    texts = {(row["session"], row["turn"]): row["body_hash"] for row in rows}
    assert len(set(texts.values())) == len(texts), "no two requests of a cell ask the same"
    if name == "summarize":
        assert min(row["prompt_tokens"] for row in rows) > 1000
    if name == "agent":
        grown = [row["prompt_tokens"] for row in rows if row["turn"] >= 4]
        assert grown
        assert min(grown) > max(row["prompt_tokens"] for row in rows if row["turn"] == 0)
    if name == "rag":  # sessions find the passages that others sent before
        assert min(cached_ratios(command)) > 0.5
    if name in ("summarize", "reasoning", "edit"):  # single requests, no two of which begin alike
        assert max(cached_ratios(command)) < 0.1


@pytest.mark.nightly
def test_the_guides_scenario_runs_as_it_stands(loadtest: Starter, pair: tuple[Server, Server], tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 16
    scenario = tmp_path / "support.py"
    scenario.write_text(code)
    rows = rows_of(short(loadtest, pair, scenario))
    counts = {name: sum(row["category"] == name for row in rows) for name in ("where", "letter")}
    assert sum(counts.values()) == len(rows)
    assert counts["where"] > 1.5 * counts["letter"] > 0
    only = short(Starter(tmp_path / "letters"), pair, scenario, "--set", 'load.tags=["letters"]')
    assert {row["category"] for row in rows_of(only)} == {"letter"}


LOCUST = """
from locust import between
from loadtest.scenario import LLMUser, task

class Mine(LLMUser):
    wait_time = between(0.2, 0.4)

    def on_start(self):
        self.city = self.rng("city").choice(["Aarhus", "Bari", "Cork", "Delft"])
        self.count = 0

    @task
    def ask(self):
        self.count += 1
        text = f"Tell me about {self.city}, part {self.count} of {self.rng().randrange(10**9)}."
        self.chat([{"role": "user", "content": text}], category=self.city)
"""


@pytest.mark.nightly
def test_on_start_and_wait_time(loadtest: Starter, pair: tuple[Server, Server], tmp_path: Path) -> None:
    scenario = tmp_path / "ordinary.py"
    scenario.write_text(LOCUST)
    rows = rows_of(short(loadtest, pair, scenario, "--set", "load.think_time=1"))
    for user in {row["user"] for row in rows}:
        assert len({row["category"] for row in rows if row["user"] == user}) == 1
        own = sorted((row["due_s"], row["end_s"]) for row in rows if row["user"] == user and row["arm"] == "baseline")
        pauses = [later[0] - earlier[1] for earlier, later in pairwise(own)]
        assert all(0.2 - 1e-6 <= pause <= 0.4 + 1e-6 for pause in pauses), pauses  # planned, so exact
        assert max(pauses) - min(pauses) > 0.001


UNLIKE = """
import random
from loadtest.scenario import LLMUser, task

class Unlike(LLMUser):
    @task
    def ask(self):
        self.chat([{"role": "user", "content": "What do you know about Oslo?"}], category="fixed")
        number = random.randrange(10**9)
        self.chat([{"role": "user", "content": f"What do you know about the number {number}?"}], category="drawn")
"""


@pytest.mark.nightly
def test_a_scenario_that_draws_by_itself_is_stopped_in_its_first_block(
    loadtest: Starter, pair: tuple[Server, Server], tmp_path: Path
) -> None:
    scenario = tmp_path / "unlike.py"
    scenario.write_text(UNLIKE)
    command = short(loadtest, pair, scenario, "--blocks", "4")
    assert command.process.returncode == 2, command.text
    said = " ".join(command.text.split())
    assert re.search(r"did not ask both servers the same: session \d, turn 2 \(`drawn`\), at 6 users in block 1", said)
    assert "Draw all that is sent from self.rng()" in said
    cells = (command.folder / "cells.jsonl").read_text().splitlines()
    assert len(cells) == 1, "the second cell of the first block is not finished"
