"""The engine's bookkeeping: every figure behind /metrics, counted when it happens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from loadtest.simulate.jobs import Counters, Job

_POOL = 4096  # arrays kept before they are counted by slot


class Ledger:
    """Counts what an engine does; `snapshot` adds what its running requests have done so far."""

    def __init__(self, slots: int) -> None:
        """Begin at zero, with this many draft slots."""
        self.done = Counters(accepted_per_slot=[0] * slots)
        self._pool: list[NDArray[np.int64]] = []  # accepted tokens per step, not yet counted by slot

    def steps(self, count: int, batched_tokens: int, decoders: int, took_s: float) -> None:
        """Count steps that took `took_s` together and in which the same requests decoded."""
        done = self.done
        done.steps += count
        done.iteration_tokens.count += count
        done.iteration_tokens.sum += count * batched_tokens
        done.inter_token.count += count * decoders
        done.inter_token.sum += decoders * took_s

    def admitted(self, job: Job) -> None:
        """Count a request's look into the prefix cache."""
        self.done.prefix_queries += job.ask.prompt_tokens
        self.done.prefix_hits += job.ask.prompt_tokens - job.left

    def prefilled(self, job: Job, end_s: float) -> None:
        """Count the token that a complete prefill emits: a first token, or one more after a preemption."""
        self.done.generation_tokens += 1
        if job.emitted == 1:
            self.done.prompt_tokens += job.ask.prompt_tokens
            self.done.cached_tokens += job.cached
            self.done.ttft.add(end_s - job.arrival_s)
        else:
            self.done.inter_token.add(end_s - job.chunk_times_s[-2])

    def run_ended(self, job: Job, emitted: int) -> None:
        """Count the decode steps that `fold` has just closed, in which `emitted` tokens left."""
        self.done.generation_tokens += emitted
        if job.tokens is not None:
            self._pool.append(job.accepted[-1])
            if len(self._pool) >= _POOL:
                self._count_pool()

    def ended(self, job: Job) -> None:
        """Count a finished request."""
        done, ask = self.done, job.ask
        decode_s = job.finished_s - job.first_token_s
        done.finished[job.finish] += 1
        done.e2e.add(job.finished_s - job.arrival_s)
        done.queue.add(job.scheduled_s - job.ready_s)
        done.inference.add(job.finished_s - job.scheduled_s)
        done.prefill.add(job.first_token_s - job.scheduled_s)
        done.decode.add(decode_s)
        done.time_per_token.add(decode_s / (ask.output_tokens - 1) if ask.output_tokens > 1 else 0.0)
        done.request_prompt.add(ask.prompt_tokens)
        done.request_generation.add(ask.output_tokens)

    def snapshot(self, running: Iterable[Job], next_step: int) -> Counters:
        """Return the counters at the end of the last step."""
        self._count_pool()
        now = self.done.copy()
        for job in running:
            if job.first_step >= 0:
                steps = next_step - job.first_step
                now.generation_tokens += steps if job.tokens is None else int(job.tokens[:steps].sum())
                if job.tokens is not None:
                    _add_slots(now, job.accepted[-1][:steps])
        return now

    def _count_pool(self) -> None:
        if self._pool:
            _add_slots(self.done, np.concatenate(self._pool))
            self._pool.clear()


def _add_slots(counters: Counters, accepted: NDArray[np.int64]) -> None:
    slots = len(counters.accepted_per_slot)
    at_least = np.bincount(accepted, minlength=slots + 1)[::-1].cumsum()[::-1]
    counters.drafts += len(accepted)
    counters.draft_tokens += len(accepted) * slots
    counters.accepted_per_slot = [had + int(n) for had, n in zip(counters.accepted_per_slot, at_least[1:], strict=True)]
