"""Charts of both arms over load: throughput, and the middle and tail of each latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.results import Judgement
from loadtest.loads import USERS
from loadtest.report import vocabulary, words
from loadtest.report.figures import (
    Chart,
    Points,
    arm_style,
    canvas,
    listed,
    load_axis,
    load_title,
    series,
    time_axis,
)
from loadtest.report.left_out import absent, framed, within_reach
from loadtest.report.view import View


def throughput(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Output tokens per second of each arm over load."""
    view = View(run=run, judgement=judgement)
    curves = curves_of(view, lambda arm, level: view.mean(arm, level, "output_tokens_per_s"))
    if not curves:
        return None
    title = pair_title(curves, "Throughput", lambda value: f"{words.count(value)} tokens/s",
                       lambda level: view.speedup("output_tokens_per_s", level).ratio.value)  # fmt: skip
    figure = canvas(title, x_title=load_title(), y_title="output tokens/s")
    load_axis(figure, view.levels)
    figure.update_yaxes(rangemode="tozero", tickformat=",")
    for arm, points in curves.items():
        series(figure, arm_style(judgement.arms, arm), broken(view, points), words.count)
    return Chart(
        key="throughput", part="load", figure=figure,
        alt=f"Line chart of output tokens per second over load for {listed(list(curves))}. {title}.",
        note=_carried(view) + framed(figure, curves.values(), from_zero=True) + absent(view, of_arms(view, curves)),
        columns=("load", *curves), rows=rows_of(view, curves, words.count),
    )  # fmt: skip


def _carried(view: View) -> str:
    """Say what throughput is in this kind of load."""
    if view.judgement.unit != USERS:
        return "In open load this is the load carried, not a capacity."
    if view.pauses:
        return "With think time this is the load carried, not a capacity."
    return "No user pauses: this is what the service completes with so many requests in flight."


