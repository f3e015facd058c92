"""A/A: a server against itself measures how much two equal servers differ, and so what a comparison can claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.analyse import wording
from loadtest.analyse.compare import Curve, Pairs, together
from loadtest.analyse.findings import Noise
from loadtest.analyse.looks import many_starts
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.results import Answer, Decision
from loadtest.errors import ExitCode


def smallest_effect(curve: Curve) -> float | None:
    """Return the least change, as a share, that the same set-up could tell from none at every level; None: no interval.

    It is the widest half-width of the intervals; where an interval leaves out 1, although both arms are the same, it
    is that interval's far end.
    """
    if not len(curve.levels) or np.isnan(curve.half).any():
        return None
    apart = np.abs(curve.mean) > curve.half
    return float(np.expm1(np.max(curve.half + np.where(apart, np.abs(curve.mean), 0.0))))


def largest_difference(curve: Curve) -> float | None:
    """Return the largest change of the mean at any level, as a share; None without data."""
    return float(np.expm1(np.max(np.abs(curve.mean)))) if len(curve.levels) else None


def noise_of(by_metric: Mapping[str, Curve], pairs: Pairs) -> Noise:
    """Return what an A/A run says of the noise, for a run that is to be held against it."""
    effects = {name: effect for name, curve in by_metric.items() if (effect := smallest_effect(curve)) is not None}
    return Noise(effects=effects, slower=pairs.slower, median=pairs.median)


def judge_against_itself(run: Mapping[str, Any], curve: Curve, metric: str, levels: Sequence[float]) -> Decision:
    """Return the answer of an A/A run: measured, not judged."""
    arm, restarted = str(run["baseline"]), many_starts(run)
    subject = f"two starts of {arm} differ" if restarted else f"{arm} differs from itself"
    most, least = largest_difference(curve), smallest_effect(curve)
    label = BY_NAME[metric].label
    if most is None:
        headline = "A/A: no valid pair of cells exists."
    else:
        headline = f"A/A: {subject} by at most {wording.percent(most)} by {label} ({wording.tested(levels)}); "
        headline += (
            "one pair gives no interval, so that the smallest effect is not known."
            if least is None
            else f"smallest effect this set-up can claim: {wording.percent(least)}."
        )
    return Decision(
        answer=Answer.MEASURED,
        exit_code=int(ExitCode.PASS),
        headline=headline,
        second=_apart(together(curve)) or _covers(curve),
        reasons=() if restarted or run.get("simulated") else (ONE_START,),
    )


ONE_START = "Each arm was started once: how starts differ from each other is not in these figures."


def _apart(curve: Curve) -> str:
    """Name the levels at which the interval, of all levels together, leaves out 1."""
    found = [
        f"{wording.ratio(curve.ratio(float(level)))} at {wording.with_unit(float(level))}"
        for level, mean, half in zip(curve.levels, curve.mean, curve.half, strict=True)
        if not math.isnan(half) and abs(mean) > half
    ]
    if not found:
        return ""
    return (
        f"Both arms are the same and yet told apart: {', '.join(found)}."
        " Differences of this size are no proof of anything; more pairs of starts would make the interval honest."
    )


def _covers(curve: Curve) -> str:
    return "All intervals together hold 1.00." if len(curve.levels) and not np.isnan(curve.half).all() else ""
