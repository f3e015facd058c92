"""Charts of causes and of trust: tokens per step against the length of a step, acceptance by slot, drift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loadtest import loads
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.results import CellView, Judgement
from loadtest.report import words
from loadtest.report.figures import (
    AMBER,
    GREEN,
    PURPLE,
    SKY,
    Chart,
    Style,
    arm_style,
    canvas,
    label,
    level_line,
    load_axis,
    load_title,
    series,
    thinned,
)
from loadtest.report.left_out import absent
from loadtest.report.view import View, span_s
from loadtest.report.why_words import SLIGHT, begins_late, meeting, meets_again, proven_by_tpot, slight


def steps(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Tokens per step against the step-time ratio over load: decoding pays while the first is above the second."""
    view = View(run=run, judgement=judgement)
    entries = [view.why(level) for level in view.levels]
    if view.itself:
        return None
    tau = [(why.level, Estimate(value=why.tau_all)) for why in entries if words.known(why.tau_all)]
    cost = [(why.level, Estimate(value=why.step_ratio)) for why in entries if words.known(why.step_ratio)]
    if not tau or not cost:
        return None
    title = _steps_title(dict(tau), dict(cost))
    figure = canvas(title, x_title=load_title(), y_title="tokens per step; ratio")
    load_axis(figure, view.levels)
    figure.update_yaxes(rangemode="tozero")
    series(figure, Style(name="tokens per step τ", colour=GREEN), tau, words.count)
    series(
        figure,
        Style(name="step time, candidate ÷ baseline", colour=PURPLE, shape="square", dash="dash"),
        cost,
        words.ratio,
    )
    rows = tuple(
        (words.level(why.level), words.count(why.tau_all), words.ratio(why.step_ratio), words.ratio(why.decode_speedup),
         words.count(why.tau_needed))
        for why in entries
    )  # fmt: skip
    return Chart(
        key="steps", part="why", figure=figure,
        alt=f"Two lines over load: tokens per step, and ratio of step times. {title}.",
        note="Decoding is faster while τ, what a step brings, is above the ratio of step times, what it costs. The"
        f" lines have no intervals{_proven(view)}."
        + absent(view, {"tokens per step": tau, "ratio of step times": cost}),
        columns=("load", "tokens per step τ", "step time ratio", "decode speed-up", "τ needed"), rows=rows,
    )  # fmt: skip


def _steps_title(tau: Mapping[float, Estimate], cost: Mapping[float, Estimate]) -> str:
    shared = sorted(tau.keys() & cost.keys())
    if not shared:
        return "Tokens per step and step times were not measured at the same level"
    ratios = {level: ((tau[level].value or 0.0), (cost[level].value or 0.0)) for level in shared}
    last = shared[-1]
    brings, costs = ratios[last]
    at_top = (
        f"at {words.level(last)} a step brings {words.count(brings)} tokens and costs {words.ratio(costs)} the time"
    )
    gains = {level: brings / costs for level, (brings, costs) in ratios.items() if costs}
    if slight(gains):
        return f"Decoding neither gains nor loses {words.share(SLIGHT)} at any tested load: {at_top}"
    met = meeting(gains)
    if met is not None:
        back = meets_again(gains, met[0])
        again = f", and again at {words.levels(back)}" if back else ""
        late = begins_late(gains, met[0])
        if late:
            again = f", not at {words.levels(late)}{again}"
        return f"Decoding gains up to ≈ {loads.said(words.load(met[0]))}, where the lines cross{again}: {at_top}"
    above = sum(gain > 1 for gain in gains.values())
    some = words.levels(level for level, gain in gains.items() if gain > 1)
    where = "every tested load" if above == len(shared) else some if above else "no tested load"
    return f"Decoding gains at {where}: {at_top}"


def _proven(view: View) -> str:
    said = proven_by_tpot(view)
    return f"; by time per output token speculation is {said}" if said else ""


