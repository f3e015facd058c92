"""benchmarks/judgement: claims are held against the truth rightly, and its tables add up."""

from __future__ import annotations

import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are no part of the installed package

from benchmarks.judgement import __main__ as command
from benchmarks.judgement import truth as truths
from benchmarks.judgement.cases import BY_NAME, CASES, Case
from benchmarks.judgement.runs import outcome
from benchmarks.judgement.scores import Score, Sign, false_claims, holds, scores, sign_of, told_apart
from benchmarks.judgement.table import Rate, ceiling_of, mean_coverage, rates, row_of
from benchmarks.judgement.truth import Truth, exact, finer, rank
from loadtest.simulate.worlds import WORLDS

FALLING = Sign(crossings=[30.0], bottom=4, top=64, starts_above=True)
RISING = Sign(crossings=[30.0], bottom=4, top=64, starts_above=False)
HUMP = Sign(crossings=[10.0, 40.0], bottom=4, top=64, starts_above=False)
ABOVE = Sign(crossings=[], bottom=4, top=64, starts_above=True)
BELOW = Sign(crossings=[], bottom=4, top=64, starts_above=False)
CASE = Case(name="c", world="default", core=True, cannot_tell=0.1)


def even(form: str, low: float | None = None, high: float | None = None, regions: Any = ()) -> dict[str, Any]:
    return {"form": form, "at": [low, None, high], "regions": regions}


@pytest.mark.parametrize(
    ("found", "truth", "true"),
    [
        (even("pays_up_to", 25, 35), FALLING, True),
        (even("pays_up_to", 30, 35), FALLING, True),
        (even("pays_up_to", 31, 35), FALLING, False),
        (even("pays_up_to", 25, 29), FALLING, False),
        (even("pays_up_to", 25, None), FALLING, True),  # its upper bound lies beyond the ladder
        (even("pays_up_to", 31, None), FALLING, False),
        (even("pays_up_to", 50, None), ABOVE, True),
        (even("pays_up_to", 50, 60), ABOVE, False),
        (even("pays_up_to", None, 10), BELOW, True),
        (even("pays_up_to", 5, 10), BELOW, False),
        (even("pays_up_to", 25, 35), RISING, False),  # the place is right, the direction is not
        (even("pays_from", 25, 35), RISING, True),
        (even("pays_from", 25, 35), FALLING, False),
        (even("pays_from", 8, 12), HUMP, False),  # it falls again at 40
        (even("pays_from", 8, 50), HUMP, False),
        (even("band", regions=[[12, 38]]), HUMP, True),
        (even("band", regions=[[9, 38]]), HUMP, False),
        (even("band", regions=[[45, 60]]), HUMP, False),
        (even("band", regions=[[5, 9], [12, 20]]), HUMP, False),
        (even("pays_everywhere"), ABOVE, True),
        (even("pays_everywhere"), FALLING, False),
        (even("never_pays"), BELOW, True),
        (even("never_pays"), ABOVE, False),
        (even("cannot_tell", 25, 35), FALLING, None),
        (even("no_data"), FALLING, None),
    ],
)
def test_what_a_break_even_claims_is_held_against_the_true_curve(found: Any, truth: Sign, true: bool | None) -> None:
    assert holds(found, truth) is true


def made_truth(ladder: dict[float, float], error: float = 0.001) -> Truth:
    curve = {level: (math.log(ratio), error) for level, ratio in ladder.items()}
    tails = {
        f"{metric} {name} {arm} {level:g}": (0.1, 0.0005)
        for metric in ("ttft", "e2e") for name in ("p50", "p90", "p95", "p99")
        for arm in ("baseline", "speculative") for level in ladder
    }  # fmt: skip
    curves = dict.fromkeys(("e2e", "tpot", "ttft", "output_tokens_per_s"), curve)
    return Truth(ladder=curves, fine=curves, tails=tails, blocks=30)


