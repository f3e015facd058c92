"""Texts with slots: what is drawn anew in every session, and what is worked out from it.

{city}            one entry of the list `city`, or the number `city`; the same everywhere in a session
{city.2}          another entry of that list, different from {city}
{a product}       an entry with the article it needs: "a drill", "an anvil"; {A product} at the start of a sentence
{=price*3+fee}    arithmetic on numbers: + - * / // % and brackets
{=price/4:.2f}    the same with a format of Python's

An entry of a list may hold slots itself. Any other brace stands for itself.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

Values = list[Any]

_SLOT = re.compile(
    r"\{(?:=(?P<sum>[^{}:]+)(?::(?P<format>[^{}]+))?"
    r"|(?P<article>[Aa]n? )?(?P<name>[a-z][a-z0-9_]*)(?P<copy>\.(?:[2-9]|[1-9][0-9]))?)\}"
)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text split once: a %-format and the places of the values that fill it."""

    form: str
    places: tuple[int, ...]
    pick: Callable[[Values], Any]

    def fill(self, values: Values) -> str:
        """Return the text with the values of one session."""
        filled: str = self.form % self.pick(values)
        return filled


def _nothing(_values: Values) -> tuple[()]:
    return ()


class Slots:
    """The slots of one template: give it the texts that share them, then draw a session's values."""

    def __init__(self, lists: Mapping[str, Sequence[str]], numbers: Mapping[str, Sequence[int]]) -> None:
        """Take lists of entries by name, and numbers by name as [lowest, highest] or [lowest, highest, step]."""
        both = sorted(set(lists) & set(numbers))
        if both:
            raise ValueError(f"{both[0]} is both a list and a number")
        self._lists = lists
        self._ranges = {name: _range(name, bounds) for name, bounds in numbers.items()}
        self._place: dict[str, int] = {}  # the slot as written → its place among the values
        self._source: dict[int, int] = {}  # place of a value that follows from one other → that other's place
        self._size: dict[int, int] = {}  # place of a drawn value → how many values it can take
        self._numbers: list[tuple[int, int, int, int]] = []
        self._choices: dict[str, tuple[Sequence[str], int, list[int]]] = {}
        self._sums: list[tuple[int, Callable[[Values], Any], str]] = []
        self._articles: list[tuple[int, int, str]] = []
        self._sentences: dict[str, tuple[list[Text], int, list[int]]] = {}
        self._open: list[str] = []  # lists whose entries are being read, to refuse one that holds itself

    def text(self, source: str) -> Text:
        """Split a text; raises ValueError for a slot that names neither a list nor a number."""
        form: list[str] = []
        places: list[int] = []
        end = 0
        for match in _SLOT.finditer(source):
            form += [source[end : match.start()].replace("%", "%%"), "%s"]
            places.append(self._slot(match))
            end = match.end()
        form.append(source[end:].replace("%", "%%"))
        return Text(form="".join(form), places=tuple(places), pick=itemgetter(*places) if places else _nothing)

    def draw(self, random: Callable[[], float]) -> Values:
        """Return one session's values, drawn with a function that gives numbers in [0, 1)."""
        values: Values = [None] * len(self._place)
        for place, low, count, step in self._numbers:
            values[place] = low + step * int(random() * count)
        for entries, count, copies in self._choices.values():
            if len(copies) == 1:
                values[copies[0]] = entries[int(random() * count)]
            else:
                for place, entry in zip(copies, _different(random, count, len(copies)), strict=True):
                    values[place] = entries[entry]
        for place, work_out, form in self._sums:
            values[place] = format(work_out(values), form)
        for place, noun, article in self._articles:
            word = str(values[noun])
            values[place] = f"{article}n {word}" if word[0] in "aeiouAEIOU" else f"{article} {word}"
        for texts, count, copies in self._sentences.values():
            for place, entry in zip(copies, _different(random, count, len(copies)), strict=True):
                values[place] = texts[entry].fill(values)
        return values

    def combinations(self, text: Text) -> int:
        """Return how many different texts there can be at the least; worked-out values add none."""
        drawn = {self._source.get(place, place) for place in text.places}
        return math.prod(self._size.get(place, 1) for place in drawn)

    def _slot(self, match: re.Match[str]) -> int:
        written = match[0]
        if written not in self._place:
            if match["sum"]:
                self._add_sum(written, match["sum"].strip(), match["format"] or "")
            elif match["article"]:
                noun = self._named(match["name"], match["copy"] or "")
                place = self._place.setdefault(written, len(self._place))
                self._source[place] = noun
                self._articles.append((place, noun, match["article"][0]))
            else:
                self._named(match["name"], match["copy"] or "")
        return self._place[written]

    def _named(self, name: str, copy: str) -> int:
        written = f"{{{name}{copy}}}"
        if written in self._place:
            return self._place[written]
        if name in self._ranges and not copy:
            place = self._new(written, len(self._ranges[name]))
            span = self._ranges[name]
            self._numbers.append((place, span.start, len(span), span.step))
            return place
        if name not in self._lists:
            raise ValueError(f"the slot {written} names neither a list nor a number")
        return self._add_choice(name, written)

    def _add_choice(self, name: str, written: str) -> int:
        entries = self._lists[name]
        if name in self._open:
            raise ValueError(f"the list {name} holds itself")
        if any(_SLOT.search(entry) for entry in entries):
            if name not in self._sentences:
                self._open.append(name)
                texts = [self.text(entry) for entry in entries]
                self._open.pop()
                self._sentences[name] = (texts, len(texts), [])
            copies = self._sentences[name][2]
        else:
            copies = self._choices.setdefault(name, (entries, len(entries), []))[2]
        place = self._new(written, len(entries))
        copies.append(place)
        if len(copies) > len(entries):
            raise ValueError(f"the list {name} has {len(entries)} entries and {len(copies)} are asked for")
        return place

    def _add_sum(self, written: str, source: str, form: str) -> None:
        tree = ast.parse(source, mode="eval").body
        work_out = self._arithmetic(tree)
        place = self._place.setdefault(written, len(self._place))
        if isinstance(tree, ast.Name):
            self._source[place] = self._place[f"{{{tree.id}}}"]
        self._sums.append((place, work_out, form))

    def _arithmetic(self, node: ast.expr) -> Callable[[Values], Any]:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            constant = node.value
            return lambda _values: constant
        if isinstance(node, ast.Name) and node.id in self._ranges:
            return itemgetter(self._named(node.id, ""))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            apply = _OPERATORS[type(node.op)]
            left, right = self._arithmetic(node.left), self._arithmetic(node.right)
            return lambda values: apply(left(values), right(values))
        raise ValueError(f"{ast.unparse(node)} is not arithmetic on numbers of the template")

    def _new(self, written: str, size: int) -> int:
        place = self._place.setdefault(written, len(self._place))
        self._size[place] = size
        return place


def _different(random: Callable[[], float], count: int, wanted: int) -> list[int]:
    taken: list[int] = []
    while len(taken) < wanted:
        entry = int(random() * count)
        if entry not in taken:
            taken.append(entry)
    return taken


def _range(name: str, bounds: Sequence[int]) -> range:
    low, high, step = bounds if len(bounds) == 3 else (*bounds, 1)
    if low > high or step < 1:
        raise ValueError(f"the number {name} has no values between {low} and {high}")
    return range(low, high + 1, step)
