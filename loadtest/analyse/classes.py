"""The speed-up of each class of requests: what pays for one kind of traffic may not pay for another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from loadtest.analyse.compare import Curve, curve_of
from loadtest.analyse.detail_results import ClassLevel
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.table import Floats, Ints, Requests
from loadtest.record import CellRecord

COLUMNS = {"e2e": "e2e_s", "ttft": "ttft_s", "tpot": "tpot_s"}
MOST = 40  # classes; a scenario has a handful, and a prompt file may name thousands

WIDEST = math.log(20)  # half an interval beyond which it says nothing, and is left out

Key = tuple[str, float, int]  # arm, level, block


def classes(
    requests: Requests, cells: Sequence[CellRecord], baseline: str, candidate: str, *, restarted: bool = False,
    confidence: float,
) -> tuple[ClassLevel, ...]:  # fmt: skip
    """Return every class with two names or more at every level; the unit of replication is the block, as everywhere.

    A cell's figure is the mean over the requests of the class that were due in its window and ended well.
    """
    figures, counts = _figures(requests, cells)
    if len(figures) < 2:
        return ()
    found: list[ClassLevel] = []
    for name in sorted(figures, key=lambda one: (-sum(counts[one].values()), one))[:MOST]:
        curves = {metric: curve_of(figures[name], baseline, candidate, BY_NAME[metric], restarted=restarted,
                                   confidence=confidence) for metric in COLUMNS}  # fmt: skip
        for level in sorted({level for _, level, _ in figures[name]}):
            found.append(
                ClassLevel(
                    name=name,
                    level=level,
                    requests_baseline=_count(counts[name], baseline, level),
                    requests_candidate=_count(counts[name], candidate, level),
                    means_baseline=_means(figures[name], baseline, level),
                    means_candidate=_means(figures[name], candidate, level),
                    speedups={metric: _ratio(curve, level) for metric, curve in curves.items()},
                )
            )
    return tuple(sorted(found, key=lambda one: (one.level, one.name)))


def _ratio(curve: Curve, level: float) -> Estimate:
    found = curve.at(level)
    if found is None or found[1] <= WIDEST:
        return curve.ratio(level)
    return Estimate(value=math.exp(found[0]), n=len(found[2]))


def _figures(
    requests: Requests, cells: Sequence[CellRecord]
) -> tuple[dict[str, dict[Key, Mapping[str, float]]], dict[str, dict[Key, int]]]:
    """Return, by class, the figures of each cell and how many requests they are of."""
    figures: dict[str, dict[Key, Mapping[str, float]]] = {}
    counts: dict[str, dict[Key, int]] = {}
    names = requests.words.get("category", ())  # nosec B113  # a table, not the HTTP library
    for cell in cells:
        rows, key = requests.cell(cell), (cell.arm, cell.level, cell.block)
        chosen = rows.measured & rows.ok & (rows.column("category") >= 0)
        codes = rows.column("category")[chosen].astype(np.int64)
        number = np.bincount(codes, minlength=len(names))
        means = {metric: _by_code(codes, rows.column(column)[chosen], len(names)) for metric, column in COLUMNS.items()}
        for code in np.flatnonzero(number).tolist():
            if names[code]:
                figures.setdefault(names[code], {})[key] = {metric: float(own[code]) for metric, own in means.items()}
                counts.setdefault(names[code], {})[key] = int(number[code])
    return figures, counts


def _by_code(codes: Ints, values: Floats, size: int) -> Floats:
    """Return the mean of the values that exist, by code; NaN without any."""
    present = ~np.isnan(values)
    number = np.bincount(codes[present], minlength=size)
    total = np.bincount(codes[present], weights=values[present], minlength=size)
    return np.asarray(np.divide(total, number, out=np.full(size, math.nan), where=number > 0))


def _count(counts: Mapping[Key, int], arm: str, level: float) -> int:
    return sum(n for (one, at, _), n in counts.items() if one == arm and at == level)


def _means(figures: Mapping[Key, Mapping[str, float]], arm: str, level: float) -> dict[str, float]:
    own = [cell for (one, at, _), cell in figures.items() if one == arm and at == level]
    means = {metric: float(np.mean([cell[metric] for cell in own])) for metric in COLUMNS} if own else {}
    return {metric: value for metric, value in means.items() if not math.isnan(value)}
