"""Whether two servers answer alike: intervals, tests, verdicts, and their size where nothing differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from loadtest.analyse.output_results import OutputComparison, OutputVerdict
from loadtest.analyse.outputs import compare_outputs, judge_outputs, paired_difference, share
from loadtest.analyse.permutation import deals, energy, holm, p_value, shift
from loadtest.errors import UsageError

B, C = "baseline", "speculative"


def row(answers: list[tuple[str, str, int, str]], *, errors: tuple[str, ...] = ()) -> dict[str, Any]:
    """A line of outputs.jsonl: (arm, text, tokens, finish reason) of each answer; texts differ wholly or not at all."""
    made = [
        {"arm": arm, "number": 0, "hash": text, "tokens": tokens, "characters": 4 * tokens, "finish_reason": reason,
         "error": errors[i] if errors else ""}
        for i, (arm, text, tokens, reason) in enumerate(answers)
    ]  # fmt: skip
    pairs = []
    for a in range(len(answers)):
        for b in range(a + 1, len(answers)):
            same = answers[a][1] == answers[b][1]
            place = None if same else 7
            pairs.append({"a": a, "b": b, "same": same, "token": place, "character": None if same else 30,
                          "distance": 0.0 if same else 0.5})  # fmt: skip
    return {"prompt": "p", "category": "chat", "answers": made, "pairs": pairs}


def greedy(first: str, second: str, candidate: str, tokens: tuple[int, int, int] = (20, 20, 20)) -> dict[str, Any]:
    texts = zip((B, B, C), (first, second, candidate), tokens, strict=True)
    return row([(arm, text, count, "stop") for arm, text, count in texts])


def judged(rows: list[dict[str, Any]], *, is_greedy: bool = True) -> OutputComparison:
    return compare_outputs(rows, B, greedy=is_greedy, margin=0.10)


ALIKE, OTHER, BOTH, ITSELF, FIRST = (greedy(*texts) for texts in ("aaa", "aab", "abc", "aba", "baa"))


def test_a_share_has_wilson_s_interval() -> None:
    for count, n in ((0, 40), (3, 40), (40, 40)):
        found, known = share([i < count for i in range(n)]), stats.binomtest(count, n).proportion_ci(method="wilson")
        assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-12)


def test_the_interval_of_a_paired_difference_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    for shared, only, instead in ((0.1, 0.1, 0.1), (0.0, 0.2, 0.0), (0.2, 0.05, 0.15)):
        truth, inside = only - instead, 0
        for _ in range(1000):
            kind = rng.choice(4, size=40, p=[shared, only, instead, 1 - shared - only - instead])
            found = paired_difference([k in (0, 1) for k in kind], [k in (0, 2) for k in kind])
            assert found.low is not None
            assert found.high is not None
            inside += found.low <= truth <= found.high
        assert inside >= 930  # of 1000 at 95 %: below it in under 1 of 200 such tests


def test_holm_s_adjustment() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_labels_are_dealt_within_a_prompt() -> None:
    assert deals(2, 1) == [(0,), (1,), (2,)]
    assert deals(2, 2) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_the_energy_statistic() -> None:
    apart = np.array([[0, 1, 4, 4], [1, 0, 4, 4], [4, 4, 0, 2], [4, 4, 2, 0]], dtype=float)
    assert energy(apart, (2, 3)) == 2 * 4 - 1 - 2
    assert energy(apart, (1, 3)) == 2 * (1 + 4 + 4 + 2) / 4 - 4 - 4
    assert energy(apart[:3, :3], (2,)) == 4 - 1


def test_with_one_answer_each_the_test_is_the_paired_permutation_test() -> None:
    rng = np.random.default_rng(2)
    lengths = rng.normal([100, 108], 20, size=(14, 2))
    parts = np.array([[[shift(pair, deal)] for deal in deals(1, 1)] for pair in lengths])
    known = stats.permutation_test(
        (lengths[:, 1], lengths[:, 0]), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
        vectorized=True, n_resamples=100_000,
    )  # fmt: skip
    assert p_value(parts, 1, two_sided=True) == pytest.approx(known.pvalue, abs=0.02)


def test_equal_answers_are_the_same_from_enough_prompts_on() -> None:
    found = judged([ALIKE] * 35)
    assert (found.verdict, found.exit_code) == (OutputVerdict.SAME, 0)
    assert found.identical.value == found.identical_itself.value == 1.0
    assert found.headline == (
        "The candidate's greedy answers are as like the baseline's as those are to each other: 100 % [90, 100] of 35"
        " are identical, where 100 % of the baseline's second answers are."
    )
    few = judged([ALIKE] * 34)
    assert (few.verdict, few.exit_code) == (OutputVerdict.CANNOT_TELL, 4)
    assert few.headline.endswith("At least 35 prompts would tell (outputs.prompts).")


def test_answers_that_differ_beyond_the_baseline_s_own_are_told() -> None:
    found = judged([OTHER] * 8 + [ALIKE] * 32)
    assert (found.verdict, found.exit_code) == (OutputVerdict.DIFFERS, 3)
    assert found.identical.value == 0.8
    assert found.first_token.value == 7
    assert found.first_token_itself.value is None
    assert "by identical answers (p = 0.0012)" in found.headline
    assert "the first difference is at token 8 in the median" in found.headline
    assert [test.name for test in found.tests if test.rejected] == ["answers"]


def test_a_baseline_that_differs_from_itself_excuses_the_candidate() -> None:
    rows = [BOTH] * 4 + [OTHER] * 4 + [ITSELF] * 4 + [FIRST] * 4 + [ALIKE] * 24  # each in turn is the odd one out
    found = judged(rows)
    assert found.verdict is OutputVerdict.CANNOT_TELL
    assert found.identical.value == 28 / 40
    assert found.identical_itself.value == 28 / 40
    assert found.excess.value == 0.0
    assert judged(rows * 5).verdict is OutputVerdict.SAME


def test_longer_answers_are_told_though_every_text_differs_anyway() -> None:
    rng = np.random.default_rng(4)

    def rows(longer: int) -> list[dict[str, Any]]:
        made = []
        for _ in range(40):
            a, b, c = (int(n) for n in rng.integers(90, 111, size=3))
            made.append(greedy("a", "b", "c", (a, b, c + longer)))
        return made

    assert [t.name for t in judged(rows(12)).tests if t.rejected] == ["lengths"]
    assert not any(t.rejected for t in judged(rows(0)).tests)


def test_other_finish_reasons_are_told() -> None:
    ended = [row([(B, "a", 9, "stop"), (B, "b", 9, "stop"), (C, "c", 9, "length")])] * 10
    found = judged(ended + [BOTH] * 30)
    assert [t.name for t in found.tests if t.rejected] == ["finish_reasons"]


def test_prompts_without_every_answer_are_left_out_and_too_many_are_invalid() -> None:
    lost = row([(B, "", 0, ""), (B, "", 0, ""), (C, "", 0, "")], errors=("", "", "HTTP 503"))
    some = judged([ALIKE] * 36 + [lost] * 4)
    assert (some.prompts, some.left_out, some.verdict) == (36, 4, OutputVerdict.SAME)
    many = judged([ALIKE] * 35 + [lost] * 5)
    assert (many.verdict, many.exit_code) == (OutputVerdict.INVALID, 5)
    assert many.headline == (
        "The answers cannot be compared: 5 of 40 prompts lack one (limit 10 %); most often: HTTP 503."
    )


def sampled(rng: np.random.Generator, words: np.ndarray[Any, Any], other: np.ndarray[Any, Any], mixture: float,
            longer: float) -> dict[str, Any]:  # fmt: skip
    """Four sampled answers to one prompt: each a bag of words whose Hellinger distances are known exactly."""
    drawn = []
    for arm in (B, B, C, C):
        chances = (1 - mixture) * words + mixture * other if arm == C else words
        count = max(2, round(float(rng.normal(30, 5)) * (longer if arm == C else 1.0)))
        drawn.append((arm, rng.multinomial(count, chances), count))
    made = row([(arm, str(i), count, "stop") for i, (arm, _, count) in enumerate(drawn)])
    for pair in made["pairs"]:
        x, y = (drawn[pair[side]][1] / drawn[pair[side]][2] for side in "ab")
        pair["distance"] = float(np.sqrt(max(0.0, 1 - np.sqrt(x * y).sum())))
    return made


@pytest.mark.slow
def test_where_nothing_differs_a_difference_is_told_in_at_most_one_run_of_twenty() -> None:
    rng = np.random.default_rng(9)
    told = {"text": 0, "lengths": 0, "finish_reasons": 0, "any": 0}
    for _ in range(100):
        rows = []
        for _ in range(15):
            words = rng.dirichlet(np.full(20, 0.3))
            rows.append(sampled(rng, words, words, 0.0, 1.0))
        found = judged(rows, is_greedy=False)
        told["any"] += found.verdict is OutputVerdict.DIFFERS
        for test in found.tests:
            told[test.name] += test.p_value < 0.05
    assert all(count <= 12 for count in told.values()), told  # of 100 at 5 %: more than 12 in 1 of 700


def test_other_words_or_lengths_are_told_above_temperature_0() -> None:
    rng = np.random.default_rng(10)

    def rows(mixture: float, longer: float) -> list[dict[str, Any]]:
        words, other = rng.dirichlet(np.full(20, 0.3)), rng.dirichlet(np.full(20, 0.3))
        return [sampled(rng, words, other, mixture, longer) for _ in range(30)]

    assert [t.name for t in judged(rows(0.4, 1.0), is_greedy=False).tests if t.rejected] == ["text"]
    assert "lengths" in [t.name for t in judged(rows(0.0, 1.3), is_greedy=False).tests if t.rejected]


def test_sampled_answers_are_the_same_once_every_interval_lies_within_its_margin() -> None:
    rng = np.random.default_rng(12)
    words = rng.dirichlet(np.full(20, 0.3))
    rows = [sampled(rng, words, words, 0.0, 1.0) for _ in range(150)]
    found = judged(rows, is_greedy=False)
    assert found.verdict is OutputVerdict.SAME
    assert found.length_ratio.value == pytest.approx(1.0, abs=0.05)
    assert found.text_coefficient.value == pytest.approx(0.0, abs=0.03)
    assert judged(rows[100:108], is_greedy=False).verdict is OutputVerdict.CANNOT_TELL


def test_characters_stand_in_for_tokens_that_a_server_does_not_count() -> None:
    uncounted = [greedy("a", "a", "a") for _ in range(40)]
    for one in uncounted:
        for answer in one["answers"]:
            answer["tokens"] = None
    assert judged(uncounted).length_ratio.value == 1.0


def test_the_same_records_give_the_same_verdict() -> None:
    rows = [OTHER] * 3 + [BOTH] * 10 + [ALIKE] * 20
    assert judged(rows) == judged(rows)


def test_damaged_records_are_refused(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="holds a line that no comparison writes"):
        judged([{"prompt": "p"}])
    with pytest.raises(UsageError, match="answers of baseline"):
        judged([row([(B, "a", 1, "stop"), (C, "a", 1, "stop")])])
    assert judge_outputs(tmp_path, {}) is None
