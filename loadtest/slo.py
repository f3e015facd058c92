"""Service level objectives as values and in words; `slo_tables` reads them, the analysis judges them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from loadtest.errors import UsageError, nearest


class Ask(StrEnum):
    """What an objective holds a metric against."""

    ABSOLUTE = "absolute"  # a limit
    RELATIVE = "relative"  # the baseline, and a margin by which it may be worse
    BENEFIT = "benefit"  # the baseline, and a gain


class Unit(StrEnum):
    """The unit of a metric's values."""

    SECONDS = "s"
    SHARE = "share"
    TOKENS_PER_S = "tokens/s"
    REQUESTS_PER_S = "requests/s"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A metric that an objective may name."""

    unit: Unit
    better: str  # lower · higher
    tails: bool = False  # has percentiles; else there is one figure and no statistic
    by_category: bool = True  # can be taken of one category of requests
    label: str


MEASURES: dict[str, Measure] = {
    "ttft": Measure(unit=Unit.SECONDS, better="lower", tails=True, label="time to first token"),
    "ttft_visible": Measure(unit=Unit.SECONDS, better="lower", tails=True, label="time to first visible text"),
    "e2e": Measure(unit=Unit.SECONDS, better="lower", tails=True, label="end-to-end time"),
    "tpot": Measure(unit=Unit.SECONDS, better="lower", tails=True, label="time per output token"),
    "token_gap": Measure(unit=Unit.SECONDS, better="lower", tails=True, label="gap between tokens"),
    "chunk_gap": Measure(unit=Unit.SECONDS, better="lower", tails=True, label="gap between chunks"),
    "worst_stall": Measure(unit=Unit.SECONDS, better="lower", tails=True, label="worst stall"),
    "on_time": Measure(unit=Unit.SHARE, better="higher", label="share of tokens on time"),
    "error_ratio": Measure(unit=Unit.SHARE, better="lower", label="error ratio"),
    "goodput": Measure(unit=Unit.SHARE, better="higher", label="goodput"),
    "goodput_per_s": Measure(unit=Unit.REQUESTS_PER_S, better="higher", label="goodput per second"),
    "output_tokens_per_s": Measure(
        unit=Unit.TOKENS_PER_S, better="higher", by_category=False, label="output tokens per second"
    ),
    "requests_per_s": Measure(
        unit=Unit.REQUESTS_PER_S, better="higher", by_category=False, label="requests per second"
    ),
    "acceptance_ratio": Measure(unit=Unit.SHARE, better="higher", by_category=False, label="acceptance ratio"),
    "tokens_per_step": Measure(unit=Unit.TOKENS, better="higher", by_category=False, label="tokens per step"),
}
PER_REQUEST = ("ttft", "ttft_visible", "e2e", "tpot", "worst_stall")  # what `within` may bound
COUNTED = ("acceptance_ratio", "tokens_per_step")  # read from the candidate's counters
GOODPUT = ("goodput", "goodput_per_s")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
BY_DESIGN = ("chunk_gap", "worst_stall")  # lengthened by speculation, since a step brings several tokens

# MLPerf Inference, loadgen/mlperf.conf at commit b66003e (2026-08-20): p99 of TTFT and of TPOT, in milliseconds.
MLPERF: dict[str, tuple[float, float]] = {
    "llama3.1-8b": (2000, 100), "llama3.1-8b-interactive": (500, 30),
    "llama2-70b": (2000, 200), "llama2-70b-interactive": (450, 40),
    "mixtral-8x7b": (2000, 200),
    "llama3.1-405b": (6000, 175), "llama3.1-405b-interactive": (4500, 80),
    "deepseek-r1": (2000, 80), "deepseek-r1-interactive": (1500, 15),
    "gpt-oss-120b": (3000, 80), "gpt-oss-120b-interactive": (2000, 15),
}  # fmt: skip
PRESETS = tuple(f"mlperf-{name}" for name in MLPERF)
PRESET_SOURCE = "MLPerf Inference, mlperf.conf of 2026-08-20"

USERS, IN_FLIGHT, RATE, SESSIONS, TRAFFIC = "users", "in flight", "requests/s", "sessions/s", "traffic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Where an objective holds: a value and its unit. Without a unit it is every tested level."""

    unit: str = ""  # users · in flight · requests/s · sessions/s · traffic · empty
    value: float | None = None
    up_to: bool = False

    @property
    def words(self) -> str:
        """Return it as a part of a sentence: 'at 32 users', 'up to 32 users', 'at every tested load'."""
        if not self.unit:
            return "at every tested load"
        if self.value is None:
            return "at the expected traffic"
        unit = "user" if self.unit == USERS and self.value == 1 else self.unit
        return f"{'up to' if self.up_to else 'at'} {self.value:g} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """One objective. `limit` is in the metric's unit (s, share, 1/s), or the margin or gain as a share."""

    metric: str
    statistic: str  # mean · p50 … p99; empty for a metric that has one figure
    ask: Ask
    limit: float
    load: Load = Load()
    category: str = ""
    arm: str = "candidate"  # candidate · baseline: whose figure an absolute objective bounds
    candidate: str = ""  # the one candidate that it speaks of; empty: every one
    within: tuple[tuple[str, float], ...] = ()  # goodput: limits of a request, in seconds
    source: str = ""  # of a published preset

    @property
    def measure(self) -> Measure:
        """The metric's row."""
        return MEASURES[self.metric]

    @property
    def lower(self) -> bool:
        """Whether less is better."""
        return self.measure.better == "lower"

    @property
    def subject(self) -> str:
        """Name what is measured: 'ttft p99 of code', 'goodput (ttft ≤ 500 ms)'."""
        parts = [self.metric, self.statistic] if self.statistic else [self.metric]
        if self.within:
            bounds = " and ".join(f"{name} ≤ {written(limit, Unit.SECONDS)}" for name, limit in self.within)
            parts.append(f"({bounds})")
        if self.category:
            parts.append(f"of {self.category}")
        return " ".join(parts)

    @property
    def sentence(self) -> str:
        """Say the objective in one line, such as 'ttft p99 ≤ 500 ms at 32 users'."""
        whose = " (baseline)" if self.arm == "baseline" else f" ({self.candidate})" if self.candidate else ""
        return f"{self.subject}{whose} {self.bound} {self.load.words}"

    @property
    def sentence_of_limit(self) -> str:
        """Say the objective without its load: 'ttft p99 ≤ 500 ms'."""
        return f"{self.subject} {self.bound}"

    @property
    def bound(self) -> str:
        """Say what is asked: '≤ 500 ms', 'at most 5 % worse than the baseline', 'at least 10 % better …'."""
        if self.ask is Ask.ABSOLUTE:
            return f"{'≤' if self.lower else '≥'} {written(self.limit, self.measure.unit)}"
        margin = points(self.limit) if self.measure.unit is Unit.SHARE else percent(self.limit)
        how, word = ("at most", "worse") if self.ask is Ask.RELATIVE else ("at least", "better")
        return f"{how} {margin} {word} than the baseline"


