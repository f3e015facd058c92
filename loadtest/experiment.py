"""NAME.toml, options and `--set` → Experiment; whatever is unknown or out of range is refused before any load."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, cast

from loadtest.checks import LEVELS, shown
from loadtest.errors import UsageError, nearest
from loadtest.settings import Experiment
from loadtest.slo_tables import Refusal, as_tables
from loadtest.trace import read_trace

SECTIONS: dict[str, type] = {f.name: cast(type, f.default_factory) for f in fields(Experiment)}


def load_experiment(scenario: Path, assignments: Iterable[str] = ()) -> Experiment:
    """Read the NAME.toml beside a scenario (absent: all defaults) and apply `section.key=value` assignments.

    Raises UsageError for an unknown section or key, a value out of range, or a file that is not TOML.
    """
    path = _settings_of(scenario)
    experiment = from_toml(_read(path), path.name) if os.path.lexists(path) else Experiment()
    if experiment.trace.file:
        experiment = override(experiment, "trace", file=str(path.parent / experiment.trace.file))
    return with_assignments(with_trace(experiment, path.parent), assignments)


def _settings_of(scenario: Path) -> Path:
    """Return where a scenario's settings stand: beside it, and of a link without any beside the file it leads to."""
    own = scenario.with_suffix(".toml")
    return own if os.path.lexists(own) or not scenario.is_symlink() else scenario.resolve().with_suffix(".toml")


JUDGING = ("slo", "traffic", "gate", "price")  # the sections of an --slo file


def with_slo_file(experiment: Experiment, path: Path) -> Experiment:
    """Return the experiment judged by another file: `[[slo]]`, `[traffic]`, `[gate]` and `[price]`, each as a whole.

    A section that the file lacks stays. Raises UsageError.
    """
    source = _read(path)
    document = parse_toml(source, path.name)
    other = [section for section in document if section not in JUDGING and section in SECTIONS]
    if other:
        raise UsageError(f"{path.name}{_line(source, other[0])}: [{other[0]}] is not for judging; an --slo file holds"
                         f" {', '.join(f'[{name}]' for name in JUDGING)}.")  # fmt: skip
    cleared = replace(experiment, **{section: SECTIONS[section]() for section in document if section in SECTIONS})
    judged = with_trace(_apply(cleared, document, path.name, source), path.parent)
    asked = judged.slo.rules or judged.traffic.loads or any(document.get(name) for name in ("gate", "price"))
    if not asked:
        raise UsageError(f"{path.name} has no objective ([[slo]]) and no expected traffic ([traffic]), and the run has"
                         " none of its own: nothing would be asked of it. Is the file the right one?")  # fmt: skip
    return judged


def with_trace(experiment: Experiment, folder: Path) -> Experiment:
    """Return the experiment with the traffic of its trace, a file in `folder`, as loads and hours."""
    traffic = experiment.traffic
    if not traffic.trace or traffic.loads:
        return experiment
    return override(experiment, "traffic", **read_trace(folder / traffic.trace))


