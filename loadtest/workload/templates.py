"""Dialogues written for load tests: templates whose slots are drawn anew for every session."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from random import Random
from typing import Any

from loadtest.errors import UsageError, nearest
from loadtest.workload.seeds import rng
from loadtest.workload.sessions import Session, SessionKey, Turn
from loadtest.workload.slots import Slots, Text
from loadtest.workload.thinking import after_answer_s, before_dialogue_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One dialogue with slots: system prompt, and for each turn the user's text and the scripted answer."""

    id: str
    category: str
    system: Text
    turns: tuple[tuple[Text, Text], ...]
    slots: Slots

    def session(self, generator: Random) -> Session:
        """Return the session that the generator draws."""
        values = self.slots.draw(generator.random)
        think_s = before_dialogue_s(generator)
        turns = []
        for asked, answered in self.turns:
            answer = answered.fill(values)
            turns.append(Turn(category=self.category, user=asked.fill(values), assistant=answer, think_s=think_s))
            think_s = after_answer_s(generator, answer)
        return Session(turns=tuple(turns), system=self.system.fill(values))

    def combinations(self) -> tuple[int, ...]:
        """Return for each turn how many different user texts it can have, at the least."""
        return tuple(self.slots.combinations(asked) for asked, _ in self.turns)


class TemplateSource:
    """Sessions from the package's own templates."""

    def __init__(self, name: str = "chat") -> None:
        """Load the set of templates called `name`; raises UsageError when there is none."""
        self._name = name
        self.templates: tuple[Template, ...] = _templates(name)

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, sorted."""
        return tuple(sorted({template.category for template in self.templates}))

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names.

        Sessions 0, 1, … of a cell go through all templates before one comes again; among as many neighbours as there
        are categories each category is met about once, so that cells of few sessions have a like mix.
        """
        round_, position = divmod(key.number, len(self.templates))
        deck = _deck(self._name, key.seed, f"{key.level:g}", key.block, round_)
        return self.templates[deck[position]].session(key.rng("dialogue"))


@lru_cache(maxsize=64)
def _deck(name: str, seed: int, level: str, block: int, round_: int) -> tuple[int, ...]:
    """Return the order of the templates in one round of a cell: layers that hold one template of each category."""
    generator = rng("deck", name, seed, level, block, round_)
    by_category: dict[str, list[int]] = {}
    for index, template in enumerate(_templates(name)):
        by_category.setdefault(template.category, []).append(index)
    for indexes in by_category.values():
        generator.shuffle(indexes)
    order: list[int] = []
    for depth in range(max(map(len, by_category.values()))):
        layer = [indexes[depth] for indexes in by_category.values() if depth < len(indexes)]
        generator.shuffle(layer)
        order += layer
    return tuple(order)


@lru_cache(maxsize=8)
def _templates(name: str) -> tuple[Template, ...]:
    data = files("loadtest.workload") / "data"
    known = sorted(entry.name for entry in data.iterdir() if entry.is_dir() and not entry.name.startswith("_"))
    if name not in known:
        raise UsageError(
            f"there are no templates called {name!r}.{nearest(name, known)} There are: {', '.join(known)}."
        )
    words: dict[str, list[str]] = _toml(data / "words.toml")
    templates: list[Template] = []
    for entry in sorted((data / name).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            document = _toml(entry)
            templates += [_template(document, table, words) for table in document["template"]]
    return tuple(templates)


def _toml(entry: Traversable) -> dict[str, Any]:
    return tomllib.loads(entry.read_text(encoding="utf-8"))


def _template(document: dict[str, Any], table: dict[str, Any], words: dict[str, list[str]]) -> Template:
    """Read one template; what its file declares for all of its templates comes after its own lists and numbers."""
    unknown = set(table) - {"id", "system", "numbers", "lists", "turn"}
    if unknown:
        raise ValueError(f"template {table.get('id')}: unknown key {sorted(unknown)[0]}")
    try:
        slots = Slots(
            words | document.get("lists", {}) | table.get("lists", {}),
            document.get("numbers", {}) | table.get("numbers", {}),
        )
        turns = tuple(
            (slots.text(turn["user"].strip()), slots.text(turn.get("assistant", "").strip())) for turn in table["turn"]
        )
        system = slots.text(table.get("system", "").strip())
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"template {table['id']}: {error}") from error
    return Template(id=table["id"], category=document["category"], system=system, turns=turns, slots=slots)
