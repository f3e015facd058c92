"""Tails: how many requests they need against published numbers, and the ratio of two of them against the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.percentiles import bound_needs
from loadtest.analyse.results import ArmLevel, Tail
from loadtest.analyse.stats import Sample, dispersion, merged, quantile_estimate, sample_of
from loadtest.analyse.tails import combined, requests_needed, tail_ratios

PUBLISHED = {  # MLPerf Inference's early stopping: q, confidence → requests for 0, 1, 2, 5 and 10 over the limit
    (0.50, 0.99): (7, 11, 14, 22, 35), (0.50, 0.95): (5, 8, 11, 18, 30),
    (0.90, 0.99): (44, 64, 81, 127, 197), (0.90, 0.95): (29, 46, 61, 103, 167),
    (0.95, 0.99): (90, 130, 165, 259, 398), (0.95, 0.95): (59, 93, 124, 208, 336),
    (0.99, 0.99): (459, 662, 838, 1307, 2010), (0.99, 0.95): (299, 473, 628, 1049, 1693),
    (0.999, 0.99): (4603, 6636, 8403, 13105, 20140), (0.999, 0.95): (2995, 4742, 6294, 10511, 16959),
}  # fmt: skip


@pytest.mark.parametrize(("key", "expected"), PUBLISHED.items())
def test_early_stopping_needs_what_mlperf_needs(key: tuple[float, float], expected: tuple[int, ...]) -> None:
    q, confidence = key
    assert tuple(requests_needed(q, over, confidence) for over in (0, 1, 2, 5, 10)) == expected


@pytest.mark.parametrize(("q", "over", "confidence"), [(0.0, 0, 0.9), (1.0, 0, 0.9), (0.5, -1, 0.9), (0.5, 0, 1.0)])
def test_early_stopping_refuses_what_has_no_meaning(q: float, over: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="must lie between"):
        requests_needed(q, over, confidence)


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 500), (0.999, 5000)])
def test_a_two_sided_bound_needs_the_published_requests(q: float, n: int) -> None:
    """Of 368 independent values the largest bounds a p99 (3,688 a p999); a block needs five beyond it."""
    assert bound_needs(q) == n
    assert bound_needs(q, 0.5) == n
    assert bound_needs(q, 2.5) == math.ceil(2.5 * {0.99: 368, 0.999: 3688}.get(q, n))
    assert bound_needs(q, blocks=3) == (3 * n if q > 0.95 else n)


def test_distances_add_in_squares() -> None:
    base = Estimate(value=2.0, low=1.7, high=2.4)
    cand = Estimate(value=3.0, low=2.7, high=3.3)
    assert combined(base, cand, float) == pytest.approx((1.0, 0.5, 1 + math.hypot(0.3, 0.3)))
    assert combined(base, Estimate(value=3.0, low=2.7), float) is None
    assert combined(base, Estimate(value=math.inf, low=1.0, high=math.inf), float) is None
    assert combined(base, Estimate(value=0.0, low=0.0, high=0.1), math.log) is None


def row(arm: str, **tails: Estimate) -> ArmLevel:
    nothing = Estimate(value=1.0, n=20)
    names = ("ttft", "ttft_visible", "e2e", "tpot", "token_gap", "worst_stall")
    own = Tail(metric="ttft", p50=tails.get("p50", nothing), p99=tails.get("p99", nothing),
               design_effect={"p99": 3.0})  # fmt: skip
    means = dict.fromkeys(names, Estimate(value=1.0, n=3))
    return ArmLevel(arm=arm, level=8.0, requests=100, failed=0, means=means, tails=dict.fromkeys(names, own))


def test_a_speedup_of_a_tail_is_above_one_when_the_candidate_is_faster() -> None:
    rows = {("b", 8.0): row("b", p50=Estimate(value=0.2, low=0.19, high=0.21, n=90)),
            ("c", 8.0): row("c", p50=Estimate(value=0.1, low=0.09, high=0.11, n=80))}  # fmt: skip
    found = {(t.metric, t.statistic): t for t in tail_ratios(rows, "b", "c", [8.0, 16.0])}
    assert len(found) == 6 * 4  # chunk gaps have no direction
    p50, p99 = found["ttft", "p50"], found["ttft", "p99"]
    assert p50.speedup.value == pytest.approx(2.0)
    assert p50.difference_s.value == pytest.approx(-0.1)
    assert p50.speedup.low is not None
    assert p50.speedup.high is not None
    assert 1 < p50.speedup.low < 2 < p50.speedup.high
    assert (p50.requests, p50.requests_needed) == (80, 6)
    assert (p99.speedup.value, p99.speedup.low, p99.difference_s.value) == (1.0, None, None)
    assert (p99.requests, p99.requests_needed) == (20, 3 * 500)


def test_the_ratio_covers_the_truth_when_blocks_differ() -> None:
    """p90 of two arms whose blocks share nothing; each block is 10 % faster or slower than the next."""
    truth, inside = math.log(1.25), 0
    for seed in range(250):
        rng = np.random.default_rng(seed)
        arms = [blocks(rng, scale) for scale in (1.25, 1.0)]
        own = [quantile_estimate(merged(arm), 0.9, effect(arm)) for arm in arms]
        found = combined(own[1], own[0], math.log)
        assert found is not None
        inside += found[1] <= truth <= found[2]
    assert inside / 250 >= 0.92


def blocks(rng: np.random.Generator, scale: float) -> list[Sample]:
    return [sample_of(scale * np.exp(0.1 * rng.standard_normal() + 0.5 * rng.standard_normal(100))) for _ in range(10)]


def effect(arm: list[Sample]) -> float:
    chi_square, dof = dispersion(arm, merged(arm).quantile(0.9))
    return chi_square / dof
