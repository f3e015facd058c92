"""Every scenario against a real vLLM with and without a draft model: client and servers count the same.

What the runs answer is not tested: the models are tiny, the cells short. One run at a time, on one pair that stays up.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from processes import ROOT, Starter
from vllm_servers import Vllm, assert_counted_alike, up

CONTEXT = 8192  # of the tiny models; the longest prompts, of `agent` and `trace`, fit
DRAFTED = 4
NAMES = sorted(path.stem for path in (ROOT / "scenarios").glob("*.py"))
LOG = logging.getLogger(__name__)
RATE = "0.5"  # requests/s of the open load

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pair(vllm_python: Path, tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vllm, ...]]:
    """The target without and with its drafter, both up."""
    folder, target = tmp_path_factory.mktemp("pair"), tiny_models / "target"
    draft = {"method": "draft_model", "model": str(tiny_models / "drafter"), "num_speculative_tokens": DRAFTED}
    with up(
        Vllm(vllm_python, target, folder / "baseline.log", context=CONTEXT),
        Vllm(vllm_python, target, folder / "draft.log", draft, context=CONTEXT),
    ) as both:
        yield both


def _short(name: str) -> list[str]:
    """Return what makes one short cell of each arm of a scenario."""
    words = ["--window", "12s", "--blocks", "1", "--set", "load.think_time=0", "--set", "generation.max_tokens=32",
             "--set", "window.warmup_requests=1", "--set", "servers.token_counts=all", "--set",
              "outputs.prompts=0"]  # fmt: skip
    if name == "trace":  # two cores keep up with this; lengths are characters ÷ 4, and these models' tokens are shorter
        return [*words, "--rates", RATE, "--set", "trace.max_input_tokens=600"]
    return [*words, "--levels", "3"]


@pytest.mark.parametrize("name", NAMES)
def test_client_and_servers_count_the_same(loadtest: Starter, pair: tuple[Vllm, ...], name: str) -> None:
    command = loadtest.run("run", ROOT / "scenarios" / f"{name}.py", "--out", loadtest.out, *_short(name), "--baseline",
                           pair[0].url, "--speculative", pair[1].url, timeout_s=600)  # fmt: skip
    assert command.process.returncode in (0, 3, 4, 5), command.text
    run = json.loads((command.folder / "run.json").read_text())
    assert run["status"] == "complete", run["reason"]
    verdict: dict[str, Any] = json.loads((command.folder / "verdict.json").read_text())
    assert sorted(cell["arm"] for cell in verdict["cells"]) == ["baseline", "speculative"]
    assert_counted_alike(verdict)
    for cell in verdict["cells"]:  # a busy machine may spoil a cell; then its first mark says how
        said = "valid" if cell["valid"] else "invalid"
        LOG.info("%s, %s: %s, %d requests due; %s", name, cell["arm"], said, cell["requests"], cell["marks"])
        assert cell["valid"] or cell["marks"][0], cell
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}, [row["error"] for row in rows if row["outcome"] != "ok"][:3]
    assert {row["tokens_source"] for row in rows} == {"usage"}
    assert all(sum(row["chunk_tokens"]) == row["output_tokens"] for row in rows)
    counted = {arm: [row for row in rows if row["arm"] == arm] for arm in ("baseline", "speculative")}
    for cell in verdict["cells"]:  # the records themselves, not only what the judgement made of them
        own = counted[cell["arm"]]
        assert sum(row["output_tokens"] for row in own) == cell["tokens_server"]
        assert len(own) == cell["requests_server"]
    _assert_asked_alike(rows)
    assert max(max(row["chunk_tokens"]) for row in counted["speculative"]) > 1
    assert run["arms"][1]["speculative"] == {"method": "draft_model", "num_speculative_tokens": DRAFTED}
    assert not [row for row in run["comparability"] if row["kind"] == "violation"]


def _assert_asked_alike(rows: list[dict[str, Any]]) -> None:
    """Fail unless every request that both arms got was the same, and of as many tokens for both servers."""
    asked: dict[tuple[int, int], dict[str, tuple[str, int]]] = {}
    for row in rows:
        asked.setdefault((row["session"], row["turn"]), {})[row["arm"]] = (row["body_hash"], row["prompt_tokens"])
    twins = [both for both in asked.values() if len(both) == 2]
    assert len(twins) >= 3
    assert all(len(set(both.values())) == 1 for both in twins)
