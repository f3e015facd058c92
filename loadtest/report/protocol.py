"""The whole run header (run.json) as rows: known keys get their place, and no other key is left out of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.report import words

ROWS = 300  # of one group; the rest stands in run.json
ELSEWHERE = ("command", "comparability", "notes")  # these have a place of their own on the page
GROUPS = {
    "experiment": "Experiment: everything sent and asked for",
    "arms": "Servers under test",
    "calibration": "Client: calibration against the built-in null server",
    "asking": "Client: what asking for token counts costs, and who asks",
    "workers": "Client: the workers that made the load",
    "client": "Client",
    "host": "Client machine",
    "versions": "Versions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A titled table of names and values."""

    title: str
    rows: tuple[tuple[str, str], ...]
    left_out: int = 0


def protocol(run: Mapping[str, Any]) -> tuple[Group, ...]:
    """Return the whole header as groups of rows: single values first, then each table."""
    shown = {key: value for key, value in run.items() if key not in ELSEWHERE}
    tables = {key: value for key, value in shown.items() if isinstance(value, Mapping | list | tuple)}
    single = {key: value for key, value in shown.items() if key not in tables}
    groups = [_group("Run", single)] if single else []
    order = [key for key in GROUPS if key in tables] + sorted(key for key in tables if key not in GROUPS)
    return tuple(groups + [_group(GROUPS.get(key, _name(key)), tables[key]) for key in order])


def _group(title: str, values: Any) -> Group:
    rows = list(_rows("", values, depth=0))
    return Group(title=title, rows=tuple(rows[:ROWS]), left_out=max(0, len(rows) - ROWS))


def _name(key: object) -> str:
    return words.plain(key, 200).replace("_", " ").capitalize()


def _rows(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if depth < 12 and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _rows(f"{name}.{words.plain(key, 200)}" if name else words.plain(key, 200), item, depth + 1)
    elif depth < 12 and isinstance(value, list | tuple) and any(isinstance(item, Mapping | list) for item in value):
        for position, item in enumerate(value):
            label = item.get("name", position) if isinstance(item, Mapping) else position
            yield from _rows(f"{name}.{words.plain(label, 200)}" if name else words.plain(label, 200), item, depth + 1)
    else:
        yield name, _value(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return words.MISSING
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value) or words.MISSING
    return words.plain(value)
