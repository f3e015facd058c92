"""The table for vLLM: its form, where it switches, and when it is not written."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from loadtest.analyse.batch_table import batch_table
from loadtest.analyse.compare import Curve

LABEL = "time per output token"


def curve(ratios: dict[float, float], half: float = 0.02) -> Curve:
    return Curve(levels=np.array(list(ratios)), mean=np.log(list(ratios.values())), half=np.full(len(ratios), half),
                 samples=tuple(np.zeros(3) for _ in ratios))  # fmt: skip


RUNNING = {4.0: 3.5, 16.0: 15.0, 64.0: 60.0}


def test_it_switches_where_the_speedup_passes_one() -> None:
    found = batch_table(curve({4: 1.4, 16: math.exp(0.1), 64: math.exp(-0.1)}), RUNNING, 3, LABEL)
    # half-way in log load from 16 to 64 are 32 users, and those are 30 running requests
    assert [(r.start, r.end, r.draft_tokens, r.settled) for r in found.rows] == [(1, 30, 3, True), (31, 60, 0, True)]
    assert json.loads(found.setting) == {"num_speculative_tokens_per_batch_size": [[1, 30, 3], [31, 60, 0]]}
    assert found.rows[0].evidence.startswith("1.40 [1.37, 1.43] at 4 users (≈ 3.5 running); 1.11 [")
    assert "6.6 % higher at 2 and 21.6 % at 189 running requests" in found.warning
    assert found.why_not == ""


def test_a_row_without_proof_is_marked() -> None:
    found = batch_table(curve({4: 1.4, 16: 1.1, 64: 0.99}), RUNNING, 3, LABEL)
    assert [row.settled for row in found.rows] == [True, False]


@pytest.mark.parametrize(
    ("ratios", "rows"),
    [
        ({4: 1.4, 16: 1.3, 64: 1.2}, [[1, 60, 5]]),
        ({4: 0.8, 16: 0.8, 64: 0.7}, [[1, 60, 0]]),
        ({4: 0.8, 16: 1.25, 64: 0.8}, [[1, 7, 0], [8, 30, 5], [31, 60, 0]]),
    ],
)
def test_forms(ratios: dict[float, float], rows: list[list[int]]) -> None:
    found = batch_table(curve(ratios), RUNNING, 5, LABEL)
    setting = json.loads(found.setting)["num_speculative_tokens_per_batch_size"]
    assert setting == rows


@pytest.mark.parametrize(
    ("given", "running", "k", "why"),
    [
        (curve({4: 1.4, 16: 1.1}), RUNNING, None, "It is not known how many tokens the server drafts."),
        (None, RUNNING, 3, "There is no speed-up by time per output token."),
        (curve({}), RUNNING, 3, "There is no speed-up by time per output token."),
        (curve({4: 1.4, 16: 1.1}), {4.0: 3.5}, 3, "The running requests are not known at 16 users."),
        (curve({4: 1.4, 16: 1.1}), {4.0: 8.0, 16.0: 8.0}, 3,
         "The running requests do not rise with the load: a limit of the server binds."),
        (curve({4: 1.01, 16: 0.99}), RUNNING, 3,
         "At no tested load is the speed-up by time per output token told from 1."),
    ],
)  # fmt: skip
def test_it_is_not_written(given: Curve | None, running: dict[float, float], k: int | None, why: str) -> None:
    found = batch_table(given, running, k, LABEL)
    assert (found.rows, found.setting, found.why_not) == ((), "", why)
