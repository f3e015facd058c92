"""Charts of the traffic's parts: the speed-up of each class of requests, and of each hour of the expected day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.analyse.detail_results import ClassLevel
from loadtest.analyse.results import Answer, Judgement
from loadtest.loads import unit
from loadtest.report import vocabulary, words
from loadtest.report.figures import (
    AMBER,
    GRID,
    INK,
    VERMILLION,
    Chart,
    canvas,
    error_bars,
    label,
    level_colours,
)
from loadtest.report.view import View

MOST = 14  # classes drawn


def _telling(view: View, levels: Sequence[float]) -> float:
    """Return the level that the recommendation rests on: the last one up to the limit, without one the middle one."""
    limit = view.judgement.decision.limit
    at = limit.at.value if limit is not None else None
    below = [] if at is None else [level for level in levels if level <= at]
    return below[-1] if below else levels[len(levels) // 2]


def by_class(view: View) -> str:
    """Say which classes of requests gain and lose; empty where a run has not several."""
    known = _known(view.judgement)
    if not known or view.judgement.decision.answer in (Answer.INVALID, Answer.MEASURED):
        return ""
    return f"By class: {_title(known, _telling(view, sorted({one.level for one in known})))}."


def _known(judgement: Judgement) -> list[ClassLevel]:
    found = judgement.detail.classes if judgement.detail else ()
    return [one for one in found if words.known(one.speedups["e2e"].value)]


def classes(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The speed-up by end-to-end time of each class of requests, at up to three loads."""
    found = judgement.detail.classes if judgement.detail else ()
    known = _known(judgement)
    if not known:
        return None
    levels = sorted({one.level for one in known})
    telling = _telling(View(run=run, judgement=judgement), levels)
    drawn = sorted({levels[0], telling, levels[-1]})
    left_out = [level for level in levels if level not in drawn]
    where = f" Not drawn: {words.levels(left_out)}; their figures stand in the table below." if left_out else ""
    weight: dict[str, int] = {}
    for one in known:
        weight[one.name] = weight.get(one.name, 0) + one.requests_baseline + one.requests_candidate
    names = sorted(weight, key=lambda name: (-weight[name], name))[:MOST][::-1]
    title = _title(known, telling)
    figure = canvas(title, x_title="speed-up by E2E, ratio", y_title="class of requests")
    for shift, (level, (colour, shape)) in enumerate(zip(drawn, level_colours(len(drawn)), strict=True)):
        own = {one.name: one for one in known if one.level == level}
        rows = [(place, own[name]) for place, name in enumerate(names) if name in own]
        figure.add_scatter(
            x=[one.speedups["e2e"].value for _, one in rows],
            y=[place + 0.22 * ((len(drawn) - 1) / 2 - shift) for place, _ in rows],
            error_x=error_bars([one.speedups["e2e"] for _, one in rows], colour), mode="markers",
            name=words.level(level), marker={"color": colour, "symbol": shape, "size": 9}, hoverinfo="text",
            hovertext=[f"{label(one.name)}, {words.level(level)}: "
                       f"{words.interval(one.speedups['e2e'], words.ratio)}" for _, one in rows],
        )  # fmt: skip
    values = [one.speedups["e2e"].value or 1.0 for one in known if one.level in drawn]
    low, high = min(0.9, *values), max(1.1, *values)
    figure.update_xaxes(range=[max(0.0, low - 0.3 * (high - low)), high + 0.3 * (high - low)])
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=[label(name) for name in names],
                        range=[-0.6, len(names) - 0.4])  # fmt: skip
    figure.add_shape(type="line", x0=1, x1=1, yref="paper", y0=0, y1=1, line={"color": INK, "width": 1.2})
    return Chart(
        key="classes", part="classes", figure=figure, tall=len(names) > 6,
        alt=f"Speed-up by class of requests, with 95 % intervals over blocks. {title}.",
        note="An interval that runs out of the picture, or is missing, comes from few requests. Classes are looked at,"
        f" not judged: an objective may name one.{where}{_classes_left(len(weight))}",
        columns=("load", "class", "requests, baseline", "requests, candidate", "E2E baseline", "E2E candidate",
                 "speed-up, E2E", "speed-up, TTFT", "speed-up, TPOT"),
        rows=tuple(_row(one) for one in found if one.requests_baseline or one.requests_candidate),
    )  # fmt: skip


def _classes_left(number: int) -> str:
    return f" Drawn: the {MOST} largest of {number} classes; the others stand in the table." if number > MOST else ""


