"""Commands that go on from a run: with its own folder, scenario and options, ready for a shell."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any

from loadtest import loads
from loadtest.report import header, words

FLAGS = ("--smoke", "--measure-only", "--insecure", "--simulated", "--keep-text", "--yes", "-q", "--quiet", "--json")
WIDE = 36  # characters of a command's line that still fit beside a list's mark on a phone
SPARE = 1.1  # of the time that blocks took: a cell that no longer fits is not begun
OWN = {"--baseline": "http://127.0.0.1:8000", "--speculative": "http://127.0.0.1:8001"}  # vLLM's port, and the next


def folder(run: Mapping[str, Any]) -> str:
    """Return the run's folder as seen from where the run was started; RUN where the header does not name it."""
    name = run.get("folder")
    if not name:
        return "RUN"
    out = _given(_words(run), "--out") or "reports"
    return words.plain(f"{out.rstrip('/')}/{name}")


def resumed(run: Mapping[str, Any], *, seconds: float | None = None) -> str:
    """Return the command that goes on with a run, for further blocks the time that they take."""
    parts = ["loadtest", "run", "--resume", folder(run)]
    return shlex.join(parts if seconds is None else [*parts, "--budget", f"+{_rounded_up(seconds * SPARE)}"])


def gated(run: Mapping[str, Any]) -> str:
    """Return the command that holds a run's records against objectives."""
    return shlex.join(["loadtest", "gate", folder(run), "--slo", "slo.toml"])


def anew(run: Mapping[str, Any], changed: Mapping[str, str], without: Collection[str] = ()) -> str:
    """Return the run's own command with options set, and without others; the scenario alone where none is known."""
    kept = _words(run)
    if kept[:2] != ["loadtest", "run"] or "--resume" in kept:
        kept = ["loadtest", "run", scenario(run)]
    kept = _without(kept, {*changed, *without})
    return shlex.join([*kept, *(word for option in changed.items() for word in option)])


def own_servers(run: Mapping[str, Any], *, compared: bool) -> str:
    """Return the command that measures servers of the reader's own, at addresses to be put in."""
    named = OWN if compared else {"--server": OWN["--baseline"]}
    return shlex.join(["loadtest", "run", scenario(run), *(word for option in named.items() for word in option)])


def scenario(run: Mapping[str, Any]) -> str:
    """Return the path of the run's scenario; that of the first example where the header does not say."""
    table = run.get("scenario")
    path = table.get("path") if isinstance(table, Mapping) else None
    return words.plain(path, 200) if path else "scenarios/chat.py"


class Lines(str):
    """A command over several lines, which a page shows as lines."""


def lines(command: str, width: int = WIDE) -> Lines:
    """Return a command as lines of about a width, broken before options, which a shell takes as they are."""
    try:
        parts = [shlex.quote(part) for part in shlex.split(command)]
    except ValueError:
        return Lines(words.plain(command))
    options = [""]  # the command itself, then each option with its values
    for part in parts:
        if part.startswith("-"):
            options.append("")
        options[-1] = f"{options[-1]} {part}".strip()
    found = options[:1]
    for option in options[1:]:
        if len(found[-1]) + len(option) < width:
            found[-1] = f"{found[-1]} {option}"
        else:
            found.append(option)
    return Lines(" \\\n  ".join(map(words.plain, found)))


def loads_option(values: Iterable[float]) -> dict[str, str]:
    """Return the option that sets the loads of a run."""
    return {_option(): ",".join(f"{value:g}" for value in sorted(set(values)))}


def between(low: float, high: float, number: int = 3) -> list[float]:
    """Return loads between two tested ones, by equal factors: users are whole, and may leave fewer or none."""
    found = (low * (high / low) ** (place / (number + 1)) for place in range(1, number + 1))
    if loads.unit() == loads.USERS:
        return [value for value in sorted({float(round(one)) for one in found}) if low < value < high]
    return [float(f"{value:.3g}") for value in found]


def longer(window_s: float, factor: float) -> str:
    """Return the length of windows that many times as long, in whole tens of seconds."""
    return f"{math.ceil(window_s * factor / 10) * 10}s"


def _option() -> str:
    return "--levels" if loads.unit() == loads.USERS else "--rates"


def _rounded_up(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds / 60))}m"


def _words(run: Mapping[str, Any]) -> list[str]:
    try:
        return shlex.split(header.command(run))
    except ValueError:  # a quotation that does not end: a header of another's making
        return []


def _given(parts: list[str], option: str) -> str:
    """Return the last value that a command gives to an option; empty without one."""
    value = ""
    for part, then in pairwise([*parts, ""]):
        if part == option:
            value = then
        elif part.startswith(f"{option}="):
            value = part.partition("=")[2]
    return value


def _without(parts: list[str], options: Collection[str]) -> list[str]:
    """Return a command without some of its options and their values."""
    kept, skipped = [], False
    for part in parts:
        if skipped:
            skipped = False
        elif part in options:
            skipped = part not in FLAGS
        elif part.partition("=")[0] not in options:
            kept.append(part)
    return kept
