"""Dialogues written for load tests: templates whose slots are drawn anew for every session."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from random import Random
from typing import Any

from loadtest.errors import UsageError, nearest
from loadtest.workload.seeds import rng
from loadtest.workload.sessions import Session, SessionKey, SessionSource, Turn
from loadtest.workload.slots import Slots, Text
from loadtest.workload.thinking import after_answer_s, before_dialogue_s, of_tool_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTemplate:
    """One turn with slots: what the user says or a tool gave back, and the scripted answer with the tool it calls."""

    user: Text
    assistant: Text
    call: Text | None = None
    from_tool: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One dialogue with slots: system prompt and turns."""

    id: str
    category: str
    system: Text
    turns: tuple[TurnTemplate, ...]
    slots: Slots

    def session(self, generator: Random) -> Session:
        """Return the session that the generator draws."""
        values = self.slots.draw(generator.random)
        think_s = before_dialogue_s(generator)
        turns = []
        for turn in self.turns:
            answer = turn.assistant.fill(values)
            turns.append(Turn(category=self.category, user=turn.user.fill(values), assistant=answer, think_s=think_s,
                              call=turn.call.fill(values) if turn.call else "", from_tool=turn.from_tool))  # fmt: skip
            think_s = of_tool_s(generator) if turn.call else after_answer_s(generator, answer)
        return Session(turns=tuple(turns), system=self.system.fill(values))

    def combinations(self) -> tuple[int, ...]:
        """Return for each turn how many different user texts it can have, at the least."""
        return tuple(self.slots.combinations(turn.user) for turn in self.turns)


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


class SeveralSources:
    """Sessions from several sources in turn."""

    def __init__(self, sources: Sequence[SessionSource]) -> None:
        """Take the sources; sessions 0, 1, … of a cell go through them in this order."""
        self._sources = tuple(sources)

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names."""
        return self._sources[key.number % len(self._sources)].session(key)


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


@lru_cache(maxsize=16)
def _templates(name: str) -> tuple[Template, ...]:
    tables = tables_of(name)
    if any(document.get("shared") for document, _, _ in tables):
        raise UsageError(f"the templates {name!r} share documents: write shared_documents({name!r}).")
    return tuple(_template(document, table, words) for document, table, words in tables)


def tables_of(name: str) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, list[str]]]]:
    """Return (file, template, word lists) of every template of a set. Raises UsageError when there is no such set."""
    data = files("loadtest.workload") / "data"
    known = sorted(entry.name for entry in data.iterdir() if entry.is_dir() and not entry.name.startswith("_"))
    if name not in known:
        raise UsageError(
            f"there are no templates called {name!r}.{nearest(name, known)} There are: {', '.join(known)}."
        )
    words: dict[str, list[str]] = _toml(data / "words.toml")
    tables = []
    for entry in sorted((data / name).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            document = _toml(entry)
            tables += [(document, table, words) for table in document["template"]]
    return tables


def _toml(entry: Traversable) -> dict[str, Any]:
    return tomllib.loads(entry.read_text(encoding="utf-8"))


def _template(document: dict[str, Any], table: dict[str, Any], words: dict[str, list[str]]) -> Template:
    """Read one template; what its file declares for all of its templates comes after its own lists and numbers."""
    try:
        slots = slots_of(document, table, words)
        _check_calls(table["turn"])
        turns = tuple(
            TurnTemplate(
                user=slots.text(turn["tool" if "tool" in turn else "user"].strip()),
                assistant=slots.text(turn.get("assistant", "").strip()),
                call=slots.text(turn["call"].strip()) if "call" in turn else None,
                from_tool="tool" in turn,
            )
            for turn in table["turn"]
        )
        system = slots.text(table.get("system", "").strip())
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"template {table['id']}: {error}") from error
    return Template(id=table["id"], category=document["category"], system=system, turns=turns, slots=slots)


def slots_of(document: dict[str, Any], table: dict[str, Any], words: dict[str, list[str]]) -> Slots:
    """Return the slots of a template: its own lists and numbers, its file's, and the words of all."""
    unknown = set(table) - {"id", "system", "numbers", "lists", "turn"}
    if unknown:
        raise ValueError(f"unknown key {sorted(unknown)[0]}")
    return Slots(
        words | document.get("lists", {}) | table.get("lists", {}),
        document.get("numbers", {}) | table.get("numbers", {}),
    )


def _check_calls(turns: Sequence[dict[str, Any]]) -> None:
    """Raise ValueError unless each call is followed by what came back, and nothing comes back without a call."""
    called = False
    for number, turn in enumerate(turns, start=1):
        if unknown := set(turn) - {"user", "tool", "assistant", "call"}:
            raise ValueError(f"turn {number}: unknown key {sorted(unknown)[0]}")
        if ("tool" in turn) != called:
            raise ValueError(f"turn {number}: a `tool` follows a `call`, and nothing else does")
        called = "call" in turn
        if called and not re.fullmatch(r"[a-z_]+ \{.*\}", turn["call"].strip(), re.DOTALL):
            raise ValueError(f"turn {number}: a call is a name and a JSON object, such as look_up {{}}")
    if called:
        raise ValueError("the last turn calls a tool, and nothing comes back")
