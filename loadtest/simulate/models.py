"""The model of one server: what a step costs, how drafts fare, and the limits it works within."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_CONTEXT = 1 << 15  # longest prompt and answer that the engine lays out, in tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """How drafts fare: survival S_1 … S_k over requests, and what moves it (shifts are on the logit scale).

    `spread` is the standard deviation between requests of the logit of conditional acceptance.
    """

    survival: tuple[float, ...]
    spread: float = 0.0
    by_category: tuple[tuple[str, float], ...] = ()
    drift_per_s: float = 0.0  # per second since the server's start
    per_doubling: float = 0.0  # per doubling of the running batch, seen when a request is admitted

    def __post_init__(self) -> None:
        bounds = (1.0, *self.survival)
        if not self.survival or any(not 0 < b <= a <= 1 for a, b in zip(bounds, self.survival, strict=False)):
            raise ValueError(f"survival must fall from at most 1 and stay above 0, not {self.survival}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmModel:
    """One server: what a step costs (seconds), what it drafts, and its limits (tokens, requests)."""

    floor_s: float
    per_token_s: float
    per_kv_token_s: float
    overhead_s: float
    staircase: tuple[tuple[int, float], ...] = ()  # (batched tokens, seconds) in place of floor and slope
    acceptance: Acceptance | None = None  # None: nothing is drafted
    declared_k: int = 0  # draft tokens per step that the configuration names; 0: no speculative configuration
    draft_floor_s: float = 0.0
    draft_per_token_s: float = 0.0
    draft_kv_s: float = 0.0
    max_batched_tokens: int = 8192  # vLLM's default for the H100 class, as is max_seqs
    max_seqs: int = 1024
    kv_limit_tokens: int = 430_000
    max_model_len: int = 16_384
    frontend_s: float = 0.001  # parsing and tokenising before a request reaches the engine
    failure_ratio: float = 0.0  # share of requests answered 500
    astray_ratio: float = 0.0  # share of prompts whose answer is another one from some token on: a bug
    start_sd: float = 0.0  # standard deviation between starts of the logarithm of every step cost
    wander_sd: float = 0.0  # the same within a start, where it wanders slowly,
    wander_s: float = 1.0  # and is correlated over about this time
    free_drafts: bool = False  # drafts add nothing to a step: for worlds whose whole effect is a factor
    cache_lost_blocks: int = 0  # blocks of a prefix-cache hit that are computed again

    def __post_init__(self) -> None:
        if self.acceptance is not None and self.declared_k != len(self.acceptance.survival):
            raise ValueError("declared_k must equal the length of the survival curve")
        if self.max_seqs * (self.k + 1) > self.max_batched_tokens:
            raise ValueError("max_batched_tokens must hold one step of max_seqs requests")
        if self.wander_sd < 0 or self.wander_s <= 0:
            raise ValueError("wander_sd must not be negative, and wander_s must be above 0")
        if not self.max_model_len + self.k + 1 <= min(self.kv_limit_tokens, MAX_CONTEXT):
            raise ValueError(f"max_model_len must fit kv_limit_tokens, and {MAX_CONTEXT}")

    @property
    def k(self) -> int:
        """Tokens drafted per request and step; 0 where nothing is drafted."""
        return len(self.acceptance.survival) if self.acceptance else 0

    @property
    def costed(self) -> int:
        """Tokens that a decoding request adds to the cost of a step: its own, and the drafted ones where they cost."""
        return 1 if self.free_drafts else self.k + 1

    def forward_s(self) -> NDArray[np.float64]:
        """Return the target model's seconds by batched tokens, 0 … max_batched_tokens, without KV and overhead."""
        tokens = np.arange(self.max_batched_tokens + 1, dtype=np.float64)
        if not self.staircase:
            return self.floor_s + self.per_token_s * tokens
        at, cost = np.array(self.staircase, dtype=np.float64).T
        beyond = np.maximum(tokens - at[-1], 0) * (cost[-1] - cost[-2]) / (at[-1] - at[-2])
        forward: NDArray[np.float64] = np.interp(tokens, at, cost) + beyond
        return forward

    def step_s(self, batched_tokens: int, kv_tokens: float, drafting: int = 0) -> float:
        """Return the seconds of one step; `drafting` requests get a new draft at its end.

        forward(batched tokens) + KV read + overhead, and for the drafter floor + slope × draft tokens + KV read:
        the additive form fitted for vLLM by "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580).
        """
        target = float(self.forward_s()[batched_tokens]) + self.per_kv_token_s * kv_tokens + self.overhead_s
        if not drafting or not self.k:
            return target
        draft = self.draft_floor_s + self.draft_per_token_s * self.k * drafting + self.draft_kv_s * kv_tokens
        return target + draft
