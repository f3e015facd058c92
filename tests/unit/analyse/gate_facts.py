"""What objectives are judged on, from runs made of known figures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from made_run import BASE, SPEC, Made

from loadtest.analyse.explain import scrapes_by_cell
from loadtest.analyse.gate import judge_slo
from loadtest.analyse.gate_results import SloResult
from loadtest.analyse.objectives import Measurements
from loadtest.analyse.reach import Loads
from loadtest.analyse.slo_levels import GateFacts
from loadtest.analyse.table import derive
from loadtest.record import CellRecord, Request
from loadtest.settings import Experiment, Limits, Traffic
from loadtest.slo_tables import objectives

LEVELS = (4.0, 16.0)


def failing(row: Request, every: int, arm: str = SPEC) -> Request:
    """Let every n-th session of an arm fail before its first token."""
    if row.arm == arm and row.session % every == 0:
        return replace(row, outcome="http_error", http_status=500, chunk_s=[], chunk_tokens=[], output_tokens=-1,
                       finish_reason="", first_visible_s=float("nan"))  # fmt: skip
    return row


def facts_of(made: Made, **changes: Any) -> GateFacts:
    _, cells, scrapes, table = made.build()
    in_flight = {level: 0.9 * level for level in made.levels}
    given: dict[str, Any] = {
        "found": Measurements(requests=derive(table, cells), cells=cells, scrapes=scrapes_by_cell(scrapes),
                              levels=made.levels, limits=Limits()),
        "experiment": Experiment(traffic=Traffic(loads=(4.0, 8.0, 16.0), hours=(12.0, 8.0, 4.0))),
        "baseline": made.arms[0],
        "candidate": made.arms[1] if len(made.arms) > 1 else None,
        "loads": Loads(levels=made.levels, unit="users", in_flight=in_flight),
    }  # fmt: skip
    return GateFacts(**{**given, **changes})


def _window(cell: CellRecord) -> CellRecord:
    """Close windows at slightly different lengths, as a real run does."""
    assert cell.window_close_s is not None
    return replace(cell, window_close_s=cell.window_close_s + 1e-4 * (1 + cell.block * (2 if cell.arm == SPEC else 1)))


PLAIN = Made(levels=LEVELS, blocks=6, requests=70, chunks=12, noise=0.01, ttft_factor=lambda level: 1.03,
             edit_cell=_window)  # fmt: skip


@cache
def plain() -> GateFacts:
    return facts_of(PLAIN)


@cache
def one_block() -> GateFacts:
    return facts_of(PLAIN.having(blocks=1))


@cache
def alone() -> GateFacts:
    return facts_of(PLAIN.having(arms=(BASE,)))


@cache
def with_failures() -> GateFacts:
    return facts_of(PLAIN.having(edit_request=lambda row: failing(row, 10)))


@cache
def few_survivors() -> GateFacts:
    return facts_of(PLAIN.having(edit_request=lambda row: row if row.session % 25 == 24 else failing(row, 1)))


def judged(facts: GateFacts, **table: Any) -> SloResult:
    (slo,) = objectives([table])
    return judge_slo(slo, facts)
