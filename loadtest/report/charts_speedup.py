"""Charts of the answer: the deciding metric's speed-up over load, and where the metrics disagree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loadtest.analyse.estimates import Crossing
from loadtest.analyse.results import Judgement
from loadtest.report import vocabulary, words
from loadtest.report.figures import (
    AMBER,
    BLUE,
    GREEN,
    GRID,
    INK,
    PURPLE,
    SKY,
    VERMILLION,
    Chart,
    Points,
    Style,
    band,
    canvas,
    level_line,
    listed,
    load_axis,
    load_title,
    series,
    shade,
    thinned,
)
from loadtest.report.left_out import absent, framed
from loadtest.report.sure import worse_words
from loadtest.report.view import View

MAIN = ("e2e", "tpot", "ttft", "output_tokens_per_s")  # the others say nearly the same, and stand in a table


def speedup(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The deciding metric's speed-up over load, with its band, the blocks and the limit."""
    view = View(run=run, judgement=judgement)
    name, metric = view.decision_metric, vocabulary.metric(view.decision_metric)
    points = [(level, view.speedup(name, level).ratio) for level in view.levels]
    points = [(level, ratio) for level, ratio in points if words.known(ratio.value)]
    if not points:
        return None
    title = _speedup_title(view, points)
    figure = canvas(title, x_title=load_title(), y_title=f"speed-up by {metric.short}, ratio")
    load_axis(figure, view.levels)
    _in_flight_axis(figure, view)
    _shade_limit(figure, view)
    level_line(figure, 1.0, "no change", dash="solid")
    if view.threshold != 1:
        level_line(figure, view.threshold, f"least gain {words.share(view.threshold - 1)}")
    band(figure, VERMILLION, points)
    _blocks(figure, view, name)
    series(figure, Style(name="mean, 95 % interval", colour=VERMILLION, shape="diamond"), points, words.ratio)
    every = [block for level in view.levels for block in view.speedup(name, level).blocks]
    cut = framed(figure, [points], (1.0, view.threshold, *every))
    rows = [
        (words.level(level), words.interval(ratio, words.ratio), view.verdict(level),
         worse_words(view, level) or words.MISSING, _few(view.speedup(name, level).blocks))
        for level, ratio in points
    ]  # fmt: skip
    return Chart(
        key="speedup", part="load", figure=figure,
        alt=f"Line chart of the speed-up by {metric.label} over load with a 95 % band. {title}",
        note=f"Above 1 {'the second arm' if view.itself else 'speculation'} is faster. Small dots are blocks: the same"
        " traffic on both servers, close in time."
        f"{_limit_note(view)}{cut}{absent(view, {'pair of valid cells': points})}",
        columns=("load", "speed-up, 95 % interval", "verdict", "percentiles proven worse", "blocks"), rows=tuple(rows),
    )  # fmt: skip


def _in_flight_axis(figure: Any, view: View) -> None:
    """Draw, at the top, how many requests were in flight on average at each tested load."""
    texts = []
    for level in view.levels:
        seen = [view.at(arm, level).in_flight for arm in view.judgement.arms]
        known = [value for value in seen if value is not None and math.isfinite(value)]
        texts.append(words.load(sum(known) / len(known)) if known else "")
    if not any(texts):
        return
    below = figure.layout.xaxis
    shown = [text if under else "" for text, under in zip(texts, below.ticktext, strict=True)]
    figure.update_layout(
        xaxis2={
            "overlaying": "x", "side": "top", "type": "log", "range": below.range, "tickvals": below.tickvals,
            "ticktext": shown, "showgrid": False, "ticks": "outside", "tickcolor": GRID, "linecolor": INK,
            "fixedrange": True, "automargin": True,
            "title": {"text": "in flight, mean of both servers", "standoff": 4, "font": {"size": 11}},
        },
        legend={"y": 1.2},
    )  # fmt: skip
    figure.add_scatter(x=[view.levels[0]], y=[None], xaxis="x2", showlegend=False, hoverinfo="skip")


def _few(blocks: tuple[float, ...], most: int = 24) -> str:
    more = f" and {len(blocks) - most} more" if len(blocks) > most else ""
    return ", ".join(words.ratio(block) for block in blocks[:most]) + more or words.MISSING


def _speedup_title(view: View, points: Points) -> str:
    (first, low), (last, high) = points[0], points[-1]
    said = f"{words.ratio(low.value)} as fast at {words.level(first)}"
    if first != last:
        said += f" and {words.ratio(high.value)} at {words.level(last)}"
    differs = [ratio for _, ratio in points if (ratio.low or 0.0) > 1 or (ratio.high is not None and ratio.high < 1)]
    if view.itself:
        said = (
            f"{words.plain(view.candidate, 40)} is {said}" if differs else f"At no load are the two told apart: {said}"
        )
    else:
        said = f"Speculation is {said}" if differs else f"At no load is speculation proven faster or slower: {said}"
    even = view.judgement.decision.break_even
    if even and even.form is Crossing.PAYS_UP_TO and words.known(even.at.value):
        said += f"; break-even at {words.of_loads(even.at)}"
    return said


