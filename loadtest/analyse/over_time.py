"""The run over time: requests in flight as the client saw them, and the servers' gauges, at moments inside windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadtest.analyse.counters import IN_WINDOW, value
from loadtest.analyse.detail_results import Instant
from loadtest.analyse.explain import ByCell
from loadtest.analyse.table import CellRows, Floats, Requests
from loadtest.record import CellRecord, Scrape

MOST = 480  # moments of a run
EACH = 6  # of a cell whose server was not scraped inside its window


def instants(requests: Requests, cells: Sequence[CellRecord], scrapes: ByCell) -> tuple[Instant, ...]:
    """Return moments inside the windows of the cells, in order of time, evenly chosen where there are many."""
    found: list[Instant] = []
    most = max(1, MOST // max(1, len(cells)))
    for cell in cells:
        if cell.window_open_s is None or cell.window_close_s is None:
            continue
        own = [s for s in scrapes.get(cell.cell, ()) if s.moment in IN_WINDOW and not s.error]
        times = [s.t_s for s in own] or np.linspace(cell.window_open_s, cell.window_close_s, EACH).tolist()
        chosen = np.unique(np.linspace(0, len(times) - 1, min(most, len(times))).round().astype(int)).tolist()
        flying = _in_flight(requests.cell(cell), np.array([times[i] for i in chosen]))
        for i, count in zip(chosen, flying, strict=True):
            found.append(_instant(cell, times[i], count, own[i] if own else None))
    found.sort(key=lambda one: (one.t_s, one.arm))
    return tuple(found if len(found) <= MOST else found[:: -(-len(found) // MOST)])


def _in_flight(rows: CellRows, at: Floats) -> list[int]:
    """Return how many requests were sent and had not ended at each moment."""
    was_sent = ~np.isnan(rows.column("sent_s"))
    sent, ended = (np.sort(rows.column(name)[was_sent]) for name in ("sent_s", "end_s"))  # NaN is last: never ended
    return [int(n) for n in np.searchsorted(sent, at, side="right") - np.searchsorted(ended, at, side="right")]


def _instant(cell: CellRecord, t_s: float, in_flight: int, scrape: Scrape | None) -> Instant:
    gauges = {name: None if scrape is None else value(scrape, name) for name in ("running", "waiting", "kv_use")}
    return Instant(t_s=t_s, arm=cell.arm, level=cell.level, block=cell.block, in_flight=max(0, in_flight), **gauges)
