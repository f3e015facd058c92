"""A real vLLM, its CPU build with tiny models: what the records say and what its own counters say are the same.

VLLM_CPU_PYTHON names the python of an environment made by scripts/vllm-cpu-env. Where there is none the tests are
skipped; with LOADTEST_REQUIRE_VLLM set, as in CI, they fail instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import CHAT
from vllm_servers import SHORT, Vllm, assert_counted_alike, up

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
PROMPTS = Path(__file__).parents[1] / "data" / "prompts" / "turns.jsonl"

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pair(vllm_python: Path, tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vllm, ...]]:
    """A baseline and an n-gram server of the smallest model, both up."""
    folder = tmp_path_factory.mktemp("pair")
    with up(
        Vllm(vllm_python, tiny_models / "toy", folder / "baseline.log"),
        Vllm(vllm_python, tiny_models / "toy", folder / "ngram.log", NGRAM),
    ) as both:
        yield both


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
    assert_counted_alike(verdict)
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}
    assert {row["tokens_source"] for row in rows} == {"usage"}
    assert all(sum(row["chunk_tokens"]) == row["output_tokens"] for row in rows)
    speculated = [row for row in rows if row["arm"] == "speculative"]
    assert max(max(row["chunk_tokens"]) for row in speculated) > 1
    assert run["arms"][1]["speculative"]["method"] == "ngram"
    assert not [row for row in run["comparability"] if row["kind"] == "violation"]
    for why in verdict["why"]:
        # A reading at a window's edge may fall between the counters of one step, of 4 requests at most: 2 windows of
        # some thousand tokens have 4 edges.
        assert why["tau_all_baseline"] == pytest.approx(1.0, abs=0.01)
        assert why["tau_all"] > 1.0
        assert len(why["survival"]) == 4


@pytest.mark.nightly
def test_prompts_of_a_file_reach_a_real_server(loadtest, pair):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "2", *SHORT, "--server", pair[1].url,
                           "--prompts", PROMPTS, "--window", "3s", "--set", "servers.token_counts=measure",
                           timeout_s=200)  # fmt: skip
    assert command.process.returncode == 0, command.text
    assert_counted_alike(_verdict(command.folder))
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


def test_a_draft_model_drafts_and_every_token_is_counted(loadtest, vllm_python, tiny_models, tmp_path):
    draft = {"method": "draft_model", "model": str(tiny_models / "drafter"), "num_speculative_tokens": 4}
    with up(Vllm(vllm_python, tiny_models / "target", tmp_path / "draft.log", draft)) as (server,):
        command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "2", *SHORT, "--server", server.url,
                               timeout_s=300)  # fmt: skip
    assert command.process.returncode == 0, command.text
    assert_counted_alike(_verdict(command.folder))
    run = json.loads((command.folder / "run.json").read_text())
    assert run["arms"][0]["speculative"] == {"method": "draft_model", "num_speculative_tokens": 4}
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    later = [tokens for row in rows for tokens in row["chunk_tokens"][1:]]
    assert sum(later) / len(later) > 2  # the drafter computes what the target does
