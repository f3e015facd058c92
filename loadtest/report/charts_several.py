"""Charts of several candidates: each one's speed-up over load in one picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.analyse.results import Answer, Judgement
from loadtest.report import vocabulary, words
from loadtest.report.figures import Chart, arm_style, canvas, level_line, load_axis, load_title, series
from loadtest.report.left_out import absent, framed
from loadtest.report.view import View


def speedups(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The deciding metric's speed-up of every candidate over load, a colour and a shape each."""
    view = View(run=run, judgement=judgement)
    curves = {
        name: [(level, own.speedup(own.decision_metric, level).ratio) for level in view.levels]
        for name, own in view.pairs.items()
    }
    curves = {name: own for name, own in curves.items() if any(words.known(ratio.value) for _, ratio in own)}
    if not curves:
        return None
    metric = vocabulary.metric(view.decision_metric)
    title = _title(view)
    figure = canvas(title, x_title=load_title(), y_title=f"speed-up by {metric.short}, ratio")
    load_axis(figure, view.levels)
    level_line(figure, 1.0, "no change", dash="solid")
    if view.threshold != 1:
        level_line(figure, view.threshold, f"least gain {words.share(view.threshold - 1)}")
    for name, points in curves.items():
        series(figure, arm_style(judgement.arms, name), points, words.ratio)
    rows = tuple(
        (words.level(level), *(words.interval(dict(own)[level], words.ratio) for own in curves.values()))
        for level in view.levels
    )
    return Chart(
        key="speedups", part="load", figure=figure,
        alt=f"Line chart of the speed-up by {metric.label} over load, one line for each candidate. {title}.",
        note="Above 1 a candidate is faster than the baseline. The bars are intervals that hold for all candidates"
        " together; whether two candidates differ is said by the table of pairs, which knows what they share."
        + framed(figure, curves.values(), (1.0, view.threshold))
        + absent(view, curves),
        columns=("load", *curves), rows=rows,
    )  # fmt: skip


def _title(view: View) -> str:
    """State the answer in short: who pays up to where is the page's headline; here, who is ahead."""
    if view.judgement.decision.answer in (Answer.INVALID, Answer.MEASURED):
        return f"Speed-up of {len(view.pairs)} candidates over load, not judged"
    top = view.levels[-1]
    values = {name: own.speedup(own.decision_metric, top).ratio.value for name, own in view.pairs.items()}
    known = {name: value for name, value in values.items() if value is not None and words.known(value)}
    if not known:
        return f"Speed-up of {len(view.pairs)} candidates over load"
    order = sorted(known, key=lambda name: -known[name])
    said = ", ".join(f"{words.plain(name, 40)} {words.ratio(known[name])}" for name in order)
    return f"At {words.level(top)}: {said}"
