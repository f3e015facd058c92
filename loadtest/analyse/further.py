"""From a run's parts to its findings: everything beside the answer that explains or qualifies it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.analyse.acceptance import acceptance
from loadtest.analyse.against_itself import noise_of
from loadtest.analyse.batch_table import batch_table
from loadtest.analyse.breakeven import Translation, break_even, translated
from loadtest.analyse.compare import Curve, Pairs
from loadtest.analyse.explain import ByCell, window_growth
from loadtest.analyse.findings import Acceptance, Findings, FirstToken, FirstTokenChange, Law
from loadtest.analyse.first_tokens import by_cell, change, first_token
from loadtest.analyse.guards import Rows
from loadtest.analyse.held import held_against
from loadtest.analyse.law import linear_law, points
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.summary import Measured
from loadtest.analyse.table import Requests
from loadtest.analyse.tails import tail_ratios
from loadtest.record import CellRecord

QUEUE_RATIO = 0.05  # waiting ÷ in flight; above it, and above one request waiting, a level has a queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What findings are made of; `valid` are the cells that count."""

    run: Mapping[str, Any]
    baseline: str
    candidate: str
    levels: Sequence[float]
    valid: Sequence[CellRecord]
    measured: Mapping[int, Measured]
    scrapes: ByCell
    requests: Requests
    rows: Rows
    curves: Mapping[str, Curve]
    pairs: Pairs
    in_flight: Translation
    restarted: bool
    confidence: float
    closed: bool
    metric: str  # that decides
    recommended: Sequence[tuple[float, float]] = ()  # ranges of load in which the answer switches speculation on

    def of(self, arm: str, level: float | None = None) -> list[CellRecord]:
        """Return the valid cells of an arm, at one level or at all."""
        return [c for c in self.valid if c.arm == arm and level in (None, c.level)]

    def shared(self, level: float) -> list[tuple[CellRecord, CellRecord]]:
        """Return the cells (baseline, candidate) of each block that has both, in order of the blocks."""
        other = {c.block: c for c in self.of(self.candidate, level)}
        own = sorted(self.of(self.baseline, level), key=lambda c: c.block)
        return [(c, other[c.block]) for c in own if c.block in other]


def findings(parts: Parts) -> Findings:
    """Return the findings of a comparison."""
    tokens, changes = _first_tokens(parts)
    aa = bool(parts.run.get("aa"))
    found = None if aa else acceptance(
        parts.of(parts.candidate), parts.scrapes, parts.requests, restarted=parts.restarted)  # fmt: skip
    running = {level: row.running for level in parts.levels
               if (row := parts.rows.get((parts.candidate, level))) and row.running}  # fmt: skip
    return Findings(
        tails=tail_ratios(parts.rows, parts.baseline, parts.candidate, parts.levels),
        law=_law(parts) if parts.closed else None,
        first_tokens=tokens,
        first_token_changes=changes,
        acceptance=found,
        batch_table=None if aa else batch_table(
            parts.curves.get("tpot"), running, _draft_tokens(parts, found), BY_NAME["tpot"].label,
            parts.recommended),
        noise=noise_of(parts.curves, parts.pairs) if aa else None,
        held_against=held_against(parts.run.get("aa_run"), parts.curves, parts.pairs, parts.metric),
    )  # fmt: skip


def notes(found: Findings) -> tuple[str, ...]:
    """Return the sentences that a reader of the answer must not miss."""
    said = [found.law.note] if found.law else []
    if found.acceptance:
        said += [trend.sentence for trend in (found.acceptance.flat, found.acceptance.drift) if trend]
    said += found.held_against.sentences if found.held_against else ()
    return tuple(sentence for sentence in said if sentence)


def _first_tokens(parts: Parts) -> tuple[tuple[FirstToken, ...], tuple[FirstTokenChange, ...]]:
    client_s = {c.cell: parts.measured[c.cell].figures["ttft"] for c in parts.valid}
    found = by_cell(parts.valid, client_s, parts.scrapes)
    tokens: list[FirstToken] = []
    changes: list[FirstTokenChange] = []
    for level in parts.levels:
        own = [
            first_token(parts.rows[arm, level], parts.of(arm, level), found, parts.scrapes)
            for arm in (parts.baseline, parts.candidate)
            if (arm, level) in parts.rows
        ]
        tokens += own
        pairs = [(b.cell, c.cell) for b, c in parts.shared(level)]
        if len(own) == 2 and pairs:
            changes.append(change(level, pairs, found, client_s, (own[0], own[1])))
    return tuple(tokens), tuple(changes)


def _law(parts: Parts) -> Law:
    arms = (parts.baseline, parts.candidate)
    shared = {level: [b.block for b, c in parts.shared(level) if _timed(parts, b) and _timed(parts, c)]
              for level in parts.levels}  # fmt: skip
    if parts.restarted:  # a start's line needs all its levels
        whole = set.intersection(*[set(blocks) for blocks in shared.values()]) if shared else set()
        shared = {level: sorted(whole) for level in shared}
    levels = [x for x in parts.levels if len(shared[x]) > 1 and all(_is_free(parts, arm, x) for arm in arms)]
    figures = {(c.arm, c.level, c.block): parts.measured[c.cell].figures for c in parts.valid}
    in_flight = {a: {level: parts.rows[a, level].in_flight or 0.0 for level in levels} for a in arms}
    base, cand = (points(a, levels, shared, in_flight[a], figures) for a in arms)
    even = translated(break_even(parts.curves["e2e"], "e2e"), parts.in_flight, Translation(by_level={}))
    return linear_law(base, cand, levels, even, restarted=parts.restarted, confidence=parts.confidence)


def _timed(parts: Parts, cell: CellRecord) -> bool:
    """Return whether a cell has a mean end-to-end time: where every request failed there is none."""
    return math.isfinite(parts.measured[cell.cell].figures["e2e"])


def _is_free(parts: Parts, arm: str, level: float) -> bool:
    """Return whether an arm has no queue and no preemption at a level, as far as it says; its load must be known."""
    row = parts.rows.get((arm, level))
    if row is None or not row.in_flight:
        return False
    preempted = window_growth(parts.of(arm, level), parts.scrapes).get("preemptions")
    return not preempted > 0 and (row.waiting or 0.0) <= max(1.0, QUEUE_RATIO * row.in_flight)


def _draft_tokens(parts: Parts, found: Acceptance | None) -> int | None:
    """Return the draft tokens per step: what the server says, else the slots that its counters have."""
    arms = {str(arm.get("name")): arm for arm in parts.run.get("arms") or [] if isinstance(arm, Mapping)}
    own = arms.get(parts.candidate, {})
    for said in (own.get("speculative"), own.get("declared")):
        k = said.get("num_speculative_tokens") if isinstance(said, Mapping) else None
        if isinstance(k, int) and k > 0:
            return k
    return len(found.slots) if found and found.slots else None
