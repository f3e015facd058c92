"""Are the two arms to be compared? Rules on what speculation must and must not change between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from loadtest.analyse import wording
from loadtest.analyse.carried import load_not_carried
from loadtest.analyse.looks import candidates_in
from loadtest.analyse.rules import Effect, Level, Mark, Rule, Unknown
from loadtest.analyse.run_facts import RunFacts
from loadtest.analyse.speculating import (
    ACCEPTANCE_LOW,
    TAU_IDLE,
    baseline_speculates,
    candidate_idle,
    drafts_stop,
    nothing_accepted,
)

LENGTHS = (0.9, 1.1)  # mean output tokens, candidate ÷ baseline, as in MLPerf Inference
FEW_TWINS = 30  # answers to the same requests that a level's ratio of lengths is taken of
FINISH_P, FINISH_DIFFERENCE = 0.001, 0.02
CACHE_POINTS = 0.05  # a twentieth of the prompts' tokens computed by one arm alone weighs as much as what is claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """Candidate ÷ baseline of the tokens of the same requests, with an interval; `level` is None over all levels."""

    level: float | None
    ratio: float
    low: float
    high: float

    @property
    def outside(self) -> bool:
        return not LENGTHS[0] <= self.ratio <= LENGTHS[1]

    @property
    def proven(self) -> bool:
        return self.high < LENGTHS[0] or self.low > LENGTHS[1]


def _lengths_differ(facts: RunFacts) -> Mark | Unknown | None:
    """Answers of unequal length are not the same work. The same requests are compared: an arm's pace chooses others."""
    if facts.candidate is None:
        return None
    found = _length_ratios(facts)
    if not found:
        return Unknown(missing=f"{FEW_TWINS} answers to the same requests with token counts in both arms")
    outside = [ratio for ratio in found if ratio.outside]
    if not outside:
        return None
    worst = max(outside, key=lambda ratio: (ratio.proven, abs(math.log(max(ratio.ratio, 1e-9)))))
    where = "over all levels" if worst.level is None else f"at {wording.with_unit(worst.level)}"
    limits = f"limit {LENGTHS[0]:.2f} to {LENGTHS[1]:.2f}"
    sentence = (
        f"Answers to the same requests differ in length: {worst.ratio:.2f} [{worst.low:.2f}, {worst.high:.2f}] times"
        f" the baseline's tokens {where} ({limits})"
    )
    if worst.proven:
        return Mark(sentence=f"{sentence}: this is not the same work; see `loadtest compare-outputs`.", invalid=True)
    return Mark(sentence=f"{sentence}, which is not proven: more blocks would tell.")


def _length_ratios(facts: RunFacts) -> list[_Lengths]:
    twins = facts.twins
    if twins is None:
        return []
    counted = twins[(twins["output_tokens_b"] >= 0) & (twins["output_tokens_c"] >= 0)]
    levels = sorted({float(level) for level in counted["level"]})
    parts = [(None, counted), *((level, counted[counted["level"] == level]) for level in levels)]
    groups = [(level, own) for level, own in parts if len(own) >= FEW_TWINS]
    found = []
    for level, own in groups:
        base, cand = (own[f"output_tokens_{side}"].to_numpy(dtype=float) for side in "bc")
        if base.sum() <= 0:
            continue
        ratio = float(cand.sum() / base.sum())
        spread = float(np.std(cand - ratio * base, ddof=1)) / (math.sqrt(len(own)) * float(base.mean()))
        tail = 0.025 / (len(groups) * candidates_in(facts.run))
        half = float(stats.t.ppf(1 - tail, len(own) - 1)) * spread  # ratio estimator (Cochran 1977, §6)
        found.append(_Lengths(level=level, ratio=ratio, low=ratio - half, high=ratio + half))
    return found


def _finishes_differ(facts: RunFacts) -> Mark | Unknown | None:
    """Answers should end for the same reasons: an exact test of McNemar for each reason, on the same requests."""
    if facts.candidate is None:
        return None
    twins = facts.twins
    if twins is None or len(twins) < FEW_TWINS:
        return Unknown(missing=f"{FEW_TWINS} answers to the same requests in both arms")
    base, cand = (twins[f"finish_reason_{side}"].astype(str).to_numpy() for side in "bc")
    reasons = sorted(set(base) | set(cand))
    widest, wide = "", 0.0
    for reason in reasons:
        lost, won = int(((base == reason) & (cand != reason)).sum()), int(((base != reason) & (cand == reason)).sum())
        difference = (won - lost) / len(twins)
        if abs(difference) <= max(FINISH_DIFFERENCE, abs(wide)):
            continue
        if stats.binomtest(won, won + lost).pvalue * len(reasons) * candidates_in(facts.run) < FINISH_P:
            widest, wide = reason, difference
    if not wide:
        return None
    shares = [100 * float((side == widest).mean()) for side in (base, cand)]
    return Mark(
        sentence=f"Answers to the same requests end differently: `{widest}` in {shares[0]:.0f} % (baseline) and"
        f" {shares[1]:.0f} % (candidate) (limit {100 * FINISH_DIFFERENCE:.0f} points): see `loadtest compare-outputs`."
    )


