"""The gate's own statistics against scipy, published examples and figures worked out from the records themselves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from gate_facts import PLAIN, facts_of, plain
from made_run import BASE, SPEC, Made
from scipy import stats

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.percentiles import bound_needs, each_block_needs
from loadtest.analyse.reach import Loads
from loadtest.analyse.settle import factor
from loadtest.analyse.shares import difference, exact_interval, share_effect, share_estimates
from loadtest.analyse.slo_levels import GateFacts
from loadtest.analyse.traffic import expected_gain
from loadtest.drive.slo_check import BOUND_NEEDS, EACH_BLOCK, needs
from loadtest.settings import Traffic
from loadtest.slo_tables import objectives

E2E, TOKENS = objectives([
    {"metric": "e2e", "statistic": "mean", "better_by": "1 %"}, {"metric": "output_tokens_per_s", "better_by": "1 %"},
])  # fmt: skip


@pytest.mark.parametrize(("count", "due"), [(0, 10), (1, 10), (5, 50), (50, 50), (3, 1000)])
def test_a_share_has_the_exact_interval_of_scipy(count: int, due: int) -> None:
    expected = stats.binomtest(count, due).proportion_ci(0.95, method="exact")
    assert exact_interval(count, due) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_blocks_that_differ_widen_a_share() -> None:
    even, uneven = {1.0: [(10, 100)] * 4}, {1.0: [(0, 100), (20, 100), (2, 100), (18, 100)]}
    assert share_effect(even) == 1.0
    # Pearson's chi-square of scipy over its three degrees of freedom, widened as t(3) is: 3.182 ÷ 1.960
    expected = stats.chi2_contingency([[0, 20, 2, 18], [100, 80, 98, 82]], correction=False).statistic / 3
    expected *= (3.18245 / 1.95996) ** 2
    assert share_effect(uneven) == pytest.approx(expected, rel=1e-5)
    narrow, wide = share_estimates(even)[1.0], share_estimates(uneven)[1.0]
    assert narrow.value == wide.value == 0.1
    assert wide.high is not None
    assert narrow.high is not None
    assert wide.high > narrow.high


def test_the_difference_of_shares_of_newcombe() -> None:
    # Newcombe 1998, table II, contrast (a): 56/70 − 48/80; method 10 from Wilson bounds gives 0.0524 to 0.3339.
    first = Estimate(value=56 / 70, low=0.6918, high=0.8769, n=70)
    second = Estimate(value=48 / 80, low=0.4904, high=0.7004, n=80)
    found = difference(second, first, lower=False)
    assert found.value == pytest.approx(0.2)
    assert found.low == pytest.approx(0.0524, abs=2e-4)
    assert found.high == pytest.approx(0.3339, abs=2e-4)
    turned = difference(second, first, lower=True)
    assert (turned.value, turned.low, turned.high) == pytest.approx((-0.2, -found.high, -found.low))
    assert difference(Estimate(), first, lower=True) == Estimate()


@pytest.mark.parametrize("name", BOUND_NEEDS)
def test_requests_that_bound_a_percentile(name: str) -> None:
    q = int(name[1:]) / 100
    needed = bound_needs(q)
    assert max(needed, EACH_BLOCK.get(name, 0)) == max(BOUND_NEEDS[name], each_block_needs(q))  # said before a run
    assert needs(name, 3) == max(needed, 3 * each_block_needs(q))  # is what is judged after it
    needed = BOUND_NEEDS[name]
    assert stats.binom.cdf(needed - 1, needed, q) >= 0.975  # the largest of them lies above the percentile
    assert stats.binom.cdf(needed - 2, needed - 1, q) < 0.975


def test_growth_of_the_sample_that_settles() -> None:
    near = Estimate(value=1.0, low=0.8, high=1.2, n=6)
    assert factor(near, 1.1, lower=True) == pytest.approx(4.0)
    assert factor(near, 0.9, lower=True) == pytest.approx(4.0)  # it will fail, by the lower bound
    assert factor(near, 1.0, lower=True) == math.inf
    assert factor(Estimate(value=1.0), 1.1, lower=True) is None
    assert factor(Estimate(value=math.inf, low=1.0, high=math.inf), 1.1, lower=True) is None


def _total(facts: GateFacts, arm: str, level: float) -> tuple[float, float]:
    """Return requests per second, and the mean over blocks of the end-to-end time, in logarithms."""
    means, rate = [], 0.0
    cells = facts.found.of(arm, level)
    for cell in cells:
        rows = facts.found.requests.cell(cell)
        means.append(math.log(rows.column("e2e_s")[rows.measured].mean()))
        rate += rows.measured.sum() / rows.window_s / len(cells)
    return rate, math.exp(float(np.mean(means)))


def test_the_gain_over_a_day_is_the_time_that_users_wait_less() -> None:
    facts, traffic = plain(), Traffic(loads=(4.0, 16.0), hours=(20.0, 4.0))
    gain, why = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, traffic)
    waited = dict.fromkeys((BASE, SPEC), 0.0)
    for level, hours in ((4.0, 20.0), (16.0, 4.0)):
        rate, _ = _total(facts, BASE, level)  # the same requests would come, whichever server answers
        for arm in waited:
            waited[arm] += hours * rate * _total(facts, arm, level)[1]
    assert why == ""
    assert gain.value == pytest.approx(waited[BASE] / waited[SPEC], rel=1e-4)
    assert gain.low is not None
    assert gain.low < gain.value


def test_one_load_all_day_gains_what_that_level_does() -> None:
    facts = plain()
    gain, _ = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, Traffic(loads=(16.0,), hours=(3.0,)))
    ratios = [math.log(b / c) for b, c in _pairs(facts, 16.0)]
    assert gain.value == pytest.approx(math.exp(np.mean(ratios)))


def _pairs(facts: GateFacts, level: float) -> list[tuple[float, float]]:
    found = []
    for base, cand in zip(facts.found.of(BASE, level), facts.found.of(SPEC, level), strict=True):
        rows = [facts.found.requests.cell(c) for c in (base, cand)]
        found.append(tuple(float(r.column("e2e_s")[r.measured].mean()) for r in rows))
    return found  # type: ignore[return-value]


def test_hours_scale_nothing_and_a_load_in_flight_is_translated() -> None:
    facts = plain()
    day = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, Traffic(loads=(4.0, 8.0), hours=(12.0, 12.0)))
    hour = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, Traffic(loads=(4.0, 8.0), hours=(0.5, 0.5)))
    in_flight = Traffic(unit="in flight", loads=(3.6, 7.2), hours=(1.0, 1.0))  # 0.9 of the users
    assert day == hour
    translated, why = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, in_flight)
    assert why == ""
    assert translated.value == pytest.approx(day[0].value, rel=1e-9)


def test_a_gain_that_changes_with_load_is_weighed_by_what_each_load_brings() -> None:
    made = Made(levels=(4.0, 16.0), blocks=6, requests=60, chunks=12, noise=0.005,
                speedup=lambda level: 2.0 if level == 4.0 else 1.0)  # fmt: skip
    facts = facts_of(made)
    mostly_low = Traffic(loads=(4.0, 16.0), hours=(23.0, 1.0))
    mostly_high = Traffic(loads=(4.0, 16.0), hours=(1.0, 23.0))
    low, _ = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, mostly_low)
    high, _ = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, mostly_high)
    carried, _ = expected_gain(TOKENS, BASE, SPEC, facts.found, facts.loads, mostly_low)
    assert low.value is not None
    assert high.value is not None
    assert carried.value is not None
    assert 1.3 < low.value < 1.62
    assert 0.99 < high.value < 1.03
    assert carried.value > 1.0


def test_no_block_pairs_no_gain() -> None:
    one = facts_of(PLAIN.having(blocks=1))
    gain, why = expected_gain(E2E, BASE, SPEC, one.found, one.loads, Traffic(loads=(4.0,), hours=(1.0,)))
    assert why == ""
    assert gain.value is not None
    assert gain.low is None
    found = replace(plain().found, cells=[c for c in plain().found.cells if c.arm == BASE])
    _, why = expected_gain(E2E, BASE, SPEC, found, plain().loads, Traffic(loads=(4.0,), hours=(1.0,)))
    assert "no valid pair of cells" in why


def test_loads_in_another_unit_are_refused() -> None:
    loads = Loads(levels=(1.0, 2.0), unit="requests/s", in_flight={1.0: 0.5})
    assert loads.controlled([1.5], "users") == (
        [],
        "the load is given in users, and this run's levels are requests/s (open load)",
    )
    assert "in flight were not measured" in loads.controlled([1.5], "in flight")[1]