def made_outcome(**changes: Any) -> dict[str, Any]:
    speedup = {"4": [1.15, 1.2, 1.25], "16": [0.97, 1.02, 1.04]}
    return {
        "case": "c", "seed": 1, "answer": "pays_up_to", "pays": [4.0], "limit": even("pays_up_to", 10, 15),
        "even": {m: even("pays_up_to", 8, None) for m in ("e2e", "tpot", "ttft")},
        "speedup": dict.fromkeys(("e2e", "tpot", "ttft", "output_tokens_per_s"), speedup),
        "tail": {key: [0.09, 0.1, 0.11] for key in made_truth({4: 1.2, 16: 1.0}).tails},
    } | changes  # fmt: skip


def test_a_crossing_is_found_in_log_load_with_its_error() -> None:
    truth = made_truth({16.0: 1.1, 32.0: 1 / 1.1, 64.0: 0.8}, error=0.01)
    [(at, error)] = truth.crossings("e2e", 1.0)
    assert at == pytest.approx(22.627, rel=1e-4)  # the geometric mean
    # half of each end's error, in quadrature, ÷ slope: 0.00707 ÷ (0.19062 ÷ 0.69315) = 2.57 % of the load
    assert error == pytest.approx(22.627 * 0.02571, rel=1e-3)
    assert truth.above("e2e", 1.0, 20)
    assert not truth.above("e2e", 1.0, 24)
    assert sign_of(truth, "e2e", 0.5) == Sign(crossings=[], bottom=16, top=64, starts_above=True)


def test_scores_count_what_holds_and_how_wide_it_is() -> None:
    found = scores(CASE, made_outcome(), made_truth({4: 1.2, 16: 1.05}), 0.03)
    assert found["speed-up e2e at 4"].held == 1
    assert found["speed-up e2e at 4"].widths == (pytest.approx(1.25 / 1.15),)
    # truth's error 0.1 % of the ratio ÷ half of 8.7 %
    assert found["speed-up e2e at 4"].truth_ratio == pytest.approx(0.001 / 0.043478, rel=1e-3)
    assert found["speed-up e2e at 16"].held == 0
    assert (found["speed-up tpot"].held, found["speed-up tpot"].claimed) == (1, 2)
    assert found["tail ttft p90 baseline"] == Score(
        held=2, claimed=2, possible=2, widths=(pytest.approx(11 / 9),) * 2, truth_ratio=pytest.approx(0.045)
    )
    assert found["break-even e2e"].held == 1
    assert found["limit e2e"].held == 0  # at 1.03 it never crosses
    assert "break-even output_tokens_per_s" not in found
    assert "limit e2e" not in scores(replace(CASE, guarded=True), made_outcome(), made_truth({4: 1.2, 16: 1.05}), 0.03)


def test_an_interval_that_is_missing_is_not_claimed_and_an_open_one_holds_on_its_open_side() -> None:
    tail = made_outcome()["tail"] | {"ttft p90 baseline 4": [0.09, 0.1, None], "ttft p90 baseline 16": [None, 0.1, 0.2]}
    found = scores(CASE, made_outcome(tail=tail), made_truth({4: 1.2, 16: 1.0}), 0.03)["tail ttft p90 baseline"]
    assert (found.held, found.claimed, found.possible, found.widths) == (1, 1, 2, ())
    none = scores(CASE, made_outcome(even={"e2e": even("cannot_tell")}), made_truth({4: 1.2, 16: 1.0}), 0.03)
    assert (none["break-even e2e"].claimed, none["break-even e2e"].possible) == (0, 1)


def test_a_percentile_that_failures_reach_has_no_row() -> None:
    truth = made_truth({4: 1.2, 16: 1.0})
    kept = {key: value for key, value in truth.tails.items() if not key.startswith("e2e p99 speculative")}
    found = scores(CASE, made_outcome(), replace(truth, tails=kept), 0.03)
    assert "tail e2e p99 speculative" not in found
    assert "tail e2e p99 baseline" in found