def survival(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Share of drafts accepted up to each slot, by level."""
    view = View(run=run, judgement=judgement)
    entries = [view.why(level) for level in view.levels if view.why(level).survival]
    if not entries:
        return None
    width = max(len(why.survival) for why in entries)
    title = _survival_title([(why.level, why.survival) for why in entries])
    figure = canvas(title, x_title="draft slot j, tokens", y_title="per-position rate, %")
    figure.update_xaxes(tickvals=list(range(1, width + 1)), range=[0.7, width + 0.3])
    figure.update_yaxes(range=[0, 102])
    picked = entries if len(entries) <= 4 else [entries[round(i * (len(entries) - 1) / 3)] for i in range(4)]
    looks = (
        (SKY, "circle", "dot"),
        (GREEN, "square", "dash"),
        (AMBER, "triangle-up", "dashdot"),
        (PURPLE, "diamond", "solid"),
    )
    for why, (colour, shape, dash) in zip(picked, looks, strict=False):
        figure.add_scatter(
            x=list(range(1, len(why.survival) + 1)), y=[100 * value for value in why.survival], mode="lines+markers",
            name=words.level(why.level), line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": shape, "size": 8},
            hovertext=[f"{words.level(why.level)}, slot {j}: {words.share(v)}" for j, v in enumerate(why.survival, 1)],
            hoverinfo="text",
        )  # fmt: skip
    rows = tuple(
        (words.level(why.level), *map(words.share, why.survival), *[words.MISSING] * (width - len(why.survival)))
        for why in entries
    )
    return Chart(
        key="survival", part="acceptance", figure=figure, alt=f"Acceptance by draft slot, one line per level. {title}.",
        note="Acceptance is a matter of model and text: where it moves with load, look for noise or another mix."
        + _not_drawn([why.level for why in entries if why not in picked])
        + absent(view, {"drafts": [why.level for why in entries]}),
        columns=("load", *(f"slot {j + 1}" for j in range(width))), rows=rows,
    )  # fmt: skip


def _not_drawn(levels: list[float]) -> str:
    """Say which loads have figures and no line."""
    if not levels:
        return ""
    return f" Four loads are drawn, so that lines can be told apart; the table below holds {words.levels(levels)} too."


def _survival_title(entries: list[tuple[float, tuple[float, ...]]]) -> str:
    level, top = entries[-1]
    said = f"Per-position acceptance rate at {words.level(level)}: {words.share(top[0])} at slot 1"
    if len(top) > 1:
        said += f", {words.share(top[-1])} at slot {len(top)}"
    firsts = [values[0] for _, values in entries]
    spread = max(firsts) - min(firsts)
    if len(entries) > 1:
        said += f"; over load that of slot 1 varies by {spread * 100:.1f} points"
    return said


def drift(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Each cell's mean end-to-end time against its arm's mean at that level, over the run: drift shows as a slope."""
    cells = [
        c
        for c in judgement.cells
        if c.valid and c.e2e_mean_s and math.isfinite(c.e2e_mean_s) and c.opened_s is not None
    ]
    groups: dict[tuple[str, float], list[CellView]] = {}
    for cell in cells:
        groups.setdefault((cell.arm, cell.level), []).append(cell)
    points = [
        (cell, (cell.e2e_mean_s or 0.0) / (sum(c.e2e_mean_s or 0.0 for c in group) / len(group)) * 100 - 100)
        for group in groups.values() if len(group) > 1 for cell in group
    ]  # fmt: skip
    if not points:
        return None
    points.sort(key=lambda point: point[0].cell)
    widest = max(abs(percent) for _, percent in points)
    lasted = words.minutes(span_s(judgement.cells))
    title = f"Over {lasted} cells stay within ±{widest:.1f} % of the mean of their arm and level"
    figure = canvas(title, x_title="time since the start of the run, min", y_title="distance from the mean, %")
    level_line(figure, 0.0, "", dash="solid")
    points = list(thinned(points))
    for arm in judgement.arms:
        mine = [(cell, percent) for cell, percent in points if cell.arm == arm]
        style = arm_style(judgement.arms, arm)
        figure.add_scatter(
            x=[(cell.opened_s or 0.0) / 60 for cell, _ in mine], y=[percent for _, percent in mine], mode="markers",
            name=label(arm), marker={"color": style.colour, "symbol": style.shape, "size": 8},
            hovertext=[f"{label(arm)}, {words.level(c.level)}, block {c.block + 1}: {words.signed_percent(p)}"
                       for c, p in mine],
            hoverinfo="text",
        )  # fmt: skip
    rows = tuple(
        (str(cell.cell), words.plain(cell.arm), words.level(cell.level), str(cell.block + 1),
         words.minutes(cell.opened_s), words.signed_percent(percent))
        for cell, percent in points
    )  # fmt: skip
    return Chart(
        key="drift", part="cells", figure=figure, alt=f"Scatter of cells over the time of the run. {title}.",
        note="A slope would be drift of a server or of the machine; it cancels only where the arms alternate.",
        columns=("cell", "arm", "load", "block", "window opened after", "end-to-end time against its mean"), rows=rows,
    )  # fmt: skip
