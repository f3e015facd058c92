"""report.html: one file that opens offline, says what was found, and holds everything needed to trust or attack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest import loads
from loadtest.analyse.results import Answer, Judgement
from loadtest.record import KeptText
from loadtest.report import (
    answer,
    caveats,
    folds,
    header,
    limits,
    next_steps,
    outputs,
    protocol,
    rules,
    several,
    sure,
    tables,
    tables_detail,
    texts,
    vocabulary,
    why_words,
    words,
)
from loadtest.report import gate as gate_report
from loadtest.report.charts import CHARTS
from loadtest.report.charts_acceptance import scales
from loadtest.report.document import SECTIONS, document
from loadtest.report.figures import PARTS, Chart
from loadtest.report.view import VERDICTS, View
from loadtest.report.writing import write_whole

NAME = "report.html"
NOTES = 50  # shown; the rest stands in verdict.json
TONES = {
    Answer.PAYS_UP_TO: "good", Answer.PAYS_EVERYWHERE: "good", Answer.PAYS_IN_BAND: "warn", Answer.NEVER_PAYS: "bad",
    Answer.CANNOT_TELL: "warn", Answer.INVALID: "bad", Answer.MEASURED: "",
}  # fmt: skip


def write_page(folder: Path, run: Mapping[str, Any], judgement: Judgement, kept: Sequence[KeptText] = ()) -> Path:
    """Write report.html into the run's folder, whole or not at all; return its path.

    With `kept` texts of prompts and answers only its owner may read it.
    """
    return write_whole(folder / NAME, page(run, judgement, kept), private=bool(kept))


@words.in_its_unit
def page(run: Mapping[str, Any], judgement: Judgement, kept: Sequence[KeptText] = ()) -> str:
    """Return the page's text: the same for the same run, under 6 MB, with no reference to anything outside it."""
    view = View(run=run, judgement=judgement)
    if view.pairs:
        return _several(view, kept)
    charts = [chart for chart in (draw(run, judgement) for draw in CHARTS) if chart is not None]
    context = {
        "charts": _by_part(charts), "teasers": folds.teasers(view, charts), "scales": scales(judgement),
        **_answer(view), **_tables(view), **_texts(view, kept),
    }  # fmt: skip
    return document("page.html.j2", context, charts)


def _several(view: View, kept: Sequence[KeptText]) -> str:
    """Return the page of several candidates: side by side, then each against the baseline."""
    charts = several.charts(view.run, view.judgement)
    sections = several.sections(view)
    context = {
        "charts": _by_part(charts), "teasers": folds.teasers(view, charts), **_answer(view), **_tables(view),
        **_texts(view, kept),
        "tiles": several.tiles(view), "family": rules.family(view), "ranking": several.ranking(view),
        "relations": several.relations(view), SECTIONS: sections,
    }  # fmt: skip
    own = [chart for section in sections for found in section["charts"].values() for chart in found]
    return document("several.html.j2", context, [*charts, *own], "several.css")


def _texts(view: View, kept: Sequence[KeptText]) -> dict[str, Any]:
    return {"texts": texts.said(view, kept), "texts_kept": texts.kept(view)}


def _answer(view: View) -> dict[str, Any]:
    run, decision = view.run, view.judgement.decision
    return {
        "decision": decision,
        "gate": view.judgement.gate,
        "gate_tone": gate_report.tone(view.judgement.gate),
        "second": gate_report.second(view.judgement.gate),
        "tone": TONES.get(decision.answer, ""),
        "answer_words": "measured"
        if view.gated and decision.answer is Answer.MEASURED
        else vocabulary.ANSWERS[decision.answer],
        "title": f"{header.scenario(run) or 'loadtest'}: {decision.headline}",
        "banners": header.banners(view),
        "scenario": header.scenario(run),
        "started": header.started(run),
        "servers": header.servers(view),
        "conditions": header.conditions(view),
        "tiles": answer.tiles(view),
        "why_sentences": why_words.why_sentences(view),
        "break_even": limits.break_even(view),
        "certainty": sure.certainty(view),
        "caveats": caveats.caveats(view),
        "cut_answers": sure.cut_answers(view),
        "reason": sure.recommendation_reason(view),
        "next_steps": next_steps.next_steps(view),
        "notes": view.judgement.notes[:NOTES],
        "notes_left_out": max(0, len(view.judgement.notes) - NOTES),
        "exit": vocabulary.exit_words(header.exit_code(view)),
        "compared": view.compared,
        "itself": view.itself,
        "rule": rules.rule(view),
        "load_words": words.LOADS[loads.unit()],
        "verdicts": VERDICTS if view.compared else {},
    }


def _tables(view: View) -> dict[str, Any]:
    return {
        "objectives": gate_report.table(view.judgement.gate),
        "levels": tables.levels(view),
        "break_evens": tables.break_evens(view),
        "guards": rules.guards(view),
        "pairs": tables.pairs(view),
        "inter_token": tables.inter_token(view),
        "inter_token_words": [vocabulary.METRICS[name] for name in tables.INTER_TOKEN],
        "why": tables.why(view),
        "outcomes": tables.outcomes(view),
        "changes": tables_detail.changes(view),
        "tails": tables_detail.tails(view),
        "slowest": tables_detail.slowest(view),
        "batch_table": tables_detail.batch_table(view),
        "batch_words": tables_detail.batch_words(view),
        "batch": view.judgement.findings.batch_table if view.judgement.findings else None,
        "first_tokens": [c.sentence for c in view.judgement.findings.first_token_changes if c.sentence]
        if view.judgement.findings
        else [],
        "floor": tables_detail.floor(view),
        "outputs": view.judgement.outputs,
        "outputs_table": outputs.table(view.judgement.outputs),
        **tables.comparability(view),
        "marked": tables.cells(view, marked_only=True),
        "cells": tables.cells(view),
        "protocol": protocol.protocol(view.run),
        "command": header.command(view.run),
        "definitions": tables.definitions(),
    }


def _by_part(charts: list[Chart]) -> dict[str, list[Chart]]:
    return {part: [c for c in charts if c.part == part] for part in PARTS}
