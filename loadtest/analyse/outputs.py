"""Do both arms answer alike? The candidate against the baseline, with the baseline against itself as the yardstick."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.output_results import OutputComparison, OutputTest, OutputVerdict
from loadtest.analyse.output_words import headline
from loadtest.analyse.permutation import deals, energy, holm, p_value, shift
from loadtest.analyse.stats import Floats, quantile_estimate, sample_of
from loadtest.errors import ExitCode, UsageError
from loadtest.experiment import from_document
from loadtest.run_folder import read_lines

FILE = "outputs.jsonl"
ALPHA = 0.05  # over the tests together
LENGTHS = (0.9, 1.1)  # candidate ÷ baseline, as for the answers that are measured
LEFT_OUT = 0.10  # share of prompts that may lack an answer
SEED = 1  # of the deals: the same records give the same verdict
Z = float(stats.norm.ppf(0.975))
EXITS = {
    OutputVerdict.SAME: ExitCode.PASS,
    OutputVerdict.DIFFERS: ExitCode.FAILED,
    OutputVerdict.CANNOT_TELL: ExitCode.INCONCLUSIVE,
    OutputVerdict.INVALID: ExitCode.INVALID,
}
TESTS = {
    "answers": "identical answers",
    "text": "text (runs of four characters)",
    "lengths": "length of the answers",
    "finish_reasons": "finish reasons",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    """The answers to one prompt, the baseline's first."""

    baseline: int  # how many are the baseline's
    tokens: Floats  # characters where a server counts no tokens
    reasons: tuple[str, ...]
    apart: Floats  # matrix: 1 where two answers are not identical
    distances: Floats
    places: dict[tuple[int, int], tuple[int | None, int | None]]  # pair → first different token and character


def judge_outputs(folder: Path, run: Mapping[str, Any]) -> OutputComparison | None:
    """Judge outputs.jsonl of a run; None where answers were not compared. Raises UsageError for damaged records."""
    rows = list(read_lines(folder / FILE))
    if not rows:
        return None
    experiment = from_document(run["experiment"])
    return compare_outputs(
        rows, str(run["baseline"]), greedy=experiment.generation.temperature == 0, margin=experiment.outputs.margin
    )


def compare_outputs(
    rows: Sequence[Mapping[str, Any]], baseline: str, *, greedy: bool, margin: float
) -> OutputComparison:
    """Compare the answers to some prompts (rows of outputs.jsonl).

    The verdict is DIFFERS where a test rejects at 5 %, Holm-adjusted; SAME where none does and the 95 % intervals lie
    within the margins; INVALID where more than a tenth of the prompts lack an answer; else CANNOT_TELL.
    """
    try:
        read = [_prompt(row, baseline) for row in rows]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError(f"{FILE} holds a line that no comparison writes: {error!r}.") from error
    prompts = [prompt for prompt in read if prompt is not None]
    left_out = len(rows) - len(prompts)
    if left_out > LEFT_OUT * len(rows):
        return _invalid(rows, left_out, greedy=greedy)
    first = [_same(p, p.baseline) for p in prompts], [_same(p, 1) for p in prompts]
    excess = paired_difference([not same for same in first[0]], [not same for same in first[1]])
    ratio, coefficient = _length_ratio(prompts), _coefficient(prompts)
    tests = _tests(prompts, greedy=greedy)
    verdict = _verdict(tests, excess if greedy else coefficient, ratio, prompts, greedy=greedy, margin=margin)
    found = OutputComparison(
        verdict=verdict, exit_code=int(EXITS[verdict]), headline="", greedy=greedy, prompts=len(prompts),
        left_out=left_out, margin=margin, identical=share(first[0]), identical_itself=share(first[1]), excess=excess,
        first_token=_median(prompts, 0, itself=False), first_character=_median(prompts, 1, itself=False),
        first_token_itself=_median(prompts, 0, itself=True), first_character_itself=_median(prompts, 1, itself=True),
        length_ratio=ratio, text_coefficient=coefficient, tests=tests,
    )  # fmt: skip
    return _with_words(found)


