"""Charts of several runs: one line or one mark per run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadtest import loads
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.results import Answer
from loadtest.report import vocabulary, words
from loadtest.report.figures import (
    GREEN,
    INK,
    PURPLE,
    SKY,
    VERMILLION,
    Chart,
    Style,
    canvas,
    error_bars,
    label,
    level_line,
    load_axis,
    load_title,
    series,
)
from loadtest.report.runs import Entry, all_levels, headline, limits, speedups

LOOKS = (
    (VERMILLION, "diamond", "solid"), (GREEN, "circle", "solid"), (PURPLE, "square", "solid"), (SKY, "cross", "solid"),
    (INK, "triangle-up", "dash"),
)  # fmt: skip
DRAWN = 10  # runs in a chart; all stand in the tables


def _style(place: int, name: str, count: int) -> Style:
    colour, shape, dash = LOOKS[place % len(LOOKS)]
    return Style(name=name, colour=colour, shape=shape, dash="dot" if place >= len(LOOKS) else dash,
                 shift=place - min(count, DRAWN) // 2)  # fmt: skip


def _places(found: Sequence[Entry]) -> dict[str, int]:
    """Return the place of each run, by which it has the same look in every chart, also where another has no line."""
    return {entry.name: place for place, entry in enumerate(found)}


def _drawn(found: Sequence[Entry]) -> list[Entry]:
    """Return the runs that charts show: of an invalid one no figure is to be used."""
    return [entry for entry in found if entry.view.judgement.decision.answer is not Answer.INVALID][:DRAWN]


def _not_drawn(found: Sequence[Entry]) -> str:
    """Say, behind a note, which runs a chart leaves out, and why."""
    invalid = [entry.name for entry in found if entry.view.judgement.decision.answer is Answer.INVALID]
    said = f" Not drawn, being invalid: {', '.join(invalid)}." if invalid else ""
    valid = len(found) - len(invalid)
    return said + (f" Drawn: the first {DRAWN} of {valid}; all stand in the tables." if valid > DRAWN else "")


def speedup_chart(found: Sequence[Entry]) -> Chart | None:
    """Every run's speed-up over load in one picture."""
    points = [(entry, [(x, entry.view.speedup(entry.view.decision_metric, x).ratio) for x in entry.view.levels])
              for entry in _drawn(found)]  # fmt: skip
    points = [(entry, own) for entry, own in points if any(words.known(ratio.value) for _, ratio in own)]
    places = _places(found)
    if not points:
        return None
    metrics = dict.fromkeys(vocabulary.metric(entry.view.decision_metric).short for entry, _ in points)
    said = headline(found)
    title = said[:1].upper() + said[1:]
    figure = canvas(title, x_title=load_title(), y_title=f"speed-up by {', '.join(metrics)}, ratio")
    load_axis(figure, all_levels(found))
    level_line(figure, 1.0, "no change", dash="solid")
    for entry, own in points:
        series(figure, _style(places[entry.name], entry.name, len(found)), own, words.ratio)
    table = speedups(found)
    return Chart(
        key="runs-speedup", part="runs", figure=figure, tall=True,
        alt=f"Line chart of the speed-up over load, one line per run. {title}.",
        note=f"Each against its own baseline, with its 95 % interval.{_not_drawn(found)}",
        columns=table.columns, rows=table.rows,
    )  # fmt: skip


def limit_chart(found: Sequence[Entry]) -> Chart | None:
    """Every run's limit with its interval."""
    shown = [(entry, at) for entry, at in limits(_drawn(found)) if words.known(at.value)]
    if not shown:
        return None
    low, high = min(shown, key=lambda pair: pair[1].value or 0.0), max(shown, key=lambda pair: pair[1].value or 0.0)
    title = f"Limits from {words.of_loads(low[1])} ({low[0].name}) to {words.load_interval(high[1])} ({high[0].name})"
    if words.load_interval(low[1]) == words.load_interval(high[1]):
        title = f"The limit is {words.of_loads(low[1])}" + (f" ({low[0].name})" if len(shown) == 1 else " in each")
    figure = canvas(title, x_title=f"limit, {loads.unit()}", y_title="run, in the order given")
    names = [label(entry.name) for entry, _ in shown]
    figure.add_scatter(
        x=[at.value for _, at in shown], y=names, mode="markers", showlegend=False, hoverinfo="text",
        error_x=error_bars([at for _, at in shown], VERMILLION),
        marker={"color": VERMILLION, "symbol": "diamond", "size": 10},
        hovertext=[f"{name}: {words.load_interval(at)}" for name, (_, at) in zip(names, shown, strict=True)],
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(rangemode="tozero")
    return Chart(
        key="runs-limit", part="runs", figure=figure, alt=f"Limit of each run with its 95 % interval. {title}.",
        note=f"The load up to which the deciding metric gains at least what was asked for.{_not_drawn(found)}",
        columns=("run", "limit, 95 %"),
        rows=tuple((entry.name, words.load_interval(at)) for entry, at in shown),
    )  # fmt: skip


def _peaks_title(peaks: Sequence[tuple[float, Entry]]) -> str:
    """Say how much was carried, from the least to the most; runs whose figures are written alike are not ranked."""
    (least, low), (most, high) = min(peaks, key=lambda pair: pair[0]), max(peaks, key=lambda pair: pair[0])
    said = f"Carried at most, as tested: {words.whole(most)} tokens/s"
    if len(peaks) > 1 and words.whole(least) != words.whole(most):
        return f"{said} ({high.name}), against {words.whole(least)} ({low.name})"
    return f"{said} ({high.name})" if len(peaks) == 1 else f"{said} in each run"


def throughput_chart(found: Sequence[Entry]) -> Chart | None:
    """Output tokens per second of every run's candidate."""
    name = "output_tokens_per_s"
    points = [(entry, [(x, entry.view.mean(entry.view.candidate or entry.view.baseline, x, name))
                       for x in entry.view.levels]) for entry in _drawn(found)]  # fmt: skip
    points = [(entry, own) for entry, own in points if any(words.known(value.value) for _, value in own)]
    if not points:
        return None
    peaks = [(max(value.value for _, value in own if value.value is not None and math.isfinite(value.value)), entry)
             for entry, own in points]  # fmt: skip
    title = _peaks_title(peaks)
    figure = canvas(title, x_title=load_title(), y_title="output tokens/s")
    load_axis(figure, all_levels(found))
    figure.update_yaxes(rangemode="tozero", tickformat=",")
    places = _places(found)
    for entry, own in points:
        series(figure, _style(places[entry.name], entry.name, len(found)), own, words.count)
    return Chart(
        key="runs-throughput", part="runs", figure=figure,
        alt=f"Line chart of output tokens per second of each run's candidate. {title}.",
        note="Of the server with speculation; of the only one where a run had one. Each at the loads it tested:"
        f" others may carry more.{_not_drawn(found)}",
        columns=("load", *(entry.name for entry, _ in points)),
        rows=tuple((words.level(x), *(words.interval(dict(own).get(x, Estimate()), words.count) for _, own in points))
                   for x in all_levels(found)),
    )  # fmt: skip


CHARTS = (speedup_chart, limit_chart, throughput_chart)
