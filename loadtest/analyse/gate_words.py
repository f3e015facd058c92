"""What the gate says, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadtest.analyse import wording
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.gate_results import Gate, GateOutcome, Regression, SloResult
from loadtest.slo import MEASURES

CHOICES = {"fail": "it counts as failed.", "warn": "it passes with a warning."}
SPEEDUP = "speed-up"
UNITS = {"s": (1000.0, "ms"), "share": (100.0, "%"), "difference": (100.0, "points"), SPEEDUP: (1.0, "")}


def headline(gate: Gate, outcome: GateOutcome, outcomes: Sequence[GateOutcome]) -> str:
    """Say what the gate found in one sentence, naming the gravest objective."""
    if outcome is GateOutcome.INVALID:
        why = next((r.says for r in gate.objectives if r.outcome is GateOutcome.INVALID), "") or gate.headline
        return f"Gate: not judged: {why.rstrip('.')}."
    total = len(outcomes)
    things = f"{total} objective{'' if total == 1 else 's'}"
    if outcome is GateOutcome.PASS:
        return "Gate: passed: the objective is met." if total == 1 else f"Gate: passed: all {things} are met."
    count = outcomes.count(outcome)
    named = next((_named(r) for r in gate.objectives if r.outcome is outcome), "") or next(
        (_worse(r) for r in gate.regressions if r.outcome is outcome), ""
    )
    verb = {GateOutcome.FAIL: "failed", GateOutcome.NO_DATA: "no data", GateOutcome.INCONCLUSIVE: "inconclusive"}[
        outcome
    ]
    head = f"Gate: {verb}: {count} of {things}: {named}."
    if outcome is GateOutcome.INCONCLUSIVE and gate.inconclusive:
        head += f' [gate] inconclusive = "{gate.inconclusive}": {CHOICES[gate.inconclusive]}'
    return head


def _named(result: SloResult) -> str:
    seen = observed(result)
    where = "" if result.at is None or result.at.level is None else f" at {result.at.level:g}"
    return result.sentence + (f" ({seen}{where})" if seen else f" ({result.says})" if result.says else "")


def _worse(result: Regression) -> str:
    return f"{MEASURES[result.metric].label} at {result.level:g}: {wording.ratio(result.ratio)} of the other run"


def observed(result: SloResult) -> str:
    """Return what was observed with its interval and unit, empty when nothing was; a ratio says which way it is."""
    at = result.at.observed if result.at else Estimate()
    seen = quantity(at, result.unit)
    return f"speed-up {seen}" if seen and result.unit == SPEEDUP else seen


def quantity(estimate: Estimate, unit: str) -> str:
    """Return an estimate in a unit of objectives: '612 ms [580, 650]', '1.12 [1.08, 1.16]', '0.2 % [0, 0.9]'."""
    if estimate.value is None:
        return ""
    scale, shown = _scale(estimate.value, unit)
    ends = [_number(x, scale) for x in (estimate.low, estimate.high)]
    value = f"{_number(estimate.value, scale)}{f' {shown}' if shown else ''}"
    return value if ends == ["–", "–"] else f"{value} [{ends[0]}, {ends[1]}]"


def limit(value: float, unit: str) -> str:
    """Return a limit in a unit of objectives: '500 ms', '95 %', '1.1'; that of a speed-up as its observed value is."""
    scale, shown = _scale(value, unit)
    if unit == SPEEDUP:
        return f"{value:.4g}"
    return f"{value * scale:.6g}{f' {shown}' if shown else ''}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return the factor and the unit in which a value is written."""
    if unit == "s" and abs(value) >= 1:
        return 1.0, "s"
    return UNITS.get(unit, (1.0, unit))


def _number(value: float | None, scale: float) -> str:
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    scaled = value * scale
    return f"{scaled:.4g}" if abs(scaled) < 10000 else f"{scaled:,.0f}"
