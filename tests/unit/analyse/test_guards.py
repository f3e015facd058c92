"""Guards: broken only when proven, and never without data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_run import BASE, SPEC

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.guards import by_arm_level, guards
from loadtest.analyse.results import ArmLevel, Finding, Guard, Tail
from loadtest.settings import Decision

BLOCKS = 4


def row(arm: str, tail: Estimate) -> ArmLevel:
    known = Tail(metric="ttft", p50=tail, p90=tail)
    return ArmLevel(arm=arm, level=8.0, requests=100, failed=0, tails={"ttft": known})


TAIL = Estimate(value=0.2, low=0.18, high=0.22)


def judged(
    base: dict[str, list[float]], spec: dict[str, list[float]], tail: Estimate = TAIL, **rules: Any
) -> dict[str, Guard]:
    figures: dict[tuple[str, float, int], dict[str, float]] = {}
    plain = {
        "ttft_p50": [0.1] * BLOCKS,
        "ttft_p90": [0.2] * BLOCKS,
        "on_time": [0.99] * BLOCKS,
        "error_ratio": [0.0] * BLOCKS,
    }
    for arm, given in ((BASE, base), (SPEC, spec)):
        for name, values in {**plain, **given}.items():
            for block, v in enumerate(values):
                figures.setdefault((arm, 8.0, block), {})[name] = v
    rows = by_arm_level([row(BASE, tail), row(SPEC, tail)])
    return {g.name: g for g in guards(figures, rows, BASE, SPEC, [8.0], Decision(**rules))}


def test_equal_arms_hold() -> None:
    assert {g.finding for g in judged({}, {}).values()} == {Finding.HOLDS}


@pytest.mark.parametrize(
    ("tails", "finding"),
    [
        ([0.230, 0.232, 0.228, 0.231], Finding.BROKEN),
        ([0.19, 0.26, 0.21, 0.27], Finding.UNPROVEN),
        ([0.205, 0.204, 0.206, 0.205], Finding.HOLDS),
    ],
)
def test_the_tail_of_the_first_token(tails: list[float], finding: Finding) -> None:
    found = judged({}, {"ttft_p90": tails})["ttft"]
    assert (found.finding, found.statistic) == (finding, "p90")
    if finding is Finding.BROKEN:
        assert found.sentence == "first tokens are 15 % later (p90)"


def test_a_tail_too_short_to_matter_is_never_held_against_the_candidate() -> None:
    worse = {"ttft_p90": [0.4, 0.41, 0.4, 0.41]}
    assert judged({}, worse)["ttft"].finding is Finding.BROKEN
    assert judged({}, worse, ttft_ignore_below_s=0.17)["ttft"].finding is Finding.BROKEN
    assert judged({}, worse, ttft_ignore_below_s=0.2)["ttft"].finding is Finding.UNPROVEN
    assert judged({}, worse, ttft_ignore_below_s=0.3)["ttft"].finding is Finding.HOLDS


def test_a_guard_that_the_absolute_rule_decides_says_so() -> None:
    worse, plain = {"ttft_p90": [0.4, 0.41, 0.4, 0.41]}, "first tokens are 102 % later (p90)"
    rule = "within {} ms, which is never held against the candidate"
    assert judged({}, worse, ttft_ignore_below_s=0.17)["ttft"].sentence == plain
    assert judged({}, worse, ttft_ignore_below_s=0.2)["ttft"].sentence == f"{plain}, but perhaps {rule.format(200)}"
    assert judged({}, worse, ttft_ignore_below_s=0.3)["ttft"].sentence == f"{plain}, but {rule.format(300)}"
    assert "never held" not in judged({}, {}, ttft_ignore_below_s=0.3)["ttft"].sentence  # it holds by its ratio


def test_no_bound_no_guard() -> None:
    found = judged({}, {}, tail=Estimate(value=0.2))["ttft"]
    assert found.finding is Finding.NO_DATA
    assert found.sentence == (
        "there are too few requests to bound any percentile of the time to first token: its median needs 6 in each arm"
    )


def test_a_tail_that_failures_reach() -> None:
    assert judged({}, {"ttft_p90": [math.inf] * BLOCKS})["ttft"].finding is Finding.BROKEN
    assert judged({}, {"ttft_p90": [0.2, math.inf, 0.2, 0.2]})["ttft"].finding is Finding.NO_DATA
    assert judged({"ttft_p90": [math.inf] * BLOCKS}, {})["ttft"].finding is Finding.NO_DATA


@pytest.mark.parametrize(
    ("shares", "finding"),
    [
        ([0.970, 0.971, 0.969, 0.970], Finding.BROKEN),
        ([0.970, 0.999, 0.960, 0.999], Finding.UNPROVEN),
        ([0.985, 0.984, 0.986, 0.985], Finding.HOLDS),
        ([math.nan] * BLOCKS, Finding.NO_DATA),
    ],
)
def test_tokens_on_time(shares: list[float], finding: Finding) -> None:
    assert judged({}, {"on_time": shares})["on_time"].finding is finding


@pytest.mark.parametrize(
    ("shares", "finding"),
    [
        ([0.02, 0.03, 0.025, 0.03], Finding.BROKEN),
        ([0.0, 0.01, 0.0, 0.0], Finding.UNPROVEN),
        ([0.0] * BLOCKS, Finding.HOLDS),
        ([0.02], Finding.NO_DATA),
    ],
)
def test_errors(shares: list[float], finding: Finding) -> None:
    assert judged({}, {"error_ratio": shares})["error_ratio"].finding is finding


def test_sentence_of_a_difference() -> None:
    assert (
        judged({}, {"error_ratio": [0.02] * BLOCKS})["error_ratio"].sentence
        == "the share of failed requests is 2.0 points higher"
    )
    assert judged({}, {})["on_time"].sentence == "the share of tokens on time is the same"


def test_a_bound_that_no_candidate_could_reach_is_no_bound_and_the_finding_stays() -> None:
    """Shares of 0.84 to 0.89: with four blocks the t interval of the difference spans −25 to +35 points."""
    found = judged({"on_time": [0.60, 0.99, 0.80, 0.97]}, {"on_time": [0.95, 0.75, 0.99, 0.87]})["on_time"]
    assert found.ratio.value == pytest.approx(0.05)
    assert found.ratio.low == pytest.approx(0.05 - 3.182 * 0.2685 / 2, abs=1e-3)
    assert (found.baseline, found.candidate) == (pytest.approx(0.84), pytest.approx(0.89))
    assert found.ratio.high is None  # 0.05 + 0.42: the baseline's 0.84 leaves 0.16
    assert found.finding is Finding.UNPROVEN
    errors = judged({}, {"error_ratio": [0.0, 0.01, 0.0, 0.0]})["error_ratio"]
    assert errors.ratio.low is None  # there are no fewer than none
    assert errors.ratio.high == pytest.approx(0.0025 + 3.182 * 0.0025, abs=1e-5)
    assert judged({}, {})["error_ratio"].ratio == Estimate(value=0.0, low=0.0, high=0.0, n=BLOCKS)


def test_leaving_a_bound_out_never_loses_the_true_difference() -> None:
    """2000 experiments of three noisy blocks: what is printed holds the truth at least as often as is claimed."""
    draws = np.random.default_rng(5)
    truth, held, cut = 0.90 - 0.85, 0, 0
    for _ in range(2000):
        base, cand = ((mean + draws.normal(0, noise, 3)).tolist() for mean, noise in ((0.85, 0.04), (0.90, 0.025)))
        figures = {(arm, 8.0, block): {"on_time": share} for arm, shares in ((BASE, base), (SPEC, cand))
                   for block, share in enumerate(shares)}  # fmt: skip
        found = next(g for g in guards(figures, {}, BASE, SPEC, [8.0], Decision()) if g.name == "on_time")
        low, high = found.ratio.low, found.ratio.high
        cut += high is None
        held += (low is None or low <= truth) and (high is None or high >= truth)
    assert cut > 200
    assert held >= 0.94 * 2000  # the draws' own error is half a per cent


def test_both_shares_are_of_the_blocks_that_both_arms_have() -> None:
    """The baseline's third block has no partner: its share of 0.2 belongs to no difference."""
    found = judged({"on_time": [0.60, 0.70, 0.20]}, {"on_time": [0.65, 0.75]})["on_time"]
    assert (found.baseline, found.candidate) == (pytest.approx(0.65), pytest.approx(0.70))
    assert found.ratio.value == pytest.approx(found.candidate - found.baseline)
