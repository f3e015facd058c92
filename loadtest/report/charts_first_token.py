"""Where the time to first token goes: the way, the server's front end, its queue, prefill."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loadtest import loads
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import FirstToken, FirstTokenChange
from loadtest.analyse.results import Judgement
from loadtest.report import words
from loadtest.report.figures import AMBER, GREEN, INK, PURPLE, SKY, Chart, canvas, label, unit_of_times
from loadtest.report.left_out import absent
from loadtest.report.view import View

# Field → name, colour, hatch: the hatch tells them apart in print.
TERMS = {
    "prefill": ("prefill", SKY, ""),
    "queue": ("queue", AMBER, "/"),
    "front": ("server's front end", PURPLE, "."),
    "outside": ("outside the server", GREEN, "\\"),
}


def first_token(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """The terms of the mean time to first token, per level and arm."""
    view, found = View(run=run, judgement=judgement), judgement.findings
    rows = [one for one in found.first_tokens if words.known(one.client_s)] if found else []
    rows = [one for one in rows if any(words.known(_term(one, name)) for name in TERMS)]
    if found is None or not rows:
        return None
    title = _title(view, rows, found.first_token_changes)
    factor, unit = unit_of_times([one.client_s for one in rows])
    figure = canvas(title, x_title=f"load, {loads.unit()}, and server", y_title=f"mean TTFT, {unit}")
    places = [f"{one.level:g}, {label(one.arm)}" for one in rows]
    for name, (word, colour, hatch) in TERMS.items():
        values = [_term(one, name) for one in rows]
        if not any(words.known(value) for value in values):
            continue
        figure.add_bar(
            x=places, y=[None if value is None or not words.known(value) else value * factor for value in values],
            name=word, hoverinfo="text",
            marker={"color": colour, "pattern": {"shape": hatch, "fillmode": "overlay", "fgcolor": INK, "size": 6,
                                                 "solidity": 0.3}},
            hovertext=[f"{place}<br>{word}: {words.time(value)}" for place, value in zip(places, values, strict=True)],
        )  # fmt: skip
    figure.update_layout(barmode="relative", bargap=0.3)
    figure.update_xaxes(type="category", tickangle=-90)
    return Chart(
        key="first-token", part="latency", figure=figure,
        alt=f"Stacked bars: the parts of the mean time to first token of each server at each load. {title}",
        note="From the server's own counters, beside the client's clock. The counters of a window's edge belong to"
        " other requests, so that a part may come out below 0 where a window holds few. The queue is the time from a"
        " request's arrival to its first step, so that it holds the rest of the step under way too. Bars are of"
        " all valid cells; a change is of the"
        " blocks that both servers have."
        + absent(view, {arm: [one.level for one in rows if one.arm == arm] for arm in judgement.arms}),
        columns=("load", "arm", "TTFT mean", *(word for word, _, _ in TERMS.values()), "prefix cache hits", "KV use",
                 "preemptions"),
        rows=tuple(_row(one) for one in rows),
    )  # fmt: skip


def _term(one: FirstToken, name: str) -> float | None:
    value: float | None = getattr(one, f"{name}_s")
    return value


def _row(one: FirstToken) -> tuple[str, ...]:
    return (
        words.level(one.level), words.plain(one.arm), words.time(one.client_s),
        *(words.time(_term(one, name)) for name in TERMS), words.share(one.cache_hit_ratio), words.share(one.kv_use),
        words.count(one.preemptions),
    )  # fmt: skip


def _title(view: View, rows: list[FirstToken], changes: tuple[FirstTokenChange, ...]) -> str:
    """Return the strongest finding: the term that grew most where first tokens come later, else the greatest term."""
    later = [change for change in changes if change.term and change.sentence]
    if later:
        worst = max(later, key=lambda change: change.total_s.value or 0.0)
        return worst.sentence.rstrip(".")
    top = max(one.level for one in rows)
    last = next((one for one in reversed(rows) if one.level == top), rows[-1])
    sizes = {name: _term(last, name) or 0.0 for name in TERMS if words.known(_term(last, name))}
    greatest = max(sizes, key=lambda name: sizes[name])
    share = sizes[greatest] / last.client_s if last.client_s else math.nan
    said = f"At {words.level(top)} {TERMS[greatest][0]} is {words.share(share)} of the time to first token"
    said += f" ({words.plain(last.arm)})"
    total = next((change.total_s for change in changes if change.level == top), Estimate())
    if view.candidate is None or not words.known(total.value):
        return said
    return f"{said}; against the baseline {words.interval(total, words.signed_time)}"
