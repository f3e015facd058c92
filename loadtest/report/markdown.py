"""summary.md: the answer as it fits into a pull-request comment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.analyse.results import Judgement
from loadtest.report import gate as gate_report
from loadtest.report import header, limits, sure, tables, vocabulary, words
from loadtest.report.caveats import caveats
from loadtest.report.charts_classes import by_class
from loadtest.report.next_steps import Step, next_steps
from loadtest.report.view import View
from loadtest.report.why_words import why_sentences
from loadtest.report.writing import write_whole

NAME = "summary.md"
NOTES = 10
OBJECTIVES = 60
LONGEST = 60_000  # characters; GitHub takes 65,536 in a comment
# Only what could form an element, a link, an image, a table cell, code or emphasis; brackets alone form none.
_ACTIVE = re.compile(r"[\\`*~|]|(?<=\])[(\[:]")


def write_summary(folder: Path, run: Mapping[str, Any], judgement: Judgement) -> Path:
    """Write summary.md into the run's folder, whole or not at all; return its path."""
    return write_whole(folder / NAME, summary(run, judgement))


@words.in_its_unit
def summary(run: Mapping[str, Any], judgement: Judgement) -> str:
    """Return the answer, the table by level and the notes as GitHub-flavoured markdown."""
    view, decision = View(run=run, judgement=judgement), judgement.decision
    parts = [f"> **{banner.word}.** {banner.text}" for banner in header.banners(view)]
    parts.append(f"## {quiet(decision.headline)}")
    parts += [f"**{quiet(text)}**" for text in gate_report.second(judgement.gate)]
    parts += _gate(judgement)
    if decision.recommendation:
        parts.append(f"**Recommendation:** {quiet(sure.recommendation(view))}")
    parts += _candidates(view)
    even = limits.break_even(view)
    known = (even, decision.second, *why_sentences(view), by_class(view))
    parts += [quiet(text) for text in known if text]
    if decision.reasons:
        parts.append("\n".join(f"- {quiet(reason)}" for reason in decision.reasons))
    steps = [f"- {_step(step)}" for step in next_steps(view)]
    parts += ["\n".join(["**Next:**", "", *steps])] if steps else []
    parts += _levels(view)
    parts += [quiet(text) for text in (sure.certainty(view), *caveats(view), sure.cut_answers(view)) if text]
    if judgement.notes:
        shown = [f"- {quiet(note)}" for note in judgement.notes[:NOTES]]
        more = len(judgement.notes) - NOTES
        parts.append("\n".join(shown + ([f"- {more} more in report.html"] if more > 0 else [])))
    where = f"Scenario {quiet(header.scenario(run))}. " if header.scenario(run) else ""
    parts.append(f"{where}Exit code {vocabulary.exit_words(header.exit_code(view))}. The page is report.html.")
    return _fitting("\n\n".join(parts) + "\n")


def _candidates(view: View) -> list[str]:
    """Return a line for each of several candidates: what it says against the baseline."""
    lines = [f"- **{quiet(name)}:** {quiet(own.judgement.decision.headline)}" for name, own in view.pairs.items()]
    return ["\n".join(lines)] if lines else []


def _step(step: Step) -> str:
    """Return a step with its command as code, which a backtick within it would end."""
    if "`" in step.command:
        return quiet(str(step))
    command = words.plain(step.command)
    return f"{quiet(step.text.rstrip('.'))}: `{command}`" if command else quiet(step.text)


def _fitting(text: str) -> str:
    """Cut a summary that a comment cannot hold, at the end of a line, and say so."""
    if len(text) <= LONGEST:
        return text
    kept = text[: LONGEST - 100].rsplit("\n", 1)[0]
    return f"{kept}\n\n… cut here; the rest stands in report.html and verdict.json.\n"


def _gate(judgement: Judgement) -> list[str]:
    gate = judgement.gate
    if gate is None:
        return []
    found = gate_report.table(gate)
    parts = [] if gate.headline == judgement.decision.headline else [f"**{quiet(gate.headline)}**"]
    if found.rows:
        lines = [_line(found.columns), _line(["---"] * len(found.columns))]
        more = len(found.rows) - OBJECTIVES
        parts.append("\n".join(lines + [_line([quiet(text) for text in row]) for row in found.rows[:OBJECTIVES]]))
        parts += [f"{more} more objectives stand in verdict.json."] if more > 0 else []
    return parts + (["\n".join(f"- {quiet(note)}" for note in gate.notes[:NOTES])] if gate.notes else [])


def _levels(view: View) -> list[str]:
    table = tables.levels(view)
    if not table.rows:
        return []
    lines = [_line(table.columns), _line(["---", "---"] + ["---:"] * (len(table.columns) - 2))]
    return ["\n".join(lines + [_line([quiet(text) for text in row]) for row in table.rows])]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def quiet(text: str) -> str:
    """Return foreign text that markdown shows as it is: no element, link, image, table cell or mention."""
    shown = words.plain(text, 600).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _ACTIVE.sub(lambda found: "\\" + found[0], shown).replace("@", "@\u200b")
