"""Is the run to be judged? One entry per rule; and the list of all rules.

A mark that invalidates stops the judgement; the others become notes on the run. What could not be checked is one note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loadtest.analyse.cells import cell_facts
from loadtest.analyse.comparison_validity import COMPARISON_RULES
from loadtest.analyse.prompt_validity import asked_in_other_cells, forced_answers
from loadtest.analyse.rules import Effect, Level, Mark, Rule, Unknown
from loadtest.analyse.run_facts import RunFacts, twin_requests
from loadtest.analyse.server_validity import TREND_P, held_back, remembers, unusual_acceptance
from loadtest.analyse.stationarity import CONFIDENCE, HALVES_RATIO, not_steady
from loadtest.analyse.summary import Measured
from loadtest.analyse.validity import CELL_RULES, REPEATS_RATIO, cell_unknowns
from loadtest.errors import server_named
from loadtest.record import GIVEN_UP

__all__ = ["RULES", "RUN_RULES", "RunFacts", "run_marks", "twin_requests"]

LATE_STEPS = 0.02  # share of a simulated server's steps that may be late
# The chance that two words of a text are the same is the sum of the words' squared frequencies: about 0.01 in English
# prose, where one word in twenty is "the"; 1/V, some 1/2,000 or less, where words are drawn evenly from V.
COINCIDENCE = 0.001
QUOTED = 200  # characters of an error
FEW_WORDS = 300  # 45 coincident pairs at the limit


def _nothing_succeeded(facts: RunFacts) -> Mark | Unknown | None:
    """A server that answered nothing was not measured, and the other one not compared with anything."""
    found = []
    if not any(m.sent for m in facts.measured.values()):
        return Unknown(missing="requests")
    for arm in facts.arms:
        own = facts.of(arm)
        due, sent = sum(m.requests for m in own), sum(m.sent for m in own)
        if sent and not any(m.requests_client for m in own):
            found.append(f"All {sent} requests to {server_named(arm)} failed: {_mostly(own)}.{_said(facts, arm)}")
        elif due and due == sum(m.failed for m in own):
            found.append(f"All {due} requests to {server_named(arm)} that fell due in a window failed:"
                         f" {_mostly(own)}.{_said(facts, arm)}")  # fmt: skip
    return Mark(sentence=" ".join(found), invalid=True) if found else None


def _mostly(cells: Sequence[Measured]) -> str:
    """Name what went wrong most often, and how often when other things did as well."""
    counts: dict[str, int] = {}
    for cell in cells:
        for what, n in cell.failures.items():
            counts[what] = counts.get(what, 0) + n
    most = max(counts, key=lambda what: counts[what])
    return most if len(counts) == 1 else f"most often {most}"


def _said(facts: RunFacts, arm: str) -> str:
    """Quote the error that an arm's requests met most often: it may hold the server's own words."""
    error = facts.requests.errors.get(arm, "") if facts.requests else ""
    text = "".join(c for c in error if c.isprintable())
    return f' The error met most often: "{text if len(text) <= QUOTED else text[:QUOTED] + "…"}".' if text else ""


def _contradictory(facts: RunFacts) -> Mark | Unknown | None:
    """A complete run has recorded every planned cell, and requests of no other."""
    if not facts.cells:
        return Unknown(missing="cells")
    if facts.run.get("status") != "complete" or not facts.damage:
        return None
    return Mark(sentence=" ".join(facts.damage), invalid=True)


def _not_finished(facts: RunFacts) -> Mark | None:
    """Only a complete run is judged."""
    status, reason = facts.run.get("status"), facts.run.get("reason")
    if status in ("complete", GIVEN_UP):
        return None
    said = {"running": "did not end: it is still running, or was killed", "interrupted": "was interrupted"}
    what = said.get(str(status), f"was {status}" if status else "does not say how it ended")
    return Mark(sentence=f"The run {what}{f' ({reason})' if reason else ''}.", invalid=True)


def _steps_late(facts: RunFacts) -> Mark | Unknown | None:
    """A simulated server that could not keep its own clock did not behave as its model says."""
    simulated = facts.run.get("simulated")
    if not simulated:
        return None
    late = {arm: share for arm, share in (simulated.get("late_ratio") or {}).items() if share is not None}
    worst = max(late, key=lambda arm: late[arm], default=None)
    if worst is None:
        return Unknown(missing="the simulated servers' late steps")
    if late[worst] <= LATE_STEPS:
        return None
    return Mark(
        sentence=f"The simulated {worst} server was late in {100 * late[worst]:.1f} % of its steps"
        f" (limit {100 * LATE_STEPS:.0f} %): this machine was too busy.",
        invalid=True,
    )


def _nothing_valid(facts: RunFacts) -> Mark | None:
    """An arm without a valid cell cannot be judged."""
    empty = [arm for arm in facts.arms if not any(c.arm == arm for c in facts.valid)]
    if not empty:
        return None
    failing = []
    for arm in empty:
        own = facts.of(arm)
        sent, failed = sum(m.sent for m in own), sum(sum(m.failures.values()) for m in own)
        if failed and not isinstance(_nothing_succeeded(facts), Mark):
            failing.append(
                f" {failed} of {sent} requests to {server_named(arm)} failed: {_mostly(own)}.{_said(facts, arm)}"
            )
    return Mark(sentence=f"No valid cell of {' and '.join(empty)}.{''.join(failing)}", invalid=True)


def _cells_left_out(facts: RunFacts) -> Mark | Unknown | None:
    """Invalid cells are left out of every estimate."""
    if not facts.cells:
        return Unknown(missing="cells")
    left_out = len(facts.cells) - len(facts.valid)
    be = "is" if left_out == 1 else "are"
    return Mark(sentence=f"{left_out} of {len(facts.cells)} cells {be} invalid and left out.") if left_out else None


def _random_prompts(facts: RunFacts) -> Mark | Unknown | None:
    """Words drawn at random are no language: drafts fare on them as they do on nobody's traffic."""
    figures: Mapping[str, Any] = facts.run.get("prompts") or {}
    chance, words = figures.get("coincidence"), figures.get("words") or 0
    if not isinstance(chance, int | float) or words < FEW_WORDS:
        return Unknown(missing=f"{FEW_WORDS} words of the prompts")
    if chance >= COINCIDENCE:
        return None
    return Mark(
        sentence=f"The prompts look random: two of their words are the same with a chance of {chance:.1g} (limit"
        f" {COINCIDENCE:g}; prose has about 0.01). Drafts fare otherwise on language: give prompts from your traffic."
    )


