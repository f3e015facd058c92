"""Acceptance of drafts by slot, load, time, request, category of prompt and position in the output.

The first three come from the server's counters, a cell (one arm at one level in one block) being the unit, or a start
of the servers where every block was one. The others come from the server's figures by request where it gives them,
else from the tokens of chunks, a bound, since a busy server merges chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadtest.analyse.counters import Deltas
from loadtest.analyse.estimates import Estimate, within
from loadtest.analyse.explain import ByCell, window_growth
from loadtest.analyse.findings import Acceptance, Group, Moment, Slot
from loadtest.analyse.stats import Floats, dispersion, merged, quantile_estimate, ratio_of_sums, sample_of
from loadtest.analyse.table import CellRows, Requests
from loadtest.analyse.trends import Counted, trends
from loadtest.record import CellRecord

QUANTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.50, "p75": 0.75, "p95": 0.95}
POSITIONS = (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, math.inf)  # tokens already out
RATIO, BOUND = "acceptance ratio", "tokens per chunk"


def acceptance(
    cells: Sequence[CellRecord], scrapes: ByCell, requests: Requests, *, restarted: bool = False
) -> Acceptance | None:
    """Return the acceptance of an arm over its valid cells; None where neither counters nor chunks say anything."""
    counted = [Counted(cell=c, deltas=window_growth([c], scrapes)) for c in cells]
    counted = [c for c in counted if c.deltas.get("drafted") > 0]
    by_request = _by_request(cells, requests)
    if not counted and by_request is None:
        return None
    units = _units(counted, restarted)
    flat, drift = trends(counted, restarted=restarted)
    shown = by_request or _NOTHING
    return Acceptance(
        ratio=_over(units, "accepted", "drafted"),
        slots=_slots(units),
        levels=_levels(counted, restarted),
        flat=flat,
        drift=drift,
        over_time=_moments(counted),
        of_requests=shown.kind,
        requests=dict(shown.quantiles),
        requests_sd=shown.sd,
        categories=shown.categories,
        positions=positions([requests.cell(c) for c in cells]) if counted or shown.kind else (),
    )


def _units(counted: Sequence[Counted], restarted: bool) -> list[list[Deltas]]:
    grouped: dict[int, list[Deltas]] = {}
    for one in counted:
        grouped.setdefault(one.cell.block if restarted else one.cell.cell, []).append(one.deltas)
    return list(grouped.values())


def _over(units: Sequence[Sequence[Deltas]], above: str, below: str) -> Estimate:
    sums = [[sum(d.get(name) for d in unit) for unit in units] for name in (above, below)]
    return _share(sums[0], sums[1])


def _share(above: Sequence[float] | Floats, below: Sequence[float] | Floats) -> Estimate:
    """Return a share of drafts or drafted tokens; a small sample's interval ends at 0 and 1 as well."""
    return within(ratio_of_sums(above, below), 0.0, 1.0)


def _per_chunk(above: Sequence[float] | Floats, below: Sequence[float] | Floats) -> Estimate:
    """Return tokens per chunk, of which each carries one."""
    return within(ratio_of_sums(above, below), 1.0, math.inf)


def _slots(units: Sequence[Sequence[Deltas]]) -> tuple[Slot, ...]:
    """Return survival S_j and conditional acceptance S_j ÷ S_{j−1} of every slot."""
    length = max((len(d.per_position) for unit in units for d in unit), default=0)
    drafts = [sum(d.get("drafts") for d in unit) for unit in units]
    found, before = [], drafts
    for j in range(length):
        own = [sum(d.per_position[j] for d in unit if j < len(d.per_position)) for unit in units]
        found.append(Slot(slot=j + 1, survival=_share(own, drafts), conditional=_share(own, before)))
        before = own
    return tuple(found)


def _levels(counted: Sequence[Counted], restarted: bool) -> tuple[Group, ...]:
    found = []
    for level in sorted({c.cell.level for c in counted}):
        own = [c for c in counted if c.cell.level == level]
        found.append(Group(name=f"{level:g}", value=_over(_units(own, restarted), "accepted", "drafted"),
                           count=len(own), low=level, high=level))  # fmt: skip
    return tuple(found)


