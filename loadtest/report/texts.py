"""What the slowest requests asked and were answered: on the page alone, and only where the run was asked to keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from loadtest.record import KeptText
from loadtest.report import words
from loadtest.report.view import View, section

CHARACTERS = 4200  # of a prompt or an answer: all that a run keeps of one, and what it says of the rest
BYTES = 250_000  # of a page, for all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Prompt and answer of one request, escaped, under a heading that tells which."""

    head: str
    prompt: Markup
    answer: Markup
    cut: bool


def kept(view: View) -> bool:
    """Say whether the run was asked to keep text."""
    return section(section(view.run, "experiment"), "outputs").get("keep_text") is True


def said(view: View, texts: Sequence[KeptText]) -> tuple[Said, ...]:
    """Return the kept texts of the slowest requests, in their order, as far as a page has room for them."""
    found: list[Said] = []
    by_request: Mapping[tuple[int, str, int, int], KeptText] = {(t.cell, t.arm, t.session, t.turn): t for t in texts}
    left = BYTES
    for one in view.judgement.detail.slowest if view.judgement.detail and kept(view) else ():
        text = by_request.get((one.cell, one.arm, one.session, one.turn))
        if text is None:
            continue
        took = words.time(one.e2e_s) if one.outcome == "ok" else words.plain(one.outcome, 40)
        head = f"{words.level(one.level)}, {words.plain(one.arm, 40)}, {took}: cell {one.cell}, session {one.session}"
        shown = Said(head=f"{head}, turn {one.turn + 1}", prompt=_escaped(text.prompt), answer=_escaped(text.answer),
                     cut=text.answer_cut)  # fmt: skip
        left -= len(shown.prompt.encode()) + len(shown.answer.encode())
        if left < 0:
            break
        found.append(shown)
    return tuple(found)


def _escaped(text: str) -> Markup:
    """Return a text with its line breaks, escaped, without characters that act on the display."""
    lines = text[:CHARACTERS].split("\n")
    return escape("\n".join(words.plain(line, CHARACTERS) for line in lines))
