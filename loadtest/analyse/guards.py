"""The guards of a decision: what must not get worse, whatever is gained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from loadtest.analyse.compare import Curve, Figures, fit_curve, log_ratios, paired
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.percentiles import QUANTILES, bound_needs
from loadtest.analyse.results import ArmLevel, Finding, Guard
from loadtest.analyse.stats import CONFIDENCE
from loadtest.analyse.summary import GUARD_TAILS
from loadtest.settings import Decision

ROUNDING = 1e-9
Rows = Mapping[tuple[str, float], ArmLevel]


def by_arm_level(rows: Sequence[ArmLevel]) -> dict[tuple[str, float], ArmLevel]:
    """Index the summaries by arm and level."""
    return {(row.arm, row.level): row for row in rows}


def guards(figures: Figures, rows: Rows, baseline: str, candidate: str, levels: Sequence[float],
           rules: Decision, *, restarted: bool = False,
           confidence: float = CONFIDENCE) -> tuple[Guard, ...]:  # fmt: skip
    """Return the state of every guard at every level; `restarted`: each block was a start of the servers."""
    fit = partial(fit_curve, restarted=restarted, confidence=confidence)
    tails = {name: paired(figures, baseline, candidate, f"ttft_{name}") for name in GUARD_TAILS}
    ratios = {name: fit(log_ratios(pairs, "higher")) for name, pairs in tails.items()}
    shares = {name: paired(figures, baseline, candidate, name) for name in ("on_time", "error_ratio")}
    on_time, error = (fit(_differences(pairs)) for pairs in shares.values())
    found: list[Guard] = []
    for level in levels:
        found.append(_ttft(level, rows.get((baseline, level)), rows.get((candidate, level)), tails, ratios, rules))
        told = _difference("on_time", level, on_time, -rules.on_time_margin, "the share of tokens on time")
        found.append(_of_blocks(told, shares["on_time"].get(level, ())))
        told = _difference("error_ratio", level, error, 0.0, "the share of failed requests")
        found.append(_of_blocks(told, shares["error_ratio"].get(level, ())))
    return tuple(found)


def _differences(pairs: Mapping[float, Sequence[tuple[float, float]]]) -> dict[float, list[float]]:
    return {level: [c - b for b, c in values] for level, values in pairs.items()}


def _of_blocks(guard: Guard, pairs: Sequence[tuple[float, float]]) -> Guard:
    """Add both shares, and leave out a bound that no candidate could reach from the baseline's: it says nothing.

    A t interval of a difference of shares overshoots where blocks are few (Newcombe, Statistics in Medicine 17:
    873-890, 1998). The finding is of the whole interval and stays; taking a bound away only widens what is claimed.
    """
    if not pairs:
        return guard
    base, cand = (sum(own) / len(pairs) for own in zip(*pairs, strict=True))
    guard, low, high = replace(guard, baseline=base, candidate=cand), guard.ratio.low, guard.ratio.high
    if low is None or high is None:
        return guard
    kept = replace(
        guard.ratio, low=low if low >= -base - ROUNDING else None, high=high if high <= 1 - base + ROUNDING else None
    )
    return replace(guard, ratio=kept)


def deepest_shared(base: ArmLevel | None, cand: ArmLevel | None) -> str:
    """Return the deepest of p50, p90, p95 of the TTFT whose bound exists in both arms, or the empty string."""
    if base is None or cand is None:
        return ""
    tails = [row.tails["ttft"] for row in (base, cand)]
    shared = [name for name in GUARD_TAILS if all(getattr(tail, name).high is not None for tail in tails)]
    return shared[-1] if shared else ""


def _ttft(
    level: float, base: ArmLevel | None, cand: ArmLevel | None,
    tails: Mapping[str, Mapping[float, Sequence[tuple[float, float]]]], ratios: Mapping[str, Curve], rules: Decision,
) -> Guard:  # fmt: skip
    """Broken only when the ratio's whole interval is beyond the margin and the tail itself is long enough to matter."""
    statistic = deepest_shared(base, cand)
    nothing = Guard(name="ttft", level=level, finding=Finding.NO_DATA, statistic=statistic)
    if cand is None or not statistic:
        too_few = "there are too few requests to bound any percentile of the time to first token"
        effects = [row.tails["ttft"].design_effect.get("p50", 1.0) for row in (base, cand) if row is not None]
        needed = bound_needs(QUANTILES["p50"], max(effects, default=1.0))
        return replace(nothing, sentence=f"{too_few}: its median needs {needed} in each arm")
    pairs = tails[statistic].get(level, ())
    infinite = [math.isinf(c) for _, c in pairs]
    if pairs and all(infinite) and not any(math.isinf(b) for b, _ in pairs):
        beyond = Estimate(value=math.inf, low=math.inf, high=math.inf, n=len(pairs))
        ratio, finding = beyond, Finding.BROKEN
    elif any(infinite) or any(math.isinf(b) for b, _ in pairs):
        return replace(nothing, sentence=f"failed requests reach the {statistic} of the time to first token")
    else:
        ratio = ratios[statistic].ratio(level)
        finding = _compared(ratio, 1 + rules.ttft_margin)
    tail: Estimate = getattr(cand.tails["ttft"], statistic)
    judged = _excused(finding, tail, rules.ttft_ignore_below_s)
    said = _ttft_sentence(statistic, ratio, judged)
    if judged is not finding:
        said += _excuse(judged, rules.ttft_ignore_below_s)
    return replace(nothing, finding=judged, ratio=ratio, sentence=said)