def _cache_imbalance(facts: RunFacts) -> Mark | Unknown | None:
    """An arm that finds more of its prompts in its cache has less to compute, whatever it drafts."""
    if facts.candidate is None:
        return None
    shares = _cached_shares(facts)
    if shares is None:
        return Unknown(missing="cached prompt tokens in both arms")
    if abs(shares[1] - shares[0]) <= CACHE_POINTS:
        return None
    return Mark(
        sentence=f"The arms found unequal shares of their prompts in the prefix cache: {100 * shares[0]:.0f} %"
        f" (baseline) and {100 * shares[1]:.0f} % (candidate) (limit {100 * CACHE_POINTS:.0f} points); where"
        " speculation itself costs hits this is part of its price, else give both the same cache settings."
    )


def _cached_shares(facts: RunFacts) -> tuple[float, float] | None:
    """Return the share of prompt tokens found in the cache by baseline and candidate: same requests, else counters."""
    twins = facts.twins
    if twins is not None and len(twins):
        told = twins[(twins["cached_tokens_b"] >= 0) & (twins["cached_tokens_c"] >= 0)]
        asked = (float(told["prompt_tokens_b"].sum()), float(told["prompt_tokens_c"].sum()))
        if min(asked) > 0:
            return float(told["cached_tokens_b"].sum()) / asked[0], float(told["cached_tokens_c"].sum()) / asked[1]
    hits = [own.over("prefix_hits", "prefix_queries") for arm in facts.arms if (own := facts.counters.get(arm))]
    return (hits[0], hits[1]) if len(hits) == 2 and hits[0] is not None and hits[1] is not None else None


def _prompts_differ(facts: RunFacts) -> Mark | Unknown | None:
    """Both arms should be asked the same."""
    if facts.candidate is None:
        return None
    if not facts.pairs:
        return Unknown(missing="requests that both arms were sent")
    if not facts.bodies_differ:
        return None
    return Mark(
        sentence=f"{facts.bodies_differ} of {facts.pairs} paired requests have different bodies (limit 0): draw what"
        " the scenario asks from self.rng(), which is alike in both arms."
    )


def _not_comparable(facts: RunFacts) -> Mark | Unknown | None:
    """A difference that is neither speculation nor its consequence makes the pair not comparable, unless waived."""
    if facts.candidate is None:
        return None
    rows = facts.run.get("comparability") or []
    if not rows:
        return Unknown(missing="what the servers say of themselves")
    items = [str(row["item"]) for row in rows if row.get("kind") == "violation" and not row.get("waived")]
    if not items:
        return None
    return Mark(sentence=f"The servers differ in more than speculation: {', '.join(items)}.", invalid=True)


def _rule(name: str, check: Callable[[RunFacts], Mark | Unknown | None], effect: Effect, reads: str, limit: str) -> (
    Rule[RunFacts]
):  # fmt: skip
    return Rule(name=name, reads=reads, level=Level.COMPARISON, effect=effect, limit=limit, check=check)


COMPARISON_RULES: tuple[Rule[RunFacts], ...] = (
    _rule("not comparable", _not_comparable, Effect.INVALID, "the servers' configurations", "no violation unwaived"),
    _rule("speculation not active", candidate_idle, Effect.EITHER, "drafts, tokens per step, or tokens per chunk of"
          " one user", f"drafts, or over {1 + TAU_IDLE:g} tokens per step; a flag where neither can be read"),
    _rule("baseline speculates", baseline_speculates, Effect.EITHER, "drafts, tokens per step, or tokens per chunk of"
          " one user", f"no drafts, at most {1 + TAU_IDLE:g} tokens per step; a flag where neither can be read"),
    _rule("drafting stops", drafts_stop, Effect.FLAG, "drafts by level", "some at every level"),
    _rule("unequal lengths", _lengths_differ, Effect.EITHER, "output tokens of the same requests",
          f"{LENGTHS[0]:.0%} to {LENGTHS[1]:.0%}; invalid where the whole interval is outside"),
    _rule("unequal finish reasons", _finishes_differ, Effect.FLAG, "finish reasons of the same requests",
          f"{FINISH_DIFFERENCE:.0%} apart with p < {FINISH_P:g}"),
    _rule("draft does not fit", nothing_accepted, Effect.FLAG, "accepted ÷ drafted", f"{ACCEPTANCE_LOW:.0%}"),
    _rule("cache imbalance", _cache_imbalance, Effect.FLAG, "cached ÷ prompt tokens of both arms",
          f"{100 * CACHE_POINTS:g} points apart"),
    _rule("load not carried", load_not_carried, Effect.FLAG, "states of the cells", "carried in every block"),
    _rule("prompts differ", _prompts_differ, Effect.FLAG, "hashes of paired bodies", "none apart"),
)  # fmt: skip
