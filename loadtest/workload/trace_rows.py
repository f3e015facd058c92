"""Rows of a trace, in the forms of published traces, plain CSV or JSONL, or a log with its text; nothing is evaluated.

What a column means is known by its name, whatever its case and underscores; `FORMS` holds what else is peculiar to a
published trace. A row that cannot be used raises LeftOut, which is counted and never stops the reading.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from loadtest.errors import UsageError, nearest
from loadtest.workload.logged import Asked, LeftOut, asked_of
from loadtest.workload.trace_lines import MAX_LINE_BYTES, Line, lines_of, open_plain
from loadtest.workload.trace_times import time_s

# Field → names of the columns or keys that hold it; "a.b" lies within "a". The first that is there counts.
NAMES: dict[str, tuple[str, ...]] = {
    "ts": ("ts", "timestamp", "time", "arrival", "arrived", "datetime", "createdat", "created", "requesttime", "starttime"),
    "input_tokens": ("inputtokens", "prompttokens", "contexttokens", "requesttokens", "inputlength", "promptlength",
                     "numprefilltokens", "usage.prompttokens", "response.usage.prompttokens"),
    "output_tokens": ("outputtokens", "completiontokens", "generatedtokens", "responsetokens", "outputlength",
                      "numdecodetokens", "usage.completiontokens", "response.usage.completiontokens"),
    "session": ("session", "sessionid", "conversation", "conversationid", "chatid", "threadid"),
    "class": ("class", "category"),
    "duration_s": ("durations", "elapsedtime", "latencys"),
    "hash_ids": ("hashids",),
    "block_tokens": ("blocktokens",),
    "messages": ("messages", "request.messages", "body.messages"),
    "prompt": ("prompt", "request.prompt", "body.prompt"),
    "tools": ("tools", "request.tools", "body.tools"),
    "params": ("params",),
    "appended": ("appended",),
}  # fmt: skip
PARAMS = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "stop", "seed")
MILLISECONDS = ("timestampms", "tsms", "timems")
MOST_TOKENS = 10**8


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What is peculiar to the files of one publisher."""

    name: str
    columns: frozenset[str]  # a file that has all of these is one
    unit_s: float | None = None  # of a time that is a number; None: told by its size
    block_tokens: int = 0  # tokens of a block that `hash_ids` counts
    text: str = ""  # kind of text by which lengths are met; "" : told by the class or the file's name


