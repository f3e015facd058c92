"""What is read back from a run's folder is checked: a wrong value ends in a sentence that names its file and place."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadtest.errors import UsageError

Row = TypeVar("Row")
GREATEST = 1e100  # of a number that is read: sums and squares of such are still numbers
LARGEST = 2**31 - 1  # of a cell's or block's number: the column in requests.parquet is int32
SHOWN = 60  # characters of a wrong value


def refuse_special(path: Path) -> None:
    """Raise UsageError for what is there and is no file: a pipe or a device may never end."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be read: it is no file.")


def read_text(path: Path) -> str:
    """Return a file's text; bytes that are not UTF-8 come back as U+FFFD. Raises UsageError when it cannot be read."""
    refuse_special(path)
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def parsed(text: str, where: str) -> dict[str, Any]:
    """Return the JSON object that a text holds; `where` stands in the message of the UsageError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        said = getattr(error, "msg", None) or "nested too deeply, or a number too long"
        raise UsageError(f"{where} is not JSON: {_shown(text)} ({said}).") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where} is {_shown(value)}; it must be a JSON object.")
    return value


def numbered_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, JSON object) of a line file; a cut last line is left out. A missing file yields nothing."""
    if not path.exists():
        return
    for number, line in enumerate(read_text(path).split("\n")[:-1], start=1):
        where = f"{path}, line {number},"
        yield where, parsed(line, where)


def row_of(kind: type[Row], given: Mapping[str, Any], where: str) -> Row:
    """Return a dataclass made of a JSON object, every value of its field's type and finite; other keys are left out."""
    values: dict[str, Any] = {}
    for name, (check, what, needed) in _fields(kind).items():  # type: ignore[arg-type]  # a class is hashable
        if name not in given:
            if needed:
                raise UsageError(f"{where} has no `{name}`.")
            continue
        values[name] = checked(given[name], check, what, where, name)
    return kind(**values)


def checked(value: Any, check: Callable[[Any], bool], what: str, where: str, name: str) -> Any:
    """Return the value where the check holds. Raises UsageError that names place, key, value and what it must be."""
    if not check(value):
        raise UsageError(f"{where} has `{name}` {_shown(value)}; it must be {what}.")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


@cache
def _fields(kind: type) -> dict[str, tuple[Callable[[Any], bool], str, bool]]:
    hints = get_type_hints(kind)
    return {
        f.name: (*CHECKS[hints[f.name]], f.default is MISSING and f.default_factory is MISSING) for f in fields(kind)
    }


def is_number(value: Any) -> bool:
    """Say whether a JSON value is a number that can be added to others like it, which true and false are not."""
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return type(value) is float and abs(value) <= GREATEST


def is_count(value: Any) -> bool:
    """Say whether a JSON value is a whole number."""
    return type(value) is int and abs(value) <= LARGEST


def is_flag(value: Any) -> bool:
    """Say whether a JSON value is true or false."""
    return isinstance(value, bool)


def is_text(value: Any) -> bool:
    """Say whether a JSON value is text."""
    return isinstance(value, str)


def is_name(value: Any) -> bool:
    """Say whether a JSON value is a text that is not empty."""
    return isinstance(value, str) and value != ""


def is_table_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of a JSON object whose every value passes."""
    return lambda value: isinstance(value, dict) and all(check(item) for item in value.values())


def is_list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of a JSON array whose every item passes."""
    return lambda value: isinstance(value, list) and all(check(item) for item in value)


