"""Claims held against an A/A run, and what would settle an open one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_run import BASE, SPEC, Made, header

from loadtest.analyse.against_itself import noise_of
from loadtest.analyse.compare import Curve, Pairs, fit_curve
from loadtest.analyse.findings import Noise
from loadtest.analyse.held import held_against, noise_from
from loadtest.analyse.judge import judge_data
from loadtest.analyse.remarks import OUT_OF_REACH, more_blocks
from loadtest.analyse.verdict import as_json

PAIRS = Pairs(median={4.0: 1.2, 16.0: 1.0}, slower={4.0: 0.03, 16.0: 0.40}, bodies_differ=0, count=100)


def curve(ratios: dict[float, float], half: float) -> Curve:
    return Curve(levels=np.array(list(ratios)), mean=np.log(list(ratios.values())), half=np.full(len(ratios), half),
                 samples=tuple(np.zeros(4) for _ in ratios))  # fmt: skip


def aa_run(effect: float | None, **more: Any) -> dict[str, Any]:
    noise = {"effects": {"e2e": effect}, "slower": {"4": 0.02, "16": 0.05}, "median": {"4": 1.0, "16": 0.8}}
    return {"path": "reports/aa", "sha256": "00", "noise": noise, "differs": [], **more}


def test_a_claim_within_the_noise_is_marked_and_a_larger_one_is_not() -> None:
    ratios = {4.0: 1.20, 16.0: 1.05, 64.0: 1.005}  # the last is told from nothing
    found = held_against(aa_run(0.06), {"e2e": curve(ratios, 0.01)}, PAIRS, "e2e")
    assert found is not None
    assert [(w.metric, w.level, w.effect) for w in found.within] == [("e2e", 16.0, 0.06)]
    assert found.within[0].speedup == pytest.approx(1.05)
    assert found.sentences[0] == (
        "By end-to-end time the speed-up 1.05 at 16 users is within what equal servers showed in the A/A run reports/aa"
        " (smallest effect 6 %): it is no claim."
    )


@pytest.mark.parametrize(
    ("ratio", "marked"), [(1.0599, True), (1.0601, False), (1 / 1.0599, True), (1 / 1.0601, False)]
)
def test_the_edge_is_the_smallest_effect_on_both_sides(ratio: float, marked: bool) -> None:
    found = held_against(aa_run(0.06), {"e2e": curve({4.0: ratio}, 0.01)}, PAIRS, "e2e")
    assert found is not None
    assert bool(found.within) is marked


def test_shares_of_slower_requests_and_medians_are_held_against_it() -> None:
    found = held_against(aa_run(0.01), {"e2e": curve({4.0: 1.2, 16.0: 1.2}, 0.01)}, PAIRS, "e2e")
    assert found is not None
    assert found.slower_beyond == pytest.approx({4.0: 0.01, 16.0: 0.35})
    assert found.median_beyond == pytest.approx({4.0: 1.2, 16.0: 1.25})
    assert found.sentences == (
        "At 16 users 35 points more requests are slower by over 10 % than between equal servers.",
    )


def test_an_aa_without_an_interval_or_with_other_settings_is_said() -> None:
    found = held_against(aa_run(None, differs=["window.min_s"]), {"e2e": curve({4.0: 1.2}, 0.01)}, PAIRS, "e2e")
    assert found is not None
    assert found.within == ()
    assert "The A/A run reports/aa gives no smallest effect by end-to-end time." in found.sentences
    assert found.sentences[-1] == "The A/A run reports/aa was measured with other settings: window.min_s."
    assert held_against(None, {}, PAIRS, "e2e") is None


def test_the_noise_of_an_aa_run_goes_through_json() -> None:
    made = Made(speedup=lambda level: 1.0, arms=(BASE, "baseline-2"), levels=(4.0, 16.0), blocks=3,
                run=header(aa=True, candidate="baseline-2"))  # fmt: skip
    judgement = judge_data(*made.build())
    assert judgement.findings is not None
    noise = judgement.findings.noise
    assert noise is not None
    assert 0 < noise.effects["e2e"] < 0.05
    assert noise_from(as_json(judgement)["findings"]["noise"]) == noise
    assert judgement.findings.acceptance is None
    assert judgement.findings.batch_table is None
    by_hand = noise_of({"e2e": fit_curve({4.0: [0.0, 0.02]}), "tpot": fit_curve({4.0: [0.1]})}, PAIRS)
    assert by_hand == Noise(effects={"e2e": pytest.approx(math.expm1(12.7062 * 0.01), rel=1e-4)},
                            slower=PAIRS.slower, median=PAIRS.median)  # fmt: skip


def test_a_run_that_names_one_carries_the_marks() -> None:
    made = Made(speedup=lambda level: 1.06, levels=(4.0, 16.0), run=header(aa_run=aa_run(0.5)))
    judgement = judge_data(*made.build())
    assert judgement.findings is not None
    assert judgement.findings.held_against is not None
    assert {w.level for w in judgement.findings.held_against.within} == {4.0, 16.0}
    assert any("it is no claim" in note for note in judgement.notes)
    assert SPEC in judgement.arms


def test_more_blocks_settle_it_four_times_in_five() -> None:
    """Simulated: after so many blocks in all, how often does the interval leave out the threshold?"""
    truth, sd, n = math.log(1.05), 0.03, 4
    base = np.array([-1.0, 1.0, -1.0, 1.0]) * sd * math.sqrt(3) / 2  # sample sd is 0.03
    open_curve = fit_curve({8.0: (truth + base).tolist()})
    more = more_blocks(open_curve, 1.03, 8.0)
    assert more is not None
    total, settled = n + more, 0
    for seed in range(200):
        values = np.random.default_rng(seed).normal(truth, sd, total)
        ratio = fit_curve({8.0: values.tolist()}).ratio(8.0)
        assert ratio.low is not None
        settled += ratio.low > 1.03
    assert 0.68 <= settled / 200 <= 0.92


def test_more_blocks_at_its_ends() -> None:
    assert more_blocks(fit_curve({8.0: [0.5, 0.51]}), 1.0, 8.0) is None  # settled
    assert more_blocks(fit_curve({8.0: [0.5]}), 1.0, 8.0) is None  # no interval
    assert more_blocks(fit_curve({8.0: [0.5]}), 1.0, 4.0) is None
    assert more_blocks(fit_curve({8.0: [-0.1, 0.1]}), 1.0, 8.0) == OUT_OF_REACH + 1
    samples = {4.0: [0.0, 0.1, 0.05], 16.0: [0.0, 0.1, 0.05]}
    usual, by_start = (more_blocks(fit_curve(samples, restarted=r), 1.0, 4.0) for r in (False, True))
    assert usual is not None
    assert by_start is not None
    assert by_start >= usual  # a start adds one degree of freedom, not one a level