def refuse_strangers(slos: Iterable[Slo], candidates: Sequence[str]) -> None:
    """Raise UsageError for an objective that names a candidate which the run does not have."""
    for slo in slos:
        if slo.candidate and slo.candidate not in candidates:
            there = f"Candidates are {', '.join(candidates)}." if candidates else "One server alone has no candidate."
            raise UsageError(f"{slo.sentence}: the objective names the candidate {slo.candidate!r}, which is none here."
                             f"{nearest(slo.candidate, candidates)} {there}")  # fmt: skip


def percent(share: float) -> str:
    """Return a share as per cent, with as many digits as it needs: 95 %, 0.1 %."""
    return f"{100 * share:.6g} %"


def points(difference: float) -> str:
    """Return a difference of shares in percentage points."""
    return f"{100 * difference:.6g} point{'' if abs(100 * difference - 1) < 1e-9 else 's'}"


def written(value: float, unit: Unit) -> str:
    """Return a value with its unit: 500 ms, 2 s, 95 %, 40 tokens/s."""
    if unit is Unit.SECONDS:
        return f"{value * 1000:.6g} ms" if value < 1 else f"{value:.6g} s"
    return percent(value) if unit is Unit.SHARE else f"{value:.6g} {unit.value}"


_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
UNITS: dict[Unit, dict[str, float]] = {
    Unit.SECONDS: {"us": 1e-6, "µs": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0},
    Unit.SHARE: {"%": 0.01},
    Unit.TOKENS_PER_S: {"tokens/s": 1.0},
    Unit.REQUESTS_PER_S: {"requests/s": 1.0},
    Unit.TOKENS: {"tokens": 1.0},
}
EXAMPLES = {
    Unit.SECONDS: '"500 ms" or "0.5 s"', Unit.SHARE: '"95 %"', Unit.TOKENS_PER_S: '"900 tokens/s"',
    Unit.REQUESTS_PER_S: '"3 requests/s"', Unit.TOKENS: '"1.5 tokens"',
}  # fmt: skip
_LOADS = {USERS: USERS, "user": USERS, IN_FLIGHT: IN_FLIGHT, RATE: RATE, "request/s": RATE, SESSIONS: SESSIONS,
          "session/s": SESSIONS}  # fmt: skip


def shown(value: object) -> str:
    """Return a value as a message shows it, cut at 60 characters."""
    try:
        word = repr(value)
    except (ValueError, RecursionError):  # Python writes no whole number of more than 4300 digits
        return "a value too long to show"
    return word if len(word) <= 60 else word[:59] + "…"


def quantity(word: object, units: Mapping[str, float], example: str) -> float:
    """Return a number with one of the units, in the base unit. Raises ValueError that says what is allowed."""
    if isinstance(word, int | float) and not isinstance(word, bool):
        raise ValueError(f"a text with its unit, such as {example}: {shown(word)} has none")
    match = re.fullmatch(rf"{_NUMBER}\s*(\D.*)?", word.strip()) if isinstance(word, str) else None
    if match is None:
        raise ValueError(f"a number with its unit, such as {example}")
    unit = (match[2] or "").strip()
    if unit not in units:
        hint = nearest(unit, units).strip().lower() if unit else ""
        raise ValueError(f"a number with its unit ({', '.join(units)}{f'; {hint}' if hint else ''}), such as {example}")
    value = float(match[1]) * units[unit]
    if not value < 1e12:
        raise ValueError(f"a number with its unit below 10^12, such as {example}")
    return value


def load_of(word: object, *, up_to: bool) -> Load:
    """Return the load of `at` or `up_to`. Raises ValueError that says what is allowed."""
    example = '"32 users", "30 in flight" or "4 requests/s"'
    if word == TRAFFIC and not up_to:
        return Load(unit=TRAFFIC)
    if isinstance(word, str) and not re.match(r"\s*\d", word):
        others = "" if up_to else ', or "traffic"; every load up to one is `up_to`'
        raise ValueError(f"a load such as {example}{others}")
    value = quantity(word, dict.fromkeys(_LOADS, 1.0), example)
    if value <= 0:
        raise ValueError(f"a load above 0, such as {example}")
    assert isinstance(word, str)
    unit = _LOADS[re.sub(rf"^\s*{_NUMBER}\s*", "", word).strip()]
    return Load(unit=unit, value=value, up_to=up_to)