def or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of a value that may be null."""
    return lambda value: value is None or check(value)


CHECKS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (is_count, "a whole number"),
    float: (is_number, "a finite number"),
    str: (is_text, "text"),
    bool: (is_flag, "true or false"),
    float | None: (or_null(is_number), "a finite number or null"),
    dict[str, float]: (is_table_of(is_number), "an object of finite numbers"),
    list[float]: (is_list_of(is_number), "a list of finite numbers"),
    list[str]: (is_list_of(is_text), "a list of texts"),
}


def is_tables(value: Any) -> bool:
    """Say whether a JSON value is an object of objects."""
    return is_table_of(lambda item: isinstance(item, dict))(value)


def is_compared(row: Any) -> bool:
    """Say whether a JSON value is a row of the comparability table."""
    return isinstance(row, dict) and is_text(row.get("item")) and is_text(row.get("kind"))


def is_simulated(value: Any) -> bool:
    """Say whether a JSON value tells of simulated servers."""
    return isinstance(value, dict) and or_null(is_table_of(or_null(is_number)))(value.get("late_ratio"))


def is_prompts(value: Any) -> bool:
    """Say whether a JSON value tells how alike the words of the prompts are."""
    return isinstance(value, dict) and all(or_null(is_number)(value.get(name)) for name in ("coincidence", "words"))


def is_names(value: Any) -> bool:
    """Say whether a JSON value lists several different names."""
    return is_list_of(is_name)(value) and len(value) >= 2 and len(set(value)) == len(value)


def is_block_range(value: Any) -> bool:
    """Say whether a JSON value is [first block, past the last block]."""
    return is_list_of(is_count)(value) and len(value) == 2 and 0 <= value[0] <= value[1]


def is_look(value: Any) -> bool:
    """Say whether a JSON value tells of a look at a run."""
    counts = ("number", "blocks", "of")
    whole = isinstance(value, dict) and all(is_count(value.get(name)) for name in counts)
    return whole and is_number(value.get("confidence")) and 0 < value["confidence"] < 1


def is_noise(value: Any) -> bool:
    """Say whether a JSON value names an A/A run and holds its noise."""
    noise = value.get("noise") if isinstance(value, dict) else None
    numbers = is_table_of(or_null(is_number))
    return isinstance(noise, dict) and all(numbers(noise.get(name)) for name in ("effects", "slower", "median"))


def is_arm(value: Any) -> bool:
    """Say whether a JSON value may be what a header says of an arm."""
    return isinstance(value, dict) and (value.get("gpus") is None or is_count(value["gpus"]))


# Key of run.json → check, what it must be, whether it must be there. Other keys are shown and never counted with.
HEADER: dict[str, tuple[Callable[[Any], bool], str, bool]] = {
    "status": (is_name, "text", True),
    "baseline": (is_name, "the name of an arm", True),
    "experiment": (is_tables, "an object of objects", True),
    "candidate": (or_null(is_name), "the name of an arm, or null", False),
    "candidates": (is_names, "a list of two or more different names of arms", False),
    "reason": (or_null(is_text), "text", False),
    "plan_sha256": (or_null(is_text), "text", False),
    "plan_cells": (or_null(is_count), "a whole number", False),
    "judged_blocks": (or_null(is_block_range), "two whole numbers, first and past the last block", False),
    "look": (or_null(is_look), "an object of `number`, `blocks`, `of` and `confidence`", False),
    "aa": (is_flag, "true or false", False),
    "aa_run": (or_null(is_noise), "null, or an object whose `noise` holds `effects`, `slower` and `median`", False),
    "smoke": (is_flag, "true or false", False),
    "measure_only": (is_flag, "true or false", False),
    "arms": (or_null(is_list_of(is_arm)), "a list of objects, one for each arm, `gpus` a whole number or null", False),
    "servers_file": (or_null(lambda item: isinstance(item, dict)), "null, or an object", False),
    "starts": (lambda value: is_count(value) and value > 0, "a whole number above 0", False),
    "comparability": (or_null(is_list_of(is_compared)), "a list of objects, each with `item` and `kind`", False),
    "sittings": (or_null(is_list_of(lambda item: isinstance(item, dict))), "a list of objects", False),
    "prompts": (or_null(is_prompts), "null, or an object whose `coincidence` and `words` are numbers or null", False),
    "simulated": (or_null(is_simulated), "null, or an object whose `late_ratio` holds a number for each arm", False),
}


def check_header(run: Mapping[str, Any], where: str) -> None:
    """Raise UsageError where a value that the judgement rests on is missing or of the wrong kind."""
    for name, (check, what, needed) in HEADER.items():
        if name in run:
            checked(run[name], check, what, where, name)
        elif needed:
            raise UsageError(f"{where} has no `{name}`.")
    if run["baseline"] in (run.get("candidate"), *run.get("candidates", ())):
        raise UsageError(f"{where} has the same name for `baseline` and `candidate`: {run['baseline']!r}.")


def columns_of(table: pa.Table, schema: pa.Schema, path: Path, added: Collection[str] = ()) -> pa.Table:
    """Return a table's columns in the types of a schema; those of `added`, which hold text, may be absent: then empty.

    Raises UsageError that names what is missing or of no use.
    """
    for name in added:
        if name not in table.column_names:
            table = table.append_column(name, pa.array([""] * table.num_rows, pa.string()))
    names = table.column_names
    missing = [f.name for f in schema if f.name not in names]
    if missing:
        raise UsageError(f"{path} lacks the column(s) {', '.join(missing)}: not written by loadtest?")
    columns = []
    for field in schema:
        if names.count(field.name) > 1:
            raise UsageError(f"{path} has the column {field.name} twice.")
        try:
            column = table.column(field.name).cast(field.type)
            column.validate(full=True)
        except pa.ArrowException as error:
            raise UsageError(f"{path}, column {field.name}: {str(error).splitlines()[0][:200]}.") from error
        _check_column(column, f"{path}, column {field.name}")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _check_column(column: pa.ChunkedArray, where: str) -> None:
    """Refuse nothing where a value belongs, and numbers that no measurement gives."""
    _refuse(pc.is_null(column), where, "holds nothing")
    if pa.types.is_floating(column.type):
        _refuse(pc.is_inf(column), where, "is infinite")
    if not pa.types.is_list(column.type):
        return
    owner, values = pc.list_parent_indices(column), pc.list_flatten(column)
    _refuse(pc.is_null(values), where, "holds nothing", owner)
    if pa.types.is_floating(values.type):
        _refuse(pc.invert(pc.is_finite(values)), where, "holds a time that is not finite", owner)
    else:
        _refuse(pc.less(values, 0), where, "holds a number below 0", owner)


def _refuse(found: pa.ChunkedArray, where: str, what: str, owner: pa.ChunkedArray | None = None) -> None:
    if not pc.any(found).as_py():
        return
    first = int(np.flatnonzero(found.to_numpy())[0])
    row = first if owner is None else owner[first].as_py()
    raise UsageError(f"{where}: row {row} {what}.")