def _rule(name: str, check: Callable[[RunFacts], Mark | Unknown | None], effect: Effect, reads: str, limit: str) -> (
    Rule[RunFacts]
):  # fmt: skip
    return Rule(name=name, reads=reads, level=Level.RUN, effect=effect, limit=limit, check=check)


RUN_RULES: tuple[Rule[RunFacts], ...] = (
    _rule("nothing succeeded", _nothing_succeeded, Effect.INVALID, "outcomes of each arm", "one success per arm"),
    _rule("not finished", _not_finished, Effect.INVALID, "the run's status", "complete"),
    _rule("contradictory records", _contradictory, Effect.INVALID, "plan, cells and requests", "none"),
    _rule("nothing valid", _nothing_valid, Effect.INVALID, "the cells' marks", "one valid cell per arm"),
    _rule("late steps", _steps_late, Effect.INVALID, "the simulated servers' log", f"{LATE_STEPS:.0%} of the steps"),
    _rule("cells left out", _cells_left_out, Effect.FLAG, "the cells' marks", "none"),
    _rule("not steady", not_steady, Effect.FLAG, "halves of the windows, block by block; MSER-5 beside them",
          f"{HALVES_RATIO - 1:.0%} with {CONFIDENCE:.0%} confidence over all arms and levels"),
    _rule("random prompts", _random_prompts, Effect.FLAG, "chance that two words of the prompts are the same",
          f"{COINCIDENCE:g}"),
    _rule("forced answers", forced_answers, Effect.FLAG, "generation.ignore_eos", "false"),
    _rule("asked in other cells", asked_in_other_cells, Effect.FLAG, "hashes of bodies, where servers.cache is keep",
          f"{REPEATS_RATIO:.0%} of the requests"),
    _rule("streams held back", held_back, Effect.FLAG, "reads that brought the chunks of an answer", "no arm's"),
    _rule("unusual acceptance", unusual_acceptance, Effect.FLAG, "the candidate's speculative configuration",
          "neither faked nor lossy"),
    _rule("drafter learns", remembers, Effect.FLAG, "acceptance over the run, where the drafter learns from requests",
          f"no trend with p < {TREND_P:g}"),
)  # fmt: skip
RULES: tuple[Rule[Any], ...] = (*CELL_RULES, *COMPARISON_RULES, *RUN_RULES)


def run_marks(facts: RunFacts) -> tuple[Mark, ...]:
    """Return the marks of a run and of its comparison, those that invalidate first."""
    results = {rule.name: rule.check(facts) for rule in (*RUN_RULES, *COMPARISON_RULES)}
    found = [mark for mark in results.values() if isinstance(mark, Mark)]
    unchecked = _unchecked(facts, {name: r.missing for name, r in results.items() if isinstance(r, Unknown)})
    return tuple(sorted(found, key=lambda mark: not mark.invalid)) + ((unchecked,) if unchecked else ())


def _unchecked(facts: RunFacts, missing: Mapping[str, str]) -> Mark | None:
    """Return one note on all that could not be checked, on the run or on its valid cells."""
    parts = [f"{name} ({what} missing)" for name, what in missing.items()]
    cells: dict[tuple[str, str], int] = {}
    for cell in facts.valid:
        own = facts.requests.cell(cell) if facts.requests is not None else None
        seen = cell_facts(
            cell, facts.measured[cell.cell], facts.scrapes, facts.experiment, own, facts.run.get("habits")
        )
        for entry in cell_unknowns(seen).items():
            cells[entry] = cells.get(entry, 0) + 1
    for (name, what), count in cells.items():
        every = "every cell" if count == len(facts.valid) else f"{count} of {len(facts.valid)} cells"
        parts.append(f"{name} ({what} missing in {every})")
    return Mark(sentence=f"Not checked for want of data: {'; '.join(parts)}.") if parts else None
