"""Charts of single requests and chunks: the same request on both servers, stalls, tokens per chunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from loadtest import loads
from loadtest.analyse.results import Judgement
from loadtest.report import words
from loadtest.report.charts_latency import broken, curves_of, of_arms, pair_title, rows_of, tails
from loadtest.report.figures import (
    VERMILLION,
    Chart,
    arm_style,
    canvas,
    level_line,
    listed,
    load_axis,
    load_title,
    series,
)
from loadtest.report.left_out import absent, framed
from loadtest.report.view import View

FOR_TWENTIETHS = 60  # pairs, below which the lowest twentieth is three or fewer


def pairs(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """How the same requests compare on both servers, by level."""
    spreads = judgement.detail.spreads if judgement.detail else ()
    if not spreads:
        return None
    last = spreads[-1]
    title = (
        f"At {words.level(last.level)} the middle half of {last.pairs:,} pairs of the same request runs at"
        f" {words.ratio(last.p25)} to {words.ratio(last.p75)}"
    )
    if last.pairs >= FOR_TWENTIETHS:
        title += f", one in twenty below {words.ratio(last.p5)}"
    figure = canvas(title, x_title=f"load, {loads.unit()}", y_title="speed-up by E2E, ratio")
    places = [f"{spread.level:g}" for spread in spreads]
    figure.add_trace(
        go.Box(
            x=places, lowerfence=[s.p5 for s in spreads], q1=[s.p25 for s in spreads], median=[s.p50 for s in spreads],
            q3=[s.p75 for s in spreads], upperfence=[s.p95 for s in spreads], line={"color": VERMILLION},
            name="requests", showlegend=False, hoverinfo="skip",
        )
    )  # fmt: skip
    level_line(figure, 1.0, "no change", dash="solid")
    figure.update_xaxes(type="category")
    rows = tuple(
        (words.level(s.level), words.count(s.pairs), *(words.ratio(v) for v in (s.p5, s.p25, s.p50, s.p75, s.p95)),
         words.share(judgement.slower_share.get(s.level)))
        for s in spreads
    )  # fmt: skip
    return Chart(
        key="pairs", part="load", figure=figure,
        alt=f"Boxes of the speed-up of paired requests by load; whiskers at 5 and 95 %. {title}.",
        note="Baseline ÷ candidate of one request each. A mean gain can hide requests that lose. Descriptive: requests"
        " of one cell share batches and queues."
        + absent(View(run=run, judgement=judgement), {"pair": [spread.level for spread in spreads]}),
        columns=("load", "pairs", "p5", "p25", "median", "p75", "p95", "slower by over 10 %"), rows=rows,
    )  # fmt: skip


def stalls(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The worst stall of a request over load, middle and tail."""
    note = "The longest wait inside an answer. Speculation lengthens it by design; a reader sees it as a hitch."
    return tails(View(run=run, judgement=judgement), "worst_stall", "tokens", note)


def tokens_per_chunk(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Tokens that arrive together, of each server over load."""
    view = View(run=run, judgement=judgement)
    found = curves_of(view, lambda arm, level: view.mean(arm, level, "tokens_per_chunk"))
    if not found:
        return None
    title = pair_title(found, "Tokens per chunk", words.count)
    figure = canvas(title, x_title=load_title(), y_title="tokens per chunk")
    load_axis(figure, view.levels)
    figure.update_yaxes(rangemode="tozero")
    for arm, points in found.items():
        series(figure, arm_style(judgement.arms, arm), broken(view, points), words.count)
    return Chart(
        key="tokens-per-chunk", part="tokens", figure=figure,
        alt=f"Line chart of tokens per chunk over load for {listed(list(found))}. {title}.",
        note="Above 1 without speculation too where a busy server merges chunks: chunks are never tokens."
        + framed(figure, found.values(), from_zero=True)
        + absent(view, of_arms(view, found)),
        columns=("load", *found), rows=rows_of(view, found, words.count),
    )  # fmt: skip
