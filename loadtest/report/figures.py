"""Drawing: axes, series, bands. What is drawn, and what it says, is in `charts`.

Backgrounds are transparent and lines are mid-grey, so that one figure reads on a light and on a dark page; the page
sets the colour of the text. Colours are those of Okabe and Ito (jfly.uni-koeln.de/color), told apart with every common
form of colour blindness; shape and dash say the same once more for print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import plotly.graph_objects as go

from loadtest import loads
from loadtest.analyse.estimates import Estimate
from loadtest.report import words

BLUE, VERMILLION = "#0072B2", "#D55E00"  # baseline, candidate
GREEN, PURPLE, AMBER, SKY = "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
INK, GRID, SHADE = "#767676", "rgba(128,128,128,0.25)", "rgba(128,128,128,0.20)"
ARM_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, AMBER, SKY)  # as in page.css and several.css
ARM_SHAPES = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star")
DODGE = 0.012  # arms are set this share apart along the load axis, so that error bars do not cover each other


def load_title() -> str:
    """Return the title of an axis of loads."""
    return f"load, {loads.unit()}, log scale"


PARTS = ("load", "classes", "day", "latency", "tokens", "why", "acceptance", "cells")  # sections that hold charts

T = TypeVar("T")
Points = list[tuple[float, Estimate]]  # level → value


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with what a reader without eyes, colour or script needs: the finding, a description, the figures."""

    key: str
    part: str  # one of PARTS; on the page of several runs `runs`
    figure: go.Figure
    alt: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    tall: bool = False  # has more rows than a chart of the usual height holds

    @property
    def title(self) -> str:
        """The finding, as plain text."""
        return str(self.figure.layout.meta["title"])


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence."""
    return ", ".join(words.plain(name) for name in names) if names else "none"


def thinned(items: Sequence[T], most: int = 600) -> Sequence[T]:
    """Return at most `most` items, evenly chosen: marks beyond that cover each other and only make the page large."""
    return items if len(items) <= most else items[:: math.ceil(len(items) / most)]


def label(text: str) -> str:
    """Return foreign text for Plotly, which reads a subset of HTML in labels."""
    return words.plain(text, 80).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def canvas(title: str, *, x_title: str, y_title: str) -> go.Figure:
    """Return an empty figure with a title and named axes."""
    axis: dict[str, Any] = {
        "gridcolor": GRID, "linecolor": INK, "zerolinecolor": GRID, "ticks": "outside", "tickcolor": GRID,
        "fixedrange": True, "automargin": True,
    }  # fmt: skip
    return go.Figure(
        layout={
            "template": go.layout.Template(),
            "meta": {"title": title},
            "title": {"text": label_wrapped(title), "x": 0, "xanchor": "left", "font": {"size": 15}},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
            "margin": {"l": 8, "r": 12, "t": 48, "b": 8},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
            "hovermode": "closest",
            "dragmode": False,
            "xaxis": axis | {"title": {"text": x_title, "standoff": 8}},
            "yaxis": axis | {"title": {"text": y_title, "standoff": 8}},
        }
    )


def label_wrapped(text: str, width: int = 90) -> str:
    """Return foreign text for a Plotly title, broken into lines."""
    lines: list[str] = [""]
    for word in words.plain(text, 400).split():
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for line in lines)


def load_axis(figure: go.Figure, levels: Sequence[float]) -> None:
    """Make the x axis the load: equal steps for equal factors, and a tick at each tested level."""
    low, high = math.log10(min(levels)), math.log10(max(levels))
    pad = max(0.06 * (high - low), 0.05)
    labelled, last = [], -math.inf
    for level in levels:
        room = math.log10(level) - last >= (high - low) / 14
        labelled.append(f"{level:g}" if room else "")
        last = math.log10(level) if room else last
    figure.update_xaxes(type="log", range=[low - pad, high + pad], tickvals=list(levels), ticktext=labelled)


def time_axis(figure: go.Figure, seconds: Sequence[float | None], name: str) -> float:
    """Make the y axis a time from 0, logarithmic where values span a factor above 6; return its unit's factor.

    A time of 0, such as half of the gaps between tokens that come together, has no place on a logarithmic axis.
    """
    values = [value for value in seconds if value is not None and math.isfinite(value)]
    top, bottom = max(values, default=1.0), min(values, default=1.0)
    factor, unit = unit_of_times([top])
    if 0 < bottom < top / 6:
        low, high = bottom * factor * 0.8, top * factor * 1.25
        ticks = _ticks(low, high)
        title, texts = f"{name}, {unit}, log scale", [f"{tick:,g}" for tick in ticks]
        span = [math.log10(low), math.log10(high)]
        figure.update_yaxes(type="log", range=span, tickvals=ticks, ticktext=texts, title_text=title)
    else:
        figure.update_yaxes(range=[0, top * factor * 1.12], title_text=f"{name}, {unit}")
    return factor


def unit_of_times(seconds: Sequence[float | None]) -> tuple[float, str]:
    """Return the factor and the name of the unit in which times of this size are drawn."""
    top = max((value for value in seconds if value is not None and math.isfinite(value)), default=1.0)
    return (1000.0, "ms") if top < 0.9995 else (1.0, "s")


def _ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for marks in ((1,), (1, 3), (1, 2, 5)):
        ticks = [mark * 10.0**decade for decade in decades for mark in marks if low <= mark * 10.0**decade <= high]
        if len(ticks) >= 4:
            break
    return ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a series looks."""

    name: str
    colour: str
    shape: str = "circle"
    dash: str = "solid"
    shift: int = 0  # in steps of DODGE along the load axis
    width: float = 2.5


