"""Charts of one quantity against another: latency against throughput, latency against requests in flight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loadtest import loads
from loadtest.analyse.findings import Law, Line, LineCrossing
from loadtest.analyse.results import Judgement
from loadtest.report import words
from loadtest.report.figures import Chart, arm_style, canvas, label, listed, unit_of_times
from loadtest.report.left_out import absent
from loadtest.report.view import View

SIDES = ("top center", "bottom center")  # of a point, for its load: arms that meet keep theirs apart


def tradeoff(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """End-to-end time against throughput: at the same tokens per second, who waits longer."""
    view = View(run=run, judgement=judgement)
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for arm in judgement.arms:
        points = []
        for level in view.levels:
            rate, time = view.mean(arm, level, "output_tokens_per_s").value, view.mean(arm, level, "e2e").value
            if rate is not None and time is not None and math.isfinite(rate) and math.isfinite(time):
                points.append((level, rate, time))
        if points:
            curves[arm] = points
    if not curves:
        return None
    title = _tradeoff_title(curves)
    drawn = {arm: [level for level, _, _ in curves.get(arm, [])] for arm in judgement.arms}
    figure = canvas(title, x_title="output tokens/s", y_title="")
    factor, unit = unit_of_times([time for points in curves.values() for _, _, time in points])
    figure.update_yaxes(title_text=f"mean E2E, {unit}", rangemode="tozero")
    figure.update_xaxes(rangemode="tozero", tickformat=",")
    for arm, points in curves.items():
        style = arm_style(judgement.arms, arm)
        figure.add_scatter(
            x=[rate for _, rate, _ in points], y=[time * factor for _, _, time in points], mode="lines+markers+text",
            text=[f"{x:g}" for x, _, _ in points], textfont={"size": 11},
            textposition=SIDES[judgement.arms.index(arm) % len(SIDES)],
            name=label(arm), line={"color": style.colour, "width": 2.5}, cliponaxis=False,
            marker={"symbol": style.shape, "size": 8}, hoverinfo="text",
            hovertext=[f"{label(arm)}, {words.level(x)}: {words.time(t)} at {words.whole(r)} tokens/s"
                       for x, r, t in points],
        )  # fmt: skip
    return Chart(
        key="tradeoff", part="latency", figure=figure,
        alt=f"Line chart of mean end-to-end time against output tokens per second for {listed(list(curves))}. {title}.",
        note=f"Numbers at the points are {loads.unit()}. Lower and further right is better; a curve that turns back"
        f" carries less as load grows.{absent(view, drawn)}",
        columns=("load", "arm", "output tokens/s", "mean E2E"),
        rows=tuple((words.level(x), words.plain(arm), words.whole(rate), words.time(time))
                   for arm, points in curves.items() for x, rate, time in points),
    )  # fmt: skip


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _tradeoff_title(curves: Mapping[str, list[tuple[float, float, float]]]) -> str:
    parts = []
    for arm, points in reversed(list(curves.items())):
        level, rate, time = max(points, key=lambda point: point[1])
        parts.append(f"{words.plain(arm)} carried at most {words.whole(rate)} tokens/s as tested, at {words.time(time)}"
                     f" ({words.level(level)})")  # fmt: skip
    said = "; ".join(parts)
    return said[:1].upper() + said[1:]


def law(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The linear law: mean latency of both servers over their requests in flight, and where the lines cross."""
    found = judgement.findings.law if judgement.findings else None
    if found is None or len(found.lines) < 2 or not all(_drawable(line) for line in found.lines):
        return None
    title = _law_title(found)
    figure = canvas(title, x_title="requests in flight", y_title="")
    top = max(x for line in found.lines for x, _ in line.points)
    factor, unit = unit_of_times([y for line in found.lines for _, y in line.points])
    figure.update_yaxes(title_text=f"mean E2E, {unit}", rangemode="tozero")
    figure.update_xaxes(rangemode="tozero")
    for line in found.lines:
        style = arm_style(judgement.arms, line.arm) if line.arm in judgement.arms else None
        colour = style.colour if style else None
        figure.add_scatter(
            x=[x for x, _ in line.points], y=[y * factor for _, y in line.points], mode="markers",
            name=label(line.arm), marker={"color": colour, "symbol": style.shape if style else "circle", "size": 9},
            hoverinfo="text",
            hovertext=[f"{label(line.arm)}, {x:.1f} in flight: {words.time(y)}" for x, y in line.points],
        )  # fmt: skip
        c1, c2 = line.c1_s.value, line.c2_s.value
        if c1 is not None and c2 is not None:
            figure.add_scatter(
                x=[0.0, top], y=[c1 * factor, (c1 + c2 * top) * factor], mode="lines", showlegend=False,
                line={"color": colour, "width": 1.5, "dash": "dot"}, hoverinfo="skip",
            )  # fmt: skip
    return Chart(
        key="law", part="why", figure=figure,
        alt=f"Scatter of mean latency over requests in flight, with a line each. {title}.",
        note=words.plain(found.note or found.sentence) or "Measured only where neither server has a queue.",
        columns=("server", "C1, time without load", "C2, time per request in flight", "lack of fit, p"),
        rows=tuple((words.plain(line.arm), words.interval(line.c1_s, words.time),
                    words.interval(line.c2_s, words.time), words.count(line.lack_of_fit_p)) for line in found.lines),
    )  # fmt: skip


def _drawable(line: Line) -> bool:
    return bool(line.points) and _finite(line.c1_s.value) and _finite(line.c2_s.value)


def _law_title(found: Law) -> str:
    said, at = "As straight lines in the requests in flight the two", found.at.value
    slopes = " and ".join(words.time(line.c2_s.value) for line in found.lines)
    if found.crossing not in (LineCrossing.PAYS_BELOW, LineCrossing.PAYS_ABOVE) or at is None or math.isnan(at):
        return f"{said} are not shown to cross: their slopes, {slopes} a request, cannot be told apart"
    if at <= 0:
        return f"{said} do not cross at any load: each further request adds {slopes}"
    return f"{said} cross at {words.load_interval(found.at)}" + (", beyond the tested loads" if found.outside else "")
