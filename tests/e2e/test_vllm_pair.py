"""A real vLLM, its CPU build with tiny models: what the records say and what its own counters say are the same.

VLLM_CPU_PYTHON names the python of an environment made by scripts/vllm-cpu-env. Where there is none the tests are
skipped; with LOADTEST_REQUIRE_VLLM set, as in CI, they fail instead.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import CHAT, ROOT, free_port

HOW = "build the environment with scripts/vllm-cpu-env DIR and set VLLM_CPU_PYTHON=DIR/bin/python"
READY_S = 240.0
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
PROMPTS = Path(__file__).parents[1] / "data" / "prompts" / "turns.jsonl"

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python() -> Path:
    """The python of the CPU build."""
    named = os.environ.get("VLLM_CPU_PYTHON", "")
    if not named:
        (pytest.fail if os.environ.get("LOADTEST_REQUIRE_VLLM") else pytest.skip)(f"no vLLM here: {HOW}")
    return Path(named)


@pytest.fixture(scope="module")
def models(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three tiny models."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([python, ROOT / "scripts" / "tiny-models", folder], check=True, capture_output=True, timeout=200)
    return folder


class Vllm:
    """One server in a process group of its own."""

    def __init__(self, python: Path, model: Path, log: Path, speculative: dict | None = None) -> None:
        self.port, self.log = free_port(), log
        words = ["--model", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(self.port),
                 "--max-model-len", "4096", "--enforce-eager", "--generation-config", "vllm"]  # fmt: skip
        if speculative:
            words += ["--speculative-config", json.dumps(speculative)]
        environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1"}
        with log.open("wb") as out:
            self.process = subprocess.Popen([python.parents[1] / "serve", *words], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, start_new_session=True, env=environment)  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                tail = self.log.read_text(errors="replace")[-2000:]
                assert self.process.poll() is None, f"vLLM ended: {tail}"
                assert time.monotonic() < deadline, f"vLLM is not ready after {READY_S} s: {tail}"
                time.sleep(0.5)

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                continue


@pytest.fixture(scope="module")
def pair(python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vllm, Vllm]]:
    """A baseline and an n-gram server of the smallest model, both up."""
    folder = tmp_path_factory.mktemp("pair")
    both = (
        Vllm(python, models / "toy", folder / "baseline.log"),
        Vllm(python, models / "toy", folder / "ngram.log", NGRAM),
    )
    try:
        for server in both:
            server.wait()
        yield both
    finally:
        for server in both:
            server.stop()


SHORT = ("--window", "5s", "--blocks", "2", "--set", "load.think_time=0", "--set", "generation.max_tokens=48", "--set",
         "servers.token_counts=all")  # fmt: skip


def _assert_counted_alike(verdict: dict) -> None:
    assert verdict["cells"]
    for cell in verdict["cells"]:
        assert cell["tokens_client"] == cell["tokens_server"] > 0, cell
        assert cell["requests_client"] == cell["requests_server"] > 0, cell


def _verdict(folder: Path) -> dict:
    return json.loads((folder / "verdict.json").read_text())


def test_an_ngram_pair_end_to_end(loadtest, pair):
    baseline, ngram = pair
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "1,4", *SHORT, "--baseline", baseline.url,
                           "--speculative", ngram.url, timeout_s=300)  # fmt: skip
    assert command.process.returncode in (0, 3, 4, 5), command.text
    run = json.loads((command.folder / "run.json").read_text())
    assert run["status"] == "complete", run["reason"]
    verdict = _verdict(command.folder)
    assert len(verdict["cells"]) == 8
    _assert_counted_alike(verdict)
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}
    assert {row["tokens_source"] for row in rows} == {"usage"}
    assert all(sum(row["chunk_tokens"]) == row["output_tokens"] for row in rows)
    speculated = [row for row in rows if row["arm"] == "speculative"]
    assert max(max(row["chunk_tokens"]) for row in speculated) > 1
    assert run["arms"][1]["speculative"]["method"] == "ngram"
    assert not [row for row in run["comparability"] if row["kind"] == "violation"]
    for why in verdict["why"]:
        assert why["tau_all_baseline"] == 1.0
        assert why["tau_all"] > 1.0
        assert len(why["survival"]) == 4


@pytest.mark.nightly
def test_prompts_of_a_file_reach_a_real_server(loadtest, pair):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "2", *SHORT, "--server", pair[1].url,
                           "--prompts", PROMPTS, "--window", "3s", "--set", "servers.token_counts=measure",
                           timeout_s=200)  # fmt: skip
    assert command.process.returncode == 0, command.text
    _assert_counted_alike(_verdict(command.folder))
    asking = json.loads((command.folder / "run.json").read_text())["asking"]
    assert asking["measured"], asking["why"]
    assert asking["way"] == "continuous"
    assert -0.5 < asking["cost_ratio"] < 0.5  # on two busy cores: that it is measured at all


def test_speculation_on_the_wrong_side_is_refused(loadtest, pair):
    command = loadtest.run(
        "run", CHAT, "--out", loadtest.out, *SHORT, "--baseline", pair[1].url, "--speculative", pair[0].url
    )
    assert command.process.returncode == 5, command.text
    assert "speculation: baseline on (ngram, k = 4), candidate off" in command.text


def test_a_draft_model_drafts_and_every_token_is_counted(loadtest, python, models, tmp_path):
    draft = {"method": "draft_model", "model": str(models / "drafter"), "num_speculative_tokens": 4}
    server = Vllm(python, models / "target", tmp_path / "draft.log", draft)
    try:
        server.wait()
        command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "2", *SHORT, "--server", server.url,
                               timeout_s=300)  # fmt: skip
    finally:
        server.stop()
    assert command.process.returncode == 0, command.text
    _assert_counted_alike(_verdict(command.folder))
    run = json.loads((command.folder / "run.json").read_text())
    assert run["arms"][0]["speculative"] == {"method": "draft_model", "num_speculative_tokens": 4}
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    later = [tokens for row in rows for tokens in row["chunk_tokens"][1:]]
    assert sum(later) / len(later) > 2  # the drafter computes what the target does
