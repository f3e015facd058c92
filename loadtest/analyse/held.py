"""A run's claims beside the A/A run that it names: what equal servers showed is no gain of anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loadtest.analyse import wording
from loadtest.analyse.compare import Curve, Pairs
from loadtest.analyse.findings import HeldAgainst, Noise, Within
from loadtest.analyse.metrics import BY_NAME

MORE_SLOWER = 0.02  # points by which the share of slower requests must be above the A/A's to be worth a word


def noise_from(document: Mapping[str, Any]) -> Noise:
    """Return the noise that a run's header carries, as JSON wrote it."""
    return Noise(
        effects={str(name): float(v) for name, v in document.get("effects", {}).items() if v is not None},
        slower={float(level): float(v) for level, v in document.get("slower", {}).items() if v is not None},
        median={float(level): float(v) for level, v in document.get("median", {}).items() if v is not None},
    )


def held_against(
    aa_run: Mapping[str, Any] | None, by_metric: Mapping[str, Curve], pairs: Pairs, metric: str
) -> HeldAgainst | None:
    """Return the run's claims held against its A/A run, or None when it names none; `metric` is the deciding one.

    A claim is a speed-up whose interval leaves out 1; it is within the noise when its mean is no farther from 1 than
    the smallest effect that the A/A run could claim.
    """
    if not aa_run:
        return None
    noise = noise_from(aa_run.get("noise") or {})
    path = str(aa_run.get("path", ""))
    within = tuple(
        Within(metric=name, level=float(level), speedup=math.exp(float(mean)), effect=noise.effects[name])
        for name, curve in by_metric.items()
        if name in noise.effects
        for level, mean, half in zip(curve.levels, curve.mean, curve.half, strict=True)
        if abs(mean) > half and abs(mean) <= math.log1p(noise.effects[name])
    )
    slower = {level: share - near for level, share in pairs.slower.items()
              if (near := _at(noise.slower, level)) is not None}  # fmt: skip
    median = {level: m / near for level, m in pairs.median.items() if (near := _at(noise.median, level))}
    sentences = _sentences(within, slower, noise, metric, path)
    if differs := [str(name) for name in aa_run.get("differs") or ()]:
        sentences += (f"The A/A run {path} was measured with other settings: {', '.join(differs)}.",)
    return HeldAgainst(path=path, noise=noise, within=within, slower_beyond=slower, median_beyond=median,
                       sentences=sentences)  # fmt: skip


def _at(by_level: Mapping[float, float], level: float) -> float | None:
    """Return the A/A's figure at the tested level nearest in log load, or None."""
    if not by_level:
        return None
    return by_level[min(by_level, key=lambda x: abs(math.log(x / level)))]


def _sentences(
    within: tuple[Within, ...], slower: Mapping[float, float], noise: Noise, metric: str, path: str
) -> tuple[str, ...]:
    found = []
    for name in dict.fromkeys([metric, *(w.metric for w in within)]):
        own = [w for w in within if w.metric == name]
        if own:
            at = ", ".join(f"{w.speedup:.2f} at {wording.with_unit(w.level)}" for w in own)
            found.append(
                f"By {BY_NAME[name].label} the speed-up {at} is within what equal servers showed in the A/A run {path}"
                f" (smallest effect {wording.percent(own[0].effect)}): it is no claim."
            )
    if metric not in noise.effects:
        found.append(f"The A/A run {path} gives no smallest effect by {BY_NAME[metric].label}.")
    more = {level: excess for level, excess in slower.items() if excess > MORE_SLOWER}
    if more:
        worst = max(more, key=lambda level: more[level])
        found.append(f"At {wording.with_unit(worst)} {100 * more[worst]:.0f} points more requests are slower by over"
                     " 10 % than between equal servers.")  # fmt: skip
    return tuple(found)