def _prompt(row: Mapping[str, Any], baseline: str) -> _Prompt | None:
    """Return the answers to a prompt, or None where one is missing."""
    answers = row["answers"]
    if any(answer["error"] for answer in answers):
        return None
    own = sum(answer["arm"] == baseline for answer in answers)
    arms = [answer["arm"] == baseline for answer in answers]
    if own != 2 or len(answers) not in (3, 4) or not all(arms[:2]):
        raise ValueError(f"{own} answers of {baseline} among {len(answers)}")
    apart, distances = np.zeros((len(answers), len(answers))), np.zeros((len(answers), len(answers)))
    places = {}
    for pair in row["pairs"]:
        a, b = int(pair["a"]), int(pair["b"])
        apart[a, b] = apart[b, a] = not pair["same"]
        distances[a, b] = distances[b, a] = float(pair["distance"])
        places[a, b] = (pair["token"], pair["character"])
    if len(places) != len(answers) * (len(answers) - 1) // 2:
        raise ValueError("a pair of answers that was not compared")
    counted = all(answer["tokens"] is not None for answer in answers)
    lengths = [float(answer["tokens" if counted else "characters"]) for answer in answers]
    return _Prompt(baseline=own, tokens=np.array(lengths), apart=apart, distances=distances, places=places,
                   reasons=tuple(str(answer["finish_reason"]) for answer in answers))  # fmt: skip


def _same(prompt: _Prompt, other: int) -> bool:
    """Return whether an answer is identical to the baseline's first."""
    return not prompt.apart[0, other]


def share(flags: Sequence[bool]) -> Estimate:
    """Return a share with its 95 % interval (Wilson 1927)."""
    low, high = _wilson(sum(flags), len(flags))
    return Estimate(value=sum(flags) / len(flags), low=low, high=high, n=len(flags))