@pytest.mark.parametrize(
    ("changes", "ladder", "wrong"),
    [
        ({"pays": [4.0]}, {4: 1.2, 16: 1.0}, (False, False)),
        ({"pays": [4.0, 16.0]}, {4: 1.2, 16: 1.0}, (True, False)),
        ({"pays": [16.0]}, {4: 1.2, 16: 1.027}, (True, False)),
        ({"pays": [16.0]}, {4: 1.2, 16: 1.0285}, (False, False)),  # the truth is not known well enough to say
        ({"pays": [16.0]}, {4: 1.2, 16: 1.035}, (False, False)),
        ({"pays": [], "answer": "never_pays"}, {4: 1.0315, 16: 1.0}, (False, False)),
        ({"pays": [], "answer": "never_pays"}, {4: 1.2, 16: 1.0}, (False, True)),
        ({"pays": [], "answer": "never_pays"}, {4: 1.01, 16: 1.0}, (False, False)),
        ({"pays": [], "answer": "cannot_tell"}, {4: 1.2, 16: 1.0}, (False, False)),
    ],
)
def test_false_claims_are_those_that_the_truth_denies(changes: Any, ladder: Any, wrong: tuple[bool, bool]) -> None:
    assert false_claims(made_outcome(**changes), made_truth(ladder), 0.03) == wrong


def test_a_gain_of_exactly_the_least_does_not_pay_by_more() -> None:
    known = exact(made_truth({4: 1.04, 16: 1.01}), 0.03)
    assert known.ladder["tpot"] == {level: (pytest.approx(math.log(1.03)), 0.0) for level in (4, 16)}
    assert false_claims(made_outcome(pays=[4.0]), known, 0.03) == (True, False)
    assert false_claims(made_outcome(pays=[], answer="never_pays"), known, 0.03) == (False, False)
    assert false_claims(made_outcome(pays=[4.0]), exact(known, 0.05), 0.03) == (False, False)
    assert exact(known, None) is known
    rows = scores(replace(CASE, gain=0.03), made_outcome(), known, 0.03)
    assert "limit e2e" not in rows  # no load at which it becomes just that
    assert "break-even e2e" in rows
    assert "break-even e2e" not in scores(replace(CASE, gain=0.0), made_outcome(), exact(known, 0.0), 0.03)


def test_rounding_is_no_miss() -> None:
    same = {"4": [1 + 1e-13, 1 + 2e-13, 1 + 3e-13], "16": [1.0, 1.0, 1.0]}
    outcome = made_outcome(speedup=dict.fromkeys(("e2e", "tpot", "ttft", "output_tokens_per_s"), same))
    found = scores(CASE, outcome, exact(made_truth({4: 1.0, 16: 1.0}), 0.0), 0.03)
    assert found["speed-up e2e at 4"].held == found["speed-up e2e at 16"].held == 1
    assert found["speed-up e2e at 4"].truth_ratio == 0
    noise = Truth(ladder={}, fine={"e2e": {4.0: (1e-14, 1e-14), 16.0: (-1e-14, 1e-14)}}, tails={}, blocks=6)
    assert noise.crossings("e2e", 1.0) == []


def test_equal_arms_are_told_apart_when_any_interval_leaves_out_one() -> None:
    assert told_apart(made_outcome())
    speedup = {"e2e": {"4": [0.99, 1.0, 1.01], "16": [1.0, 1.02, 1.04], "32": [None, 1.1, None]}}
    assert not told_apart(made_outcome(speedup=speedup))


def one(held: int, claimed: int = 1, possible: int = 1) -> Score:
    return Score(held=held, claimed=claimed, possible=possible, widths=(1.1,) * claimed, truth_ratio=0.1)


def test_a_row_gives_coverage_with_the_error_of_as_many_experiments() -> None:
    found = row_of(CASE, "break-even e2e", [one(1)] * 94 + [one(0)] * 5 + [one(0, 0)])
    assert found.coverage == pytest.approx(94 / 99)
    assert found.error == pytest.approx(stats.sem([1] * 94 + [0] * 5))
    assert (found.intervals, found.cannot_tell) == (99, pytest.approx(0.01))
    assert found.width == pytest.approx(0.1)
    assert found.held
    many = row_of(CASE, "speed-up tpot", [one(5, 5, 5)] * 9 + [one(0, 5, 5)])
    assert many.error == pytest.approx(0.1)  # ten experiments, not fifty intervals


