"""What a reader must know next to the answer: metrics that disagree, how far saturation is, what would settle it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from loadtest.analyse import wording
from loadtest.analyse.breakeven import break_even, crossings
from loadtest.analyse.compare import Curve
from loadtest.analyse.estimates import Crossing
from loadtest.analyse.guards import Rows
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.results import BreakEven, Finding, Guard

OTHERS = ("e2e", "tpot", "output_tokens_per_s")  # compared with the deciding metric by their break-even
OUT_OF_REACH = 100  # more blocks than this are not proposed
POWER_Z = float(stats.norm.ppf(0.8))  # how surely the blocks that are proposed settle it


def second_sentence(curves: Mapping[str, Curve], metric: str, levels: Sequence[float]) -> str:
    """Say where the first token is later, and which other metric has another break-even; empty when nothing differs."""
    parts = [_later(curves["ttft"], len(levels))] if metric != "ttft" and "ttft" in curves else []
    own = break_even(curves[metric], metric)
    for name in OTHERS:
        if name == metric or name not in curves:
            continue
        other = break_even(curves[name], name)
        if _disagree(own, other):
            parts.append(described(other, curves[name], BY_NAME[name].label, levels).sentence)
    return " ".join(part for part in parts if part)


def described(found: BreakEven, curve: Curve, label: str, levels: Sequence[float]) -> BreakEven:
    """Add the sentence on a break-even, with the loads above it at which the estimate alone is beyond it again."""
    known = [float(x) for x, half in zip(curve.levels, curve.half, strict=True) if not math.isnan(half)]
    said = wording.break_even(found, label, known or levels, every=len(known) == len(levels))
    remarks = (_skipped(found, known, levels), _again(curve, found))
    return replace(found, sentence=" ".join((said, *(remark for remark in remarks if remark))))


def _skipped(found: BreakEven, known: Sequence[float], levels: Sequence[float]) -> str:
    """Say which tested loads without an interval a crossing is interpolated across."""
    at = found.at.value
    if at is None or at in known or not known or not known[0] < at < known[-1]:
        return ""
    below, above = max(x for x in known if x < at), min(x for x in known if x > at)
    lost = [x for x in levels if below < x < above]
    if not lost:
        return ""
    verb = "has" if len(lost) == 1 else "have"
    return (f"It is interpolated between {wording.load(below)} and {wording.with_unit(above)}, since"
            f" {wording.listed(lost)}, tested too, {verb} no interval.")  # fmt: skip


def _again(curve: Curve, found: BreakEven) -> str:
    """Say where above a crossing the estimate crosses back, none of which is proven."""
    if found.form is not Crossing.PAYS_UP_TO:
        return ""
    first = next(iter(crossings(curve, found.threshold)), math.inf)
    above = [float(x) for x in curve.levels if x > first]
    ratios = {level: curve.ratio(level) for level in above}
    back = [level for level, one in ratios.items()
            if (one.value or 0.0) > found.threshold and not (one.low or 0.0) > found.threshold]  # fmt: skip
    if not back:
        return ""
    each = ", ".join(wording.ratio(ratios[level]) for level in back)
    return f"At {wording.listed(back)} the estimate is beyond that again ({each}), which is not proven."


def _later(curve: Curve, tested: int) -> str:
    """Describe the top levels at which the first token is proven later, if there are any."""
    late = curve.mean + curve.half < 0  # NaN is not below
    first = len(late)
    while first and late[first - 1]:
        first -= 1
    if first == len(late):
        if not late.any():
            return ""
        at = [float(x) for x in curve.levels[late]]
        return f"First tokens are on average {_spread(curve.mean[late])} later at {wording.listed(at)}."
    every = "at every tested load" if len(late) == tested else f"at {wording.listed([float(x) for x in curve.levels])}"
    start = wording.with_unit(float(curve.levels[first]))
    where = every if first == 0 else f"from {start} on" if first < len(late) - 1 else f"at {start}"
    return f"First tokens are on average {_spread(curve.mean[first:])} later {where}."


def _spread(mean: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    later = 100 * (np.exp(-mean) - 1)
    low, high = float(later.min()), float(later.max())
    if high < 0.5:
        return "less than 1 %"
    return f"{low:.0f} %" if f"{low:.0f}" == f"{high:.0f}" else f"{low:.0f} to {high:.0f} %"


def _disagree(own: BreakEven, other: BreakEven) -> bool:
    unsettled = (Crossing.NO_DATA, Crossing.CANNOT_TELL)
    if other.form in unsettled or own.form in unsettled:
        return False
    if own.form is not other.form:
        return True
    ends = [(x.low or 0.0, math.inf if x.high is None else x.high) for x in (own.at, other.at)]
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]


def growth_remark(rows: Rows, baseline: str, levels: Sequence[float]) -> str:
    """Say how far from saturation the top load is: the growth of the baseline's throughput over the last doubling."""
    if len(levels) < 2:
        return ""
    for metric in ("output_tokens_per_s", "requests_per_s"):
        ends = [rows[baseline, level].means[metric].value for level in levels[-2:] if (baseline, level) in rows]
        if len(ends) == 2 and ends[0] and ends[1]:
            doublings = math.log2(levels[-1] / levels[-2])
            growth = (ends[1] / ends[0]) ** (1 / doublings) - 1
            verb = f"still grew by {100 * growth:.0f} %" if growth >= 0.005 else "no longer grew"
            return f"; throughput of the baseline {verb} over the last doubling"
    return ""


