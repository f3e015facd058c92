"""report.html: one file that opens offline, says what was found, and holds everything needed to trust or attack it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from loadtest.analyse.results import Answer, Judgement
from loadtest.report import answer, header, outputs, tables, words
from loadtest.report import gate as gate_report
from loadtest.report.charts import CHARTS
from loadtest.report.figures import Chart
from loadtest.report.view import VERDICTS, View
from loadtest.report.writing import write_whole

HERE = Path(__file__).parent
NAME = "report.html"
NOTES = 50  # shown; the rest stands in verdict.json
# Plotly adds an empty style element and fills it through the style sheet's own interface: the hash of the empty text
# allows that. It sets positions through the style object, which no policy forbids, and the charts drawn here need no
# eval; so neither 'unsafe-inline' nor 'unsafe-eval' stands in the policy. tests/browser fails when that changes.
EMPTY = ""
# Its map library adds a style sheet of its own, unless an element with that sheet's id is there already.
_STYLE_ID = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
_UNIT = re.compile(r"(?<=[\d×]) (?=(?:%|ms\b|s\b|min\b|users?\b|tokens/s|points\b))")
TONES = {
    Answer.PAYS_UP_TO: "good", Answer.PAYS_EVERYWHERE: "good", Answer.PAYS_IN_BAND: "warn", Answer.NEVER_PAYS: "bad",
    Answer.CANNOT_TELL: "warn", Answer.INVALID: "bad", Answer.MEASURED: "",
}  # fmt: skip


def write_page(folder: Path, run: Mapping[str, Any], judgement: Judgement) -> Path:
    """Write report.html into the run's folder, whole or not at all; return its path."""
    return write_whole(folder / NAME, page(run, judgement))


def page(run: Mapping[str, Any], judgement: Judgement) -> str:
    """Return the page's text: the same for the same run, under 6 MB, with no reference to anything outside it."""
    view = View(run=run, judgement=judgement)
    charts = [chart for chart in (draw(run, judgement) for draw in CHARTS) if chart is not None]
    style, script, plotly = _file("page.css"), _file("page.js"), _plotly()
    context = {
        "policy": _policy(scripts=(plotly, script), styles=(style, EMPTY)),
        "unwanted": tuple(dict.fromkeys(_STYLE_ID.findall(plotly))),
        "style": Markup(style), "script": Markup(script), "plotly": Markup(plotly),
        "figures": Markup(embedded({chart.key: _drawn(chart) for chart in charts})),
        "charts": _by_part(charts),
        **_answer(view), **_tables(view),
    }  # fmt: skip
    return _environment().get_template("page.html.j2").render(context)


def _answer(view: View) -> dict[str, Any]:
    run, decision = view.run, view.judgement.decision
    return {
        "decision": decision,
        "gate": view.judgement.gate,
        "second": gate_report.second(view.judgement.gate),
        "tone": TONES.get(decision.answer, ""),
        "answer_words": words.ANSWERS[decision.answer],
        "banners": header.banners(view),
        "scenario": header.scenario(run),
        "started": header.started(run),
        "servers": header.servers(view),
        "tiles": answer.tiles(view),
        "why_sentences": answer.why_sentences(view),
        "certainty": answer.certainty(view),
        "notes": view.judgement.notes[:NOTES],
        "notes_left_out": max(0, len(view.judgement.notes) - NOTES),
        "exit": words.exit_words(header.exit_code(view)),
        "compared": view.candidate is not None,
        "rule": answer.rule(view),
        "verdicts": VERDICTS if view.candidate else {},
    }


def _tables(view: View) -> dict[str, Any]:
    return {
        "objectives": gate_report.table(view.judgement.gate),
        "levels": tables.levels(view),
        "break_evens": tables.break_evens(view),
        "guards": tables.guards(view),
        "pairs": tables.pairs(view),
        "inter_token": tables.inter_token(view),
        "inter_token_words": [words.METRICS[name] for name in tables.INTER_TOKEN],
        "why": tables.why(view),
        "outcomes": tables.outcomes(view),
        "outputs": view.judgement.outputs,
        "outputs_table": outputs.table(view.judgement.outputs),
        **tables.comparability(view),
        "marked": tables.cells(view, marked_only=True),
        "cells": tables.cells(view),
        "protocol": header.protocol(view.run),
        "command": header.command(view.run),
        "definitions": tables.definitions(),
    }


def _by_part(charts: list[Chart]) -> dict[str, list[Chart]]:
    return {part: [c for c in charts if c.part == part] for part in ("load", "latency", "tokens", "why", "cells")}


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
    return environment


def _unbroken(text: str) -> str:
    """Return a sentence whose numbers stay on one line with their units."""
    return _UNIT.sub("\u00a0", text)


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else words.plain(value)
