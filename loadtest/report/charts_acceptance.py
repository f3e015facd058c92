"""Acceptance of drafts by what it may depend on: slot, category of prompt, output position, request, time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import Acceptance, Slot
from loadtest.analyse.results import Judgement
from loadtest.report import header, words
from loadtest.report.figures import GREEN, PURPLE, Chart, canvas, error_bars, label, level_colours, thinned
from loadtest.report.left_out import absent
from loadtest.report.next_steps import RARE
from loadtest.report.view import View

BY_RATIO = "acceptance ratio"


CATEGORIES = 40  # drawn


def _found(judgement: Judgement) -> Acceptance | None:
    return judgement.findings.acceptance if judgement.findings else None


def _form(kind: str) -> tuple[words.Format, float, str]:
    """Return how a figure by request is written, its factor on the axis, and the axis' title."""
    if kind == BY_RATIO:
        return words.share, 100.0, "acceptance ratio, %"
    return words.count, 1.0, "tokens per chunk, at least τ"


def scales(judgement: Judgement) -> str:
    """Say what one fact of this run is on each of the scales; empty where the slots are not all known."""
    found = _found(judgement)
    rates = [slot.survival.value for slot in found.slots] if found else []
    if not rates or not all(words.known(rate) for rate in rates):
        return ""
    accepted, number = sum(rate or 0.0 for rate in rates), len(rates)
    said = f"Here the rates of the {number} slots add up to {accepted:.2f} accepted tokens a draft: with the bonus"
    said += f" token an acceptance length of {1 + accepted:.2f} where a step drafts"
    told = [why.acceptance_ratio for why in judgement.why if why.acceptance_ratio is not None]
    whole = told and min(told) - 0.01 <= accepted / number <= max(told) + 0.01  # no draft was shorter
    return f"{said}, and an acceptance ratio of {words.share(accepted / number)}." if whole else f"{said}."


