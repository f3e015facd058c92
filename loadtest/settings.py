"""The settings of an experiment, section by section: one dataclass per table of NAME.toml, one field per key.

A field carries its check: a function that takes the value read from TOML and returns it converted, or raises ValueError
with what is allowed. Adding a setting is adding a field; the reader, `--set`, the refusal of unknown keys, the run's
header and the documentation test follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from loadtest.checks import (
    MAX_LEVEL,
    Check,
    accepted,
    choice,
    duration_or_auto,
    duration_s,
    flag,
    hours,
    levels,
    loads,
    number,
    positive_s,
    strings,
    table,
    text,
    users_or_rates,
    whole,
)
from loadtest.slo_tables import as_tables

T = TypeVar("T")


def key(default: T, check: Check, doc: str) -> T:
    """Declare a setting: its default, its check and one sentence on it."""
    factory = {"default_factory": lambda: dict(default)} if isinstance(default, dict) else {"default": default}
    return field(metadata={"check": check, "doc": doc}, **factory)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """[load]: how much traffic, and of which form."""

    kind: str = key(
        "closed", choice("closed", "open"),
        "closed: each user sends its next request when the last is done; open: sessions arrive at set times, whatever"
        " the server does",
    )  # fmt: skip
    levels: tuple[float, ...] = key(
        (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), users_or_rates, "users of each level; open load: its rate per second"
    )
    per: str = key(
        "requests", choice("requests", "sessions"),
        "open load: what a level counts per second; requests are spread over sessions of so many turns as they have",
    )  # fmt: skip
    arrivals: str = key(
        "poisson", choice("poisson", "constant", "gamma", "weibull", "trace"),
        "open load: how the gaps between sessions are spread; trace: as recorded, stretched to the level's rate",
    )  # fmt: skip
    cv: float = key(
        2.0, number(0.05, 20), "open load: standard deviation ÷ mean of the gaps, of gamma and weibull; 1 is Poisson"
    )
    shape: str = key(
        "steady", choice("steady", "ramp", "step", "spike"),
        "open load: how the rate moves over the window, whose mean is the level; step: up and down, or down and up",
    )  # fmt: skip
    factor: float = key(
        3.0, number(0.01, 100), "open load: rate at the end of a ramp, in a step or a spike ÷ rate at the beginning"
    )
    turns: float | None = key(
        None, number(1, 1000), "open load: requests of a session on average; default: as the scenario's sessions have"
    )
    max_in_flight: int = key(1024, whole(1, MAX_LEVEL), "open load: requests in flight at which a cell is given up")
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
    kind: str = key(
        "", choice("", "simulated", "vllm", "sglang", "llamacpp", "openai"), "kind of both servers; default: detected"
    )
    token_counts: str = key(
        "auto", choice("auto", "measure", "all", "sample"),
        "which requests ask for the tokens of each chunk: all, a sample, or as their measured price allows; auto does"
        " not measure it on simulated servers",
    )  # fmt: skip
    cache: str = key(
        "salt", choice("salt", "reset", "nonce", "keep"),
        "prefix cache between cells: a fresh cache_salt per cell, emptied by the server, a number of the cell's own"
        " before every prompt (nonce: for servers that take no cache_salt), or kept",
    )  # fmt: skip
    insecure: bool = key(False, flag, "do not verify TLS certificates")
    proxy: str = key("", text, "URL of an HTTP proxy to go through; those of the environment are never used")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """[demo]: what replaces the settings above when no server is named and the simulated pair is used."""

    preset: str = key("default", text, "world of the simulated pair")
    levels: tuple[float, ...] = key((4.0, 16.0, 32.0, 48.0, 64.0), levels, "users of each level")
    rates: tuple[float, ...] = key(
        (10.0, 20.0, 40.0, 60.0, 80.0), users_or_rates, "requests/s of each level, open load"
    )
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

    unit: str = key("users", choice("users", "in flight", "requests/s", "sessions/s"), "unit of the loads")
    loads: tuple[float, ...] = key((), loads, "loads of the day")
    hours: tuple[float, ...] = key((), hours, "hours of the day at each load")
    trace: str = key(
        "", text,
        "CSV file beside the .toml: a column users, in_flight, requests_per_s or sessions_per_s, and seconds if rows"
        " differ",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """[gate]: what the gate does where it cannot tell, and what it takes on trust."""

    inconclusive: str = key(
        "", choice("", "fail", "warn"), "an inconclusive objective: exit 4 (default), fail (exit 3) or warn (exit 0)"
    )
    accept: tuple[str, ...] = key((), accepted, 'taken without proof: "declared speculation"')
    regression_margin: float = key(0.03, number(0, 1), "gate --against: most that a metric may be worse, as a share")


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
    keep_text: bool = key(
        False, flag, "keep text: the answers compared, and of each cell's slowest requests prompt and answer, which the"
        " page shows; else only hashes and counts"
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """[trace]: requests of a trace or log in place of the scenario's own sessions; loadtest/workload/replay.py."""

    file: str = key("", text, "CSV or JSONL file beside the .toml, as `loadtest import` writes it or as published")
    start_s: float = key(0.0, duration_s, "leave out what arrived before this time after the first row")
    length_s: float = key(0.0, duration_s, "take this much time from there on, or from the first row; 0: to the end")
    keep_ratio: float = key(1.0, number(0, 1, above=0), "keep this share of the sessions, drawn by their names")
    speed: float = key(1.0, number(0, 1e6, above=0), "times faster: all times within the trace are divided by it")
    jitter_s: float | None = key(
        None, duration_or_auto, 'spread each arrival over this time; "auto": over the steps of a clock that is coarse'
    )
    max_input_tokens: int = key(0, whole(0, 10**8), "leave out longer prompts; 0: none")
    output: str = key(
        "cap", choice("cap", "natural"),
        "cap: an answer has at most the tokens that the trace names (with generation.ignore_eos: exactly); natural: as"
        " many as [generation] allows",
    )  # fmt: skip
    text: str = key("", text, "kind of text that meets lengths without text, such as chat or code; default: by class")
    characters_per_token: float = key(4.0, number(0.5, 20), "of that text, with your model's tokenizer")


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
    trace: Trace = field(default_factory=Trace)
