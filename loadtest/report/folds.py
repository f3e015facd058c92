"""What a folded part of the page holds, in one line beside its heading: whether to open it, without opening it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from loadtest.analyse.results import Finding
from loadtest.report import words
from loadtest.report.figures import Chart
from loadtest.report.view import View

FOUND = {
    Finding.BROKEN: "broken",
    Finding.UNPROVEN: "not proven",
    Finding.NO_DATA: "without data",
    Finding.HOLDS: "holds",
}
KINDS = ("violation", "waived", "unknown", "consequence", "expected", "equal")  # the gravest first


def teasers(view: View, charts: Sequence[Chart]) -> dict[str, str]:
    """Return the line of each folded section by its id; empty where it has nothing to say."""
    return {
        "by-class": _first(charts, "classes"),
        "inter-token": _first(charts, "tokens"),
        "acceptance": _first(charts, "acceptance"),
        "guards": guards(view),
        "comparability": comparability(view),
        "cells": _cells(view),
    }


def guards(view: View) -> str:
    """Count the findings of the guards over all loads."""
    found = Counter(guard.finding for guard in view.judgement.decision.guards)
    return _counted((found[finding], word) for finding, word in FOUND.items())


def comparability(view: View) -> str:
    """Count the differences between two servers by kind."""
    found = Counter(line.kind for line in view.judgement.comparability)
    return _counted((found[kind], kind) for kind in [*KINDS, *sorted(set(found) - set(KINDS))])


def _cells(view: View) -> str:
    cells = view.judgement.cells
    if not cells:
        return ""
    valid = sum(cell.valid for cell in cells)
    marked = sum(bool(cell.marks) and cell.valid for cell in cells)
    said = f"{valid:,} of {len(cells):,} cells are valid"
    return f"{said}, {marked:,} of them with a mark" if marked else said


def _counted(found: Iterable[tuple[int, str]]) -> str:
    return ", ".join(f"{words.plain(word, 40)} {number:,}" for number, word in found if number)


def _first(charts: Sequence[Chart], part: str) -> str:
    return next((chart.title for chart in charts if chart.part == part), "")