def slots(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """How far drafts survive, and what each slot adds given that the one before was accepted."""
    found = _found(judgement)
    shown = [slot for slot in found.slots if words.known(slot.survival.value)] if found else []
    if not shown:
        return None
    last, first = shown[-1], shown[0]
    title = f"Per-position acceptance rate: {words.share(first.survival.value)} at slot {first.slot}"
    if last is not first:
        title += f", {words.share(last.survival.value)} at slot {last.slot};"
        title += f" {words.share(last.conditional.value)} of those that reach slot {last.slot}"
    figure = canvas(title, x_title="draft slot, tokens", y_title="per-position rate, %")
    figure.update_xaxes(tickvals=[slot.slot for slot in shown], range=[shown[0].slot - 0.3, shown[-1].slot + 0.3])
    figure.update_yaxes(range=[0, 104])
    lines = (("of all drafts (survival)", "survival", GREEN, "circle", "solid"),
             ("of those that reach the slot (conditional)", "conditional", PURPLE, "square", "dash"))  # fmt: skip
    for name, field, colour, shape, dash in lines:
        points = [(slot.slot, getattr(slot, field)) for slot in shown]
        figure.add_scatter(
            x=[x for x, _ in points], y=[None if y.value is None else 100 * y.value for _, y in points],
            error_y=error_bars([y for _, y in points], colour, 100.0), mode="lines+markers", name=name,
            line={"color": colour, "dash": dash, "width": 2}, marker={"symbol": shape, "size": 8},
            hovertext=[f"slot {x}: {words.interval(y, words.share)}" for x, y in points], hoverinfo="text",
        )  # fmt: skip
    return Chart(
        key="slots", part="acceptance", figure=figure, alt=f"Line chart of acceptance by draft slot. {title}.",
        note=_last_slot(last),
        columns=("slot", "survival, 95 %", "conditional, 95 %"),
        rows=tuple((str(slot.slot), words.interval(slot.survival, words.share),
                    words.interval(slot.conditional, words.share)) for slot in shown),
    )  # fmt: skip


def _last_slot(last: Slot) -> str:
    """Say what the last slot is worth: it is drafted and verified whether it survives or not."""
    survival = last.survival.value or 0.0
    if survival < RARE:
        return (
            "A late slot that hardly ever survives is drafted and verified all the same: fewer draft tokens cost less."
        )
    return f"Of all loads. Even slot {last.slot} survives in {words.share(survival)} of drafts."


def categories(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Acceptance of each category of prompt."""
    found = _found(judgement)
    groups = [group for group in found.categories if words.known(group.value.value)] if found else []
    if found is None or len(groups) < 2:
        return None
    groups = sorted(groups, key=lambda group: group.value.value or 0.0)
    groups, every = groups[-CATEGORIES:], len(groups)
    form, factor, axis = _form(found.of_requests)
    low, high = groups[0], groups[-1]
    least, most = form(low.value.value or 0.0), form(high.value.value or 0.0)
    title = (
        f"{_what(found)} by category: most in {words.plain(high.name, 40)} ({most}), least in"
        f" {words.plain(low.name, 40)} ({least})"
        if least != most
        else f"{_what(found)} by category: {most} in all {len(groups)}"
    )
    figure = canvas(title, x_title=axis, y_title="category")
    figure.add_scatter(
        x=[(group.value.value or 0.0) * factor for group in groups], y=[label(group.name) for group in groups],
        error_x=error_bars([group.value for group in groups], GREEN, factor), mode="markers", showlegend=False,
        marker={"color": GREEN, "symbol": "circle", "size": 9},
        hovertext=[f"{label(group.name)}: {words.interval(group.value, form)}" for group in groups], hoverinfo="text",
    )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    return Chart(
        key="categories", part="acceptance", figure=figure,
        alt=f"Acceptance by category of prompt, with 95 % intervals over sessions. {title}.",
        note=_of_requests(found) + (f" Drawn: the {CATEGORIES} highest of {every}." if every > CATEGORIES else ""),
        columns=("category", f"{found.of_requests}, 95 %", "requests"),
        rows=tuple((words.plain(g.name, 80), words.interval(g.value, form), words.count(g.count))
                   for g in reversed(groups)),
    )  # fmt: skip


def _of_requests(found: Acceptance) -> str:
    if found.of_requests == BY_RATIO:
        return "From what the server says of each request."
    said = "Tokens per chunk stand for the acceptance length where the server tells none by request:"
    return said + " an upper bound, since a busy server merges chunks."


def _what(found: Acceptance) -> str:
    return words.plain(found.of_requests[:1].upper() + found.of_requests[1:], 80)


def positions(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Tokens per chunk by how much of the answer was out."""
    found = _found(judgement)
    groups = [group for group in found.positions if words.known(group.value.value)] if found else []
    if len(groups) < 2:
        return None
    first, last = groups[0], groups[-1]
    title = (
        f"A chunk brings {words.count(first.value.value)} tokens at the start of an answer and"
        f" {words.count(last.value.value)} after {last.low:g} tokens"
    )
    figure = canvas(title, x_title="tokens already out", y_title="tokens per chunk")
    figure.add_scatter(
        x=[label(group.name) for group in groups], y=[group.value.value for group in groups],
        error_y=error_bars([group.value for group in groups], GREEN), mode="lines+markers", showlegend=False,
        line={"color": GREEN, "width": 2}, marker={"symbol": "circle", "size": 8},
        hovertext=[f"{label(g.name)}: {words.interval(g.value)}" for g in groups], hoverinfo="text",
    )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return Chart(
        key="positions", part="acceptance", figure=figure,
        alt=f"Line chart of tokens per chunk by position in the output. {title}.",
        note="Later ranges hold only answers that are so long: a change may be one of the requests, not of position.",
        columns=("tokens already out", "tokens per chunk, 95 %", "chunks"),
        rows=tuple((words.plain(g.name), words.interval(g.value), words.count(g.count)) for g in groups),
    )  # fmt: skip


def requests(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """How acceptance varies from request to request."""
    found = _found(judgement)
    names = ("p5", "p25", "p50", "p75", "p95")
    if found is None or any(not words.known(found.requests.get(name, Estimate()).value) for name in names):
        return None
    form, factor, axis = _form(found.of_requests)
    values = [found.requests[name].value or 0.0 for name in names]
    texts = [form(value) for value in values]
    title = (
        f"{_what(found)} by request: half lie between {texts[1]} and {texts[3]}, one in twenty at or below {texts[0]}"
        if texts[0] != texts[4]
        else f"{_what(found)} by request: nine of ten have {texts[0]}"
    )
    figure = canvas(title, x_title=axis, y_title="requests, all %")
    drawn = [value * factor for value in values]
    figure.add_trace(
        go.Box(
            lowerfence=[drawn[0]], q1=[drawn[1]], median=[drawn[2]], q3=[drawn[3]], upperfence=[drawn[4]], y=[""],
            orientation="h", name="requests", showlegend=False, line={"color": GREEN}, hoverinfo="skip",
        )
    )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    return Chart(
        key="requests", part="acceptance", figure=figure,
        alt=f"Box of acceptance over requests: whiskers at 5 and 95 %. {title}.", note=_of_requests(found),
        columns=("percentile of requests", f"{found.of_requests}, 95 %"),
        rows=tuple((name, words.interval(found.requests[name], form)) for name in names),
    )  # fmt: skip


def acceptance_over_time(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Acceptance of each cell over the run: does it drift while the server runs?"""
    found = _found(judgement)
    if found is None or len(found.over_time) < 2:
        return None
    moments = sorted(found.over_time, key=lambda moment: moment.t_s)
    values = [moment.value for moment in moments]
    title = (
        f"The acceptance ratio of single cells lies between {words.share(min(values))} and {words.share(max(values))}"
    )
    if found.drift is not None and found.drift.change is not None:
        life = "the life of a server" if header.starts(run) > 1 else "the run"
        title += f"; over {life} it changes by {words.change(1 + found.drift.change)}"
        title += f" (p = {found.drift.p_value:.2g})" if words.known(found.drift.p_value) else ""
    figure = canvas(title, x_title="time since the start of the run, min", y_title="acceptance ratio, %")
    levels = sorted({moment.level for moment in moments})
    for level, (colour, shape) in zip(levels, level_colours(len(levels)), strict=True):
        own = list(thinned([moment for moment in moments if moment.level == level], 200))
        figure.add_scatter(
            x=[moment.t_s / 60 for moment in own], y=[100 * moment.value for moment in own], mode="markers",
            name=words.level(level), marker={"color": colour, "symbol": shape, "size": 8}, hoverinfo="text",
            hovertext=[f"{words.level(level)}, block {m.block + 1}: {words.share(m.value)}" for m in own],
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    shown = thinned(moments, 200)
    return Chart(
        key="acceptance-time", part="acceptance", figure=figure,
        alt=f"Scatter of acceptance by cell over the time of the run. {title}.",
        note=(" ".join(_trends(found)) or "A slope would be drift of the server; a difference by load should not be.")
        + absent(View(run=run, judgement=judgement), {"drafts": levels}),
        columns=("middle of the window after", "load", "block", "acceptance ratio"),
        rows=tuple((words.minutes(m.t_s), words.level(m.level), str(m.block + 1), words.share(m.value)) for m in shown),
    )  # fmt: skip


def _trends(found: Acceptance) -> list[str]:
    return [words.plain(trend.sentence) for trend in (found.flat, found.drift) if trend and trend.sentence]
