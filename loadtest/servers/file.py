"""A servers file (TOML): arms as tables, and how they are started; what is unknown or wrong is named with its line.

    machine = "shared"                # shared: one arm runs at a time · own: both stay up
    [variables]
    root = "${VLLM_ROOT:-vllm}"       # from the environment, else what follows :-; ${NAME} alone must be set
    python = "{root}/bin/python"
    [arms.baseline]
    role = "baseline"
    url = "http://127.0.0.1:8101"
    start = ["{python}", "-m", "vllm.entrypoints.openai.api_server", "--port", "{port}"]

`{name}` in a text is a variable; `{python}` (unless set: the Python that runs this program), `{host}` and `{port}`
(of the arm's URL) are always there. Braces around anything but a name stay as they are, so that JSON needs no care.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtest.checks import choice, shown
from loadtest.errors import UsageError, nearest
from loadtest.experiment import parse_toml
from loadtest.servers.address import clean_url, proxy_url, read_address
from loadtest.servers.arm import ARM_NAME, NO_COUNTERS, Arm
from loadtest.servers.arm_table import ArmTable as ArmTable
from loadtest.servers.hiding import HIDDEN, hidden, is_secret, secret_words

LEAST_INHERITED = 8  # characters of a secret that a server has from the shell: shorter words are in any log
MACHINES, COMPARISONS = ("shared", "own"), ("deployed", "isolated")
TOP = ("machine", "comparison", "variables", "arms")
_PLACE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^{}]*))?\}|\{([A-Za-z_]\w*)\}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How an arm is started, ready to run."""

    command: tuple[str, ...] = field(repr=False)
    env: dict[str, str] = field(repr=False)  # what is set on top of this program's own environment
    cwd: Path | None
    ready_s: float
    stop_s: float
    health: str
    stop: tuple[str, ...] = field(default=(), repr=False)  # run once the command and its children have ended
    secrets: tuple[str, ...] = field(default=(), repr=False)  # values that must not be shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFile:
    """A servers file, read and checked."""

    path: Path
    sha256: str
    machine: str  # shared · own
    comparison: str  # deployed · isolated
    arms: dict[str, Arm]
    starts: dict[str, Start]  # of the arms that the run starts
    contents: dict[str, Any]  # the file as written, for run.json: nothing from the environment, secrets hidden


def read_servers(path: Path, environment: Mapping[str, str] = os.environ) -> ServersFile:
    """Read a servers file. Raises UsageError for whatever is wrong with it, with its line."""
    if path.exists() and not path.is_file():  # a pipe or a device may never end
        raise UsageError(f"--servers {path} is not a file.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--servers {path} cannot be read: {error.strerror}.") from error
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error
    document = parse_toml(source, str(path))
    return _Reader(path, source, environment).read(document, hashlib.sha256(data).hexdigest())


