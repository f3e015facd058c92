"""The edges of the decision: exactly at the threshold, exactly at a margin, and every rule alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from loadtest.analyse import wording
from loadtest.analyse.breakeven import Translation, break_even, zones
from loadtest.analyse.compare import Curve, fit_curve
from loadtest.analyse.decide import NOT, OPEN, PAYS, Evidence, decide, level_state
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.guards import _compared, guards
from loadtest.analyse.results import Answer, ArmLevel, Finding, Guard, Tail
from loadtest.settings import Decision

LOG = math.log(1.25)  # a threshold whose logarithm is met exactly by exp(log)


def evidence(mean: float, half: float, *findings: Finding, gain: float = 0.25) -> Evidence:
    """One level of 8 users; the mean and half-width of the log ratio are given."""
    curve = Curve(levels=np.array([8.0]), mean=np.array([mean]), half=np.array([half]), samples=(np.zeros(3),))
    given = tuple(Guard(name=f"guard {i}", level=8.0, finding=finding) for i, finding in enumerate(findings))
    return Evidence(
        levels=(8.0,), rules=Decision(min_gain=gain), curves={"e2e": curve}, guards=given, rows={}, baseline="b",
        candidate="c", in_flight=Translation(by_level={}), running=Translation(by_level={}),
    )  # fmt: skip


def test_an_interval_that_ends_exactly_at_the_threshold_is_open_on_either_side() -> None:
    assert math.exp(LOG) == 1.25
    assert level_state(evidence(LOG, 0.0), 8.0) == OPEN
    assert level_state(evidence(LOG + 1e-12, 0.0), 8.0) == PAYS
    assert level_state(evidence(LOG - 1e-12, 0.0), 8.0) == NOT


@pytest.mark.parametrize(
    ("findings", "state"),
    [
        ((Finding.HOLDS,), PAYS),
        ((Finding.UNPROVEN,), PAYS),
        ((Finding.NO_DATA,), OPEN),
        ((Finding.BROKEN,), NOT),
        ((Finding.HOLDS, Finding.HOLDS, Finding.BROKEN), NOT),
        ((Finding.NO_DATA, Finding.BROKEN), NOT),
    ],
)
def test_every_guard_counts(findings: tuple[Finding, ...], state: str) -> None:
    assert level_state(evidence(0.5, 0.1, *findings), 8.0) == state


def test_a_guard_of_another_level_does_not_count() -> None:
    other = evidence(0.5, 0.1)
    broken = Guard(name="ttft", level=4.0, finding=Finding.BROKEN)
    assert (
        level_state(Evidence(**{**{f: getattr(other, f) for f in Evidence.__slots__}, "guards": (broken,)}), 8.0)
        == PAYS
    )


def test_a_loss_is_a_loss_without_any_guard_data() -> None:
    assert level_state(evidence(-0.5, 0.1, Finding.NO_DATA), 8.0) == NOT
    assert decide(evidence(-0.5, 0.1)).answer is Answer.NEVER_PAYS
    assert decide(evidence(0.5, 0.1)).answer is Answer.PAYS_EVERYWHERE


def test_a_bound_exactly_at_one_is_no_proof() -> None:
    for mean in (0.25, -0.25):
        curve = Curve(levels=np.array([8.0]), mean=np.array([mean]), half=np.array([0.25]), samples=(np.zeros(3),))
        assert break_even(curve, "e2e").form is Crossing.CANNOT_TELL


def test_errors_that_go_together_do_not_cancel_between_levels() -> None:
    """Two levels of ratio 1.1 ± 11 %: in the middle independent errors shrink by √2 and shared ones do not."""
    mean, half = math.log(1.1), 0.09
    apart, together = (
        zones(Curve(levels=np.array([4.0, 16.0, 64.0]), mean=np.array([mean, -mean, -mean]), half=np.full(3, half),
                    samples=(np.zeros(3),) * 3, restarted=restarted), 1.0)
        for restarted in (False, True)
    )  # fmt: skip
    # half way down from 0.0953 the bound of shared errors, straight, passes 0 at (mean − half) ÷ 2·mean
    share = (mean - half) / (2 * mean)
    assert together[0].high == pytest.approx(4 * 4**share)
    assert apart[0].high > together[0].high


def test_what_shared_errors_leave_open_is_open() -> None:
    """Lower bounds of 0.02 and −0.01: the straight one passes 0 two thirds of the way and is not above 0 again."""
    found = zones(Curve(levels=np.array([4.0, 16.0]), mean=np.array([0.12, 0.09]), half=np.full(2, 0.1),
                        samples=(np.zeros(3),) * 2, restarted=True), 1.0)  # fmt: skip
    assert [zone.state for zone in found] == [1, 0]
    assert found[0].high == pytest.approx(4 * 4 ** (2 / 3))


def figures(base: Mapping[str, float], cand: Mapping[str, float]) -> dict[tuple[str, float, int], Mapping[str, float]]:
    """Three blocks that agree exactly, so that every interval is a point."""
    plain = {"ttft_p50": 0.5, "ttft_p90": 0.5, "on_time": 0.75, "error_ratio": 0.25}
    found: dict[tuple[str, float, int], Mapping[str, float]] = {}
    for block in range(3):
        found["b", 8.0, block] = {**plain, **base}
        found["c", 8.0, block] = {**plain, **cand}
    return found


def judged(base: Mapping[str, float], cand: Mapping[str, float], **rules: float) -> dict[str, Finding]:
    tail = Tail(metric="ttft", p50=Estimate(value=0.5, low=0.4, high=0.6))
    rows = {(arm, 8.0): ArmLevel(arm=arm, level=8.0, requests=9, failed=0, tails={"ttft": tail}) for arm in "bc"}
    given = {"ttft_margin": 0.25, "on_time_margin": 0.125, **rules}
    return {g.name: g.finding for g in guards(figures(base, cand), rows, "b", "c", [8.0], Decision(**given))}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "at", "beyond"),
    [
        ("ttft", {"ttft_p50": 0.6249}, {"ttft_p50": 0.6251}),
        ("on_time", {"on_time": 0.625}, {"on_time": 0.6249}),
        ("error_ratio", {"error_ratio": 0.25}, {"error_ratio": 0.2501}),
    ],
)
def test_a_guard_holds_exactly_at_its_margin_and_is_broken_beyond(
    name: str, at: Mapping[str, float], beyond: Mapping[str, float]
) -> None:
    assert judged({}, at)[name] is Finding.HOLDS
    assert judged({}, beyond)[name] is Finding.BROKEN
    assert judged(beyond, {})[name] is Finding.HOLDS  # arms the other way round: better


@pytest.mark.parametrize(
    ("low", "high", "finding"),
    [
        (1.0, 1.25, Finding.HOLDS),
        (1.25, 1.25, Finding.HOLDS),
        (1.0, 1.26, Finding.UNPROVEN),
        (1.25, 1.26, Finding.UNPROVEN),
        (1.251, 1.26, Finding.BROKEN),
    ],
)
def test_a_ratio_is_held_against_its_margin_by_its_whole_interval(low: float, high: float, finding: Finding) -> None:
    assert _compared(Estimate(value=1.2, low=low, high=high), 1.25) is finding
    assert _compared(Estimate(value=1.2, low=low), 1.25) is Finding.NO_DATA


def test_points_have_no_width() -> None:
    assert (fit_curve({8.0: [0.25, 0.25, 0.25]}).half == 0).all()


def noisy(*broken: float, ratios: Mapping[float, float] | None = None) -> Evidence:
    """Return a run as noise leaves it: proven at 1 user alone, open above, the guards broken at these loads."""
    means = ratios or {1.0: 1.71, 2.0: 1.61, 4.0: 0.94, 8.0: 1.034}
    mean = np.log(list(means.values()))
    curve = Curve(levels=np.array(list(means)), mean=mean, half=np.array([0.5, 0.5, 0.5, 0.53]),
                  samples=(np.zeros(3),) * 4)  # fmt: skip
    late = "first tokens are 110 % later (p50)"
    given = tuple(Guard(name="ttft", level=x, finding=Finding.BROKEN if x in broken else Finding.HOLDS, sentence=late)
                  for x in means)  # fmt: skip
    return Evidence(
        levels=tuple(means), rules=Decision(), curves={"e2e": curve}, guards=given, rows={}, baseline="b",
        candidate="c", in_flight=Translation(by_level={}), running=Translation(by_level={}),
    )  # fmt: skip


def test_a_limit_that_a_guard_bounds_says_so_wherever_it_stands() -> None:
    found = decide(noisy(4.0, 8.0))
    assert (found.limit.at.high, found.break_even.at.high) == (4.0, None)  # which looks wrong without a word
    said = "at 4 users a guard ends it: first tokens are 110 % later (p50)"
    assert found.limit.ended_by == "first tokens are 110 % later (p50)"
    assert found.headline.endswith(f"; the limit itself is estimated at 3.6 [1.8, 4] users; {said}.")
    assert said in found.limit.sentence
    assert said not in found.break_even.sentence
    free = decide(noisy())
    assert (free.limit.ended_by, "guard" in free.headline) == ("", False)


def test_the_first_number_of_the_headline_is_the_advice() -> None:
    found = decide(noisy(4.0))
    assert found.headline.startswith("Speculation pays up to 1 user by end-to-end time")
    assert found.recommendation == "on up to 1 user"


def test_an_estimate_that_crosses_back_is_named_and_said_to_be_unproven() -> None:
    found = decide(noisy(4.0))
    again = "At 8 users the estimate is beyond that again (1.03 [0.61, 1.76]), which is not proven."
    assert found.break_even.sentence.endswith(again)
    assert found.limit.sentence.endswith(again)  # 1.034 is beyond 1.03 too
    falling = decide(noisy(ratios={1.0: 1.71, 2.0: 1.61, 4.0: 0.94, 8.0: 0.9}))
    assert "again" not in falling.break_even.sentence
    assert "again" not in falling.limit.sentence


@pytest.mark.parametrize(
    ("low", "high", "shown", "advice"),
    [(22.6, 27.6, "25 [22, 28] users", "22 users"), (22.98, 27.1, "25 [22, 28] users", "22 users"),
     (23.0, 28.0, "25 [23, 28] users", "23 users"), (22.99999999, 28.0, "25 [23, 28] users", "23 users"),
     (7.66, 27.0, "25 [7.6, 27] users", "7 users"), (24.35, 25.61, "25 [24.3, 25.7] users", "24 users")],
)  # fmt: skip
def test_a_bound_and_the_advice_are_rounded_alike_and_never_promise_more(
    low: float, high: float, shown: str, advice: str
) -> None:
    at = Estimate(value=25.0, low=low, high=high)
    assert (wording.bounded(at, (1.0, 64.0)), wording.claimed(at)) == (shown, advice)


def test_a_range_that_pays_is_rounded_inwards() -> None:
    assert wording.ranges([(15.2, 23.9)]) == "from 16 to 23 users"
    assert wording.ranges([(15.2, 15.4)]) == "at 15 users"


def test_a_bound_that_two_digits_do_not_tell_from_the_gain_has_more() -> None:
    near = Estimate(value=1.2, low=1.028, high=1.4)
    assert wording.ratio(near, 1.03) == "1.20 [1.028, 1.40]"
    assert wording.ratio(near) == "1.20 [1.03, 1.40]"