def _wilson(count: int, n: int) -> tuple[float, float]:
    middle = (count + Z**2 / 2) / (n + Z**2)
    half = Z / (n + Z**2) * math.sqrt(count * (n - count) / n + Z**2 / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def paired_difference(one: Sequence[bool], other: Sequence[bool]) -> Estimate:
    """Return share(one) − share(other) of the same cases with a 95 % interval: Newcombe (1998), method 10."""
    n = len(one)
    both = sum(a and b for a, b in zip(one, other, strict=True))
    only, instead = sum(one) - both, sum(other) - both
    neither = n - both - only - instead
    p1, p2 = sum(one) / n, sum(other) / n
    (l1, u1), (l2, u2) = _wilson(sum(one), n), _wilson(sum(other), n)
    product = sum(one) * (n - sum(one)) * sum(other) * (n - sum(other))
    skew = both * neither - only * instead
    corrected = max(skew - n / 2, 0.0) if skew > 0 else float(skew)
    phi = corrected / math.sqrt(product) if product else 0.0
    low = math.sqrt(max(0.0, (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2))
    high = math.sqrt(max(0.0, (u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2))
    return Estimate(value=p1 - p2, low=p1 - p2 - low, high=p1 - p2 + high, n=n)


def _median(prompts: Sequence[_Prompt], which: int, *, itself: bool) -> Estimate:
    """Return the median place of the first difference over the prompts that have one, with its 95 % interval."""
    places = [p.places[0, 1 if itself else p.baseline][which] for p in prompts]
    return quantile_estimate(sample_of(np.array([float(x) for x in places if x is not None])), 0.5)


def _length_ratio(prompts: Sequence[_Prompt]) -> Estimate:
    """Return mean length of the candidate's answers ÷ the baseline's, over the same prompts, with a t interval."""
    base = np.array([p.tokens[: p.baseline].mean() for p in prompts])
    cand = np.array([p.tokens[p.baseline :].mean() for p in prompts])
    return _ratio(cand, base)


def _coefficient(prompts: Sequence[_Prompt]) -> Estimate:
    """Return the energy statistic of the texts ÷ the mean distance between the arms: 0 alike, 1 wholly apart."""
    found = []
    for p in prompts:
        between = float(p.distances[: p.baseline, p.baseline :].mean())
        scale = 2 if len(p.tokens) - p.baseline > 1 else 1
        found.append((energy(p.distances, range(p.baseline, len(p.tokens))), scale * between))
    return _ratio(*(np.array(side) for side in zip(*found, strict=True)))


def _ratio(above: Floats, below: Floats) -> Estimate:
    """Return Σ above ÷ Σ below with its 95 % t interval (ratio estimator, Cochran 1977, §6); 0 ÷ 0 is 0."""
    n, mean = len(above), float(below.mean())
    if mean <= 0:
        return Estimate(value=0.0, low=0.0, high=0.0, n=n) if not above.any() else Estimate(n=n)
    ratio = float(above.mean()) / mean
    if n < 2:
        return Estimate(value=ratio, n=n)
    half = float(stats.t.ppf(0.975, n - 1) * np.std(above - ratio * below, ddof=1)) / (math.sqrt(n) * mean)
    return Estimate(value=ratio, low=ratio - half, high=ratio + half, n=n)


def _tests(prompts: Sequence[_Prompt], *, greedy: bool) -> tuple[OutputTest, ...]:
    """Return the permutation tests: lengths, finish reasons, and identity (greedy) or text (above temperature 0)."""
    dealt = deals(prompts[0].baseline, len(prompts[0].tokens) - prompts[0].baseline)
    reasons = sorted({reason for p in prompts for reason in p.reasons})
    ended = [np.array([[r == reason for r in p.reasons] for reason in reasons], dtype=float) for p in prompts]
    whole = np.array([[[energy(p.apart if greedy else p.distances, deal)] for deal in dealt] for p in prompts])
    lengths = np.array([[[shift(p.tokens, deal)] for deal in dealt] for p in prompts])
    finishes = np.array([[[shift(kind, deal) for kind in own] for deal in dealt] for own in ended])
    found = {
        "answers" if greedy else "text": p_value(whole, SEED, two_sided=False),
        "lengths": p_value(lengths, SEED, two_sided=True),
        "finish_reasons": p_value(finishes, SEED, two_sided=True),
    }
    adjusted = holm(list(found.values()))
    return tuple(
        OutputTest(name=name, label=TESTS[name], p_value=p, adjusted=held, rejected=held < ALPHA)
        for (name, p), held in zip(found.items(), adjusted, strict=True)
    )


def _verdict(
    tests: Sequence[OutputTest], apart: Estimate, ratio: Estimate, prompts: Sequence[_Prompt], *,
    greedy: bool, margin: float,
) -> OutputVerdict:  # fmt: skip
    if any(test.rejected for test in tests):
        return OutputVerdict.DIFFERS
    near = apart.high is not None and apart.high <= margin
    if not greedy:
        lengths = (
            ratio.low is not None and ratio.high is not None and LENGTHS[0] <= ratio.low <= ratio.high <= LENGTHS[1]
        )
        near = near and lengths and _finishes_near(prompts, margin)
    return OutputVerdict.SAME if near else OutputVerdict.CANNOT_TELL


def _finishes_near(prompts: Sequence[_Prompt], margin: float) -> bool:
    """Return whether the difference of the share of each finish reason is proven to lie within the margin."""
    for reason in {reason for p in prompts for reason in p.reasons}:
        # Two answers of an arm to one prompt are no two cases: the first of each is taken.
        found = paired_difference([p.reasons[p.baseline] == reason for p in prompts],
                                  [p.reasons[0] == reason for p in prompts])  # fmt: skip
        if found.low is None or found.high is None or found.low < -margin or found.high > margin:
            return False
    return True


def _invalid(rows: Sequence[Mapping[str, Any]], left_out: int, *, greedy: bool) -> OutputComparison:
    errors = [str(a["error"]) for row in rows for a in row["answers"] if a["error"] and a["error"] != "not sent"]
    most = max(sorted(set(errors)), key=errors.count, default="not sent")
    return OutputComparison(
        verdict=OutputVerdict.INVALID, exit_code=int(ExitCode.INVALID), greedy=greedy, prompts=len(rows) - left_out,
        left_out=left_out,
        headline=f"The answers cannot be compared: {left_out} of {len(rows)} prompts lack one (limit"
        f" {100 * LEFT_OUT:.0f} %); most often: {most}.",
    )  # fmt: skip


def _with_words(found: OutputComparison) -> OutputComparison:
    return replace(found, headline=headline(found))
