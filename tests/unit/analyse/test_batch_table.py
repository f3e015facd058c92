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


ALL = ((4.0, 64.0),)  # recommended loads
RUNNING = {4.0: 3.5, 16.0: 15.0, 64.0: 60.0}


def test_it_switches_where_the_speedup_passes_one() -> None:
    found = batch_table(curve({4: 1.4, 16: math.exp(0.1), 64: math.exp(-0.1)}), RUNNING, 3, LABEL, ALL)
    # half-way in log load from 16 to 64 are 32 users, and those are 30 running requests
    assert [(r.start, r.end, r.draft_tokens, r.settled) for r in found.rows] == [
        (1, 3, 0, False), (4, 15, 3, True), (16, 30, 3, False), (31, 59, 0, False), (60, 60, 0, True)
    ]  # fmt: skip
    assert json.loads(found.setting) == {"num_speculative_tokens_per_batch_size": [[1, 3, 0], [4, 30, 3], [31, 60, 0]]}
    assert found.rows[1].evidence.startswith("1.40 [1.37, 1.43] at 4 users (≈ 3.5 running); 1.11 [")
    assert found.rows[0].evidence == ("not measured: the lowest tested load has ≈ 3.5 running; not drafted until it is")
    assert found.rows[2].evidence == "interpolated: nothing was measured between ≈ 15 and 60 running"
    assert "6.6 % higher at 2 and 21.6 % at 189 running requests" in found.warning
    assert found.why_not == ""


def test_a_row_without_proof_is_marked() -> None:
    found = batch_table(curve({4: 1.4, 16: 1.1, 64: 0.99}), RUNNING, 3, LABEL, ALL)
    assert [(r.start, r.end, r.settled) for r in found.rows] == [
        (1, 3, False), (4, 15, True), (16, 52, False), (53, 60, False)
    ]  # fmt: skip
    assert found.rows[-1].evidence == "0.99 [0.97, 1.01] at 64 users (≈ 60 running)"


@pytest.mark.parametrize("half", [0.005, 0.02, 0.06, 0.15])
@pytest.mark.parametrize("top", [3.9, 15.5, 30.57, 61.24])
def test_no_row_is_proven_beyond_what_was_measured(half: float, top: float) -> None:
    """A proven row lies between neighbouring tested loads whose own intervals prove it, within a whole request."""
    levels = (1.0, 4.0, 16.0, 32.0, 64.0)
    running = {level: 0.93 + (top - 0.93) * math.log2(level) / 6 for level in levels}
    for seed in range(40):
        means = 0.15 * np.random.default_rng(seed).standard_normal(len(levels))
        given = curve(dict(zip(levels, np.exp(means), strict=True)), half)
        found = batch_table(given, running, 5, LABEL, ALL)
        if not found.rows:
            continue
        assert [row.start for row in found.rows] == [1, *(row.end + 1 for row in found.rows[:-1])]
        assert found.rows[-1].end == math.floor(max(1.0, top))
        for row in found.rows:
            sign = 1 if row.draft_tokens else -1
            runs = [levels[i:j] for i in range(5) for j in range(i + 1, 6) if all(sign * means[i:j] > half)]
            inside = [run for run in runs if running[run[0]] - 1 < row.start and row.end < running[run[-1]] + 1]
            assert inside or not row.settled


@pytest.mark.parametrize(
    ("ratios", "rows"),
    [
        ({4: 1.4, 16: 1.3, 64: 1.2}, [[1, 3, 0], [4, 60, 5]]),
        ({4: 0.8, 16: 1.25, 64: 0.8}, [[1, 7, 0], [8, 30, 5], [31, 60, 0]]),
    ],
)
def test_forms(ratios: dict[float, float], rows: list[list[int]]) -> None:
    found = batch_table(curve(ratios), RUNNING, 5, LABEL, ALL)
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
        (curve({4: 0.8, 16: 0.8, 64: 0.7}), RUNNING, 3,
         "At no load does the answer recommend speculation where tokens come faster with it."),
    ],
)  # fmt: skip
def test_it_is_not_written(given: Curve | None, running: dict[float, float], k: int | None, why: str) -> None:
    found = batch_table(given, running, k, LABEL, ALL)
    assert (found.rows, found.setting, found.why_not) == ((), "", why)


FASTER = {1.0: 1.7, 8.0: 1.4, 32.0: 1.2}
ONE_UP = {1.0: 0.97, 8.0: 7.8, 32.0: 30.5}


@pytest.mark.parametrize(
    ("recommended", "rows"),
    [
        (((1.0, 1.0),), [[1, 1, 4], [2, 30, 0]]),  # on up to 1 user: tokens come faster up to 32, answers do not
        (((1.0, 23.0),), [[1, 21, 4], [22, 30, 0]]),
        (((8.0, 32.0),), [[1, 7, 0], [8, 30, 4]]),
        (((1.0, 32.0),), [[1, 30, 4]]),
    ],
)
def test_it_is_never_bolder_than_the_recommendation(
    recommended: tuple[tuple[float, float], ...], rows: list[list[int]]
) -> None:
    found = batch_table(curve(FASTER), ONE_UP, 4, LABEL, recommended)
    assert json.loads(found.setting)["num_speculative_tokens_per_batch_size"] == rows
    off = [row for row in found.rows if not row.draft_tokens]
    assert all("; not drafted" in row.evidence and not row.settled for row in off)


def test_without_a_recommended_load_there_is_no_table() -> None:
    found = batch_table(curve(FASTER), ONE_UP, 4, LABEL, ())
    assert (found.setting, found.rows) == ("", ())
    assert found.why_not == "At no load does the answer recommend speculation where tokens come faster with it."
