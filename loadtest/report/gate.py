"""What the gate says, laid out for every form of the report: sentences and rows."""

from __future__ import annotations

from loadtest.analyse import gate_words
from loadtest.analyse.gate_results import Gate, GateOutcome, Regression, SloResult
from loadtest.report import vocabulary, words
from loadtest.report.tables import Table

TONES = {GateOutcome.PASS: "good", GateOutcome.FAIL: "bad", GateOutcome.INVALID: "bad"}  # others: not settled
COLUMNS = ("outcome", "objective", "observed [95 %]", "limit", "at", "in words")


def tone(gate: Gate | None) -> str:
    """Return the tone in which the gate's outcome stands at the top: `good`, `bad` or `warn`."""
    return "" if gate is None else TONES.get(gate.outcome, "warn")


def second(gate: Gate | None) -> tuple[str, ...]:
    """Return the sentences that stand second in the answer: capacity, then what the expected traffic gains."""
    if gate is None or gate.refused:
        return ()
    found = (gate.capacity_sentence, gate.traffic.sentence if gate.traffic else "")
    return tuple(sentence for sentence in found if sentence)


def table(gate: Gate | None) -> Table:
    """Return one row per objective, and per load of a comparison with another run."""
    name = "Objectives"
    if gate is None:
        return Table(name=name, columns=COLUMNS, rows=())
    rows = [_row(result) for result in gate.objectives] + [_against(result) for result in gate.regressions]
    return Table(name=name, columns=COLUMNS, rows=tuple(rows), heads=2)


def _row(result: SloResult) -> tuple[str, ...]:
    at = result.at
    where = words.MISSING if at is None else "traffic" if at.level is None else f"{at.level:g}"
    return (
        vocabulary.OUTCOMES[result.outcome],
        words.plain(result.sentence, 300),
        gate_words.observed(result) or words.MISSING,
        limit(result),
        where,
        words.plain(in_words(result), 400),
    )


def in_words(result: SloResult) -> str:
    """Return what stands in the way of an objective, what would settle it, and where a preset comes from."""
    says = f"{result.says[:1].upper()}{result.says[1:].rstrip('.')}." if result.says else ""
    return " ".join(part for part in (says, result.would_settle, f"({result.source})" if result.source else "") if part)


def limit(result: SloResult) -> str:
    """Return an objective's limit with its side: '≤ 500 ms', '≥ 1.1'."""
    sign = "≤" if result.lower else "≥"
    return f"{sign} {gate_words.limit(result.limit, result.unit)}"


def _against(result: Regression) -> tuple[str, ...]:
    what = "speed-up over the baseline, " if result.of_ratios else ""
    unit = "difference" if result.metric == "error_ratio" else "speed-up"
    outcome = vocabulary.OUTCOMES[result.outcome] if result.judged else f"({vocabulary.OUTCOMES[result.outcome]})"
    subject = f"{what}{vocabulary.metric(result.metric).label}, against the other run"
    shown = "" if result.judged else "Shown, not judged."
    observed = gate_words.quantity(result.ratio, unit) or words.MISSING
    return (outcome, subject, observed, words.MISSING, f"{result.level:g}", shown)


def lines(gate: Gate) -> tuple[str, ...]:
    """Return the gate as sentences, one per objective: 'pass: ttft p99 ≤ 500 ms at 32 users: 412 ms [390, 450]'."""
    return tuple(_line(row) for row in table(gate).rows)


def _line(row: tuple[str, ...]) -> str:
    outcome, objective, observed, _, at, said = row
    seen = (
        "" if observed == words.MISSING else f": {observed}" + ("" if at in (words.MISSING, "traffic") else f" at {at}")
    )
    return f"{outcome}: {objective}{seen}." + (f" {said}" if said else "")
