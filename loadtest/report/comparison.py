"""Several runs on one page: methods, numbers of draft tokens, scenarios, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest import loads
from loadtest.analyse.results import Judgement
from loadtest.report.charts_runs import CHARTS
from loadtest.report.document import document
from loadtest.report.runs import (
    Entry,
    answers,
    banners,
    baselines,
    commands,
    differences,
    entries,
    headline,
    speedups,
    unit_of,
)
from loadtest.report.writing import write_whole

NAME = "comparison.html"


def write_comparison(path: Path, runs: Sequence[tuple[str, Mapping[str, Any], Judgement]]) -> Path:
    """Write the page of several runs, whole or not at all; return its path."""
    return write_whole(path, comparison(runs))


def comparison(runs: Sequence[tuple[str, Mapping[str, Any], Judgement]]) -> str:
    """Return the page of several runs: the same for the same runs."""
    with loads.spoken(unit_of(runs)):
        return _page(entries(runs))


def _page(found: Sequence[Entry]) -> str:
    charts = [chart for chart in (draw(found) for draw in CHARTS) if chart is not None]
    said = headline(found)
    context = {
        "title": f"{len(found)} runs: {said}", "headline": said, "banners": banners(found), "servers": (),
        "charts": {"runs": charts}, "answers": answers(found), "speedups": speedups(found),
        "baselines": baselines(found), "differences": differences(found), "commands": commands(found),
    }  # fmt: skip
    return document("comparison.html.j2", context, charts)
