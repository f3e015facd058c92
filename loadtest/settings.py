"""The settings of an experiment, section by section: one dataclass per table of NAME.toml, one field per key.

A field carries its check: a function that takes the value read from TOML and returns it converted, or raises ValueError
with what is allowed. Adding a setting is adding a field; the reader, `--set`, the refusal of unknown keys, the run's
header and the documentation test follow from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loadtest.slo_tables import as_tables

T = TypeVar("T")
Check = Callable[[Any], Any]
LARGEST = 1e300  # leaves room for sums and products
DEEPEST = 32  # tables and lists within each other


def key(default: T, check: Check, doc: str) -> T:
    """Declare a setting: its default, its check and one sentence on it."""
    factory = {"default_factory": lambda: dict(default)} if isinstance(default, dict) else {"default": default}
    return field(metadata={"check": check, "doc": doc}, **factory)  # type: ignore[no-any-return]


def shown(value: Any, longest: int = 120) -> str:
    """Return a value as a message shows it, cut to `longest` characters."""
    try:
        word = repr(value)
    except (ValueError, RecursionError):  # Python writes no whole number of more than 4300 digits
        return "a value too long to show"
    return word if len(word) <= longest else word[: longest - 1] + "…"


def number(low: float = -math.inf, high: float = math.inf, *, above: float | None = None) -> Check:
    """Accept a finite number in [low, high], and greater than `above` when given."""
    floor = f"above {above:g}" if above is not None else f"at least {low:g}" if low > -math.inf else ""
    allowed = " and ".join(part for part in (floor, f"at most {high:g}" if high < math.inf else "") if part)

    def check(value: Any) -> float:
        # Compared, not converted: a whole number may be greater than any float.
        if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
            raise ValueError(f"a number{' ' + allowed if allowed else ''}")
        if not low <= value <= high or (above is not None and value <= above):
            raise ValueError(f"a number {allowed}")
        return float(value)

    return check


def whole(low: int, high: int) -> Check:
    """Accept a whole number in [low, high]."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def choice(*allowed: str) -> Check:
    """Accept one of the words."""

    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError("one of " + ", ".join(f'"{word}"' for word in allowed))
        return str(value)

    return check


def text(value: Any) -> str:
    """Accept a string."""
    if not isinstance(value, str) or not _is_unicode(value):
        raise ValueError("a string of Unicode text")
    return value


def _is_unicode(word: str) -> bool:
    """Return whether a word can be sent and written: bytes that are no UTF-8 arrive as lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in word)


def flag(value: Any) -> bool:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def strings(value: Any) -> tuple[str, ...]:
    """Accept a list of strings."""
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and item and _is_unicode(item) for item in value
    ):
        raise ValueError("a list of non-empty strings")
    return tuple(value)


ACCEPTED = ("declared speculation",)


def accepted(value: Any) -> tuple[str, ...]:
    """Accept a list of things that a gate may take without proof."""
    if not isinstance(value, list | tuple) or any(item not in ACCEPTED for item in value):
        raise ValueError(f"a list of {', '.join(repr(item) for item in ACCEPTED)}")
    return tuple(value)


def table(value: Any) -> dict[str, Any]:
    """Accept a table of any keys, with values that JSON has."""
    if not isinstance(value, dict) or not _is_json(value, DEEPEST):
        raise ValueError(
            "a table of texts, numbers of at most 64 bits, true, false, lists and tables: it goes into JSON"
        )
    return dict(value)


def _is_json(value: Any, deeper: int) -> bool:
    """Return whether JSON can hold a value from TOML: no dates, no NaN, no whole number beyond 64 bits."""
    if isinstance(value, dict):
        return deeper > 0 and all(_is_unicode(name) and _is_json(inner, deeper - 1) for name, inner in value.items())
    if isinstance(value, list):
        return deeper > 0 and all(_is_json(inner, deeper - 1) for inner in value)
    if isinstance(value, str):
        return _is_unicode(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**64)


MAX_LEVEL = 16384
MAX_LEVELS = 64
MAX_TRAFFIC = 1000  # loads of the expected traffic


def levels(value: Any) -> tuple[float, ...]:
    """Accept a list of different whole user counts; returned in ascending order."""
    allowed = f"a list of 1 to {MAX_LEVELS} different whole numbers from 1 to {MAX_LEVEL}"
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_LEVELS:
        raise ValueError(allowed)
    for item in value:
        is_number = isinstance(item, int | float) and not isinstance(item, bool)
        if not is_number or not 1 <= item <= MAX_LEVEL or item != int(item):
            raise ValueError(allowed)
    if len(set(value)) != len(value):
        raise ValueError(allowed)
    return tuple(float(item) for item in sorted(value))


def loads(value: Any) -> tuple[float, ...]:
    """Accept a list of different loads above 0."""
    allowed = f"a list of at most {MAX_TRAFFIC} different numbers above 0"
    if not isinstance(value, list | tuple) or len(value) > MAX_TRAFFIC:
        raise ValueError(allowed)
    try:
        found = tuple(number(above=0)(item) for item in value)
    except ValueError:
        raise ValueError(allowed) from None
    if len(set(found)) != len(found):
        raise ValueError(allowed)
    return found


def hours(value: Any) -> tuple[float, ...]:
    """Accept a list of durations in hours."""
    if not isinstance(value, list | tuple) or len(value) > MAX_TRAFFIC:
        raise ValueError(f"a list of at most {MAX_TRAFFIC} numbers above 0")
    return tuple(number(above=0)(item) for item in value)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration_s(value: Any) -> float:
    """Accept seconds as a number or a word such as "90s", "250 ms", "2m"; returned in seconds."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError('seconds, or a duration such as "90s", "250ms" or "2m"')
        value = float(match[1]) * _UNIT_S[match[2] or ""]
    return float(number(0.0)(value))