@pytest.mark.parametrize(
    ("name", "found", "off"),
    [
        ("break-even e2e", [one(1)] * 92 + [one(0)] * 8, ["coverage below 93%"]),
        ("break-even e2e", [one(1)] * 8 + [one(0, 0)] * 2, ["cannot tell in more than 10%"]),
        ("speed-up e2e at 4", [one(1)] * 99 + [one(0, 0)], ["cannot tell in more than 0%"]),
        ("tail ttft p90 baseline", [one(1)] * 9 + [one(0, 0)], ["cannot tell in more than 5%"]),
        ("break-even e2e", [replace(one(1), truth_ratio=0.21)], ["truth not known well enough"]),
        ("break-even tpot", [one(0, 0)], []),
    ],
)
def test_a_row_says_what_does_not_hold(name: str, found: list[Score], off: list[str]) -> None:
    assert list(row_of(CASE, name, found).off) == off


def test_luck_alone_breaks_nothing() -> None:
    unlucky, broken = ([one(1)] * (100 - n) + [one(0)] * n for n in (12, 25))
    assert not row_of(CASE, "break-even e2e", unlucky).held
    assert not row_of(CASE, "break-even e2e", unlucky).broken  # 88 ± 3.3 %
    assert row_of(CASE, "break-even e2e", broken).broken  # 75 ± 4.4 %
    assert not row_of(replace(CASE, counted=False), "break-even e2e", broken).broken
    assert not Rate(case="c", what="x", count=12, of=100, at_most=0.065).broken  # 12 ± 3.2 %
    assert Rate(case="c", what="x", count=20, of=100, at_most=0.065).broken
    assert Rate(case="c", what="x", count=1, of=10, at_most=0.0).broken  # what must never happen
    assert not Rate(case="c", what="x", count=90, of=100, at_most=None).broken


def test_coverage_that_is_shown_only_is_not_held_against_the_limit() -> None:
    shown = replace(CASE, counted=False)
    assert row_of(shown, "break-even e2e", [one(0)] * 5).held
    rows = [row_of(shown, "break-even e2e", [one(0)]), row_of(CASE, "break-even e2e", [one(1)])]
    assert mean_coverage([replace(rows[0], case="s"), rows[1]], {"s": shown, "c": CASE}) == 1.0


def test_rates_count_experiments() -> None:
    truth = made_truth({4: 1.2, 16: 1.0})
    outcomes = [made_outcome(pays=[4.0, 16.0])] * 3 + [made_outcome()] * 37
    pays, never = rates(CASE, outcomes, truth, 0.03)
    assert (pays.count, pays.of, pays.held) == (3, 40, False)  # 7.5 % of at most 6.5 %
    assert pays.error == pytest.approx(math.sqrt(0.075 * 0.925 / 40))
    assert (never.count, never.held) == (0, True)
    [apart] = rates(replace(CASE, aa=True), outcomes, truth, 0.03)
    assert apart.count == 40
    limited = rates(replace(CASE, pays_at_most=0.0), outcomes, truth, 0.03)[-1]
    assert (limited.what, limited.count, limited.held) == ("says that it pays", 40, False)
    assert Rate(case="c", what="x", count=13, of=200, at_most=0.065).held
    assert not Rate(case="c", what="x", count=14, of=200, at_most=0.065).held


def test_finer_levels_lie_where_a_curve_crosses_and_are_as_many_as_the_ladders() -> None:
    falling = {m: {4.0: (0.2, 0), 16.0: (0.05, 0), 32.0: (-0.02, 0), 64.0: (-0.1, 0)} for m in ("e2e", "tpot")}
    assert finer(falling, (4.0, 16.0, 32.0, 64.0), 1.03) == (18.0, 21.0, 24.0, 28.0)
    assert finer({"e2e": {4.0: (0.2, 0), 64.0: (0.1, 0)}}, (4.0, 64.0), 1.03) == ()