def _moments(counted: Sequence[Counted]) -> tuple[Moment, ...]:
    ordered = sorted(counted, key=lambda c: c.middle_s)
    return tuple(
        Moment(t_s=c.middle_s, level=c.cell.level, block=c.cell.block, value=value)
        for c in ordered
        if (value := c.deltas.over("accepted", "drafted")) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByRequest:
    kind: str = ""
    quantiles: Mapping[str, Estimate]
    sd: float | None = None
    categories: tuple[Group, ...] = ()


_NOTHING = _ByRequest(quantiles={})


def _by_request(cells: Sequence[CellRecord], requests: Requests) -> _ByRequest | None:
    rows = [requests.cell(c) for c in cells]
    if not rows:
        return None
    good = [row.measured & row.ok for row in rows]
    parts = [_ratio_parts(row, chosen) for row, chosen in zip(rows, good, strict=True)]
    kind = RATIO
    if not any(np.any(below > 0) for _, below, _ in parts):
        kind, parts = BOUND, [_chunk_parts(row, chosen) for row, chosen in zip(rows, good, strict=True)]
    samples = [sample_of(above[below > 0] / below[below > 0]) for above, below, _ in parts]
    pooled = merged(samples)
    if not pooled.size:
        return None
    quantiles = {}
    for name, q in QUANTILES.items():
        chi_square, dof = dispersion(samples, pooled.quantile(q))
        quantiles[name] = quantile_estimate(pooled, q, chi_square / dof if dof else 1.0)
    sd = float(np.std(np.concatenate(pooled.runs), ddof=1)) if pooled.size > 1 else None
    return _ByRequest(
        kind=kind,
        quantiles=quantiles,
        sd=sd,
        categories=_categories(rows, parts, _share if kind == RATIO else _per_chunk),
    )


Parts = tuple[Floats, Floats, NDArray[np.int64]]  # above, below, row within the cell


def _ratio_parts(row: CellRows, chosen: NDArray[np.bool_]) -> Parts:
    """Return accepted and drafted tokens of the requests whose server told them."""
    drafted, accepted = row.column("spec_drafted"), row.column("spec_accepted")
    at = np.flatnonzero(chosen & (drafted > 0) & (accepted >= 0))
    return accepted[at].astype(float), drafted[at].astype(float), at


def _chunk_parts(row: CellRows, chosen: NDArray[np.bool_]) -> Parts:
    """Return tokens and chunks after the first chunk."""
    at = np.flatnonzero(chosen & row.column("by_step") & (row.column("chunks") > 1))
    first = row.chunks.tokens[row.chunks.offsets[:-1][at]]
    return (row.column("tokens")[at] - first).astype(float), row.column("chunks")[at] - 1.0, at


def _categories(
    rows: Sequence[CellRows], parts: Sequence[Parts], estimate: Callable[[Floats, Floats], Estimate]
) -> tuple[Group, ...]:
    """Return the figure of each category; the unit is the session."""
    sums: dict[int, list[tuple[Floats, Floats, int]]] = {}
    for row, (above, below, at) in zip(rows, parts, strict=True):
        codes, sessions = row.column("category")[at], row.column("session")[at]
        for code in np.unique(codes[codes >= 0]).tolist():
            own = codes == code
            _, unit = np.unique(sessions[own], return_inverse=True)
            sums.setdefault(code, []).append(
                (
                    np.bincount(unit, above[own]).astype(float),
                    np.bincount(unit, below[own]).astype(float),
                    int(own.sum()),
                )
            )
    words = rows[0].words["category"]
    found = [
        Group(
            name=words[code],
            value=estimate(np.concatenate([a for a, _, _ in own]), np.concatenate([b for _, b, _ in own])),
            count=sum(n for _, _, n in own),
        )
        for code, own in sums.items()
        if words[code]
    ]
    return tuple(sorted(found, key=lambda group: group.name))


def positions(rows: Sequence[CellRows]) -> tuple[Group, ...]:
    """Return the mean tokens of a chunk by how many tokens were already out; the unit is the cell."""
    edges = np.array(POSITIONS[1:-1])
    tokens, chunks = (np.zeros((len(rows), len(POSITIONS) - 1)) for _ in range(2))
    for i, row in enumerate(rows):
        wanted = np.repeat(row.measured & row.ok & row.column("by_step"), row.chunks.counts)
        if not wanted.any():
            continue
        through = np.cumsum(row.chunks.tokens, dtype=np.int64)
        starts = row.chunks.offsets[:-1]
        has = row.chunks.counts > 0
        before = through - row.chunks.tokens
        before -= np.repeat(before[starts[has]], row.chunks.counts[has])
        wanted[starts[has]] = False
        place = np.searchsorted(edges, before[wanted], side="right")
        tokens[i] = np.bincount(place, row.chunks.tokens[wanted], minlength=tokens.shape[1])
        chunks[i] = np.bincount(place, minlength=chunks.shape[1])
    return tuple(
        Group(name=_range(low, high), value=_per_chunk(tokens[:, j], chunks[:, j]), count=int(chunks[:, j].sum()),
              low=low, high=high)
        for j, (low, high) in enumerate(pairwise(POSITIONS))
        if chunks[:, j].sum()
    )  # fmt: skip


def _range(low: float, high: float) -> str:
    return f"from {low:g}" if math.isinf(high) else f"{low:g} to {high - 1:g}"