def _shade_limit(figure: Any, view: View) -> None:
    decision, edges = view.judgement.decision, (min(view.levels), max(view.levels))
    pairs = ((decision.limit, "limit", "x"), (decision.break_even, "break-even", "circle-open"))
    for found, word, symbol in pairs:
        if found is None or found.at.value is None or not math.isfinite(found.at.value):
            continue
        low, high = (
            min(max(bound, edges[0]), edges[1]) if bound is not None and math.isfinite(bound) else edge
            for bound, edge in zip((found.at.low, found.at.high), edges, strict=True)
        )
        if word == "limit":
            shade(figure, low, high)
        figure.add_scatter(
            x=[found.at.value], y=[found.threshold], mode="markers",
            name=f"{word} {words.load_interval(found.at)}",
            marker={"symbol": symbol, "size": 11, "color": INK, "line": {"width": 2, "color": INK}},
            hovertext=[f"{word}, at {words.ratio(found.threshold)}: {words.of_loads(found.at)}"],
            hoverinfo="text",
            error_x={"type": "data", "symmetric": False, "array": [max(0.0, high - found.at.value)],
                     "arrayminus": [max(0.0, found.at.value - low)], "color": INK, "thickness": 1.5},
        )  # fmt: skip


def _limit_note(view: View) -> str:
    limit = view.judgement.decision.limit
    return " Grey: the limit's 95 % interval." if limit is not None and words.known(limit.at.value) else ""


def _blocks(figure: Any, view: View, name: str) -> None:
    ratios = ((level, ratio) for level in view.levels for ratio in view.speedup(name, level).blocks)
    dots = thinned([dot for dot in ratios if math.isfinite(dot[1])])
    if dots:
        figure.add_scatter(
            x=[level for level, _ in dots], y=[ratio for _, ratio in dots], mode="markers", name="single blocks",
            marker={"size": 5, "color": VERMILLION, "opacity": 0.45}, hoverinfo="skip",
        )  # fmt: skip


def metrics(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The main metrics' speed-ups over load: where they disagree."""
    view = View(run=run, judgement=judgement)
    names = [name for name in view.metrics_compared() if name in MAIN or name == view.decision_metric]
    if len(names) < 2:
        return None
    measured = [level for level in view.levels if any(words.known(view.speedup(n, level).ratio.value) for n in names)]
    ends = dict.fromkeys((measured[0], measured[-1]))
    title = "A" + "; ".join(_proven(view, names, level) for level in ends)[1:]
    figure = canvas(title, x_title=load_title(), y_title="speed-up, ratio")
    load_axis(figure, view.levels)
    level_line(figure, 1.0, "no change", dash="solid")
    colours, shapes = (VERMILLION, GREEN, PURPLE, AMBER, SKY, BLUE), ("diamond", "circle", "square", "triangle-up", "x")
    drawn = {name: _of(view, name) for name in names[:6]}
    for place, (name, points) in enumerate(drawn.items()):
        style = Style(name=vocabulary.metric(name).short, colour=colours[place], shape=shapes[place % len(shapes)],
                      shift=place - len(names) // 2)  # fmt: skip
        series(figure, style, points, words.ratio)
    cut = framed(figure, drawn.values(), (1.0,))
    rows = [
        (words.level(level), *(words.interval(view.speedup(name, level).ratio, words.ratio) for name in names))
        for level in view.levels
    ]
    return Chart(
        key="metrics", part="load", figure=figure,
        alt=f"Line chart of the speed-up by {len(names)} metrics over load. {title}.",
        note="Each metric is turned so that above 1 is better"
        f" {'of the second arm' if view.itself else 'with speculation'}. They answer different"
        f" questions.{cut}" + absent(view, {vocabulary.metric(name).short: points for name, points in drawn.items()}),
        columns=("load", *(vocabulary.metric(name).short for name in names)), rows=tuple(rows),
    )  # fmt: skip


def _of(view: View, name: str) -> Points:
    return [(level, view.speedup(name, level).ratio) for level in view.levels]


def _proven(view: View, names: list[str], level: float) -> str:
    """Say which metrics are proven better and worse at a level: the whole interval on one side of 1."""
    ratios = {vocabulary.metric(name).short: view.speedup(name, level).ratio for name in names}
    better = [short for short, ratio in ratios.items() if ratio.low is not None and ratio.low > 1]
    worse = [short for short, ratio in ratios.items() if ratio.high is not None and ratio.high < 1]
    said = [f"{word} by {listed(found)}" for word, found in (("better", better), ("worse", worse)) if found]
    return f"at {words.level(level)} {', '.join(said) or 'no metric is proven better or worse'}"
