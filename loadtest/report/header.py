"""The run header (run.json) for a reader: what must be said at the top, the servers, and the conditions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.analyse.results import Answer
from loadtest.errors import ExitCode
from loadtest.record import FAKED
from loadtest.report import words
from loadtest.report.view import View, section


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """One line at the top of every form of the report. `tone` is `alarm` or `note`."""

    word: str
    text: str
    tone: str


_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)")


def banners(view: View) -> tuple[Banner, ...]:
    """Return what a reader must know before any figure."""
    run, answer = view.run, view.judgement.decision.answer
    smoke, itself = bool(run.get("smoke")), bool(run.get("aa"))
    unvaried = view.compared and not simulated(run) and starts(run) <= 1
    faked = [name for name, table in arm_tables(view) if FAKED in _modes(table)]
    said = (
        (bool(faked), "Faked acceptance", "alarm", f"Drafts are accepted by decree ({', '.join(faked)}): no evidence."),
        (simulated(run), "Simulated", "note", "These figures describe a model, not anyone's hardware."),
        (
            on_cpu(view),
            "CPU servers",
            "note",
            "They predict nothing of a deployment on accelerators, or of another model.",
        ),
        (answer is Answer.INVALID, "Invalid", "alarm", "This run cannot be judged. Use none of its figures."),
        (exit_code(view) == ExitCode.INTERRUPTED, "Interrupted", "alarm", "Stopped early; cells are missing."),
        (smoke, "Smoke run", "note", "It shows that the pieces work together and proves nothing."),
        (itself, "A/A", "note", "Both arms are the same server: whatever differs between them is noise."),
        (
            answer is Answer.MEASURED and not smoke and not itself and not view.gated,
            "Measured only",
            "note",
            "Nothing was judged.",
        ),
        (unvaried, "One start each", "note", "Variation between starts and GPUs is not in these intervals."),
    )
    return tuple(Banner(word=word, tone=tone, text=text) for applies, word, tone, text in said if applies)


def interrupted(run: Mapping[str, Any]) -> bool:
    """Say whether the run was stopped before its plan was done."""
    return run.get("status") == "interrupted"


def simulated(run: Mapping[str, Any]) -> bool:
    """Say whether the figures come from the simulated pair."""
    return run.get("simulated") is not None


def exit_code(view: View) -> int:
    """Return the exit code of the whole command: that of the decision, unless the run was interrupted.

    A run that was judged once keeps its status when it is gone on with: its last sitting may be what was interrupted.
    """
    sittings = view.run.get("sittings") or [{}]
    stopped = interrupted(view.run) or sittings[-1].get("state") == "interrupted"
    return int(ExitCode.INTERRUPTED if stopped else view.judgement.decision.exit_code)


def starts(run: Mapping[str, Any]) -> int:
    """Return how often each server was started within the run; 1 when the header does not say."""
    value = run.get("starts", 1)
    return value if isinstance(value, int) else 1


def scenario(run: Mapping[str, Any]) -> str:
    """Return the scenario's name, or the empty string."""
    value = run.get("scenario", "")
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("path") or ""
    return words.plain(value)


def started(run: Mapping[str, Any]) -> str:
    """Return the wall-clock time of the start to the minute, as the header writes it if that is no time; or ""."""
    said = words.plain(next((run[key] for key in ("started", "started_utc", "started_at") if run.get(key)), ""), 60)
    found = _INSTANT.fullmatch(said)
    return f"{found[1]} {found[2]} UTC" if found else said


def arm_tables(view: View) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return each arm's name with what the header says of it: its own entries, and those of its server's identity."""
    tables = view.run.get("arms")
    if isinstance(tables, Mapping):
        tables = [
            {"name": name} | (dict(table) if isinstance(table, Mapping) else {}) for name, table in tables.items()
        ]
    rows = [table for table in tables or () if isinstance(table, Mapping)] if isinstance(tables, list | tuple) else []
    known = {str(row.get("name", row.get("arm", ""))): row for row in rows}
    found = []
    for name in view.judgement.arms:
        row = known.get(name, {})
        identity = row.get("identity")
        merged = (dict(identity) if isinstance(identity, Mapping) else {}) | {k: v for k, v in row.items() if v}
        found.append((words.plain(name), merged))
    return tuple(found)


def servers(view: View) -> tuple[tuple[str, str], ...]:
    """Return each arm's name with its server: model, method, draft tokens and URL, as far as the header says."""
    found, shared = [], _shared(view)
    for name, table in arm_tables(view):
        k = table.get("num_speculative_tokens")
        drafts = f"k = {k}" if isinstance(k, int) and not isinstance(k, bool) else None
        parts = [table.get("model"), table.get("method"), drafts, table.get("url")]
        said = ", ".join(words.plain(part, 200) for part in parts if part)
        in_its_turn = any(name in names for names in shared.values())
        found.append((name, f"{said} (alone there in its turn)" if in_its_turn else said))
    return tuple(found)


def _modes(table: Mapping[str, Any]) -> list[str]:
    modes = table.get("modes")
    return [str(mode) for mode in modes] if isinstance(modes, list | tuple) else []


