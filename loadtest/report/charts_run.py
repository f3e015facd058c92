"""The run over time: load, queue, memory of the servers; every cell stands where it was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loadtest.analyse.detail_results import Instant
from loadtest.analyse.results import CellView, Judgement
from loadtest.report import words
from loadtest.report.figures import GRID, INK, Chart, arm_style, canvas, label, thinned

TRACKS: tuple[tuple[str, Callable[[Instant], float | None], float], ...] = (
    ("in flight, users", lambda one: one.in_flight, 1.0),
    ("waiting, requests", lambda one: one.waiting, 1.0),
    ("KV use, %", lambda one: one.kv_use, 100.0),
)
MARKS = 120  # invalid cells that are shaded


def over_time(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Requests in flight, the queue and the KV cache of each server over the run, one above the other."""
    instants = judgement.detail.instants if judgement.detail else ()
    if not instants:
        return None
    tracks = [track for track in TRACKS if any(words.known(track[1](one)) for one in instants)]
    title = _title(instants, judgement.cells)
    figure = canvas(title, x_title="time since the start of the run, min", y_title="")
    height = 1 / len(tracks)
    for place, (name, read, factor) in enumerate(tracks):
        axis = "yaxis" if place == 0 else f"yaxis{place + 1}"
        top = 1 - place * height
        own = {"domain": [max(0.0, top - height + 0.07), top], "title": {"text": name, "font": {"size": 11}},
               "rangemode": "tozero", "gridcolor": GRID, "automargin": True, "fixedrange": True,
               "nticks": 4}  # fmt: skip
        figure.update_layout({axis: own})
        for arm in judgement.arms:
            mine = [one for one in instants if one.arm == arm]
            style = arm_style(judgement.arms, arm)
            x, y = _broken(mine, read, factor)
            figure.add_scatter(
                x=x, y=y, yaxis="y" if place == 0 else f"y{place + 1}", mode="lines+markers", name=label(arm),
                legendgroup=arm, showlegend=place == 0, line={"color": style.colour, "width": 1.5},
                marker={"size": 4, "symbol": style.shape}, hoverinfo="x+y",
            )  # fmt: skip
    figure.update_xaxes(anchor=f"y{len(tracks)}" if len(tracks) > 1 else "y")
    _shade_invalid(figure, judgement.cells)
    shown = thinned(instants, 150)
    return Chart(
        key="over-time", part="cells", figure=figure,
        alt=f"Line chart over the time of the run: requests in flight, waiting, KV use. {title}.",
        note="A line is one cell's window; gaps are settling, warm-up and draining. Grey: cells that are invalid.",
        columns=("after", "arm", "load", "block", "in flight", "running", "waiting", "KV use"),
        rows=tuple(_row(one) for one in shown),
    )  # fmt: skip


def _broken(
    instants: Sequence[Instant], read: Callable[[Instant], float | None], factor: float
) -> tuple[list[float | None], list[float | None]]:
    """Return the curve with a break between cells."""
    x: list[float | None] = []
    y: list[float | None] = []
    before: tuple[float, int] | None = None
    for one in instants:
        value = read(one)
        if before is not None and before != (one.level, one.block):
            x.append(None)
            y.append(None)
        before = (one.level, one.block)
        x.append(round(one.t_s / 60, 4))
        y.append(value * factor if value is not None and words.known(value) else None)
    return x, y


def _shade_invalid(figure: Any, cells: Sequence[CellView]) -> None:
    for cell in [c for c in cells if not c.valid and c.opened_s is not None and c.closed_s is not None][:MARKS]:
        figure.add_shape(
            type="rect", x0=(cell.opened_s or 0.0) / 60, x1=(cell.closed_s or 0.0) / 60, yref="paper", y0=0, y1=1,
            fillcolor=INK, opacity=0.25, line={"width": 0}, layer="below",
        )  # fmt: skip


def _title(instants: Sequence[Instant], cells: Sequence[CellView]) -> str:
    lost = sum(not cell.valid for cell in cells)
    marked = sum(bool(cell.marks) and cell.valid for cell in cells)
    waiting = [one for one in instants if words.known(one.waiting)]
    said = f"Over {words.minutes(instants[-1].t_s - instants[0].t_s)} {lost} of {len(cells)} cells are invalid"
    said += f" and {marked} carry a mark"
    if waiting:
        most = max(waiting, key=lambda one: one.waiting or 0.0)
        if (most.waiting or 0.0) >= 1:
            said += f"; the longest queue is {words.count(most.waiting)} requests, of {words.plain(most.arm, 40)} at"
            said += f" {words.level(most.level)}"
        else:
            said += "; no server had a queue when it was asked"
    kv = [one.kv_use for one in instants if one.kv_use is not None and words.known(one.kv_use)]
    return said + (f"; KV use stays below {words.share(max(kv))}" if kv else "")


def _row(one: Instant) -> tuple[str, ...]:
    return (
        words.minutes(one.t_s), words.plain(one.arm), words.level(one.level), str(one.block + 1), str(one.in_flight),
        words.count(one.running), words.count(one.waiting), words.share(one.kv_use),
    )  # fmt: skip


