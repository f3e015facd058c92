"""Several candidates: simultaneous intervals, which of them is named, and what a candidate that is unsound changes."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import fastjsonschema
import numpy as np
import pytest
from made_run import BASE
from several_runs import LEVELS, SPEEDUPS, five_arms, judged, made

from loadtest.analyse.early import certain_failure
from loadtest.analyse.gating import Asked
from loadtest.analyse.results import Answer
from loadtest.analyse.verdict import as_json
from loadtest.errors import UsageError
from loadtest.json_files import write_json
from loadtest.reading import check_header
from loadtest.run_folder import read_run

SCHEMA = Path(__file__).parents[3] / "docs" / "verdict.schema.json"
VIOLATION = {"item": "model", "baseline": "a", "candidate": "b", "source": "verified", "kind": "violation"}


def test_the_headline_says_which_candidate_pays_up_to_where_and_which_is_best():
    _, found = five_arms()
    said = found.decision.headline
    assert said.startswith("eagle3 pays at every tested load (1 to 64 users), ")
    assert said.endswith("medusa pays at none of the tested loads. Best: eagle3 at 4 to 64 users.")
    assert "ngram pays up to " in said
    assert "draft pays up to " in said
    assert "by end-to-end time, by at least 3 %" in said
    assert (found.decision.answer, found.decision.exit_code) == (Answer.PAYS_EVERYWHERE, 0)
    assert found.decision.recommendation == "eagle3: on"
    assert found.arms == (BASE, "eagle3", "ngram", "draft", "medusa")
    assert [pair.arms for pair in found.pairs] == [(BASE, name) for name in SPEEDUPS]


def test_candidates_that_differ_nowhere_are_said_to_be_alike_and_none_is_named_best():
    same = dict.fromkeys(("a", "b", "c"), SPEEDUPS["ngram"])
    found = judged(made(same))
    assert found.ranking is not None
    assert found.ranking.alike == (("a", "b"), ("a", "c"), ("b", "c"))
    assert found.ranking.best == {}
    assert found.decision.headline.endswith(" cannot be told apart at any tested load.")
    assert "Best" not in found.decision.headline
    assert found.decision.recommendation.count("on up to") == 3


def test_intervals_are_as_wide_as_bonferroni_asks_for():
    """Students t of 5 degrees of freedom: 2.571 for 95 %, 3.810 for 98.75 % (Bonferroni's t of 4 comparisons)."""
    alone = judged(made({"eagle3": SPEEDUPS["eagle3"]}, levels=(4.0,), run={"candidates": None, "candidate": "eagle3"}))
    several = judged(made(dict.fromkeys("abcd", SPEEDUPS["eagle3"]), levels=(4.0,)))

    def t_of(ratio):
        own = np.log(ratio.blocks)
        return math.log(ratio.ratio.high / ratio.ratio.value) / (np.std(own, ddof=1) / math.sqrt(len(own)))

    e2e = [next(s for s in found.speedups if s.metric == "e2e") for found in (alone, *several.pairs)]
    assert t_of(e2e[0]) == pytest.approx(2.571, abs=1e-3)
    assert [t_of(one) for one in e2e[1:]] == pytest.approx([3.810] * 4, abs=1e-3)
    assert several.ranking is not None
    assert (several.ranking.of_candidate, several.ranking.of_pair) == pytest.approx((0.9875, 1 - 0.05 / 6))


def test_a_pair_says_what_a_run_of_its_two_arms_says_but_for_the_width():
    what = made({name: SPEEDUPS[name] for name in ("eagle3", "medusa")})
    run, cells, scrapes, table = what.build()
    several = judged(what)
    own = {"schema": 1, "candidate": "medusa", "candidates": None}
    from loadtest.analyse.judge import judge_data

    keep = [i for i, arm in enumerate(table.column("arm").to_pylist()) if arm in (BASE, "medusa")]
    alone = judge_data(run | own, [c for c in cells if c.arm != "eagle3"], [s for s in scrapes if s.arm != "eagle3"],
                       table.take(keep))  # fmt: skip
    pair = several.pairs[1]
    assert (pair.decision.answer, pair.arm_levels, pair.cells) == (
        alone.decision.answer, alone.arm_levels, alone.cells)  # fmt: skip
    for mine, its in zip(pair.speedups, alone.speedups, strict=True):
        assert mine.ratio.value == its.ratio.value
        assert mine.ratio.low < its.ratio.low < its.ratio.high < mine.ratio.high


def test_a_candidate_that_is_no_pair_is_not_judged_and_the_others_are():
    rows = [VIOLATION | {"arm": "ngram"}, VIOLATION | {"arm": "eagle3", "kind": "equal"}]
    found = judged(made(run={"comparability": rows}))
    assert "ngram is not judged" in found.decision.headline
    assert "ngram is not judged: The servers differ in more than speculation: model." in found.decision.second
    assert found.decision.exit_code == 0
    assert [pair.decision.answer is Answer.INVALID for pair in found.pairs] == [False, True, False, False]
    assert found.ranking is not None
    assert not any("ngram" in (one.first, one.second) for one in found.ranking.against)
    assert [len(pair.comparability) for pair in found.pairs] == [1, 1, 0, 0]


def test_where_no_candidate_is_sound_the_run_is_invalid():
    rows = [VIOLATION | {"arm": name} for name in SPEEDUPS]
    found = judged(made(run={"comparability": rows}))
    assert (found.decision.answer, found.decision.exit_code) == (Answer.INVALID, 5)
    assert found.decision.reasons[0] == "The servers differ in more than speculation: model."


@pytest.mark.parametrize(
    ("speedups", "blocks", "answer", "code", "part"),
    [
        ({"a": 0.8, "b": 0.7}, 6, Answer.NEVER_PAYS, 3, "a and b pay at none of the tested loads (1 to 64 users)"),
        ({"a": 1.03, "b": 0.7}, 3, Answer.CANNOT_TELL, 4, "whether a pays cannot be told yet"),
        ({"a": 1.5, "b": 1.03}, 3, Answer.PAYS_EVERYWHERE, 0, "a pays at every tested load"),
    ],
)
def test_the_strongest_answer_of_a_candidate_is_that_of_the_run(speedups, blocks, answer, code, part):
    own = {name: (lambda level, gain=gain: gain) for name, gain in speedups.items()}
    decision = judged(made(own, blocks=blocks)).decision
    assert (decision.answer, decision.exit_code) == (answer, code)
    assert part in decision.headline


def test_measured_only_and_smoke_judge_nothing():
    for flag in ("smoke", "measure_only"):
        found = judged(made({"a": SPEEDUPS["eagle3"], "b": SPEEDUPS["ngram"]}, run={flag: True}))
        assert (found.decision.answer, found.decision.exit_code) == (Answer.MEASURED, 0)


def test_the_verdict_follows_the_published_schema_and_that_of_two_arms_has_nothing_new():
    validate = fastjsonschema.compile(json.loads(SCHEMA.read_text()))
    verdict = as_json(five_arms()[1])
    validate(verdict)
    assert verdict["schema"] == 2
    assert [pair["arms"][1] for pair in verdict["pairs"]] == list(SPEEDUPS)
    assert len(verdict["ranking"]["against"]) == 6 * len(LEVELS)
    alone = as_json(judged(made({"eagle3": SPEEDUPS["eagle3"]}, run={"candidates": None, "candidate": "eagle3"})))
    validate(alone)
    assert alone["schema"] == 1
    assert not {"pairs", "ranking"} & set(alone)


def test_a_run_ends_early_only_when_no_candidate_can_pass():
    def run_of(slow):
        rules = [{"metric": "e2e", "statistic": "mean", "max": "160 ms", "at": "4 users"}]
        experiment = {"load": {"think_time": 0.0}, "slo": {"rules": rules}}
        own = {"a": SPEEDUPS["eagle3"], "b": lambda level: slow}
        return judged(made(own, run={"experiment": experiment}), Asked(allow_simulated=True))

    assert certain_failure(run_of(0.3)) == ""
    both = run_of(0.3)
    assert [certain_failure(pair) != "" for pair in both.pairs] == [False, True]


@pytest.mark.parametrize(
    ("candidates", "part"),
    [
        (["a"], "two or more different names"),
        (["a", "a"], "two or more different names"),
        ("a,b", "two or more different names"),
        ([BASE, "b"], "same name for `baseline` and `candidate`"),
    ],
)
def test_a_header_with_candidates_of_no_use_is_refused(candidates, part):
    run = made().run | {"candidates": candidates}
    with pytest.raises(UsageError, match=part):
        check_header(run, "run.json")


def test_a_header_of_several_is_read(tmp_path):
    write_json(tmp_path / "run.json", made().run)
    assert read_run(tmp_path)["candidates"] == list(SPEEDUPS)


def test_every_pair_of_candidates_stands_in_the_ranking():
    ranking = five_arms()[1].ranking
    assert ranking is not None
    assert {(one.first, one.second) for one in ranking.against} == set(combinations(SPEEDUPS, 2))
    assert ranking.best == dict.fromkeys((4.0, 16.0, 64.0), "eagle3")
    assert ("ngram", "draft") in ranking.alike
