"""The servers' counters by what they mean: the one place that knows their names."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.record import Scrape

# Meaning → exposition names, the first present counts: those of vLLM, its older ones, SGLang's, llama.cpp's. vLLM 0.9
# called its per-step latency time_per_output_token, and its prefix cache gpu_prefix_cache up to 0.11. SGLang's
# inter-token latency has one sample per token, so that its steps are its verifications; llama.cpp counts no steps.
NAMES: dict[str, tuple[str, ...]] = {
    "generation_tokens": (
        "vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
    "requests": ("vllm:request_success_total", "sglang:num_requests_total"),
    "first_tokens": ("vllm:time_to_first_token_seconds_count", "sglang:time_to_first_token_seconds_count"),
    "steps": ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count",
              "sglang:spec_verify_calls_total"),
    "step_seconds": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    "drafts": ("vllm:spec_decode_num_drafts_total", "sglang:spec_verify_calls_total",
               "llamacpp:spec_decode_num_drafts_total"),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total", "llamacpp:spec_decode_num_draft_tokens_total"),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_total"),
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "first_token_seconds": ("vllm:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_sum"),
    "queue_seconds": ("vllm:request_queue_time_seconds_sum",),
    "queued": ("vllm:request_queue_time_seconds_count",),
    "prefill_seconds": ("vllm:request_prefill_time_seconds_sum",),
    "prefilled": ("vllm:request_prefill_time_seconds_count",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
}  # fmt: skip
GAUGES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
    "kv_use": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
}
PROCESS_BEGAN = "process_start_time_seconds"  # another one after a restart, however far the counters have grown
IN_WINDOW = ("window_open", "sample", "window_close")


def value(scrape: Scrape, meaning: str) -> float | None:
    """Return a counter or gauge of a scrape by its meaning, or None where the server has none."""
    for name in NAMES.get(meaning) or GAUGES[meaning]:
        if name in scrape.values:
            return scrape.values[name]
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas:
    """Growth of the counters between two scrapes, or summed over several such pairs."""

    counters: dict[str, float]
    per_position: tuple[float, ...] = ()

    def get(self, meaning: str) -> float:
        """Return a counter's growth; NaN where the server has none."""
        return self.counters.get(meaning, math.nan)

    def over(self, above: str, below: str) -> float | None:
        """Return the quotient of two counters' growth, or None."""
        return quotient(self.get(above), self.get(below))


def quotient(above: float, below: float) -> float | None:
    """Return above ÷ below; None when either is absent or the divisor not positive."""
    return above / below if below > 0 and not math.isnan(above) else None


def find(scrapes: Sequence[Scrape], moment: str) -> Scrape | None:
    """Return the first good scrape of a moment."""
    return next((s for s in scrapes if s.moment == moment and not s.error and s.values), None)


def growth(scrapes: Sequence[Scrape], first: str, last: str) -> Deltas | None:
    """Return the growth between two moments of a cell.

    None when either scrape is missing, or a counter fell: the server was started again in between.
    """
    before, after = find(scrapes, first), find(scrapes, last)
    if before is None or after is None:
        return None
    counters: dict[str, float] = {}
    for meaning in NAMES:
        old, new = value(before, meaning), value(after, meaning)
        if old is not None and new is not None:
            counters[meaning] = new - old
    old_slots = [*before.per_position, *[0.0] * (len(after.per_position) - len(before.per_position))]
    slots = tuple(b - a for a, b in zip(old_slots, after.per_position, strict=False))
    if any(growth < 0 for growth in [*counters.values(), *slots]) or _began_anew(before, after):
        return None
    return Deltas(counters=counters, per_position=slots)


def _began_anew(before: Scrape, after: Scrape) -> bool:
    """Return whether the process is another one; unknown is no."""
    old, new = before.values.get(PROCESS_BEGAN), after.values.get(PROCESS_BEGAN)
    return old is not None and new is not None and old != new


def restarted(scrapes: Sequence[Scrape]) -> bool | None:
    """Return whether the server was started again between two readings of a cell; None with fewer than two.

    Readings that overlap have no order: on a slow way the one that was asked first may be answered from later counts.
    """
    good = sorted((s for s in scrapes if not s.error and s.values), key=lambda s: s.t_s)
    if len(good) < 2:
        return None
    ended: list[tuple[float, int]] = []  # of the readings so far: when, and which
    for number, later in enumerate(good):
        place = bisect_right(ended, (later.t_s - later.took_s / 2, number))
        if place and _went_back(good[ended[place - 1][1]], later):
            return True
        insort(ended, (later.t_s + later.took_s / 2, number))
    return False


def _went_back(before: Scrape, later: Scrape) -> bool:
    """Return whether a reading tells of another start than the last one that had ended when it was asked for."""
    return _began_anew(before, later) or any(_fell(value(before, name), value(later, name)) for name in NAMES)


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def summed(parts: Sequence[Deltas]) -> Deltas:
    """Add up growths; a counter that one part lacks is left out."""
    shared = set(NAMES).intersection(*[part.counters for part in parts]) if parts else set()
    length = max((len(part.per_position) for part in parts), default=0)
    slots = [sum(part.per_position[j] for part in parts if j < len(part.per_position)) for j in range(length)]
    return Deltas(
        counters={meaning: sum(part.counters[meaning] for part in parts) for meaning in shared},
        per_position=tuple(slots),
    )


def tokens_per_step(deltas: Deltas) -> float | None:
    """Return tokens per decode step over all steps: (generated − first tokens) ÷ steps; 1 without speculation.

    vLLM's inter-token latency has one sample per request and decode step, not per token. A server that counts no steps
    but accepted tokens took one step for each token that was not accepted.
    """
    generated = deltas.get("generation_tokens")
    if math.isnan(deltas.get("steps")):
        return quotient(generated, generated - deltas.get("accepted"))
    return quotient(generated - deltas.get("first_tokens"), deltas.get("steps"))


def gauge_mean(scrapes: Sequence[Scrape], meaning: str) -> float | None:
    """Return the mean of a gauge over the scrapes inside the window, or None."""
    seen = [value(s, meaning) for s in scrapes if s.moment in IN_WINDOW and not s.error]
    present = [v for v in seen if v is not None]
    return sum(present) / len(present) if present else None