def _row(one: ClassLevel) -> tuple[str, ...]:
    return (
        words.level(one.level), words.plain(one.name, 80), words.count(one.requests_baseline),
        words.count(one.requests_candidate), words.time(one.means_baseline.get("e2e")),
        words.time(one.means_candidate.get("e2e")),
        *(words.interval(one.speedups[name], words.ratio) for name in ("e2e", "ttft", "tpot")),
    )  # fmt: skip


def _title(found: Sequence[ClassLevel], level: float) -> str:
    """Say which classes are proven faster and slower at a level, or that none is."""
    own = [one for one in found if one.level == level]
    ratios = {one.name: one.speedups["e2e"] for one in own}
    faster = sorted(name for name, ratio in ratios.items() if ratio.low is not None and ratio.low > 1)
    slower = sorted(name for name, ratio in ratios.items() if ratio.high is not None and ratio.high < 1)
    number = str(len(faster)) if faster else "none"
    said = f"At {words.level(level)} {number} of {len(own)} classes"
    said += f" {'is' if len(faster) < 2 else 'are'} faster by {'its' if len(faster) < 2 else 'their'} own interval"
    absent = len({one.name for one in found}) - len(own)
    said += f" ({absent} more {'has' if absent == 1 else 'have'} no pair of cells there)" if absent else ""
    if slower:
        return f"{said} and {len(slower)} slower: {', '.join(words.plain(name, 40) for name in slower[:4])}"
    values = {name: ratio.value for name, ratio in ratios.items() if ratio.value is not None}
    if len(values) > 1 and faster:
        best, worst = max(values, key=lambda n: values[n]), min(values, key=lambda n: values[n])
        if words.ratio(values[best]) == words.ratio(values[worst]):
            return f"{said}, all at {words.ratio(values[best])}"
        said += f"; most {words.plain(best, 40)}, {words.ratio(values[best])}, least {words.plain(worst, 40)},"
        said += f" {words.ratio(values[worst])}"
    return said


def day(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The expected day: its hours at each load, and the speed-up there."""
    traffic = judgement.gate.traffic if judgement.gate else None
    loads = traffic.loads if traffic else ()
    if traffic is None or not loads:
        return None
    hours = sum(one.hours for one in loads)
    slower = sum(one.hours for one in loads if one.speedup.value is not None and one.speedup.value < 1)
    title = f"Over the expected day the speed-up is {words.interval(traffic.gain, words.ratio)}"
    title += f"; {words.share(slower / hours)} of it runs slower" if slower else "; no load of it runs slower"
    metric = vocabulary.metric(traffic.metric)
    figure = canvas(title, x_title=f"expected load, {unit()}", y_title="share of the day, %")
    places = [f"{one.level:.3g}" for one in loads]
    figure.add_bar(x=places, y=[100 * one.hours / hours for one in loads], name="share of the day",
                   marker={"color": AMBER, "opacity": 0.6}, hoverinfo="y")  # fmt: skip
    figure.add_scatter(
        x=places, y=[one.speedup.value for one in loads], yaxis="y2", mode="markers+lines",
        name=f"speed-up by {metric.short}", line={"color": VERMILLION, "width": 2},
        error_y=error_bars([one.speedup for one in loads], VERMILLION), marker={"symbol": "diamond", "size": 8},
        hovertext=[f"{place} {unit()}: {words.interval(one.speedup, words.ratio)}"
                   for place, one in zip(places, loads, strict=True)],
        hoverinfo="text",
    )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    right = {"overlaying": "y", "side": "right", "title": {"text": "speed-up, ratio"}, "nticks": 6, "tickmode": "auto",
             "tickformat": ".3~g", "gridcolor": GRID,
             "showgrid": False, "fixedrange": True, "automargin": True}  # fmt: skip
    figure.update_layout(yaxis2=right)
    figure.add_shape(type="line", xref="paper", x0=0, x1=1, yref="y2", y0=1, y1=1, line={"color": INK, "width": 1.2})
    return Chart(
        key="day", part="day", figure=figure, alt=f"Bars: share of the day at each load. Line: speed-up. {title}.",
        note="Weighted by the time that requests spend at each load. Between tested loads the speed-up is interpolated"
        " and beyond them nothing is said.",
        columns=("load", "hours", f"speed-up by {metric.short}, 95 %", "weight"),
        rows=tuple((f"{one.level:.3g}", f"{one.hours:.3g}", words.interval(one.speedup, words.ratio),
                    words.share(one.weight)) for one in loads),
    )  # fmt: skip
