"""The linear law against lines whose coefficients and crossing are known, and scipy's own figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.findings import LineCrossing
from loadtest.analyse.law import Points, fieller, fit_lines, linear_law
from loadtest.analyse.results import BreakEven

X = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
BASE, SPEC = (0.50, 0.010), (0.30, 0.015)  # C1, C2: they cross at 0.2 ÷ 0.005 = 40


def made(
    seed: int, *, base: tuple[float, float] = BASE, spec: tuple[float, float] = SPEC, noise: float = 0.02,
    blocks: int = 6, start: float = 0.0, bend: float = 0.0, shared: float = 0.0,
) -> tuple[Points, Points]:  # fmt: skip
    rng = np.random.default_rng(seed)
    luck = np.exp(shared * rng.standard_normal((len(X), blocks)))
    arms = []
    for name, (c1, c2) in (("baseline", base), ("speculative", spec)):
        line = (c1 + c2 * X + (bend * (X / 64) ** 2 if name == "speculative" else 0.0))[:, None]
        starts = np.exp(start * rng.standard_normal((1, blocks)))
        own = np.exp(noise * rng.standard_normal(luck.shape))
        arms.append(Points(arm=name, x=X, y=tuple(line * luck * starts * own)))
    return arms[0], arms[1]


def even(form: Crossing, **at: float) -> BreakEven:
    return BreakEven(metric="e2e", threshold=1.0, form=form, in_flight=Estimate(**at))


def test_fieller_against_a_worked_set() -> None:
    """Its bounds are where (above − θ·below)² = t²·variance of that difference; checked by putting them in."""
    found = fieller(0.2, 0.005, 1e-4, 1e-7, 1e-6, 2.0)
    assert found is not None
    assert found.value == pytest.approx(40.0)
    for theta in (found.low, found.high):
        assert theta is not None
        assert (0.2 - theta * 0.005) ** 2 == pytest.approx(4 * (1e-4 - 2 * theta * 1e-6 + theta**2 * 1e-7))
    assert fieller(0.2, 0.005, 1e-4, 6.25e-6, 0.0, 2.0) is None  # the slope is exactly 2 errors from 0
    assert fieller(0.2, 0.005, 1e-4, 6.24e-6, 0.0, 2.0) is not None


def test_equal_weights_give_the_ordinary_line_and_the_textbook_lack_of_fit() -> None:
    """All levels have the same variance (deviations ±d), so that weights are equal and scipy's line is the line."""
    means = np.array([1.0, 1.3, 1.5, 2.6, 4.1, 7.5])
    d = 0.05
    arm = Points(arm="a", x=X, y=tuple(np.array([m - d, m, m + d]) for m in means))
    fit = fit_lines(arm, Points(arm="b", x=X, y=arm.y))
    assert fit is not None
    line = stats.linregress(X, means)
    assert fit.beta[:2] == pytest.approx([line.intercept, line.slope], rel=1e-6)
    about = 3 * np.sum((means - line.intercept - line.slope * X) ** 2) / 4  # 6 levels − 2
    error = 6 * 2 * d**2 / 12
    assert fit.lack_of_fit_p[0] == pytest.approx(float(stats.f.sf(about / error, 4, 12)), rel=1e-4)
    spread = np.sqrt(np.diag(fit.covariance)[:2])
    variance = d**2 / 3  # of a mean of three
    centred = float(np.sum((X - X.mean()) ** 2))
    assert spread == pytest.approx(
        [math.sqrt(variance * (1 / 6 + X.mean() ** 2 / centred)), math.sqrt(variance / centred)], rel=1e-4
    )


def test_arms_that_share_every_block_are_told_apart_better() -> None:
    """The same deviations in both arms: the difference of the lines has no error at all."""
    deviations = (-0.05, 0.0, 0.05)
    arms = [Points(arm=n, x=X, y=tuple(np.array([c1 + c2 * x + d for d in deviations]) for x in X))
            for n, (c1, c2) in (("b", BASE), ("s", SPEC))]  # fmt: skip
    found = linear_law(arms[0], arms[1], X.tolist(), None).at
    assert (found.low, found.value, found.high) == pytest.approx((40.0, 40.0, 40.0), rel=1e-3)


