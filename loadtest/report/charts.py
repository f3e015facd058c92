"""The charts of the page, in page order. A chart is a function from the run to a Chart, or None without data.

Its title states what was found, in figures of this run. To add one, write the function and name it in CHARTS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loadtest.analyse.results import Judgement
from loadtest.report import charts_acceptance as accepted
from loadtest.report.charts_classes import classes, day
from loadtest.report.charts_curves import law, tradeoff
from loadtest.report.charts_first_token import first_token
from loadtest.report.charts_latency import chunk_gap, e2e, throughput, token_gap, tpot, ttft
from loadtest.report.charts_requests import pairs, stalls, tokens_per_chunk
from loadtest.report.charts_run import over_time
from loadtest.report.charts_speedup import metrics, speedup
from loadtest.report.charts_why import drift, steps, survival
from loadtest.report.figures import Chart

CHARTS: tuple[Callable[[Mapping[str, Any], Judgement], Chart | None], ...] = (
    speedup, metrics, throughput, pairs, day, classes,
    ttft, first_token, e2e, tradeoff,
    tpot, token_gap, chunk_gap, stalls, tokens_per_chunk,
    steps, law, accepted.slots, survival, accepted.categories, accepted.positions, accepted.requests,
    accepted.acceptance_over_time, over_time, drift,
)  # fmt: skip
