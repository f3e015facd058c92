"""Text of a wanted length and kind, for traces that know lengths alone: the package's own templates, filled anew.

Random words would be wrong: drafts fare on them as on nothing that people write. A long text is a run of different
documents and dialogues of one kind; a question stands at its end. Beyond about a hundred thousand characters the
templates come again, with other names and numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

from loadtest.workload.seeds import rng
from loadtest.workload.templates import Template, TemplateSource

# Kind → sets of templates that its text is taken from (one category of them, where it is named), and the set that asks.
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "chat": (("chat", "summarize", "reasoning"), "chat"),
    "code": (("code", "edit:code_edit", "chat:code"), "code"),
    "edit": (("edit", "summarize"), "edit"),
    "summarize": (("summarize",), "chat:summary"),
    "reasoning": (("reasoning", "chat:maths"), "reasoning"),
    "agent": (("agent", "code"), "agent"),
}
DEFAULT_KIND = "chat"
BREAK = "\n\n"
SHORT = 40  # characters below which every one counts
PAGE = 8  # blocks whose text is made at once
CARRY_ON = "\n\nAnswer the last question above."  # where all of the text is given by the blocks of the trace


def kind_of(category: str, fallback: str = DEFAULT_KIND) -> str:
    """Return the kind of text for a class of requests: the one of that name, else the fallback."""
    return category if category in KINDS else fallback


def text_of_length(kind: str, characters: int, *parts: object) -> str:
    """Return a text of that length that ends with a question; it depends on kind, length and parts alone.

    With the same parts a longer text begins as a shorter one does, up to the question: a dialogue that grows.
    """
    generator = rng("question", kind, *parts)
    templates = _templates(KINDS[kind][1])
    asked = templates[generator.randrange(len(templates))].session(generator).turns[0].user
    before = characters - len(asked) - len(BREAK)
    if before <= 0:
        return _cut(asked, characters)
    return material(kind, before, *parts) + BREAK + asked


def text_of_blocks(kind: str, characters: int, blocks: tuple[int, ...], block_characters: int, *parts: object) -> str:
    """Return a text made of numbered blocks: equal numbers are equal text, so that prefixes are shared as they were."""
    body = "".join(_block(kind, block_characters, number, *parts) for number in blocks)
    if len(body) < characters:  # the trace names fewer blocks than its length needs
        body += material(kind, characters - len(body), "rest", *blocks[-1:], *parts)
    return body[: max(0, characters - len(CARRY_ON))] + CARRY_ON[-characters:]


def _block(kind: str, characters: int, number: int, *parts: object) -> str:
    page, at = divmod(number, PAGE)
    return _page(kind, PAGE * characters, page, *parts)[at * characters : (at + 1) * characters]


@lru_cache(maxsize=1024)
def _page(kind: str, characters: int, page: int, *parts: object) -> str:
    """Return the text of some blocks in a row, which most prompts hold together."""
    return material(kind, characters, "page", page, *parts)


def material(kind: str, characters: int, *parts: object) -> str:
    """Return text of that many characters: whole documents and dialogues, the last one cut."""
    pieces: list[str] = []
    length = 0
    for piece in _pieces(kind, rng("material", kind, *parts)):
        pieces.append(piece)
        length += len(piece) + len(BREAK)
        if length >= characters:
            break
    return BREAK.join(pieces)[:characters].ljust(characters)


def _pieces(kind: str, generator: random.Random) -> Iterator[str]:
    """Yield documents and dialogues without end; all templates of the kind are gone through before one comes again."""
    templates = [template for name in KINDS[kind][0] for template in _templates(name)]
    while True:
        generator.shuffle(templates)
        for template in templates:
            session = template.session(generator)
            texts = [session.system, *(text for turn in session.turns for text in (turn.user, turn.assistant))]
            yield BREAK.join(text for text in texts if text)


@lru_cache(maxsize=32)
def _templates(name: str) -> tuple[Template, ...]:
    source, _, category = name.partition(":")
    return tuple(t for t in TemplateSource(source).templates if not category or t.category == category)


def _cut(text: str, characters: int) -> str:
    """Return the beginning of a text, cut between words where that costs little."""
    cut = text[: max(1, characters)]
    if len(cut) == len(text) or text[len(cut)].isspace():
        return cut
    at = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[:at] if at >= len(cut) - 3 and len(cut) >= SHORT else cut