def ttft(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Time to first token over load, middle and tail."""
    return tails(
        View(run=run, judgement=judgement), "ttft", "latency", "From the moment a request was due, queue included."
    )


def e2e(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """End-to-end time over load, middle and tail."""
    return tails(
        View(run=run, judgement=judgement), "e2e", "latency", "From the moment a request was due to its last chunk."
    )


def tpot(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Time per output token over load, middle and tail."""
    return tails(View(run=run, judgement=judgement), "tpot", "tokens", "One value per request: the pace of its tokens.")


def token_gap(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Gap per token over load, middle and tail."""
    note = "The first token of a chunk carries the wait, its other tokens 0; a median of 0 is therefore common."
    return tails(View(run=run, judgement=judgement), "token_gap", "tokens", note)


def chunk_gap(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Gap between chunks over load, middle and tail."""
    note = "Longer with speculation by design: a step takes longer and brings several tokens. Never held against it."
    return tails(View(run=run, judgement=judgement), "chunk_gap", "tokens", note)


def tails(view: View, name: str, part: str, note: str) -> Chart | None:
    """Return the chart of a latency over load: the deepest percentile that exists, and the median."""
    metric, depth = vocabulary.metric(name), view.deepest(name) or "p50"
    deep = curves_of(view, lambda arm, level: view.tail(arm, level, name, depth))
    if not any(item.value is not None and math.isfinite(item.value) for own in deep.values() for _, item in own):
        return None  # where every request failed there is nothing to draw: the tables say so
    middle = curves_of(view, lambda arm, level: view.tail(arm, level, name, "p50")) if depth != "p50" else {}
    title = pair_title(deep, f"{metric.label.capitalize()}, {depth},", words.time)
    figure = canvas(title, x_title=load_title(), y_title="")
    load_axis(figure, view.levels)
    shown, cut = within_reach([*deep.values(), *middle.values()])
    factor = time_axis(figure, shown, metric.short)
    arms = view.judgement.arms
    for arm, points in deep.items():
        series(figure, arm_style(arms, arm, f", {depth}"), broken(view, points), words.time, factor)
    for arm, points in middle.items():
        series(figure, arm_style(arms, arm, ", p50", dash="dot"), broken(view, points), words.time, factor)
    both = {f"{arm}, {d}": points for d, curves in ((depth, deep), ("p50", middle)) for arm, points in curves.items()}
    return Chart(
        key=name.replace("_", "-"), part=part, figure=figure,
        alt=f"Line chart of {metric.label} over load, {f'{depth} and median' if middle else 'median'}, for"
        f" {listed(list(deep))}. {title}.",
        note=note + cut + _unbounded(view, name, depth) + absent(view, of_arms(view, middle or deep)),
        columns=("load", *both), rows=rows_of(view, both, words.time),
    )  # fmt: skip


def _unbounded(view: View, name: str, depth: str) -> str:
    """Say where a percentile is not drawn though the median is: too few requests bound it, or too many failed."""
    few: dict[str, list[float]] = {}
    failed: dict[str, list[float]] = {}
    for arm in view.judgement.arms:
        for level in view.levels:
            if not words.known(view.tail(arm, level, name, "p50").value):
                continue
            found = view.tail(arm, level, name, depth).value
            if not words.known(found):
                few.setdefault(arm, []).append(level)
            elif found == math.inf:
                failed.setdefault(arm, []).append(level)
    said = [f"{', '.join(f'{words.plain(arm)} at {words.levels(own)}' for arm, own in lacking.items())}: {why}."
            for lacking, why in ((few, "too few requests to bound it"), (failed, "so many requests failed"))
            if lacking]  # fmt: skip
    return "".join(f" No {depth} of {one}" for one in said)


def broken(view: View, points: Points) -> Points:
    """Return a curve with its missing loads, where the line is to break: it was not measured there, or not served."""
    known = dict(points)
    return [(level, known.get(level, Estimate())) for level in view.levels]


def of_arms(view: View, curves: Mapping[str, Points]) -> dict[str, Points]:
    """Return the curve of every arm, an empty one of an arm that has no point."""
    return {arm: curves.get(arm, []) for arm in view.judgement.arms}


def curves_of(view: View, read: Callable[[str, float], Estimate]) -> dict[str, Points]:
    """Return, by arm, the levels at which a value exists, with the value."""
    found: dict[str, Points] = {}
    for arm in view.judgement.arms:
        points = [(level, read(arm, level)) for level in view.levels]
        points = [(level, item) for level, item in points if item.value is not None and not math.isnan(item.value)]
        if points:
            found[arm] = points
    return found


def pair_title(
    curves: Mapping[str, Points], what: str, form: words.Format,
    by_block: Callable[[float], float | None] = lambda level: None,
) -> str:  # fmt: skip
    """State both arms' values at the highest level that both have, or the only arm's at its highest.

    `by_block` gives the candidate's figure ÷ the baseline's at a level as the mean of the blocks' ratios, which is the
    one that is judged: it stands instead of the ratio of the values themselves.
    """
    shared = set.intersection(*({level for level, _ in points} for points in curves.values()))
    if not shared:
        return f"{what} over load: no level has a value for every arm"
    top = max(shared)
    values = [(arm, dict(points)[top].value or 0.0) for arm, points in curves.items()]
    said = f"{what} at {words.level(top)}: " + (" against " if len(values) < 3 else ", ").join(
        f"{form(value)} ({words.plain(arm)})" for arm, value in values[::-1]
    )
    if len(values) != 2 or not (values[0][1] > 0 and math.isfinite(values[1][1])):
        return said
    plain, judged = values[1][1] / values[0][1], by_block(top)
    if judged is None or words.change(plain) == words.change(judged):
        return f"{said}, {words.change(plain)}"
    leans = "" if (plain - 1) * (judged - 1) >= 0 else ", against which the plain means lean"
    return f"{said}; block by block {words.change(judged)}{leans}"


def rows_of(view: View, curves: Mapping[str, Points], form: words.Format) -> tuple[tuple[str, ...], ...]:
    """Return a row per level, a column per curve."""
    found = {name: dict(points) for name, points in curves.items()}
    return tuple(
        (words.level(level), *(words.interval(points.get(level, Estimate()), form) for points in found.values()))
        for level in view.levels
    )
