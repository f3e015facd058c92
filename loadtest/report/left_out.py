"""What a chart leaves out, as sentences beside it: loads without a value, and intervals beyond the picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go

from loadtest.analyse.estimates import Estimate
from loadtest.report import words
from loadtest.report.figures import Points
from loadtest.report.view import View

ROOM = 2.0  # times the span of the values, above and below them, that an interval may take of a picture
LEAST_SPAN = 0.3  # of the greatest value: alike values have a small span of their own
NOT_THERE = "not measured, or in invalid cells alone"
FAILED = "every request to a server failed in a cell there"
FAR = 5.0  # times the least and the greatest time, that an interval of times may take


def absent(view: View, drawn: Mapping[str, Sequence[float] | Points]) -> str:
    """Say, as sentences to put behind a note, which tested loads have no point, of what and why; empty where none."""
    lacking: dict[tuple[str, tuple[float, ...]], list[str]] = {}
    for name, points in drawn.items():
        have = {point[0] if isinstance(point, tuple) else point for point in points if _stands(point)}
        missing = set(view.levels) - have
        for why, own in ((FAILED, missing & view.unanswered), (NOT_THERE, missing - view.unanswered)):
            if own:
                lacking.setdefault((why, tuple(sorted(own))), []).append(words.plain(name, 80))
    return "".join(f" No {', '.join(names)} at {words.levels(own)}: {why}." for (why, own), names in lacking.items())


def _stands(point: float | tuple[float, Estimate]) -> bool:
    return not isinstance(point, tuple) or words.known(point[1].value)


def framed(
    figure: go.Figure, curves: Iterable[Points], others: Sequence[float] = (), *, from_zero: bool = False
) -> str:
    """Keep the y axis to where the values are, if an interval is many times as wide; say at which loads one is cut.

    `others` are further values that must stay in the picture. Nothing that is drawn here can lie below 0.
    """
    points = [point for curve in curves for point in curve if _finite(point[1].value)]
    values = [item.value or 0.0 for _, item in points] + [value for value in others if math.isfinite(value)]
    if not points:
        return ""
    span = max(max(values) - min(values), LEAST_SPAN * max(values))
    low, high = max(0.0, min(values) - ROOM * span), max(values) + ROOM * span
    beyond = {x for x, item in points if _below(item.low, low) or (item.high is not None and item.high > high)}
    if beyond:
        inside = [x for _, item in points for x in (item.low, item.high) if x is not None and low <= x <= high]
        ends = min([*values, *inside]), max([*values, *inside])
        edge = 0.1 * (ends[1] - ends[0] or span)
        bottom = 0.0 if from_zero else max(0.0, ends[0] - edge)
        figure.update_yaxes(range=[bottom, ends[1] + edge])
    return _said(beyond)


def within_reach(curves: Iterable[Points]) -> tuple[list[float | None], str]:
    """Return the times that an axis is to hold, and which intervals run out of it: a bound may lie decades away."""
    points = [point for curve in curves for point in curve if _finite(point[1].value)]
    values = [item.value or 0.0 for _, item in points]
    low, high = min((v for v in values if v > 0), default=0.0) / FAR, max(values, default=0.0) * FAR
    beyond = {x for x, item in points if _below(item.low, low) or (item.high is not None and item.high > high)}
    bounds = [bound for _, item in points for bound in (item.low, item.high) if bound is not None]
    return [*values, *(bound for bound in bounds if low <= bound <= high)], _said(beyond)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _below(bound: float | None, low: float) -> bool:
    return bound is not None and bound < low


def _said(levels: Iterable[float]) -> str:
    found = sorted(levels)
    return f" An interval runs out of the picture at {words.levels(found)}: the table below has it." if found else ""
