"""The fields of one line of a CSV or JSONL file, by name, and their values; text of a log is never shown."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson

from loadtest.errors import printable
from loadtest.workload.logged import Asked, LeftOut, asked_of
from loadtest.workload.trace_forms import NAMES, PARAMS, plain
from loadtest.workload.trace_lines import Line

MOST_TOKENS = 10**8
LONGEST_CLASS = 100  # characters
MOST_KINDS = 256  # sets of keys whose fields are remembered
NONE: Mapping[str, Any] = MappingProxyType({})
Get = Callable[[str], Any]  # name of a field → its value, None where there is none


class CsvFields:
    """The fields of one line of a CSV file."""

    __slots__ = ("_at", "_cells")

    def __init__(self, line: Line, comma: str, width: int, at: Mapping[str, int | None]) -> None:
        text = decoded(line.data, LeftOut("not UTF-8 text"))
        self._at = at
        self._cells = text.split(comma) if '"' not in text else quoted(text, comma)
        if len(self._cells) != width:
            raise LeftOut("another number of fields than the heading", f"{len(self._cells)} instead of {width}")

    def get(self, name: str) -> str | None:
        """Return a field, None where it is empty or there is no such column."""
        at = self._at.get(name)
        return self._cells[at].strip() or None if at is not None else None


def quoted(text: str, comma: str) -> list[str]:
    """Return the fields of a CSV line that may hold quotes. Raises LeftOut."""
    if text.count('"') % 2:
        raise LeftOut("a quote that is not closed within its line")
    try:
        return next(csv.reader([text], delimiter=comma, strict=True))
    except csv.Error:
        raise LeftOut("quotes that are no CSV") from None


class JsonFields:
    """The fields of JSON objects, by the names that they use; which those are is found once for each set of keys."""

    def __init__(self, mapped: Mapping[str, str]) -> None:
        self._mapped = mapped
        self._known: dict[tuple[str, ...], dict[str, tuple[tuple[str, str], ...]]] = {}

    def fields(self, found: Mapping[str, Any]) -> Get:
        """Return what gives the fields of one object."""
        keys = tuple(found)
        ways = self._known.get(keys)
        if ways is None:
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            ways = self._known[keys] = {name: tuple(self._ways(name, keys)) for name in (*NAMES, *PARAMS)}

        def get(name: str) -> Any:
            for key, rest in ways[name]:
                value = found.get(key)
                if rest:
                    value = _dig(value, rest)
                if value is not None:
                    return value
            return None

        return get

    def _ways(self, name: str, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield (key, what lies within it) of every place where a field may stand."""
        if name in self._mapped:
            head, _, rest = self._mapped[name].partition(".")
            yield from ((key, rest) for key in keys if key == head)
            return
        for way in NAMES.get(name, (plain(name),)):
            head, _, rest = way.partition(".")
            yield from ((key, rest) for key in keys if plain(key) == head)


def _dig(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
            continue
        if not isinstance(value, Mapping):
            return None
        found = value.get(part)
        value = found if found is not None else next((v for k, v in value.items() if plain(k) == plain(part)), None)
    return value


def paths_of(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the plain names of an object's fields, and of those one level below."""
    for name, value in found.items():
        yield plain(name)
        if isinstance(value, Mapping):
            yield from (f"{plain(name)}.{plain(inner)}" for inner in value if isinstance(inner, str))


def object_of(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises LeftOut."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise LeftOut("not JSON") from None
    if not isinstance(found, dict):
        raise LeftOut("JSON that is no object")
    try:
        orjson.dumps(found)
    except orjson.JSONEncodeError:  # it reads deeper nesting than it writes
        raise LeftOut("nested too deeply to be sent") from None
    return found


def decoded(data: bytes, otherwise: Exception) -> str:
    """Return UTF-8 text, or raise the exception given."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise otherwise from None


def asked_by(get: Get) -> Asked | None:
    """Return what a row asks; None where it holds lengths alone. Raises LeftOut."""
    messages, prompt, appended = get("messages"), get("prompt"), get("appended")
    if messages is None and prompt is None and appended is None:
        return None
    return asked_of(messages if appended is None else appended, prompt, get("tools"))


def _count(value: Any) -> int | None:
    """Return a whole number of 0 or more from a number or its text, None where there is none. Raises ValueError."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if not 0 <= number <= MOST_TOKENS or number != int(number):
        raise ValueError
    return int(number)


def tokens(get: Get, name: str) -> int | None:
    """Return a count of tokens; None where there is none. Raises LeftOut."""
    value = get(name)
    try:
        return _count(value)
    except (TypeError, ValueError):
        raise LeftOut(f"`{name}` is no whole number of tokens", shown(value)) from None


def seconds(value: Any) -> float | None:
    """Return a duration in seconds; None for anything else."""
    if value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if 0 < found < 1e6 else None


def name_of(value: Any, what: str) -> str:
    """Return a name, empty where there is none. Raises LeftOut."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise LeftOut(f"`{what}` is neither a text nor a number")
    return str(value)


def class_of(value: Any) -> str:
    """Return the name of a class as results show it: on one line, and not too long. Raises LeftOut."""
    return " ".join(printable(name_of(value, "class")[: 2 * LONGEST_CLASS]).split())[:LONGEST_CLASS]


def blocks_of(value: Any) -> tuple[int, ...]:
    """Return the numbers of a prompt's blocks. Raises LeftOut."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        raise LeftOut("`hash_ids` is no list of whole numbers")
    return tuple(value)


def params_of(get: Get) -> dict[str, Any]:
    """Return the sampling parameters of an OpenAI body, or of `params`."""
    table = get("params")
    found = {name: table[name] for name in PARAMS if name in table} if isinstance(table, Mapping) else {}
    for name in PARAMS:
        if name not in found and (value := get(name)) is not None:
            found[name] = value
    return {name: value for name, value in found.items() if isinstance(value, str | int | float | list)}


def shown(value: Any) -> str:
    """Return a time or a count as a message shows it; text of a log is never given to this."""
    word = repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"
    return word if len(word) <= 40 else word[:39] + "…"


def listed(columns: Sequence[str]) -> str:
    """Return the names of columns as a message shows them."""
    shown = [name.strip()[:40] or "(unnamed)" for name in columns[:12]]
    return ", ".join(shown) + (" …" if len(columns) > 12 else "")
