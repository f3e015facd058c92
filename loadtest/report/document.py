"""A page as one file: Plotly and our own script and style inlined, a policy with their hashes, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from loadtest.report import again, tables, words
from loadtest.report.figures import Chart

HERE = Path(__file__).parent
LARGEST = 5_950_000  # bytes of a page; Plotly's library is 4.8 million of them
ROWS = (tables.MOST, 100, 40, 15)  # of a table; the next is tried where the page is too large
# Plotly adds an empty style element and fills it through the style sheet's own interface: the hash of the empty text
# allows that. It sets positions through the style object, which no policy forbids, and the charts drawn here need no
# eval; so neither 'unsafe-inline' nor 'unsafe-eval' stands in the policy. tests/browser fails when that changes.
EMPTY = ""
SECTIONS = "sections"  # of a context: parts of a page that repeat, each with tables of its own
# Its map library adds a style sheet of its own, unless an element with that sheet's id is there already.
_STYLE_ID = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
_UNIT = re.compile(
    r"(?<=[\d×]) (?=(?:%|ms\b|s\b|min\b|users?\b|requests/s|sessions/s|tokens/s|points\b))|(?<=≈) (?=\d)"
)


def document(template: str, context: Mapping[str, Any], charts: Sequence[Chart], more_style: str = "") -> str:
    """Return a page: the same for the same values, under 6 MB, with no reference to anything outside it.

    Where it would be larger its tables are cut, and it says so. `more_style` names a file of further style.
    """
    style, script, plotly = _file("page.css"), _file("page.js"), _plotly()
    style += _file(more_style) if more_style else ""
    whole = {
        "policy": _policy(scripts=(plotly, script), styles=(style, EMPTY)),
        "unwanted": tuple(dict.fromkeys(_STYLE_ID.findall(plotly))),
        # Files of the packages themselves, and JSON in which no character can end its element: all else is escaped.
        "style": Markup(style), "script": Markup(script), "plotly": Markup(plotly),  # nosec B704
        "figures": Markup(embedded({chart.key: _drawn(chart) for chart in charts})),  # nosec B704
        **context,
    }  # fmt: skip
    drawn, text = _environment().get_template(template), ""
    for most in ROWS:
        text = drawn.render(whole | _cut(whole, most))
        if len(text.encode()) < LARGEST:
            break
    return text


def _cut(context: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return what changes in the context when no table has more rows than that."""
    return {"rows_shown": most, "rows_cut": most < ROWS[0], **_tables_cut(context, most)}


def _tables_cut(context: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the tables that are longer than that, cut, and the lists of sections that hold such tables."""
    found: dict[str, Any] = {}
    for name, value in context.items():
        if isinstance(value, tables.Table) and len(value.rows) > most:
            found[name] = replace(value, rows=value.rows[:most], left_out=value.left_out + len(value.rows) - most)
        elif name == SECTIONS:
            found[name] = [{**section, **_tables_cut(section, most)} for section in value]
    return found


def _drawn(chart: Chart) -> Any:
    """Return a figure for Plotly without its title, which stands above it as text and wraps on a phone."""
    figure = chart.figure.to_plotly_json()
    layout = {key: value for key, value in figure["layout"].items() if key not in ("title", "template", "meta")}
    return {"data": figure["data"], "layout": layout | {"margin": layout["margin"] | {"t": 12}}}


def embedded(value: Any) -> str:
    """Return JSON for a script element: nothing in it can end the element, start a comment or another element."""
    text = json.dumps(
        _finite(value), sort_keys=True, separators=(",", ":"), allow_nan=False
    )  # ASCII: U+2028 is escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _policy(*, scripts: tuple[str, ...], styles: tuple[str, ...]) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(_hash(text) for text in scripts)}",
            f"style-src {' '.join(_hash(text) for text in styles)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _plotly() -> str:
    """Return Plotly's library with the line ends that a browser makes of it, since the hash is taken after that."""
    source: str = get_plotlyjs()
    return source.replace("\r\n", "\n").replace("\r", "\n")


@cache
def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,  # every text may come from a server
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = _unbroken
    environment.filters["head"] = _head
    environment.filters["lines"] = again.lines
    return environment


def _unbroken(text: str) -> str:
    """Return a sentence whose numbers stay on one line with their units."""
    return _UNIT.sub("\u00a0", text)


def _head(text: str) -> str:
    """Return the head of a column, which may break between words alone."""
    return _unbroken(text).replace("-", "\u2011")


def _shown(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    return "\n".join(map(words.plain, value.split("\n"))) if isinstance(value, again.Lines) else words.plain(value)
