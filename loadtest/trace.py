"""A trace of the expected traffic (CSV) → the loads of a day and the hours at each."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError, nearest

COLUMNS = {"users": "users", "in_flight": "in flight", "requests_per_s": "requests/s", "sessions_per_s": "sessions/s"}
MOST = 200  # different loads kept; more are joined with their neighbours
LARGEST = 100 * 2**20  # bytes


def read_trace(path: Path) -> dict[str, Any]:
    """Return unit, loads (ascending) and hours of a trace; rows without load are left out.

    A row lasts `seconds`, or as long as every other where there is no such column; the hours add up to the trace's
    length, or to 24 where that is not told. Raises UsageError that names the line.
    """
    rows = _rows(path)
    column = next((name for name in COLUMNS if name in rows[0]), None)
    if column is None:
        names = [name for name in rows[0] if name]
        hint = next((nearest(name, COLUMNS) for name in names if nearest(name, COLUMNS)), "")
        raise UsageError(f"{path.name}, line 1: no column {', '.join(COLUMNS)}.{hint} Columns are {', '.join(names)}.")
    lasting: dict[float, float] = {}
    timed = "seconds" in rows[0]
    for line, row in enumerate(rows, start=2):
        load = _number(row.get(column), f"{path.name}, line {line}, {column}")
        seconds = _number(row.get("seconds"), f"{path.name}, line {line}, seconds") if timed else 1.0
        if load > 0:
            lasting[load] = lasting.get(load, 0.0) + seconds
    total = sum(lasting.values())
    if not total > 0:
        raise UsageError(f"{path.name}: no row has a load above 0 that lasts.")
    joined = _joined({load: seconds for load, seconds in sorted(lasting.items()) if seconds > 0})
    scale = 1 / 3600 if timed else 24 / total
    return {"unit": COLUMNS[column], "loads": tuple(joined), "hours": tuple(s * scale for s in joined.values())}


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise UsageError(f"traffic.trace: {path} is not a file.")
    if path.stat().st_size > LARGEST:
        raise UsageError(f"traffic.trace: {path} is larger than {LARGEST // 2**20} MiB.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"traffic.trace: {path} cannot be read as CSV: {error}.") from error
    if not rows:
        raise UsageError(f"traffic.trace: {path} holds no row below its heading.")
    return rows


def _number(word: str | None, where: str) -> float:
    try:
        value = float(word) if word is not None else math.nan
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < 1e12:
        raise UsageError(f"{where} is {str(word)[:60]!r}; it must be a number of 0 or more.")
    return value


def _joined(lasting: dict[float, float]) -> dict[float, float]:
    """Return at most MOST loads: neighbours joined at their mean, weighted by time."""
    if len(lasting) <= MOST:
        return lasting
    loads = list(lasting)
    low, high = math.log(loads[0]), math.log(loads[-1])
    groups: dict[int, list[float]] = {}
    for load in loads:
        groups.setdefault(min(MOST - 1, int((math.log(load) - low) / (high - low) * MOST)), []).append(load)
    found = {}
    for members in groups.values():
        seconds = sum(lasting[load] for load in members)
        found[sum(load * lasting[load] for load in members) / seconds] = seconds
    return found