def conditions(view: View) -> tuple[tuple[str, str], ...]:
    """Return the conditions that the answer holds under, as names and values; what is not known is left out."""
    experiment = section(view.run, "experiment")
    load, generation = section(experiment, "load"), section(experiment, "generation")
    found = [
        ("server", _version(view)), ("hardware", _hardware(view)), ("start", in_turn(view)),
        ("generation", ", ".join(_named(generation, key, word) for key, word in GENERATION if _given(generation, key))),
        ("load", _load(load, section(view.run, "habits"))), ("windows", _windows(view)),
    ]  # fmt: skip
    return tuple((name, value) for name, value in found if value)


def in_turn(view: View) -> str:
    """Say that servers which the run started shared an address, each alone there; empty where none did."""
    shared, number = _shared(view), starts(view.run)
    said = "; ".join(f"{', '.join(names[:-1])} and {names[-1]} at {url}" for url, names in shared.items())
    times = f"{number} starts" if number != 1 else "1 start"
    return f"one at a time, never two at once: {said} ({times} of each)" if shared else ""


def _shared(view: View) -> dict[str, list[str]]:
    """Return the addresses at which the run started more than one server, with their arms."""
    started = section(view.run, "servers_file", "contents", "arms")
    found: dict[str, list[str]] = {}
    for name, table in arm_tables(view):
        if section(started, name).get("start") and table.get("url"):
            found.setdefault(words.plain(table["url"], 200), []).append(name)
    return {url: names for url, names in found.items() if len(names) > 1}


GENERATION = (("temperature", "temperature"), ("top_p", "top-p"), ("top_k", "top-k"), ("max_tokens", "max tokens"))


def _given(table: Mapping[str, Any], key: str) -> bool:
    return isinstance(table.get(key), int | float) and not isinstance(table.get(key), bool)


def _named(table: Mapping[str, Any], key: str, word: str) -> str:
    return f"{word} {table[key]:g}"


def _version(view: View) -> str:
    told = {f"{table.get('kind') or ''} {table.get('version') or ''}".strip() for _, table in arm_tables(view)}
    return ", ".join(words.plain(text, 80) for text in sorted(told) if text)


def _hardware(view: View) -> str:
    """Return where the servers ran, as far as they or the file of servers say."""
    if simulated(view.run):
        return "none: a model of an engine"
    said = []
    for name, table in arm_tables(view):
        config = section(table, "config")
        device, gpus = config.get("device_config.device") or config.get("device_config.device_type"), table.get("gpus")
        parts = [words.plain(device, 40)] if isinstance(device, str) else []
        parts += [f"{gpus} GPU{'s' if gpus != 1 else ''}"] if isinstance(gpus, int) else []
        said.append((name, ", ".join(parts)))
    if len({text for _, text in said}) <= 1:
        return said[0][1] if said else ""
    return "; ".join(f"{name}: {text or 'not said'}" for name, text in said)


def on_cpu(view: View) -> bool:
    """Say whether every server says that it runs on a CPU."""
    told = [section(table, "config").get("device_config.device") or section(table, "config").get(
        "device_config.device_type") for _, table in arm_tables(view)]  # fmt: skip
    return bool(told) and all(one == "cpu" for one in told)


def _load(load: Mapping[str, Any], habits: Mapping[str, Any]) -> str:
    kind, think = load.get("kind"), load.get("think_time")
    said = {"closed": "closed loop", "open": f"open load, {_arrivals(load, habits)}"}.get(str(kind), "")
    if said and isinstance(think, int | float):  # a factor on the scenario's own pauses
        said += f", think times × {think:g}" if think else ", no think time"
    if kind == "closed":
        said += f" (a user sends again when the last request is done{' and its think time over' if think else ''})"
    return said


def _arrivals(load: Mapping[str, Any], habits: Mapping[str, Any]) -> str:
    name, shape = words.plain(load.get("arrivals"), 40), words.plain(load.get("shape"), 40)
    said = f"{name} arrivals" if name else "arrivals at a set rate"
    if name in ("gamma", "weibull"):
        said += f" (CV {words.plain(load.get('cv'), 40)})"
    if name == "trace" and _given(habits, "gap_cv"):
        said += f" (its own CV {words.plain(habits['gap_cv'], 40)})"
    if shape and shape != "steady":
        said += f", a {shape} of {words.plain(load.get('factor'), 40)} times"
    return said


def _windows(view: View) -> str:
    lengths = sorted(cell.window_s for cell in view.judgement.cells if cell.window_s and words.known(cell.window_s))
    if not lengths:
        return ""
    ends = dict.fromkeys(words.minutes(length) for length in (lengths[0], lengths[-1]))
    blocks = len({cell.block for cell in view.judgement.cells})
    return f"{' to '.join(ends)}, {blocks} block{'s' if blocks != 1 else ''}"


def command(run: Mapping[str, Any]) -> str:
    """Return the command that repeats the run, ready for a shell; empty when the header has none."""
    value = run.get("command", "")
    return words.plain(shlex.join(map(str, value)) if isinstance(value, list | tuple) else value)
