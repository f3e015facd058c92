"""One record of a cell out of the master's and those of the workers that drove it: the worst of each decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadtest.drive.workers.peers import Peer
from loadtest.reading import row_of
from loadtest.record import NOT_CARRIED, CellRecord

MASTER = "master"  # among the workers; none of them is called so


def merged(own: CellRecord, found: Sequence[tuple[Peer, Mapping[str, Any]]], lost: Mapping[str, str],
           unable: Iterable[str] = ()) -> CellRecord:  # fmt: skip
    """Return the master's record with the workers' evidence.

    `own` has what is counted over all requests. Requests in flight add up; of processor time, lag and sleep the
    largest stands, since one overloaded worker is enough to falsify a cell. A cell that lost workers (`lost`: why, by
    name), or was given up for some that became unable to do their part, says nothing of the arm: a resumed run measures
    it again.
    """
    cells = [row_of(CellRecord, row["cell"], f"the record of {peer.name}") for peer, row in found if row["cell"]]
    every = [own, *cells]
    oddities = dict(own.oddities)
    for cell in cells:
        for name, count in cell.oddities.items():
            oddities[name] = oddities.get(name, 0) + count
    in_flight = [cell.in_flight_mean for cell in cells]
    if lost and own.state == "complete":  # its phases went on without them before it was seen to be broken
        own = replace(own, state="interrupted", reason=_obituary(lost))
    return replace(
        own,
        in_flight_mean=sum(x for x in in_flight if x is not None) if cells and None not in in_flight else None,
        client_cpu_ratio=_most(cell.client_cpu_ratio for cell in every),
        hub_lag_p99_s=_most(cell.hub_lag_p99_s for cell in every),
        hub_lag_max_s=_most(cell.hub_lag_max_s for cell in every),
        suspended_s=_most(cell.suspended_s for cell in every),
        clock_steps=_most(cell.clock_steps for cell in every),
        models=sorted({*own.models, *(model for cell in cells for model in cell.models)}), oddities=oddities,
        workers={peer.name: float(row["users"]) for peer, row in found},
        workers_lost=sorted(lost),
        state="interrupted" if own.state in ("aborted", NOT_CARRIED) and (lost or any(unable)) else own.state,
        worker_cpu_ratio=_of([
            (MASTER, own.client_cpu_ratio),
            *((peer.name, (row["cell"] or {}).get("client_cpu_ratio")) for peer, row in found),
        ]),
        clock_offset_s=_of((peer.name, row["offset_s"]) for peer, row in found),
        clock_bound_s=_of((peer.name, row["bound_s"]) for peer, row in found),
        word_late_s=_of((peer.name, row["word_late_s"]) for peer, row in found),
    )  # fmt: skip


def worst_agreement(found: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return one agreement with null servers out of those of the workers: counts add up, of errors the largest stands.

    None where a worker has none: it was held against the master's own null server.
    """
    rows = [row for row in found if row is not None]
    if not rows or len(rows) < len(found):
        return None
    counts = ("requests", "missing", "tokens_differ")
    return {
        name: sum(row[name] for row in rows) if name in counts else _most(row[name] for row in rows) for name in rows[0]
    }


def _obituary(lost: Mapping[str, str]) -> str:
    names: dict[str, list[str]] = {}
    for name, why in sorted(lost.items()):
        names.setdefault(why, []).append(name)
    return "; ".join(
        f"{who[0]} was lost: {why}" if len(who) == 1 else f"{', '.join(who)} were lost: {why}"
        for why, who in names.items()
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _of(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {name: float(value) for name, value in values if value is not None}