FORMS = (
    Form(name="Azure LLM inference trace", columns=frozenset(("timestamp", "contexttokens", "generatedtokens"))),
    Form(name="BurstGPT", columns=frozenset(("timestamp", "model", "requesttokens", "responsetokens", "logtype")),
         unit_s=1.0, text="chat"),
    Form(name="Mooncake", columns=frozenset(("timestamp", "inputlength", "outputlength", "hashids")), unit_s=0.001,
         block_tokens=512),
    Form(name="log", columns=frozenset(("messages",))),
    Form(name="log", columns=frozenset(("prompt",))),
    Form(name="trace", columns=frozenset()),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request of a trace: when it arrived and how long it is, or what it says."""

    line: int
    offset: int  # of its line in the file
    t_s: float  # when it arrived, in seconds of the file's own clock
    input_tokens: int | None = None
    output_tokens: int | None = None
    session: str = ""
    category: str = ""
    duration_s: float | None = None
    blocks: tuple[int, ...] = ()  # of its prompt: equal numbers are equal text
    block_tokens: int = 0
    asked: Asked | None = field(default=None, repr=False)
    appended: bool = False  # its messages follow those of the session's request before it
    params: Mapping[str, Any] = field(default_factory=dict)
    mended: str = ""


@dataclass(slots=True)
class Counted:
    """How many rows share a reason, and the first of them."""

    rows: int = 0
    line: int = 0
    seen: str = ""

    def add(self, line: int, seen: str = "") -> None:
        """Count one more."""
        if not self.rows:
            self.line, self.seen = line, seen
        self.rows += 1


class TraceFile:
    """A file of rows. `left_out` and `mended` count by reason while `rows()` is read through."""

    def __init__(self, path: Path, mapped: Mapping[str, str] | None = None) -> None:
        """Look at the file's first row; `mapped` says by which name a field goes in it. Raises UsageError."""
        self.path, self._mapped = path, dict(mapped or {})
        self.left_out: dict[str, Counted] = {}
        self.mended: dict[str, Counted] = {}
        self.read = 0  # rows, used or not
        self._heading: list[str] | None = None
        self.form = FORMS[-1]
        self._reader = self._look()

    def rows(self) -> Iterator[Row]:
        """Yield the usable rows in the order of the file."""
        with open_plain(self.path) as file:
            lines = lines_of(file)
            if self._heading is not None:
                next(lines, None)
            for line in lines:
                self.read += 1
                try:
                    row = self.row(line)
                except LeftOut as why:
                    self.left_out.setdefault(why.reason, Counted()).add(line.number, why.seen)
                    continue
                if row.mended:
                    self.mended.setdefault(row.mended, Counted()).add(line.number)
                yield row

    def row(self, line: Line) -> Row:
        """Return the row of a line. Raises LeftOut."""
        if not line.data:
            raise LeftOut(f"longer than {MAX_LINE_BYTES:,} bytes, the limit of a line")
        return self._reader(line)

    def _look(self) -> Callable[[Line], Row]:
        with open_plain(self.path) as file:
            first = next(lines_of(file), None)
        if first is None:
            raise UsageError(f"{self.path} holds no row: every line is blank.")
        start = first.data[:1]
        if start == b"[":
            raise UsageError(f"{self.path} is one JSON array; write one JSON object per line (jq -c '.[]' FILE).")
        return self._look_at_json() if start == b"{" else self._look_at_heading(first)

    def _look_at_json(self) -> Callable[[Line], Row]:
        with open_plain(self.path) as file:
            for line in lines_of(file):
                try:
                    keys = frozenset(_paths(_object(line.data)))
                except LeftOut:
                    continue
                known = {plain(name) for name in self._mapped}
                self.form = _form(frozenset(key.rpartition(".")[2] for key in keys) | known)
                break
        places = {name: self._ways(name) for name in NAMES}
        return lambda line: self._row(line, _Json(_object(line.data), places).get)

    def _ways(self, name: str) -> tuple[str, ...]:
        return (self._mapped[name],) if name in self._mapped else (name, *NAMES[name])

    def _look_at_heading(self, first: Line) -> Callable[[Line], Row]:
        text = _decoded(first.data, UsageError(f"{self.path}, line {first.number} is not UTF-8 text; save it as such."))
        comma = max(",;\t", key=text.count)
        heading = next(csv.reader([text], delimiter=comma))
        columns = {plain(name): at for at, name in reversed(list(enumerate(heading)))}
        mapped = {plain(path): name for name, path in self._mapped.items()}
        self._heading = heading
        self.form = _form(frozenset(columns))
        at = {name: next((columns[way] for way in map(plain, self._ways(name)) if way in columns), None)
              for name in NAMES}  # fmt: skip
        if at["ts"] is None:
            at["ts"] = next((columns[name] for name in MILLISECONDS if name in columns), None)
        for path, name in mapped.items():
            if path not in columns:
                raise UsageError(f"--map {name}={self._mapped[name]}: {self.path} has no such column."
                                 f"{nearest(self._mapped[name], heading)} Its columns: {_list(heading)}.")  # fmt: skip
        self._refuse_missing(heading, at, first.number)
        width = len(heading)
        return lambda line: self._row(line, _Csv(line, comma, width, at).get)

    def _refuse_missing(self, heading: Sequence[str], at: Mapping[str, int | None], line: int) -> None:
        for name, what in (("ts", "arrival times"), ("input_tokens", "input lengths")):
            if at[name] is None and not (name == "input_tokens" and (at["prompt"] is not None)):
                hint = next((h for h in (nearest(plain(c), NAMES[name]) for c in heading) if h), "")
                raise UsageError(
                    f"{self.path}, line {line}: no column of {what}, such as `{name}`.{hint} Columns are"
                    f" {_list(heading)}; `loadtest import --map {name}=COLUMN` names one."
                )

    def _row(self, line: Line, get: Callable[[str], Any]) -> Row:
        milliseconds = self.form.unit_s
        ts = get("ts")
        if ts is None or ts == "":
            raise LeftOut("no time of arrival (`ts`)")
        try:
            t_s = time_s(ts, milliseconds)
        except ValueError as allowed:
            raise LeftOut(f"the time of arrival is not {allowed}", _shown(ts)) from None
        if not math.isfinite(t_s):
            raise LeftOut("the time of arrival is not finite", _shown(ts))
        messages, prompt = get("messages"), get("prompt")
        appended = get("appended")
        asked = None
        if messages is not None or prompt is not None or appended is not None:
            asked = asked_of(messages if appended is None else appended, prompt, get("tools"))
        return self._with_lengths(line, t_s, asked, get, appended=appended is not None)

    def _with_lengths(self, line: Line, t_s: float, asked: Asked | None, get: Callable[[str], Any], *,
                      appended: bool) -> Row:  # fmt: skip
        given, answered, mended = _tokens(get, "input_tokens"), _tokens(get, "output_tokens"), ""
        if asked is None and not given:
            raise LeftOut("no input tokens")
        if answered == 0:
            raise LeftOut("no output tokens: a request that failed")
        if answered is None:
            mended = "no count of output tokens: the answer ends by itself"
        duration = get("duration_s")
        blocks = get("hash_ids")
        size = get("block_tokens") or self.form.block_tokens
        return Row(
            line=line.number, offset=line.offset, t_s=t_s, input_tokens=given or None, output_tokens=answered,
            session=_name(get("session"), "session"), category=_name(get("class"), "class"),
            duration_s=_seconds(duration), blocks=_blocks(blocks), block_tokens=_count(size) or 512, asked=asked,
            appended=appended, params=_params(get), mended=(asked.mended if asked else "") or mended,
        )  # fmt: skip


class _Csv:
    """The fields of one line of a CSV file."""

    __slots__ = ("_at", "_cells")

    def __init__(self, line: Line, comma: str, width: int, at: Mapping[str, int | None]) -> None:
        text = _decoded(line.data, LeftOut("not UTF-8 text"))
        self._at = at
        self._cells = text.split(comma) if '"' not in text else _quoted(text, comma)
        if len(self._cells) != width:
            raise LeftOut("another number of fields than the heading", f"{len(self._cells)} instead of {width}")

    def get(self, name: str) -> str | None:
        at = self._at.get(name)
        return self._cells[at].strip() or None if at is not None else None


def _quoted(text: str, comma: str) -> list[str]:
    if text.count('"') % 2:
        raise LeftOut("a quote that is not closed within its line")
    try:
        return next(csv.reader([text], delimiter=comma, strict=True))
    except csv.Error:
        raise LeftOut("quotes that are no CSV") from None


class _Json:
    """The fields of one JSON object, by the names that it uses."""

    __slots__ = ("_flat", "_object", "_places")

    def __init__(self, found: Mapping[str, Any], places: Mapping[str, tuple[str, ...]]) -> None:
        self._object, self._places = found, places
        self._flat = {plain(name): name for name in reversed(list(found))}

    def get(self, name: str) -> Any:
        for path in self._places.get(name, (name,)):
            value = self._within(path)
            if value is not None:
                return value
        if name == "ts":
            return next((self._within(way) for way in MILLISECONDS if self._within(way) is not None), None)
        return None

    def _within(self, path: str) -> Any:
        head, dot, rest = path.partition(".")
        value = self._object.get(head)
        if value is None and (found := self._flat.get(plain(head))):
            value = self._object.get(found)
        return _dig(value, rest) if dot else value


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


def plain(name: str) -> str:
    """Return the name of a column as it is compared: small letters, digits and the dots between levels."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _form(columns: frozenset[str]) -> Form:
    return next(form for form in FORMS if form.columns <= columns)


def _paths(found: Mapping[str, Any]) -> Iterator[str]:
    for name, value in found.items():
        yield plain(name)
        if isinstance(value, Mapping):
            yield from (f"{plain(name)}.{plain(inner)}" for inner in value if isinstance(inner, str))


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise LeftOut("not JSON") from None
    if not isinstance(found, dict):
        raise LeftOut("JSON that is no object")
    return found


def _decoded(data: bytes, otherwise: Exception) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise otherwise from None


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


def _tokens(get: Callable[[str], Any], name: str) -> int | None:
    value = get(name)
    try:
        return _count(value)
    except (TypeError, ValueError):
        raise LeftOut(f"`{name}` is no whole number of tokens", _shown(value)) from None


def _seconds(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if 0 < found < 1e6 else None


def _name(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise LeftOut(f"`{what}` is neither a text nor a number")
    return str(value)


def _blocks(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        raise LeftOut("`hash_ids` is no list of whole numbers")
    return tuple(value)


def _params(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the sampling parameters of an OpenAI body, or of `params`."""
    table = get("params")
    found = {name: table[name] for name in PARAMS if name in table} if isinstance(table, Mapping) else {}
    for name in PARAMS:
        if name not in found and (value := get(name)) is not None:
            found[name] = value
    return {name: value for name, value in found.items() if isinstance(value, str | int | float | list)}


def _shown(value: Any) -> str:
    """Return a time or a count as a message shows it; text of a log is never given to this."""
    word = repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"
    return word if len(word) <= 40 else word[:39] + "…"


def _list(columns: Sequence[str]) -> str:
    shown = [name.strip()[:40] or "(unnamed)" for name in columns[:12]]
    return ", ".join(shown) + (" …" if len(columns) > 12 else "")
