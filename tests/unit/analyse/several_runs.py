"""Runs of several candidates, made of known figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from made_run import BASE, Made, header

from loadtest.analyse.gating import RUN, Asked
from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Judgement

LEVELS = (1.0, 4.0, 16.0, 64.0)
SPEEDUPS: dict[str, Callable[[float], float]] = {
    "eagle3": lambda level: 1.6,
    "ngram": lambda level: 1.6 - 0.18 * math.log2(level),  # 1.03 between 4 and 16 users
    "draft": lambda level: 1.6 - 0.18 * math.log2(level),
    "medusa": lambda level: 0.8,
}


def made(speedups: Mapping[str, Callable[[float], float]] = SPEEDUPS, **changes: Any) -> Made:
    run = {"schema": 2, "candidate": None, "candidates": list(speedups), **changes.pop("run", {})}
    given = {"levels": LEVELS, "blocks": 6, "requests": 40, "chunks": 8, "noise": 0.01, **changes}
    return Made(arms=(BASE, *speedups), speedups=dict(speedups), run=header(**run), **given)


def judged(what: Made, asked: Asked = RUN, *, detailed: bool = False) -> Judgement:
    run, cells, scrapes, table = what.build()
    return judge_data(run, cells, scrapes, table, None, asked, detailed)


@cache
def five_arms() -> tuple[dict[str, Any], Judgement]:
    """A baseline and four candidates: one pays everywhere, two alike up to some load, one never."""
    what = made()
    return what.run, judged(what, detailed=True)
