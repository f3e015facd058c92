"""Is the run to be judged? One function per rule; each returns a mark or None.

A mark that invalidates stops the judgement; the others become notes on the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

from loadtest.analyse.counters import Deltas, tokens_per_step
from loadtest.analyse.results import ArmLevel
from loadtest.analyse.summary import Measured
from loadtest.analyse.validity import Mark
from loadtest.record import CellRecord

LENGTHS = (0.9, 1.1)  # mean output tokens, candidate ÷ baseline, as in MLPerf Inference
FINISH_P, FINISH_DIFFERENCE = 0.001, 0.02
TAU_IDLE = 0.01  # tokens per step this close to 1: no speculation
LATE_STEPS = 0.02  # share of a simulated server's steps that may be late
ACCEPTANCE_LOW = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the rules for a run look at."""

    run: Mapping[str, Any]
    baseline: str
    candidate: str | None
    cells: Sequence[CellRecord]
    valid: Sequence[CellRecord]
    measured: Mapping[int, Measured]
    arm_levels: Sequence[ArmLevel]
    counters: Mapping[str, Deltas]  # arm → growth inside the windows of its valid cells
    bodies_differ: int = 0
    pairs: int = 0
    damage: tuple[str, ...] = ()  # sentences on records that contradict each other

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms, baseline first."""
        return (self.baseline, self.candidate) if self.candidate else (self.baseline,)

    def of(self, arm: str) -> list[Measured]:
        """Return the cells of an arm, valid or not."""
        return [self.measured[c.cell] for c in self.cells if c.arm == arm]


def nothing_succeeded(facts: RunFacts) -> Mark | None:
    """A server that answered nothing was not measured, and the other one not compared with anything."""
    found = []
    for arm in facts.arms:
        own = facts.of(arm)
        due, sent = sum(m.requests for m in own), sum(m.sent for m in own)
        if sent and not any(m.requests_client for m in own):
            found.append(f"All {sent} requests to the {arm} server failed: {_mostly(own)}.")
        elif due and due == sum(m.failed for m in own):
            found.append(f"All {due} requests to the {arm} server that fell due in a window failed: {_mostly(own)}.")
    return Mark(sentence=" ".join(found), invalid=True) if found else None


def _mostly(cells: Sequence[Measured]) -> str:
    """Name what went wrong most often, and how often when other things did as well."""
    counts: dict[str, int] = {}
    for cell in cells:
        for what, n in cell.failures.items():
            counts[what] = counts.get(what, 0) + n
    most = max(counts, key=lambda what: counts[what])
    return most if len(counts) == 1 else f"most often {most}"


def contradictory(facts: RunFacts) -> Mark | None:
    """A complete run has recorded every planned cell, and requests of no other."""
    if facts.run.get("status") != "complete" or not facts.damage:
        return None
    return Mark(sentence=" ".join(facts.damage), invalid=True)


def not_finished(facts: RunFacts) -> Mark | None:
    """Only a complete run is judged."""
    status, reason = facts.run.get("status"), facts.run.get("reason")
    if status == "complete":
        return None
    said = {"running": "did not end: it is still running, or was killed", "interrupted": "was interrupted"}
    what = said.get(str(status), f"was {status}")
    return Mark(sentence=f"The run {what}{f' ({reason})' if reason else ''}.", invalid=True)


def steps_late(facts: RunFacts) -> Mark | None:
    """A simulated server that could not keep its own clock did not behave as its model says."""
    simulated = facts.run.get("simulated") or {}
    late = {arm: share for arm, share in (simulated.get("late_ratio") or {}).items() if share is not None}
    worst = max(late, key=lambda arm: late[arm], default=None)
    if worst is None or late[worst] <= LATE_STEPS:
        return None
    return Mark(
        sentence=f"The simulated {worst} server was late in {100 * late[worst]:.1f} % of its steps"
        f" (limit {100 * LATE_STEPS:.0f} %): this machine was too busy.",
        invalid=True,
    )


def not_comparable(facts: RunFacts) -> Mark | None:
    """A difference that is neither speculation nor its consequence makes the pair not comparable, unless waived."""
    rows = facts.run.get("comparability") or []
    items = [str(row["item"]) for row in rows if row.get("kind") == "violation" and not row.get("waived")]
    if not items or facts.candidate is None:
        return None
    return Mark(sentence=f"The servers differ in more than speculation: {', '.join(items)}.", invalid=True)


def nothing_valid(facts: RunFacts) -> Mark | None:
    """An arm without a valid cell cannot be judged."""
    empty = [arm for arm in facts.arms if not any(c.arm == arm for c in facts.valid)]
    if not empty:
        return None
    failing = []
    for arm in empty:
        own = facts.of(arm)
        sent, failed = sum(m.sent for m in own), sum(sum(m.failures.values()) for m in own)
        if failed and nothing_succeeded(facts) is None:
            failing.append(f" {failed} of {sent} requests to the {arm} server failed: {_mostly(own)}.")
    return Mark(sentence=f"No valid cell of {' and '.join(empty)}.{''.join(failing)}", invalid=True)


def cells_left_out(facts: RunFacts) -> Mark | None:
    """Invalid cells are left out of every estimate."""
    left_out = len(facts.cells) - len(facts.valid)
    return Mark(sentence=f"{left_out} of {len(facts.cells)} cells are invalid and left out.") if left_out else None


def candidate_idle(facts: RunFacts) -> Mark | None:
    """Speculation must be shown on in the candidate, unless both arms are the same (A/A)."""
    counters = facts.counters.get(facts.candidate or "")
    if facts.candidate is None or counters is None or facts.run.get("aa"):
        return None
    own = [facts.measured[c.cell] for c in facts.valid if c.arm == facts.candidate]
    if all(m.failed == m.requests for m in own):
        return None  # nothing was answered, so that nothing could be drafted
    drafts, tau = counters.get("drafts"), tokens_per_step(counters)
    if not math.isnan(drafts):
        sentence = f"Speculation was not active in {facts.candidate}: its server drafted nothing."
        return None if drafts > 0 else Mark(sentence=sentence, invalid=True)
    if tau is None:
        return Mark(sentence=f"Whether {facts.candidate} speculated could not be read from its counters.")
    if abs(tau - 1) > TAU_IDLE:
        return None
    return Mark(sentence=f"Speculation was not active in {facts.candidate}: {tau:.3f} tokens per step.", invalid=True)


def baseline_speculates(facts: RunFacts) -> Mark | None:
    """Speculation must be shown off in the baseline, unless both arms are the same (A/A)."""
    counters = facts.counters.get(facts.baseline)
    if facts.candidate is None or counters is None or facts.run.get("aa"):
        return None
    drafts, tau = counters.get("drafts"), tokens_per_step(counters)
    if drafts > 0:
        return Mark(sentence=f"{facts.baseline} speculates: its server drafted {drafts:.0f} times.", invalid=True)
    if tau is not None and tau > 1 + TAU_IDLE:
        return Mark(sentence=f"{facts.baseline} speculates: {tau:.3f} tokens per step.", invalid=True)
    if tau is None and math.isnan(drafts):
        return Mark(sentence=f"That {facts.baseline} does not speculate could not be read from its counters.")
    return None


def nothing_accepted(facts: RunFacts) -> Mark | None:
    """Acceptance near 0 points to a draft model that does not fit."""
    counters = facts.counters.get(facts.candidate or "")
    share = counters.over("accepted", "drafted") if counters else None
    if share is None or share >= ACCEPTANCE_LOW:
        return None
    return Mark(sentence=f"Only {100 * share:.2f} % of drafted tokens were accepted: does the draft fit the model?")


def lengths_differ(facts: RunFacts) -> Mark | None:
    """Answers of unequal length are not the same work."""
    worst, at = 1.0, 0.0
    for level in sorted({c.level for c in facts.valid}):
        means = [
            _mean_length([facts.measured[c.cell] for c in facts.valid if c.arm == arm and c.level == level])
            for arm in (facts.baseline, facts.candidate)
        ]
        ratio = means[1] / means[0] if means[0] > 0 else math.nan
        if abs(math.log(ratio) if ratio > 0 else 0.0) > abs(math.log(worst)):
            worst, at = ratio, level
    if LENGTHS[0] <= worst <= LENGTHS[1]:
        return None
    return Mark(sentence=f"Answers differ in length: {worst:.2f} times the baseline's tokens at {at:g} users.")


def _mean_length(cells: Sequence[Measured]) -> float:
    present = [(c.output_tokens_mean, c.requests - c.failed) for c in cells if not math.isnan(c.output_tokens_mean)]
    count = sum(n for _, n in present)
    return sum(mean * n for mean, n in present) / count if count else math.nan


def finishes_differ(facts: RunFacts) -> Mark | None:
    """Answers should end for the same reasons in both arms."""
    if facts.candidate is None:
        return None
    counts: list[dict[str, int]] = [{}, {}]
    for row in facts.arm_levels:
        side = counts[row.arm == facts.candidate]
        for reason, n in row.finish_reasons.items():
            side[reason] = side.get(reason, 0) + n
    reasons = sorted({*counts[0], *counts[1]})
    totals = [sum(side.values()) for side in counts]
    if len(reasons) < 2 or not all(totals):
        return None
    shares = {r: [side.get(r, 0) / total for side, total in zip(counts, totals, strict=True)] for r in reasons}
    widest = max(reasons, key=lambda r: shares[r][1] - shares[r][0])
    p_value = stats.chi2_contingency([[side.get(r, 0) for r in reasons] for side in counts]).pvalue
    if p_value >= FINISH_P or shares[widest][1] - shares[widest][0] < FINISH_DIFFERENCE:
        return None
    base, cand = (100 * share for share in shares[widest])
    return Mark(sentence=f"Answers end differently: `{widest}` in {base:.0f} % (baseline), {cand:.0f} % (candidate).")


def prompts_differ(facts: RunFacts) -> Mark | None:
    """Both arms should be asked the same."""
    if not facts.bodies_differ:
        return None
    return Mark(sentence=f"{facts.bodies_differ} of {facts.pairs} paired requests have different bodies.")


RUN_RULES: tuple[Callable[[RunFacts], Mark | None], ...] = (
    nothing_succeeded, not_finished, not_comparable, contradictory, nothing_valid, candidate_idle, baseline_speculates,
    steps_late, cells_left_out, lengths_differ, finishes_differ, nothing_accepted, prompts_differ,
)  # fmt: skip


def run_marks(facts: RunFacts) -> tuple[Mark, ...]:
    """Return the marks of a run, those that invalidate first."""
    found = [mark for rule in RUN_RULES if (mark := rule(facts)) is not None]
    return tuple(sorted(found, key=lambda mark: not mark.invalid))
