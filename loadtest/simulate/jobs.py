"""What passes through the engine: what is asked of it, a request on its way, a step, and the counters."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request as the engine sees it; lengths in tokens, `cached_tokens` of the prompt are already in its cache."""

    key: int  # names the prompt: equal keys get equal lengths and equal luck
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    category: str = ""
    finish: str = "length"


class Job:
    """One request on its way through an engine; times are seconds on the engine's clock, NaN until they happen."""

    __slots__ = (
        "accepted", "arrival_s", "ask", "cached", "chunk_times_s", "chunk_tokens", "emitted", "finish", "finished_s",
        "first_step", "first_token_s", "last_step", "left", "preemptions", "ready_s", "scheduled_s",
        "spent_steps", "tokens",
    )  # fmt: skip

    def __init__(self, ask: Ask, arrival_s: float, ready_s: float) -> None:
        """Make the job of an ask that arrived at `arrival_s` and reaches the engine at `ready_s`."""
        self.ask = ask
        self.arrival_s = arrival_s
        self.ready_s = ready_s
        self.scheduled_s = NAN
        self.first_token_s = NAN
        self.finished_s = NAN
        self.finish = ""
        self.preemptions = 0
        self.chunk_times_s: list[float] = []  # whole once the job is finished; before, what a preemption left behind
        self.chunk_tokens: list[int] = []
        self.accepted: list[NDArray[np.int64]] = []  # accepted draft tokens, one per decode step, before trimming
        self.emitted = 0  # tokens given before the present run of decode steps
        self.cached = ask.cached_tokens  # prompt tokens found in the prefix cache
        self.left = ask.prompt_tokens - ask.cached_tokens  # prompt tokens still to be computed
        self.spent_steps = 0  # decode steps before the present run
        self.first_step = -1  # the present run of decode steps; −1 while none is under way
        self.last_step = -1
        self.tokens: NDArray[np.int64] | None = None  # tokens of each step of the run; None: one each

    def accepted_per_slot(self, k: int) -> list[int]:
        """Return how many drafts of a finished job had at least slot 1 … k accepted."""
        counts = np.bincount(np.concatenate(self.accepted), minlength=k + 1) if self.accepted else np.zeros(k + 1)
        return [int(n) for n in counts[::-1].cumsum()[::-1][1:]]

    @property
    def drafts(self) -> int:
        """Decode steps of a finished job that verified a draft."""
        return sum(len(part) for part in self.accepted)


@dataclass(slots=True)
class Total:
    """Count and sum of a histogram."""

    count: int = 0
    sum: float = 0.0

    def add(self, value: float) -> None:
        """Take one sample."""
        self.count += 1
        self.sum += value


FINISHES = ("stop", "length", "abort", "error", "repetition")


@dataclass(slots=True, kw_only=True)
class Counters:
    """What the engine has done up to a moment; the figures behind /metrics (seconds, tokens, requests)."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_per_slot: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    running: int = 0
    waiting: int = 0
    kv_use_ratio: float = 0.0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISHES, 0))
    ttft: Total = field(default_factory=Total)
    inter_token: Total = field(default_factory=Total)  # one sample per request and decode step
    time_per_token: Total = field(default_factory=Total)
    e2e: Total = field(default_factory=Total)
    queue: Total = field(default_factory=Total)
    inference: Total = field(default_factory=Total)
    prefill: Total = field(default_factory=Total)
    decode: Total = field(default_factory=Total)
    request_prompt: Total = field(default_factory=Total)
    request_generation: Total = field(default_factory=Total)
    iteration_tokens: Total = field(default_factory=Total)

    @property
    def accepted(self) -> int:
        """Accepted draft tokens, counted before an answer is cut at its end, as vLLM does."""
        return sum(self.accepted_per_slot)

    def copy(self) -> Counters:
        """Return counters of their own, which do not grow with these."""
        return Counters(**{name: _copied(getattr(self, name)) for name in _NAMES})


def _copied(value: Any) -> Any:
    if isinstance(value, Total):
        return Total(value.count, value.sum)
    return value.copy() if isinstance(value, list | dict) else value


_NAMES = tuple(f.name for f in fields(Counters))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step as it was run; every emission leaves at `end_s`."""

    start_s: float
    end_s: float
    batched_tokens: int
    prefilled: list[Job]  # their prefill is complete: they emit one token
    emitted: list[tuple[Job, int]]  # every job that emits, with its tokens
    finished: list[Job]