def would_settle(
    curve: Curve, threshold: float, undecided: Sequence[float], guards: Sequence[Guard]
) -> tuple[str, int | None]:
    """Say what would settle the open levels, and how many more blocks that is where blocks can, if the noise stays."""
    if not undecided:
        return "", None
    if not len(curve.levels) or np.isnan(curve.half).all():
        return "At least 3 blocks with valid cells of both servers: without two at some load there is no interval.", 3
    needed = {level: more for level in undecided if (more := more_blocks(curve, threshold, level)) is not None}
    near = {level: more for level, more in needed.items() if more <= OUT_OF_REACH}
    if near:
        most = max(near.values())
        where, plural = wording.listed(sorted(near)), "s" if most > 1 else ""
        return f"About {most} more block{plural} would settle {where} if the noise stays the same.", most
    if needed:
        where = wording.listed(sorted(needed))
        return f"The speed-up at {where} is too near {threshold:.2f} to be settled by more blocks.", None
    lost = [level for level in undecided if curve.at(level) is None]
    if lost:
        return f"Measure {wording.listed(lost)} again: no block has a valid cell of both servers there.", 2
    missing = [g for g in guards if g.level in undecided and g.finding is Finding.NO_DATA]
    if not missing:
        return f"At least 2 valid blocks at {wording.listed(undecided)}.", 2
    names = sorted({g.name for g in missing})
    verb = "has" if len(names) == 1 else "have"
    where = wording.listed(sorted({g.level for g in missing}))
    return f"Longer windows, or a server that says more: {' and '.join(names)} {verb} no data at {where}.", None


def more_blocks(curve: Curve, threshold: float, level: float) -> int | None:
    """Return how many blocks beside those there are would take the threshold out of the interval, or None.

    So many that it happens four times in five, if noise and speed-up stay: half-widths shrink with √blocks and with the
    t quantile of more degrees of freedom, and the mean itself still moves. More than can be proposed: OUT_OF_REACH + 1.
    """
    found = curve.at(level)
    if found is None or math.isnan(found[1]):
        return None
    mean, half, sample = found
    distance = abs(mean - math.log(threshold))
    if distance >= half:
        return None
    n = len(sample)
    dof = n - 1 if curve.restarted else sum(len(own) - 1 for own in curve.samples)
    share = (1 + curve.confidence) / 2
    error = half * math.sqrt(n) / float(stats.t.ppf(share, max(dof, 1)))  # of one block
    for more in range(1, OUT_OF_REACH + 1):
        later = max(1.0, dof * (n + more - 1) / max(n - 1, 1))
        reach = float(stats.t.ppf(share, later)) + POWER_Z
        if distance * math.sqrt(n + more) >= reach * error:
            return more
    return OUT_OF_REACH + 1