def positive_s(value: Any) -> float:
    """Accept a duration above 0."""
    seconds = duration_s(value)
    if seconds <= 0:
        raise ValueError("a duration above 0")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """[load]: how much traffic, and of which form."""

    kind: str = key("closed", choice("closed"), "closed: each user sends its next request when the last is done")
    levels: tuple[float, ...] = key((1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), levels, "users of each level")
    think_time: float = key(1.0, number(0, 100), "factor on the scenario's think times; 0 removes them")
    tags: tuple[str, ...] = key((), strings, "only tasks with one of these tags (Locust's @tag); default: all tasks")
    exclude_tags: tuple[str, ...] = key((), strings, "no task with one of these tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """[window]: how long a cell is measured: until `min_requests` are due, within [`min_s`, `max_s`]."""

    min_s: float = key(60.0, positive_s, "shortest window")
    max_s: float = key(120.0, positive_s, "longest window")
    min_requests: int = key(100, whole(1, 1_000_000), "requests due that the window waits for, up to its longest")
    warmup_requests: float = key(2.0, number(0, 100), "median requests that pass at full load before the window opens")
    warmup_max_s: float = key(120.0, positive_s, "longest warm-up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """[plan]: how often, and in which order."""

    blocks: int = key(6, whole(1, 1000), "visits to every arm at every level")
    seed: int = key(1, whole(0, 2**63 - 1), "decides order, sessions and text")
    stages: str = key(
        "auto", choice("auto", "one", "two"),
        "two: a coarse ladder over the levels chooses those that are judged; auto: two with servers of your own, unless"
        " --levels fixes the levels, else one",
    )  # fmt: skip
    coarse_blocks: int = key(1, whole(1, 1000), "visits to every arm at each level of the coarse ladder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """[generation]: sent explicitly, and alike, to every arm."""

    temperature: float = key(0.0, number(0, 2), "sampling temperature")
    top_p: float | None = key(None, number(0, 1, above=0), "nucleus sampling")
    top_k: int | None = key(None, whole(-1, 1_000_000), "top-k sampling")
    max_tokens: int = key(512, whole(1, 1_000_000), "limit on the length of an answer")
    stop: tuple[str, ...] = key((), strings, "stop strings")
    seed: int | None = key(None, whole(0, 2**63 - 1), "sampling seed sent with each request")
    ignore_eos: bool = key(False, flag, "forces answers to max_tokens; makes text degenerate and inflates acceptance")
    template: dict[str, Any] = key({}, table, "chat_template_kwargs, such as enable_thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """[decision]: what 'pays' means."""

    metric: str = key("e2e", choice("e2e", "tpot", "ttft", "output_tokens_per_s"), "metric that decides, by its mean")
    min_gain: float = key(0.03, number(0, 10), "least gain that counts, as a share")
    ttft_margin: float = key(0.10, number(0, 100), "guard: most that the TTFT tail may be above the baseline's")
    ttft_ignore_below_s: float = key(
        0.0, duration_s, "guard: a TTFT tail below this is never held against the candidate, however it compares"
    )
    on_time_margin: float = key(0.01, number(0, 1), "guard: share of on-time tokens at most this much lower")
    reading_pace: float = key(15.0, number(above=0), "tokens/s at which a reader follows; defines on_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """[limits]: deadlines of a request and bounds of a cell."""

    connect_s: float = key(10.0, positive_s, "opening a connection")
    first_token_s: float = key(120.0, positive_s, "from sending to the first token")
    stall_s: float = key(60.0, positive_s, "between two events of a stream")
    total_s: float = key(600.0, positive_s, "a whole request")
    idle_s: float = key(60.0, positive_s, "waiting for a server to become idle before a cell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """[servers]: where the arms are, and how they are spoken to."""

    baseline: str = key("", text, "URL of the server without speculation")
    speculative: str = key("", text, "URL of the server with speculation")
    model: str = key("", text, "model name; default: the one the server lists")
    api_key_env: str = key("", text, "name of the environment variable that holds the API key")
    token_counts: str = key(
        "auto", choice("auto", "measure", "all", "sample"),
        "which requests ask for the tokens of each chunk: all, a sample, or as their measured price allows; auto does"
        " not measure it on simulated servers",
    )  # fmt: skip
    cache: str = key("salt", choice("salt", "keep"), "prefix cache between cells: a fresh cache_salt per cell, or kept")
    insecure: bool = key(False, flag, "do not verify TLS certificates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """[demo]: what replaces the settings above when no server is named and the simulated pair is used."""

    preset: str = key("default", text, "world of the simulated pair")
    levels: tuple[float, ...] = key((4.0, 16.0, 32.0, 48.0, 64.0), levels, "users of each level")
    blocks: int = key(3, whole(1, 1000), "visits to every arm at every level")
    window_s: float = key(3.0, positive_s, "length of a window")
    max_tokens: int = key(64, whole(1, 1_000_000), "limit on the length of an answer")
    think_time: float = key(0.0, number(0, 100), "factor on the scenario's think times")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slos:
    """[[slo]]: the objectives that the gate judges, as they were written."""

    rules: tuple[dict[str, Any], ...] = key((), as_tables, "one table per objective; loadtest/slo_tables.py reads them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """[traffic]: the load of the expected day, as a distribution or a trace."""

    unit: str = key("users", choice("users", "in flight", "requests/s"), "unit of the loads")
    loads: tuple[float, ...] = key((), loads, "loads of the day")
    hours: tuple[float, ...] = key((), hours, "hours of the day at each load")
    trace: str = key(
        "", text, "CSV file beside the .toml: a column users, in_flight or requests_per_s, and seconds if rows differ"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """[gate]: what the gate does where it cannot tell, and what it takes on trust."""

    inconclusive: str = key(
        "", choice("", "fail", "warn"), "an inconclusive objective: exit 4 (default), fail (exit 3) or warn (exit 0)"
    )
    accept: tuple[str, ...] = key((), accepted, 'taken without proof: "declared speculation"')
    regression_margin: float = key(0.03, number(0, 10), "gate --against: most that a metric may be worse, as a share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """[price]: what a GPU costs; gives the cost of a million tokens at capacity."""

    gpu_hour: float | None = key(None, number(above=0), "price of one GPU for one hour")
    currency: str = key("USD", text, "its currency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """[outputs]: whether both arms answer alike; asked before the first cell, apart from what is measured."""

    prompts: int | None = key(
        None, whole(0, 10_000), "prompts to compare answers by; default: 40, and 0 on simulated servers or with --smoke"
    )
    max_tokens: int = key(64, whole(1, 1_000_000), "limit on the length of these answers")
    margin: float = key(
        0.10, number(0, 1, above=0), "share of answers that may differ beyond the baseline's own and count as the same"
    )
    keep_text: bool = key(False, flag, "keep the answers themselves; else only hashes and counts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Everything that decides a run except the servers' own state: NAME.toml with the options applied."""

    load: Load = field(default_factory=Load)
    window: Window = field(default_factory=Window)
    plan: Plan = field(default_factory=Plan)
    generation: Generation = field(default_factory=Generation)
    decision: Decision = field(default_factory=Decision)
    limits: Limits = field(default_factory=Limits)
    servers: Servers = field(default_factory=Servers)
    demo: Demo = field(default_factory=Demo)
    slo: Slos = field(default_factory=Slos)
    traffic: Traffic = field(default_factory=Traffic)
    gate: Gate = field(default_factory=Gate)
    price: Price = field(default_factory=Price)
    outputs: Outputs = field(default_factory=Outputs)
