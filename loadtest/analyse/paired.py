"""An objective's metric of both arms, paired by block, and compared over the levels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from loadtest.analyse.compare import Curve
from loadtest.analyse.objectives import Measurements, cell_figure
from loadtest.slo import Slo, Unit

Pairs = Mapping[float, Sequence[tuple[float, float]]]  # level → (baseline, candidate) by block


def compared(slo: Slo, pairs: Pairs, found: Measurements) -> Curve:
    """Return the comparison by block over the levels: log speed-ups, or differences of a share, above 0 better."""
    sign = -1.0 if slo.lower else 1.0
    if slo.measure.unit is Unit.SHARE:
        return found.fit({x: [sign * (c - b) for b, c in own] for x, own in pairs.items()})
    logs = {x: [sign * math.log(c / b) for b, c in own if _positive(b, c)] for x, own in pairs.items()}
    return found.fit(logs)


def _positive(*values: float) -> bool:
    return all(0 < value < math.inf for value in values)


def out_of_reach(pairs: Sequence[tuple[float, float]]) -> bool:
    """Return whether a pair has no ratio: nothing was carried, or failed requests reach the percentile."""
    return any(not _positive(b, c) for b, c in pairs)


def paired_samples(
    slo: Slo, baseline: str, candidate: str, found: Measurements
) -> dict[float, list[tuple[float, float]]]:
    """Return, by level, the figures (baseline, candidate) of the blocks where both exist.

    The baseline's failures never make the candidate look better: its mean is that of the requests that ended well.
    """
    found = found.narrowed(slo.category)
    pairs: dict[float, list[tuple[float, float]]] = {}
    for level in found.levels:
        other = {c.block: c for c in found.of(candidate, level)}
        for cell in found.of(baseline, level):
            if cell.block not in other:
                continue
            mine = cell_figure(slo, found.requests.cell(cell), found.limits, survivors=True)
            its = cell_figure(slo, found.requests.cell(other[cell.block]), found.limits)
            if not math.isnan(mine) and not math.isnan(its):
                pairs.setdefault(level, []).append((mine, its))
    return pairs
