"""Runs of every kind that a page must show, judged by the analysis itself from records of known figures."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from made_run import BASE, SPEC, Made, header

from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Answer, Judgement
from loadtest.experiment import as_document
from loadtest.record import Request
from loadtest.settings import Experiment, Load, Traffic

LEVELS = (1.0, 4.0, 16.0, 64.0)
WORLD = {"world": "default", "late_ratio": {}}
VIOLATION = [{"item": "model", "baseline": "a", "candidate": "b", "source": "verified", "kind": "violation"}]
DAY = as_document(Experiment(load=Load(think_time=0), traffic=Traffic(loads=(1.0, 8.0, 64.0), hours=(12.0, 8.0, 4.0))))


def falling(level: float) -> float:
    return 1.6 - 0.18 * math.log2(level)


def classed(row: Request) -> Request:
    return replace(row, category=("chat", "code", "rag")[row.session % 3])


def timed_out(row: Request) -> Request:
    return replace(classed(row), outcome="timeout", finish_reason="", chunk_s=[], chunk_tokens=[])


MADE: dict[str, tuple[Answer, Callable[[], Made]]] = {
    "pays up to": (Answer.PAYS_UP_TO, lambda: of(speedup=falling)),
    "with a day": (Answer.PAYS_UP_TO, lambda: of(speedup=falling, run=header(experiment=DAY))),
    "no crossing": (Answer.PAYS_EVERYWHERE, lambda: of(speedup=lambda level: 1.5)),
    "never": (Answer.NEVER_PAYS, lambda: of(speedup=lambda level: 0.8)),
    "band": (Answer.PAYS_IN_BAND, lambda: of(speedup=lambda level: 1.3 if 2 < level < 32 else 0.8)),
    "one level": (Answer.PAYS_EVERYWHERE, lambda: of(levels=(8.0,))),
    "one arm": (Answer.MEASURED, lambda: of(arms=(BASE,), run=header(candidate=None))),
    "one block": (Answer.CANNOT_TELL, lambda: of(blocks=1)),
    "all failed": (Answer.INVALID, lambda: of(edit_request=timed_out)),
    "A/A": (Answer.MEASURED, lambda: of(speedup=lambda level: 1.0, run=header(aa=True))),
    "invalid": (Answer.INVALID, lambda: of(run=header(comparability=VIOLATION))),
    "simulated": (Answer.PAYS_UP_TO, lambda: of(speedup=falling, run=header(simulated=WORLD))),
}
CASES = tuple(MADE)


def of(**changes: Any) -> Made:
    return Made(**{"levels": LEVELS, "blocks": 4, "requests": 40, "chunks": 8, "edit_request": classed, **changes})


@cache
def case(name: str) -> tuple[dict[str, Any], Judgement]:
    """Return a case's header and judgement."""
    run, cells, scrapes, table = MADE[name][1]().build()
    return run, judge_data(run, cells, scrapes, table, detailed=True)


def several() -> list[tuple[str, dict[str, Any], Judgement]]:
    """Return five runs, as for five candidates."""
    found = []
    for k, name in enumerate(("pays up to", "no crossing", "never", "band", "simulated"), start=1):
        run, judgement = case(name)
        identity = {"model": "m", "method": "eagle3", "num_speculative_tokens": k}
        found.append((name, run | {"arms": [{"name": SPEC, "identity": identity}]}, judgement))
    return found
