"""A cell as its rules see it, and as the report shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadtest.analyse.counters import growth, restarted
from loadtest.analyse.explain import ByCell
from loadtest.analyse.results import CellView
from loadtest.analyse.summary import Measured
from loadtest.analyse.table import CellRows
from loadtest.analyse.validity import CellFacts, Mark
from loadtest.backlog import gap_cv
from loadtest.loads import unit_of
from loadtest.record import CellRecord
from loadtest.settings import Experiment


def cell_facts(cell: CellRecord, measured: Measured, scrapes: ByCell, experiment: Experiment,
               rows: CellRows | None = None, habits: object = None) -> CellFacts:  # fmt: skip
    """Return what the rules for a cell look at; `rows` are its requests, `habits` what the header tells of sessions."""
    own, load = scrapes.get(cell.cell, ()), experiment.load
    return CellFacts(
        measured=measured,
        users=int(cell.level),
        thinks=load.think_time > 0 or _pauses_by_plan(rows),
        closed=load.kind == "closed",
        unit=unit_of(load),
        steady=load.shape == "steady",
        recorded=load.arrivals == "trace",
        gap_cv=gap_cv(load, habits),
        window=growth(own, "window_open", "window_close"),
        whole=growth(own, "idle_before", "idle_after"),
        restarted=restarted(own),
        rows=rows,
    )


PLANNED_PAUSE_S, PLANNED_RATIO = 0.001, 0.01  # without any pause the next request is due the moment one has ended


def _pauses_by_plan(rows: CellRows | None) -> bool:
    """Return whether users' next requests fell due later than their last ones ended: for tools, with no think time.

    After a failure a user waits too, which is no plan of the scenario's.
    """
    if rows is None:
        return False
    order = np.lexsort((rows.column("due_s"), rows.column("user")))
    user, due, end, ok = (rows.column(name)[order] for name in ("user", "due_s", "end_s", "ok"))
    follows = (user[1:] == user[:-1]) & ok[:-1]
    paused = follows & (due[1:] - end[:-1] > PLANNED_PAUSE_S)
    return bool(paused.sum() > PLANNED_RATIO * follows.sum())


def cell_view(cell: CellRecord, measured: Measured, marks: Sequence[Mark], scrapes: ByCell) -> CellView:
    """Return a cell as the report shows it; times in seconds, absent figures None."""
    whole = growth(scrapes.get(cell.cell, ()), "idle_before", "idle_after")
    figures = measured.figures
    opened, closed = cell.window_open_s, cell.window_close_s
    return CellView(
        cell=cell.cell,
        arm=cell.arm,
        level=cell.level,
        block=cell.block,
        valid=not any(mark.invalid for mark in marks),
        marks=tuple(mark.sentence for mark in marks),
        window_s=None if opened is None or closed is None else closed - opened,
        requests=measured.requests,
        failed=measured.failed,
        in_flight=cell.in_flight_mean,
        output_tokens_per_s=_present(figures["output_tokens_per_s"]),
        ttft_p50_s=_present(figures["ttft_p50"]),
        e2e_mean_s=_present(figures["e2e"]),
        lateness_p99_s=cell.lateness_p99_s,
        cpu_ratio=cell.client_cpu_ratio,
        hub_lag_p99_s=cell.hub_lag_p99_s,
        coalesced_ratio=cell.coalesced_ratio,
        tokens_client=measured.tokens_client,
        tokens_server=_count(whole.get("generation_tokens")) if whole else None,
        requests_client=measured.requests_client,
        requests_server=_count(whole.get("requests")) if whole else None,
        opened_s=opened,
        closed_s=closed,
    )


def _present(value: float) -> float | None:
    return None if value != value else value


def _count(value: float) -> int | None:
    return None if value != value else round(value)