@pytest.mark.parametrize(("start", "restarted"), [(0.0, False), (0.05, True)])
def test_fieller_covers_the_true_crossing(start: float, restarted: bool) -> None:
    inside = bounded = 0
    for seed in range(200):
        base, spec = made(seed, start=start, shared=0.03)
        found = linear_law(base, spec, X.tolist(), None, restarted=restarted).at
        if found.low is None or found.high is None:
            inside += 1  # unbounded: it holds every load
            continue
        bounded += 1
        inside += found.low <= 40.0 <= found.high
    assert 0.91 <= inside / 200 <= 0.99
    assert bounded > 100


def test_lack_of_fit_rejects_as_often_as_it_says() -> None:
    for restarted in (False, True):
        straight = [fit_lines(*made(s), restarted=restarted) for s in range(300)]
        p = np.array([fit.lack_of_fit_p[1] for fit in straight if fit])
        assert 0.02 <= np.mean(p < 0.05) <= 0.10
        bent = [fit_lines(*made(s, bend=0.3), restarted=restarted) for s in range(50)]
        assert np.mean([(fit.lack_of_fit_p[1] or 1.0) < 0.01 for fit in bent if fit]) > 0.9


def test_forms() -> None:
    below = linear_law(*made(1), X.tolist(), None)
    assert (below.crossing, below.outside) == (LineCrossing.PAYS_BELOW, False)
    above = linear_law(*made(1, base=SPEC, spec=BASE), X.tolist(), None)
    assert above.crossing is LineCrossing.PAYS_ABOVE
    beyond = linear_law(*made(1, spec=(0.30, 0.0120)), X.tolist(), None)
    assert beyond.outside
    assert "beyond the tested 2 to 64: an extrapolation" in beyond.sentence
    parallel = linear_law(*made(1, spec=(0.30, 0.010)), X.tolist(), None)
    assert parallel.crossing is LineCrossing.NOT_SHOWN
    assert parallel.at == Estimate()
    ahead = linear_law(*made(1, spec=(0.30, 0.005)), X.tolist(), None)
    assert ahead.sentence == "Linear law: no crossing at any load; the candidate is ahead at each."
    behind = linear_law(*made(1, spec=(0.70, 0.020)), X.tolist(), None)
    assert behind.sentence == "Linear law: no crossing at any load; the candidate is behind at each."


@pytest.mark.parametrize(
    ("model_free", "agrees"),
    [
        (even(Crossing.PAYS_UP_TO, low=35.0, high=44.0), True),
        (even(Crossing.PAYS_UP_TO, low=35.0), True),
        (even(Crossing.PAYS_UP_TO, low=50.0, high=60.0), False),
        (even(Crossing.PAYS_UP_TO, low=10.0, high=20.0), False),
        (even(Crossing.PAYS_FROM, low=35.0, high=44.0), False),
        (even(Crossing.PAYS_EVERYWHERE), False),
        (even(Crossing.NEVER_PAYS), False),
        (even(Crossing.BAND), False),
        (even(Crossing.CANNOT_TELL), None),
        (even(Crossing.NO_DATA), None),
        (None, None),
    ],
)
def test_it_says_whether_it_agrees_with_the_model_free_break_even(
    model_free: BreakEven | None, agrees: bool | None
) -> None:
    found = linear_law(*made(1), X.tolist(), model_free)
    assert found.agrees is agrees
    assert bool(found.note) is (agrees is False)


def test_a_bent_line_is_noted_whatever_the_crossing() -> None:
    found = linear_law(*made(1, bend=0.3), X.tolist(), even(Crossing.PAYS_UP_TO, low=5.0, high=60.0))
    assert found.agrees is False
    assert found.note.startswith("The latency of speculative is no straight line in its requests in flight")


def test_a_line_needs_two_loads_and_two_blocks() -> None:
    base, spec = made(1)
    few = [Points(arm=p.arm, x=p.x[:1], y=p.y[:1]) for p in (base, spec)]
    single = [Points(arm=p.arm, x=p.x, y=tuple(y[:1] for y in p.y)) for p in (base, spec)]
    same = [Points(arm=p.arm, x=np.full(6, 3.0), y=p.y) for p in (base, spec)]
    for arms in (few, single, same):
        assert fit_lines(arms[0], arms[1]) is None
        assert linear_law(arms[0], arms[1], [], None).crossing is LineCrossing.NO_DATA
    two = [Points(arm=p.arm, x=p.x[:2], y=p.y[:2]) for p in (base, spec)]
    fit = fit_lines(two[0], two[1])
    assert fit is not None
    assert fit.lack_of_fit_p == (None, None)
