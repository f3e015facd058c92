"""The run over time: load, queue, memory of the servers; every cell stands where it was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loadtest.analyse.detail_results import Instant
from loadtest.analyse.findings import Moment
from loadtest.analyse.results import CellView, Judgement
from loadtest.report import words
from loadtest.report.figures import GRID, INK, Chart, arm_style, canvas, label, thinned
from loadtest.report.view import span_s

TRACKS: tuple[tuple[str, Callable[[Instant], float | None], float], ...] = (
    ("in flight, requests", lambda one: one.in_flight, 1.0),
    ("waiting, requests", lambda one: one.waiting, 1.0),
    ("KV use, %", lambda one: one.kv_use, 100.0),
)
HEAD = 0.075  # of the height, above each track, for its name
MARKS = 120  # cells that are shaded, and that have a triangle


Curve = tuple[list[float | None], list[float | None]]


def over_time(run: Mapping[str, Any], judgement: Judgement) -> Chart | None:
    """Requests in flight, the queue, the KV cache and acceptance over the run, one above the other."""
    instants = judgement.detail.instants if judgement.detail else ()
    if not instants:
        return None
    tracks = _tracks(judgement, instants)
    title = _title(instants, judgement.cells)
    figure = canvas(title, x_title="time since the start of the run, min", y_title="")
    height = 1 / len(tracks)
    for place, (name, curves) in enumerate(tracks):
        suffix, top = "" if place == 0 else str(place + 1), 1 - place * height
        head = top - HEAD
        # Names stand above their tracks: set upright beside them, each is longer than its track is high.
        figure.add_annotation(xref="paper", x=0, yref="paper", y=head, text=name, showarrow=False, xanchor="left",
                              yanchor="bottom", font={"size": 12})  # fmt: skip
        own = {"domain": [max(0.0, top - height), head],
               "rangemode": "tozero", "gridcolor": GRID, "automargin": True, "fixedrange": True,
               "nticks": 4}  # fmt: skip
        figure.update_layout({f"yaxis{suffix}": own})
        for arm, (x, y) in curves.items():
            style = arm_style(judgement.arms, arm)
            figure.add_scatter(
                x=x, y=y, yaxis=f"y{suffix}", mode="lines+markers", name=label(arm), legendgroup=arm,
                showlegend=place == 0, line={"color": style.colour, "width": 1.5},
                marker={"size": 4, "symbol": style.shape}, hoverinfo="x+y",
            )  # fmt: skip
    figure.update_xaxes(anchor=f"y{len(tracks)}" if len(tracks) > 1 else "y")
    _mark_cells(figure, judgement.cells)
    shown = thinned(instants, 150)
    return Chart(
        key="over-time", part="cells", figure=figure, tall=True,
        alt=f"Line charts over the time of the run: {', '.join(name for name, _ in tracks)}. {title}.",
        note="A line is one cell's window; gaps are settling, warm-up and draining. Grey: cells that are invalid."
        " Triangles: cells with a mark.",
        columns=("after", "arm", "load", "block", "in flight", "running", "waiting", "KV use"),
        rows=tuple(_row(one) for one in shown),
    )  # fmt: skip


def _tracks(judgement: Judgement, instants: Sequence[Instant]) -> list[tuple[str, dict[str, Curve]]]:
    """Return what is drawn, from the top: its name and each server's curve."""
    found: list[tuple[str, dict[str, Curve]]] = []
    for name, read, factor in TRACKS:
        if any(words.known(read(one)) for one in instants):
            own = {arm: [one for one in instants if one.arm == arm] for arm in judgement.arms}
            found.append((name, {arm: _broken(mine, read, factor) for arm, mine in own.items()}))
    acceptance = judgement.findings.acceptance if judgement.findings else None
    moments = thinned(acceptance.over_time, 200) if acceptance else ()
    if moments and len(judgement.arms) == 2:
        found.append(("acceptance ratio, %", {judgement.arms[1]: _by_block(moments)}))
    return found


def _by_block(moments: Sequence[Moment]) -> Curve:
    """Return acceptance by cell with a break between blocks."""
    x: list[float | None] = []
    y: list[float | None] = []
    for before, one in zip((None, *moments), moments, strict=False):
        if before is not None and before.block != one.block:
            x.append(None)
            y.append(None)
        x.append(round(one.t_s / 60, 4))
        y.append(100 * one.value)
    return x, y


def _broken(instants: Sequence[Instant], read: Callable[[Instant], float | None], factor: float) -> Curve:
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


def _mark_cells(figure: Any, cells: Sequence[CellView]) -> None:
    """Shade the windows of invalid cells, and set a triangle at the head of those that carry a mark."""
    windows = [(cell, cell.opened_s, cell.closed_s) for cell in cells if cell.marks or not cell.valid]
    known = [(cell, a / 60, b / 60) for cell, a, b in windows if a is not None and b is not None]
    for _, opened, closed in [one for one in known if not one[0].valid][:MARKS]:
        figure.add_shape(
            type="rect", x0=opened, x1=closed, yref="paper", y0=0, y1=1, fillcolor=INK, opacity=0.25,
            line={"width": 0}, layer="below",
        )  # fmt: skip
    marked = thinned([one for one in known if one[0].valid], MARKS)
    if marked:
        figure.add_scatter(
            x=[(opened + closed) / 2 for _, opened, closed in marked],
            y=[1.06 * (cell.in_flight or cell.level) for cell, _, _ in marked], mode="markers",
            name="cells with a mark", marker={"symbol": "triangle-down", "size": 8, "color": INK}, hoverinfo="text",
            hovertext=[label(f"cell {cell.cell}: {cell.marks[0]}") for cell, _, _ in marked],
        )  # fmt: skip


def _title(instants: Sequence[Instant], cells: Sequence[CellView]) -> str:
    lost = sum(not cell.valid for cell in cells)
    marked = sum(bool(cell.marks) and cell.valid for cell in cells)
    waiting = [one for one in instants if words.known(one.waiting)]
    said = f"Over {words.minutes(span_s(cells) or instants[-1].t_s - instants[0].t_s)} {lost} of {len(cells)} cells"
    said += f" {'is' if lost == 1 else 'are'} invalid"
    said += f" and {marked} {'carries' if marked == 1 else 'carry'} a mark"
    if waiting:
        most = max(waiting, key=lambda one: one.waiting or 0.0)
        if (most.waiting or 0.0) >= 1:
            said += f"; the longest queue is {words.count(most.waiting)} requests, of {words.plain(most.arm, 40)} at"
            said += f" {words.level(most.level)}"
        else:
            said += "; no server had a queue when it was asked"
    kv = [one.kv_use for one in instants if one.kv_use is not None and words.known(one.kv_use)]
    return said + (f"; KV use is at most {words.share(max(kv))}" if kv else "")


def _row(one: Instant) -> tuple[str, ...]:
    return (
        words.minutes(one.t_s), words.plain(one.arm), words.level(one.level), str(one.block + 1), str(one.in_flight),
        words.count(one.running), words.count(one.waiting), words.share(one.kv_use),
    )  # fmt: skip
