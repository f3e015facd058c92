"""What asking for token counts costs is measured before the plan, and a price above the limit is paid by a sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from faulty import Asked, Faulty, Script, answer
from processes import Starter

pytestmark = pytest.mark.e2e
TOKENS, GAP_S, DEARER_S = 20, 0.004, 0.006
SCENARIO = """
from loadtest.scenario import LLMUser, task

class Mine(LLMUser):
    @task
    def ask(self):
        self.chat([{"role": "user", "content": f"say {self.rng().random()}"}])
"""


def charges(asked: Asked) -> Script:
    """Answer 20 tokens, each 4 ms after the last; 6 ms where the request asks for counts."""
    return answer(TOKENS, DEARER_S if asked.counts else GAP_S, counted=asked.counts)


@pytest.mark.nightly
def test_a_price_above_the_limit_is_measured_and_paid_by_a_sample_alike_in_both_arms(
    loadtest: Starter, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SCENARIO)
    arms = {"baseline": Faulty(charges), "speculative": Faulty(charges)}
    try:
        command = loadtest.run(
            "run", tmp_path / "mine.py", "--out", loadtest.out, "--baseline", arms["baseline"].url, "--speculative",
            arms["speculative"].url, "--levels", "6", "--window", "0.5s", "--blocks", "2", "--set", "load.think_time=0",
            "--set", "window.warmup_requests=1", "--set", "generation.max_tokens=20",
        )  # fmt: skip
    finally:
        for server in arms.values():
            server.stop()
    assert command.process.returncode in (0, 3, 4), command.text
    run = json.loads((command.folder / "run.json").read_text())
    asking = run["asking"]
    assert asking["measured"] is True
    assert (asking["arm"], asking["level"], asking["way"], len(asking["pairs"])) == ("baseline", 6.0, "continuous", 4)
    # The true price is 50 % (6 ms for 4 ms); a sleep takes about 0.1 ms longer than asked, on a busy machine more.
    assert 0.25 < asking["cost_ratio"] < 0.6
    assert asking["cost_low"] < asking["cost_ratio"] < asking["cost_high"]
    assert asking["asked_ratio"] == 0.1
    rows: list[dict[str, Any]] = pq.read_table(command.folder / "requests.parquet").to_pylist()
    asked: dict[tuple[Any, ...], set[str]] = {}
    for row in rows:
        asked.setdefault((row["block"], row["session"], row["turn"]), set()).add(row["asked"])
        counted = row["asked"] == "continuous"
        assert row["tokens_source"] == ("usage" if counted else "none")
        assert row["chunk_tokens"] == ([1] * TOKENS if counted else [])
        assert row["output_tokens"] == TOKENS
    assert all(len(found) == 1 for found in asked.values())
    share = sum(row["asked"] == "continuous" for row in rows) / len(rows)
    assert 0.03 < share < 0.25
    for server in arms.values():
        own = [request for request in server.asked if b"say 0." in request.body]
        assert 0 < sum(request.counts for request in own) < len(own)
    said = " ".join((command.folder / "summary.md").read_text().replace("\\", "").split())
    assert "Asking for the tokens of each chunk changes the time per token by +" in said
    assert "10 % of the requests asked, the same in both arms" in said
    assert "10 % of the requests asked" in " ".join((command.folder / "report.html").read_text().split())
    assert "The client's floor (its own error, against its null server at 6 users): 99 % of requests" in said
    verdict = json.loads((command.folder / "verdict.json").read_text())
    for level in verdict["arm_levels"]:
        cells = [cell for cell in verdict["cells"] if cell["arm"] == level["arm"]]
        rate = level["means"]["output_tokens_per_s"]["value"]
        assert rate == pytest.approx(level["means"]["requests_per_s"]["value"] * TOKENS, rel=0.15)
        assert level["means"]["token_gap"]["value"] > GAP_S
        assert all(cell["requests"] > 10 for cell in cells)
