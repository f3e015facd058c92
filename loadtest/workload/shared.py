"""Sessions that share long documents: a few sets of passages in each cell, and questions of each session's own.

The templates have the form of the others. What stands in `system`, and every slot such as {city}, is drawn for the
documents; a slot written {my city} is drawn for the session that asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from loadtest.errors import UsageError
from loadtest.workload.seeds import rng
from loadtest.workload.sessions import Session, SessionKey, Turn
from loadtest.workload.slots import Slots, Text, Values
from loadtest.workload.templates import slots_of, tables_of
from loadtest.workload.thinking import after_answer_s, before_dialogue_s

_MINE = re.compile(r"\{my ((?:[Aa]n? )?[a-z][a-z0-9_]*(?:\.[0-9]{1,2})?)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoFold:
    """A text whose parts are filled by turns with the values of the documents and with those of the session."""

    parts: tuple[Text, ...]

    def fill(self, documents: Values, session: Values) -> str:
        """Return the text."""
        return "".join(part.fill(session if at % 2 else documents) for at, part in enumerate(self.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTemplate:
    """Documents with slots, and what a session asks of them."""

    id: str
    category: str
    system: Text
    turns: tuple[tuple[TwoFold, TwoFold], ...]
    documents: Slots
    own: Slots

    def combinations(self) -> tuple[int, ...]:
        """Return for each turn how many different texts sessions that share their documents can have, at the least."""
        return tuple(
            self.own.combinations(
                Text(form="", places=tuple(p for part in asked.parts[1::2] for p in part.places), pick=lambda _: ())
            )
            for asked, _ in self.turns
        )


class SharedSource:
    """Sessions of which many share the same long system prompt; documents are new in every cell."""

    def __init__(self, name: str = "rag", documents: int = 8) -> None:
        """Load the templates called `name`; a cell has `documents` sets of documents. Raises UsageError."""
        if documents < 1:
            raise ValueError(f"documents is {documents}; a cell needs at least 1")
        self._documents = documents
        self.templates: tuple[SharedTemplate, ...] = _templates(name)

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, sorted."""
        return tuple(sorted({template.category for template in self.templates}))

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names: it asks of one of its cell's documents, drawn evenly."""
        chosen = key.rng("documents").randrange(self._documents)
        cell = ("documents", key.seed, f"{key.level:g}", key.block)
        first = rng(*cell).randrange(len(self.templates))
        template = self.templates[(first + chosen) % len(self.templates)]
        documents = template.documents.draw(rng(*cell, chosen).random)
        generator = key.rng("question")
        own = template.own.draw(generator.random)
        think_s = before_dialogue_s(generator)
        turns = []
        for asked, answered in template.turns:
            answer = answered.fill(documents, own)
            turns.append(Turn(category=template.category, user=asked.fill(documents, own), assistant=answer,
                              think_s=think_s))  # fmt: skip
            think_s = after_answer_s(generator, answer)
        return Session(turns=tuple(turns), system=template.system.fill(documents))


@lru_cache(maxsize=4)
def _templates(name: str) -> tuple[SharedTemplate, ...]:
    found = []
    for document, table, words in tables_of(name):
        if not document.get("shared"):
            raise UsageError(f"the templates {name!r} share no documents: write dialogues({name!r}).")
        try:
            documents, own = (slots_of(document, table, words) for _ in range(2))
            turns = tuple(
                (_two_fold(turn["user"], documents, own), _two_fold(turn.get("assistant", ""), documents, own))
                for turn in table["turn"]
            )
            system = documents.text(table["system"].strip())
        except (ValueError, SyntaxError) as error:
            raise ValueError(f"template {table['id']}: {error}") from error
        found.append(SharedTemplate(id=table["id"], category=document["category"], system=system, turns=turns,
                                    documents=documents, own=own))  # fmt: skip
    return tuple(found)


def _two_fold(source: str, documents: Slots, own: Slots) -> TwoFold:
    pieces: Sequence[str] = _MINE.split(source.strip())  # text and names of the session's own slots, by turns
    return TwoFold(parts=tuple(
        own.text(f"{{{piece}}}") if at % 2 else documents.text(piece) for at, piece in enumerate(pieces)
    ))  # fmt: skip