def arm_style(arms: Sequence[str], arm: str, suffix: str = "", dash: str = "solid") -> Style:
    """Return the look of an arm, the same in every chart."""
    place = arms.index(arm)
    colour, shape = ARM_COLOURS[place % len(ARM_COLOURS)], ARM_SHAPES[place % len(ARM_SHAPES)]
    shift = 2 * place - (len(arms) - 1)  # about the load itself
    return Style(name=f"{arm}{suffix}", colour=colour, shape=shape, dash=dash, shift=shift,
                 width=2.5 if dash == "solid" else 1.5)  # fmt: skip


def series(
    figure: go.Figure, style: Style, points: Sequence[tuple[float, Estimate]], form: words.Format, factor: float = 1.0
) -> None:
    """Draw values over load with their intervals as error bars; values that do not exist leave a gap."""
    known = [place for place, (_, item) in enumerate(points) if item.value is not None and math.isfinite(item.value)]
    if not known:
        return
    shown = [(x, item if known[0] + place in known else Estimate())
             for place, (x, item) in enumerate(points[known[0] : known[-1] + 1])]  # fmt: skip
    figure.add_scatter(
        x=[x * (1 + DODGE * style.shift) for x, _ in shown],
        y=[_scaled(item.value, factor) for _, item in shown],
        error_y=error_bars([item for _, item in shown], style.colour, factor),
        name=label(style.name), mode="lines+markers",
        line={"color": style.colour, "width": style.width, "dash": style.dash},
        marker={"symbol": style.shape, "size": 8},
        hovertext=[f"{label(style.name)}<br>{words.level(x)}: {words.interval(item, form)}" for x, item in shown],
        hoverinfo="text",
    )  # fmt: skip


def error_bars(points: Sequence[Estimate], colour: str, factor: float = 1.0) -> dict[str, Any]:
    """Return Plotly's error bars of estimates; a bound that does not exist has none."""
    return {
        "type": "data", "symmetric": False, "thickness": 1.2, "width": 4, "color": colour,
        "array": [_reach(item.value, item.high, factor) for item in points],
        "arrayminus": [_reach(item.low, item.value, factor) for item in points],
    }  # fmt: skip


def level_colours(number: int) -> list[tuple[str, str]]:
    """Return a colour and a shape for each of several levels; beyond six they repeat with another shape."""
    colours = (SKY, GREEN, AMBER, PURPLE, INK, BLUE)
    shapes = ("circle", "square", "triangle-up", "diamond", "x", "cross", "star")
    return [(colours[i % len(colours)], shapes[i % len(shapes)]) for i in range(number)]


def _scaled(value: float | None, factor: float) -> float | None:
    return value * factor if value is not None and math.isfinite(value) else None


def _reach(low: float | None, high: float | None, factor: float) -> float:
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return 0.0
    return max(0.0, high - low) * factor


def band(figure: go.Figure, colour: str, points: Sequence[tuple[float, Estimate]]) -> None:
    """Draw the intervals as a band, where both bounds exist."""
    shown = [(x, item.low, item.high) for x, item in points if words.known(item.low) and words.known(item.high)]
    if len(shown) < 2:
        return
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    figure.add_scatter(
        x=[x for x, _, _ in shown] + [x for x, _, _ in reversed(shown)],
        y=[low for _, low, _ in shown] + [high for _, _, high in reversed(shown)],
        fill="toself", fillcolor=f"rgba({red},{green},{blue},0.18)", line={"width": 0}, mode="lines",
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip


def level_line(figure: go.Figure, y: float, name: str, *, dash: str = "dot") -> None:
    """Draw a horizontal line across the plot; its name stands in the legend, where it covers no figure."""
    figure.add_shape(
        type="line", xref="paper", x0=0, x1=1, y0=y, y1=y, layer="below", showlegend=bool(name), name=name,
        legendrank=2000, line={"color": INK, "width": 1.2, "dash": dash},
    )  # fmt: skip


def shade(figure: go.Figure, low: float, high: float) -> None:
    """Shade a range of loads over the whole height."""
    figure.add_shape(type="rect", x0=low, x1=high, yref="paper", y0=0, y1=1, fillcolor=SHADE, line={"width": 0},
                     layer="below")  # fmt: skip