def _read(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"{path} is not a file.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def from_toml(source: str, name: str) -> Experiment:
    """Parse the text of a NAME.toml; `name` stands in messages."""
    return _apply(Experiment(), parse_toml(source, name), name, source)


def parse_toml(source: str, name: str) -> dict[str, Any]:
    """Return a TOML document; `name` stands in messages. Raises UsageError."""
    try:
        return tomllib.loads(source)
    except RecursionError:
        raise UsageError(f"{name} is not valid TOML: it is nested too deep.") from None
    except ValueError as error:  # not TOML, or a number of more digits than Python reads
        raise UsageError(f"{name} is not valid TOML: {error}.") from error


def with_assignments(experiment: Experiment, assignments: Iterable[str]) -> Experiment:
    """Apply `section.key=value` words (the value in TOML, or a bare word taken as a string)."""
    for word in assignments:
        path, separator, value = word.partition("=")
        section, dot, name = path.strip().partition(".")
        if not separator or not dot:
            raise UsageError(f"--set {shown(word)}: write section.key=value, such as --set generation.max_tokens=128.")
        experiment = _apply(experiment, {section: {name: _toml_value(value.strip())}}, "--set", word, last=False)
    return _of_one_kind(experiment, "--set", "")  # only now: kind and levels may be two assignments


def _toml_value(word: str) -> Any:
    try:
        document = parse_toml(f"value = {word}", "--set")
    except UsageError:
        if not word.isprintable():
            raise UsageError(f"--set {shown(word)}: a value that is not TOML must be one printable word.") from None
        return word
    if len(document) != 1:
        raise UsageError(f"--set {shown(word)}: one --set gives one setting; write a --set for each.")
    return document["value"]


def override(experiment: Experiment, section: str, **values: Any) -> Experiment:
    """Return a copy with already checked values replaced in one section; None leaves a value as it is."""
    given = {name: value for name, value in values.items() if value is not None}
    return replace(experiment, **{section: replace(getattr(experiment, section), **given)})


def _apply(experiment: Experiment, document: Mapping[str, Any], name: str, source: str, *,
           last: bool = True) -> Experiment:  # fmt: skip
    """Return the experiment with a document's values; `last` is whether nothing else follows from the same place."""
    for section, values in document.items():
        if section not in SECTIONS:
            hint = nearest(section, SECTIONS) or _where_key(section)
            raise UsageError(f"{name}{_line(source, section)}: there is no section [{section}].{hint}"
                             f" Sections are {', '.join(SECTIONS)}.")  # fmt: skip
        if section == "slo":
            values = _objectives(values, name, source)
        if not isinstance(values, Mapping):
            raise UsageError(f"{name}{_line(source, section)}: {section} must be a table, written as [{section}].")
        experiment = override(experiment, section, **_checked(section, values, name, source))
    experiment = _consistent(experiment, name)
    return _of_one_kind(experiment, name, source) if last else experiment


def _objectives(values: Any, name: str, source: str) -> dict[str, Any]:
    """Return `[[slo]]` tables, or one `[slo]` table, as the setting that keeps them."""
    tables = values["rules"] if isinstance(values, Mapping) and "rules" in values else values
    try:
        return {"rules": as_tables(tables)}
    except Refusal as refused:
        place = _line_of_objective(source, refused.index, refused.key)
        raise UsageError(f"{name}{place}: {refused}") from None


def _line_of_objective(source: str, index: int, key: str) -> str:
    """Return ', line N' of a key within the objective of that index, or of its heading."""
    headings = list(re.finditer(r"^[ \t]*\[+[ \t]*\"?slo\"?[ \t]*\]+", source, re.MULTILINE))
    if index >= len(headings):
        return ""
    start = headings[index].start()
    body = source[start : headings[index + 1].start() if index + 1 < len(headings) else len(source)]
    found = re.search(rf"^[ \t]*\"?{re.escape(key)}\"?[ \t]*[=.]", body, re.MULTILINE) if key else None
    return f", line {source.count(chr(10), 0, start + (found.start() if found else 0)) + 1}"


def _checked(section: str, values: Mapping[str, Any], name: str, source: str) -> dict[str, Any]:
    known = {f.name: f for f in fields(SECTIONS[section])}
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            hint = nearest(key, known) or _where_key(key)
            raise UsageError(f"{name}{_line(source, key)}: [{section}] has no key `{key}`.{hint}"
                             f" Its keys are {', '.join(known)}.")  # fmt: skip
        try:
            checked[key] = known[key].metadata["check"](value)
        except ValueError as allowed:
            raise UsageError(
                f"{name}{_line(source, key)}: {section}.{key} is {shown(value)}; it must be {allowed}."
            ) from None
    return checked


def _where_key(key: str) -> str:
    homes = [section for section, kind in SECTIONS.items() if key in {f.name for f in fields(kind)}]
    return f" `{key}` belongs to [{homes[0]}]." if homes else ""


def _line(source: str, key: str) -> str:
    match = re.search(rf"^[ \t]*\[*[ \t]*\"?{re.escape(key)}\"?[ \t]*(=|\])", source, re.MULTILINE)
    return f", line {source.count(chr(10), 0, match.start()) + 1}" if match and "\n" in source else ""


def _consistent(experiment: Experiment, name: str) -> Experiment:
    window = experiment.window
    if window.min_s > window.max_s:
        raise UsageError(f"{name}: window.min_s is {window.min_s:g} and window.max_s {window.max_s:g};"
                         " the longest window must not be shorter than the shortest.")  # fmt: skip
    traffic = experiment.traffic
    if len(traffic.loads) != len(traffic.hours):
        raise UsageError(f"{name}: traffic.loads has {len(traffic.loads)} values and traffic.hours"
                         f" {len(traffic.hours)}; give the hours of the day at each load.")  # fmt: skip
    return experiment


def _of_one_kind(experiment: Experiment, name: str, source: str) -> Experiment:
    """Raise UsageError where the settings of [load] do not go together."""
    load = experiment.load
    if load.kind == "closed":
        if any(level < 1 or level != int(level) for level in load.levels):
            raise UsageError(f"{name}{_line(source, 'levels')}: load.levels is {shown(list(load.levels))}; it must be"
                             f' {LEVELS}. For rates set load.kind = "open".')  # fmt: skip
    elif experiment.decision.metric == "output_tokens_per_s":
        raise UsageError(
            f"{name}: decision.metric is output_tokens_per_s, and in an open load both servers carry what arrives: it"
            " compares nothing. Decide by e2e, tpot or ttft, or measure a closed load."
        )
    return experiment


def as_document(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as nested dictionaries, for run.json."""
    return asdict(experiment)


def from_document(document: Mapping[str, Any]) -> Experiment:
    """Read back what `as_document` wrote, with the same checks; absent optional values stay absent."""
    present = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in document.items()
    }
    return _apply(Experiment(), present, "run.json", "")