def test_percentiles_are_of_the_nearest_rank_and_failures_are_slowest() -> None:
    assert rank(np.array([3.0, 1.0, 2.0, math.inf]), 0.5) == 2.0
    assert rank(np.array([3.0, 1.0, 2.0, math.inf]), 0.9) == math.inf
    values = np.random.default_rng(1).exponential(size=1001)
    assert rank(values, 0.95) == np.quantile(values, 0.95, method="inverted_cdf")


def test_every_world_has_a_case_and_every_case_a_world() -> None:
    # Two differ in nothing, not even by luck, and one only in what it answers.
    assert {case.world for case in CASES} == set(WORLDS) - {"aa", "null", "astray"}
    assert len(BY_NAME) == len(CASES)
    assert sum(case.core for case in CASES) == 6
    assert {ceiling_of(CASES[0], name) for name in ("break-even e2e", "speed-up e2e at 4")} == {0.05, 0.0}


def test_the_same_seed_is_another_one_in_each_case() -> None:
    assert len({case.experiment(1000).plan.seed for case in CASES}) == len(CASES)
    assert BY_NAME["crossing"].experiment(7).plan.seed == BY_NAME["crossing"].experiment(7).plan.seed < 2**63


def test_cases_take_turns_and_core_ones_go_on() -> None:
    cases = [replace(CASE, name="core"), replace(CASE, name="rest", core=False)]
    order = list(command.work(cases, 7, 12, 100))
    assert order[:5] == [("core", 100 + i) for i in range(5)]
    assert order[5:11] == [*(("rest", 100 + i) for i in range(5)), ("core", 105)]
    assert order[-2:] == [("core", 110), ("core", 111)]
    assert len(set(order)) == 19


def test_outcomes_survive_a_kill_and_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "o.jsonl"
    kept = command.Outcomes(file)
    kept.keep(made_outcome(seed=1))
    kept.keep(made_outcome(seed=2))
    kept.close()
    with file.open("a") as out:
        out.write('{"case": "c", "se')
    again = command.Outcomes(file)
    assert sorted(again.found) == [("c", 1), ("c", 2)]
    again.keep(made_outcome(seed=3))
    again.close()
    assert [json.loads(line).get("seed") for line in file.read_text().splitlines()] == [None, 1, 2, 3]
    monkeypatch.setattr(command, "code_hash", lambda parts: "another")
    with pytest.raises(SystemExit, match="other code"):
        command.Outcomes(file)


@pytest.mark.parametrize("words", [["--worlds", "nowhere"], ["--first-seed", "899999999"]])
def test_wrong_options_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.parsed(words)
    assert "error:" in capsys.readouterr().err


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Case:
    case = replace(BY_NAME["crossing"], name="small", settings={
        "load": {"levels": (4.0, 16.0)}, "plan": {"blocks": 2},
        "window": {"min_s": 0.5, "max_s": 0.5, "min_requests": 1},
    })  # fmt: skip
    monkeypatch.setitem(BY_NAME, "small", case)
    return case


def test_the_truth_is_that_of_the_metrics_and_is_kept(small: Case, tmp_path: Path) -> None:
    made = truths.run(small, small.experiment(5))
    own, claimed = truths.reduced(made), outcome(("small", 5))
    for metric, by_level in own["ratios"].items():
        for level, values in by_level.items():
            assert math.exp(sum(values) / 2) == pytest.approx(claimed["speedup"][metric][f"{level:g}"][1], rel=1e-5)
    for key, (_, value, _) in claimed["tail"].items():
        metric, name, arm, level = key.split()
        found = rank(np.array(own["latencies"][metric, arm, float(level)]), {"p50": 0.5, "p90": 0.9}.get(name, 1.0))
        assert name not in ("p50", "p90") or found == pytest.approx(value, rel=1e-5)
    with ThreadPoolExecutor(1) as pool:
        first = truths.find(small, pool, tmp_path, 4)
    assert first == truths.find(small, ThreadPoolExecutor(1), tmp_path, 4)  # from the file: nothing is run
    assert first.blocks == 4
    assert len(list(tmp_path.iterdir())) == 1
    assert first.ladder["e2e"][4.0][0] > 0