def _excused(finding: Finding, tail: Estimate, ignore_below_s: float) -> Finding:
    if ignore_below_s <= 0 or tail.value is None:
        return finding
    if (tail.high if tail.high is not None else math.inf) <= ignore_below_s:
        return Finding.HOLDS
    short = (tail.low if tail.low is not None else 0.0) <= ignore_below_s
    return Finding.UNPROVEN if finding is Finding.BROKEN and short else finding


def _excuse(finding: Finding, ignore_below_s: float) -> str:
    """Say that the absolute rule, not the ratio, makes the finding."""
    within = "within" if finding is Finding.HOLDS else "perhaps within"
    return f", but {within} {1000 * ignore_below_s:.3g} ms, which is never held against the candidate"


def _compared(ratio: Estimate, limit: float) -> Finding:
    if ratio.low is None or ratio.high is None:
        return Finding.NO_DATA
    return Finding.BROKEN if ratio.low > limit else Finding.HOLDS if ratio.high <= limit else Finding.UNPROVEN


def _ttft_sentence(statistic: str, ratio: Estimate, finding: Finding) -> str:
    if finding is Finding.NO_DATA or ratio.value is None:
        return f"the {statistic} of the time to first token has no interval"
    if math.isinf(ratio.value):
        return f"the {statistic} of the time to first token is never reached: too many requests fail"
    change = 100 * (ratio.value - 1)
    if abs(change) < 0.5:
        return f"first tokens differ by less than 1 % ({statistic})"
    return f"first tokens are {abs(change):.0f} % {'later' if change >= 0 else 'earlier'} ({statistic})"


def _difference(name: str, level: float, curve: Curve, limit: float, what: str) -> Guard:
    """Judge a share by its difference: on_time must not fall by more than its margin, errors must not rise."""
    change = curve.difference(level)
    nothing = Guard(name=name, level=level, finding=Finding.NO_DATA, ratio=change, sentence=f"{what} is not known")
    if change.low is None or change.high is None or change.value is None:
        return nothing
    rises = name == "error_ratio"
    worst, best = (change.low, change.high) if rises else (-change.high, -change.low)
    bound = limit if rises else -limit
    finding = Finding.BROKEN if worst > bound else Finding.HOLDS if best <= bound else Finding.UNPROVEN
    points = 100 * abs(change.value)
    direction = "higher" if change.value > 0 else "lower"
    said = f"{what} is {points:.1f} points {direction}" if points >= 0.05 else f"{what} is the same"
    return replace(nothing, finding=finding, sentence=said)