class _Reader:
    """Turns one document into arms; knows where each key stands."""

    def __init__(self, path: Path, source: str, environment: Mapping[str, str]) -> None:
        self._path, self._source, self._environment = path, source, environment
        self._variables: dict[str, str] = {"python": sys.executable}

    def read(self, document: Mapping[str, Any], sha256: str) -> ServersFile:
        self._known(document, TOP, "", "The file")
        machine = self._choice(document, "machine", MACHINES)
        comparison = self._choice(document, "comparison", COMPARISONS)
        self._read_variables(document.get("variables", {}))
        tables = document.get("arms", {})
        if not isinstance(tables, Mapping) or not tables:
            raise UsageError(f"{self._path} names no arm; write a table such as [arms.baseline].")
        read = {name: self._table(name, values) for name, values in tables.items()}
        return ServersFile(
            path=self._path, sha256=sha256, machine=machine, comparison=comparison,
            arms={name: self._arm(name, table) for name, table in read.items()},
            starts={name: self._start(name, table) for name, table in read.items() if table.start},
            contents=hidden(document),
        )  # fmt: skip

    def _fail(self, table: str, name: str, said: str) -> UsageError:
        return UsageError(f"{self._path}{_line(self._source, table, name)}: {said}")

    def _known(self, values: Mapping[str, Any], allowed: tuple[str, ...], table: str, subject: str) -> None:
        for name in values:
            if name not in allowed:
                hint = nearest(name, allowed)
                said = f"{subject} has no key `{name}`.{hint} Its keys are {', '.join(allowed)}."
                raise self._fail(table, name, said)

    def _choice(self, document: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
        try:
            return str(choice(*allowed)(document.get(name, allowed[0])))
        except ValueError as wanted:
            raise self._fail("", name, f"{name} is {shown(document[name])}; it must be {wanted}.") from None

    def _read_variables(self, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise self._fail("", "variables", "variables must be a table, written as [variables].")
        for name, value in values.items():
            if not isinstance(value, str):
                raise self._fail("variables", name, f"variables.{name} is {_shown(name, value)}; it must be a string.")
            self._variables[name] = self._filled(value, self._variables, "variables", name)

    def _table(self, name: str, values: Any) -> ArmTable:
        table = f"arms.{name}"
        if not ARM_NAME.fullmatch(name):
            said = f"{name!r} is no name for an arm; use letters, digits and . _ - only, at most 64."
            raise self._fail("", table, said)
        if not isinstance(values, Mapping):
            raise self._fail("arms", name, f"{table} must be a table, written as [{table}].")
        known = {f.name: f for f in fields(ArmTable)}
        self._known(values, tuple(known), table, f"[{table}]")
        checked: dict[str, Any] = {}
        for item, value in values.items():
            try:
                checked[item] = known[item].metadata["check"](value)
            except ValueError as allowed:
                said = f"{table}.{item} is {_shown(item, value)}; it must be {allowed}."
                raise self._fail(table, item, said) from None
        for needed, example in (("role", 'role = "baseline" or "candidate"'), ("url", 'url = "http://127.0.0.1:8000"')):
            if not checked.get(needed):
                raise self._fail("", table, f"[{table}] has no {needed}; write {example}.")
        for item in ("start", "stop"):
            if item in checked and not checked[item]:
                raise self._fail(table, item, f"{table}.{item} is empty; it must be a command as a list of words.")
        if checked.get("stop") and not checked.get("start"):
            raise self._fail(table, "stop", f"{table}.stop ends what {table}.start left; there is no {table}.start.")
        return ArmTable(**checked)

    def _filled(self, word: str, variables: Mapping[str, str], table: str, name: str) -> str:
        """Replace `${NAME}` and `${NAME:-default}` by the environment's value, `{name}` by the variable's."""

        def value(found: re.Match[str]) -> str:
            if found[1]:
                if not self._environment.get(found[1]) and found[2] is not None:
                    return found[2]
                if found[1] not in self._environment:
                    said = f"{table}.{name} needs {found[1]}, which is not set in the environment."
                    raise self._fail(table, name, said)
                return self._environment[found[1]]
            if found[3] not in variables:
                said = f"{table}.{name} names {{{found[3]}}}, which is no variable.{nearest(found[3], variables)}"
                raise self._fail(table, name, f"{said} There are {', '.join(variables)}; set more in [variables].")
            return variables[found[3]]

        return _PLACE.sub(value, word)

    def _fill_for(self, name: str, table: ArmTable) -> Callable[[str, str], str]:
        """Return the function (word, key) → word that knows the arm's own host and port."""
        where = f"arms.{name}"
        url = clean_url(self._filled(table.url, self._variables, where, "url"), f"{where}.url")
        parts = urlsplit(url)
        own = {"host": parts.hostname or "", "port": str(parts.port or (443 if parts.scheme == "https" else 80))}
        return lambda word, item: self._filled(word, self._variables | own, where, item)

    def _arm(self, name: str, table: ArmTable) -> Arm:
        fill = self._fill_for(name, table)
        ca = fill(table.ca, "ca")
        return Arm(
            name=name, role=table.role, url=clean_url(fill(table.url, "url"), f"arms.{name}.url"),
            model=fill(table.model, "model"), api_key_env=table.api_key_env, insecure=table.insecure,
            proxy=proxy_url(fill(table.proxy, "proxy"), f"arms.{name}.proxy"),
            headers_env=table.headers_env, ca=str(self._path.parent / ca) if ca else "",
            metrics=self._metrics(name, [fill(word, "metrics") for word in table.metrics]),
            kind=table.kind, prometheus=clean_url(fill(table.prometheus, "prometheus"), f"arms.{name}.prometheus")
            if table.prometheus else "", prometheus_match=fill(table.prometheus_match, "prometheus_match"),
            declared={item: fill(value, "declared") for item, value in table.declared.items()},
            replicas=table.replicas, gpus=table.gpus, method=table.method, k=table.k,
        )  # fmt: skip

    def _metrics(self, name: str, words: Sequence[str]) -> tuple[str, ...]:
        """Return the metrics URLs of an arm; one that is named twice would be counted twice."""
        urls = tuple(_metrics_url(word, f"arms.{name}.metrics") for word in words)
        if twice := next((url for at, url in enumerate(urls) if url in urls[:at]), None):
            said = f"arms.{name}.metrics names {twice} twice, so that its counters would count twice."
            raise self._fail(f"arms.{name}", "metrics", f"{said} Name each replica once.")
        return urls

    def _start(self, name: str, table: ArmTable) -> Start:
        fill, where = self._fill_for(name, table), f"arms.{name}"
        command = tuple(fill(word, "start") for word in table.start)
        stop = tuple(fill(word, "stop") for word in table.stop)
        env = {variable: fill(value, "env") for variable, value in table.env.items()}
        for item, words in (("start", command), ("stop", stop), ("env", (*env, *env.values()))):
            if any("\0" in word for word in words):
                raise self._fail(where, item, f"{where}.{item} holds a NUL character, which no command can take.")
        if wrong := next((variable for variable in env if not variable or "=" in variable), None):
            raise self._fail(where, "env", f"{where}.env names a variable {wrong!r}; a name has no `=`.")
        cwd = fill(table.cwd, "cwd")
        folder = self._path.parent / cwd if cwd else None
        if folder is not None and not folder.is_dir():
            raise self._fail(where, "cwd", f"{where}.cwd is {cwd!r}; there is no such folder.")
        held = [self._environment.get(variable, "") for variable in (table.api_key_env, *table.headers_env.values())]
        held += [value for variable, value in env.items() if is_secret(variable)]
        held += [v for name, v in self._environment.items() if is_secret(name) and len(v) >= LEAST_INHERITED]
        held += [words[i].partition("=")[2] or words[i] for words in (command, stop) for i in secret_words(words)]
        return Start(command=command, stop=stop, env=env, cwd=folder, ready_s=table.ready_s, stop_s=table.stop_s,
                     health=table.health, secrets=tuple(dict.fromkeys(value for value in held if value)))  # fmt: skip


def _metrics_url(word: str, named: str) -> str:
    return word if word.startswith("/") or word == NO_COUNTERS else read_address(word, named).url


def _shown(name: str, value: Any) -> str:
    return HIDDEN if name in ("env", "headers_env", "start", "stop") or is_secret(name) else shown(value)


def _line(source: str, table: str, name: str) -> str:
    """Return where a key of a table stands, as ', line N'; empty when it is written in some other form."""
    start = 0
    if table:
        header = re.search(rf"^[ \t]*\[[ \t]*{_quoted(table)}[ \t]*\]", source, re.MULTILINE)
        start = header.end() if header else 0
    found = re.compile(rf"^[ \t]*\[?[ \t]*{_quoted(name)}[ \t]*(=|\])", re.MULTILINE).search(source, start)
    return f", line {source.count(chr(10), 0, found.start()) + 1}" if found else ""


def _quoted(dotted: str) -> str:
    first, dot, rest = dotted.partition(".")
    return rf"\"?{re.escape(first)}\"?" + (rf"[ \t]*\.[ \t]*\"?{re.escape(rest)}\"?" if dot else "")
