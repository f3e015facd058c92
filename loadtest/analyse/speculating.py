"""Does the candidate speculate, and the baseline not? Rules for the comparison of two arms."""

from __future__ import annotations

import math

from loadtest.analyse import wording
from loadtest.analyse.counters import tokens_per_step
from loadtest.analyse.explain import window_growth
from loadtest.analyse.rules import Mark, Unknown
from loadtest.analyse.run_facts import RunFacts

TAU_IDLE = 0.01  # tokens per step this close to 1: no speculation
ACCEPTANCE_LOW = 0.01


def candidate_idle(facts: RunFacts) -> Mark | Unknown | None:
    """Speculation must be shown on in the candidate, unless both arms are the same (A/A)."""
    counters = facts.counters.get(facts.candidate or "")
    if facts.candidate is None or facts.run.get("aa"):
        return None
    own = [facts.measured[c.cell] for c in facts.valid if c.arm == facts.candidate]
    if all(m.failed == m.requests for m in own):
        return None  # no valid cell, or nothing was answered: nothing could be drafted
    drafts, tau = counters.get("drafts") if counters else math.nan, tokens_per_step(counters) if counters else None
    if not math.isnan(drafts):
        said = "its server drafted nothing; see its log, and its speculative configuration."
        sentence = f"Speculation was not active in {facts.candidate}: {said}"
        return None if drafts > 0 else Mark(sentence=sentence, invalid=True)
    if tau is None and _drafted_by_requests(facts, facts.candidate):
        return None
    if tau is None:
        tau = _tokens_per_chunk_alone(facts, facts.candidate)
    if tau is None:
        return Mark(
            sentence=f"Whether {facts.candidate} speculated could not be read from its counters, nor from a level with"
            " 1 user: publish /metrics, or add that level."
        )
    if abs(tau - 1) > TAU_IDLE:
        return None
    sentence = f"Speculation was not active in {facts.candidate}: {tau:.3f} tokens per step (limit {1 + TAU_IDLE:g})."
    return Mark(sentence=sentence, invalid=True)


def _drafted_by_requests(facts: RunFacts, arm: str) -> int:
    """Return how many tokens were drafted for the answers of an arm, as far as these say so."""
    if facts.requests is None:
        return 0
    told = [facts.requests.cell(cell).column("spec_drafted") for cell in facts.valid if cell.arm == arm]
    return sum(int(drafted[drafted > 0].sum()) for drafted in told)


def _tokens_per_chunk_alone(facts: RunFacts, arm: str) -> float | None:
    """Return tokens per chunk after the first where one user was alone: there, nothing merges chunks but drafting."""
    if facts.requests is None:
        return None
    tokens = chunks = 0
    for cell in facts.valid:
        if cell.arm != arm or cell.level != 1:
            continue
        rows = facts.requests.cell(cell)
        chosen = rows.measured & rows.ok & rows.column("by_step")
        tokens += int(rows.column("tokens")[chosen].sum())
        chunks += int(rows.column("chunks")[chosen].sum())
    return tokens / chunks if chunks else None


def baseline_speculates(facts: RunFacts) -> Mark | Unknown | None:
    """Speculation must be shown off in the baseline, unless both arms are the same (A/A)."""
    counters = facts.counters.get(facts.baseline)
    if facts.candidate is None or facts.run.get("aa") or not any(c.arm == facts.baseline for c in facts.valid):
        return None
    drafts, tau = counters.get("drafts") if counters else math.nan, tokens_per_step(counters) if counters else None
    off = "start it without a speculative configuration."
    if drafts > 0:
        sentence = f"{facts.baseline} speculates: its server drafted {drafts:.0f} times (limit 0); {off}"
        return Mark(sentence=sentence, invalid=True)
    if tau is not None and tau > 1 + TAU_IDLE:
        sentence = f"{facts.baseline} speculates: {tau:.3f} tokens per step (limit {1 + TAU_IDLE:g}); {off}"
        return Mark(sentence=sentence, invalid=True)
    if tau is not None or not math.isnan(drafts):
        return None
    if drafted := _drafted_by_requests(facts, facts.baseline):
        sentence = f"{facts.baseline} speculates: its answers tell of {drafted} drafted tokens (limit 0); {off}"
        return Mark(sentence=sentence, invalid=True)
    alone = _tokens_per_chunk_alone(facts, facts.baseline)
    if alone is not None and alone <= 1 + TAU_IDLE:
        return None
    return Mark(
        sentence=f"That {facts.baseline} does not speculate could not be read from its counters, nor from a level with"
        " 1 user: publish /metrics, or add that level."
    )


def drafts_stop(facts: RunFacts) -> Mark | Unknown | None:
    """A server may stop drafting beyond some load; what is measured there is not speculation."""
    if facts.candidate is None or facts.run.get("aa"):
        return None
    grown = {
        level: window_growth([c for c in facts.valid if c.arm == facts.candidate and c.level == level], facts.scrapes)
        for level in sorted({c.level for c in facts.valid})
    }
    drafts = {level: own.get("drafts") for level, own in grown.items() if not math.isnan(own.get("drafts"))}
    if not drafts:
        return Unknown(missing="the candidate's count of drafts")
    idle = [level for level, count in drafts.items() if not count]
    if not idle or len(idle) == len(drafts):
        return None  # nowhere, or everywhere: another rule's matter
    return Mark(
        sentence=f"The candidate drafted nothing at {wording.listed(idle)} (limit: something at every level): its"
        " server turns speculation off there, and the figures of these levels show the price of having it configured."
    )


def nothing_accepted(facts: RunFacts) -> Mark | Unknown | None:
    """Acceptance near 0 points to a draft model that does not fit."""
    if facts.candidate is None or facts.run.get("aa"):
        return None
    counters = facts.counters.get(facts.candidate)
    share = counters.over("accepted", "drafted") if counters else None
    if share is None:
        drafted = counters.get("drafted") if counters else math.nan
        return Unknown(missing="counts of drafted and accepted tokens") if math.isnan(drafted) else None
    if share >= ACCEPTANCE_LOW:
        return None
    return Mark(
        sentence=f"Only {100 * share:.2f} % of drafted tokens were accepted (limit {100 * ACCEPTANCE_LOW:.0f} %): does"
        " the draft fit the model?"
    )
