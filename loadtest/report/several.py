"""The page of a run of several candidates: the candidates side by side, then each against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from loadtest.analyse.results import Answer, Judgement
from loadtest.report import answer, folds, limits, next_steps, rules, sure, tables, tables_detail, why_words, words
from loadtest.report import charts_acceptance as accepted
from loadtest.report.answer import Tile
from loadtest.report.charts_classes import classes, day
from loadtest.report.charts_curves import tradeoff
from loadtest.report.charts_first_token import first_token
from loadtest.report.charts_latency import chunk_gap, e2e, throughput, token_gap, tpot, ttft
from loadtest.report.charts_requests import pairs, stalls, tokens_per_chunk
from loadtest.report.charts_several import speedups
from loadtest.report.charts_speedup import metrics, speedup
from loadtest.report.charts_why import drift, steps, survival
from loadtest.report.figures import Chart
from loadtest.report.tables import Table
from loadtest.report.view import View

Draw = Callable[[Mapping[str, Any], Judgement], Chart | None]
TOGETHER: tuple[Draw, ...] = (
    speedups, throughput, ttft, e2e, tradeoff, tpot, token_gap, chunk_gap, stalls, tokens_per_chunk, drift,
)  # fmt: skip
OF_PAIR: dict[str, tuple[Draw, ...]] = {  # of one candidate, by part of its section; no colours of arms
    "load": (speedup, metrics, pairs, day, classes),
    "why": (steps, first_token),
    "acceptance": (
        accepted.slots, survival, accepted.categories, accepted.positions, accepted.requests,
        accepted.acceptance_over_time,
    ),
}  # fmt: skip


def charts(run: Mapping[str, Any], judgement: Judgement) -> list[Chart]:
    """Return the charts of all arms together."""
    return [chart for draw in TOGETHER if (chart := draw(run, judgement)) is not None]


def sections(view: View) -> list[dict[str, Any]]:
    """Return what the page says of each candidate: its answer, charts and tables under keys of its own."""
    return [_section(place, name, own) for place, (name, own) in enumerate(view.pairs.items(), start=1)]


def _section(place: int, name: str, own: View) -> dict[str, Any]:
    drawn = {
        part: [replace(chart, key=f"pair-{place}-{chart.key}", tall=chart.tall or chart.key == "speedup")
               for draw in draws if (chart := draw(own.run, own.judgement)) is not None]
        for part, draws in OF_PAIR.items()
    }  # fmt: skip
    findings = own.judgement.findings
    return {
        "place": place,
        "name": words.plain(name),
        "decision": own.judgement.decision,
        "recommendation": sure.recommendation(own),
        "break_even": limits.break_even(own),
        "charts": drawn,
        "scales": accepted.scales(own.judgement),
        "why_sentences": why_words.why_sentences(own),
        "next_steps": tuple(next_steps.of_answer(own)),
        "break_evens": tables.break_evens(own),
        "guards": rules.guards(own),
        "guards_teaser": folds.guards(own),
        "comparable_teaser": folds.comparability(own),
        "why": tables.why(own),
        "tails": tables_detail.tails(own),
        "batch_table": tables_detail.batch_table(own),
        "batch_words": tables_detail.batch_words(own),
        "batch": findings.batch_table if findings else None,
        "first_tokens": [c.sentence for c in findings.first_token_changes if c.sentence] if findings else [],
        **tables.comparability(own),
    }


def tiles(view: View) -> tuple[Tile, ...]:
    """Return one key figure for each candidate: up to where it pays."""
    found = []
    for name, own in view.pairs.items():
        if own.judgement.decision.answer is Answer.INVALID:
            found.append(Tile(label=name, value="not judged", detail="its pair is invalid", tone="bad"))
            continue
        tile = answer.limit_tile(own)
        if tile is not None:
            found.append(replace(tile, label=words.plain(name, 80), detail=f"{_what(tile)}{tile.detail}"))
    return tuple(found) if view.judgement.decision.answer is not Answer.INVALID else ()


def _what(tile: Tile) -> str:
    return f"{tile.label.lower()}{'; ' if tile.detail else ''}"


def relations(view: View) -> str:
    """Say which candidates are told apart; nothing of a run that judged nothing."""
    found = view.judgement.ranking
    judged = view.judgement.decision.answer not in (Answer.INVALID, Answer.MEASURED)
    return found.sentence if found and judged else ""


def ranking(view: View) -> Table:
    """Return every two candidates against each other at every load."""
    found = view.judgement.ranking
    rows = tuple(
        (words.level(one.level), words.plain(one.first), words.plain(one.second),
         words.interval(one.speedup, words.ratio), _ahead(one.first, one.second, one.speedup.low, one.speedup.high))
        for one in (found.against if found else ())
    )  # fmt: skip
    columns = ("load", "candidate A", "candidate B", "speed-up of A against B", "in words")
    return Table(name="Candidates against each other", columns=columns, rows=rows, heads=3)


def _ahead(first: str, second: str, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "no interval"
    if low > 1:
        return f"{words.plain(first)} is better"
    return f"{words.plain(second)} is better" if high < 1 else "not told apart"
