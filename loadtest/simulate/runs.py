"""Runs of decode steps: what a request will emit at each of its coming steps, drawn when its prefill ends."""

from __future__ import annotations

import math

import numpy as np

from loadtest.simulate.draws import Floats, Ints, accepted_tokens, latent, slot_logits, survival
from loadtest.simulate.jobs import Job
from loadtest.simulate.models import MAX_CONTEXT, Acceptance

_STEPS = np.arange(MAX_CONTEXT, dtype=np.float64)


class Drafter:
    """How the drafts of one start fare: a request's accepted tokens depend on its key and what moves acceptance."""

    def __init__(self, acceptance: Acceptance, seed: int) -> None:
        """Prepare the model; `seed` is the start's."""
        self._logits = slot_logits(acceptance)
        self._spread = acceptance.spread
        self._categories = dict(acceptance.by_category)
        self._per_s, self._per_doubling = acceptance.drift_per_s, acceptance.per_doubling
        self._seed = seed

    def accepted(self, job: Job, steps: int, now_s: float, running: int) -> Ints:
        """Return the tokens that each of the next `steps` drafts of a request has accepted, if laid out now."""
        shift = self._categories.get(job.ask.category, 0.0) + self._per_s * now_s
        if self._per_doubling:
            shift += self._per_doubling * math.log2(max(running, 1))
        if self._spread:
            shift += self._spread * latent(job.ask.key)
        return accepted_tokens(self._seed, job.ask.key, survival(self._logits, shift), steps, job.spent_steps)


def begin(job: Job, drafter: Drafter | None, first_step: int, now_s: float, running: int) -> Floats:
    """Lay out the rest of a request's answer from `first_step` on; return the context it reads at each step (tokens).

    The request has at least one token left to emit.
    """
    left = job.ask.output_tokens - job.emitted
    context = job.ask.prompt_tokens + job.emitted
    job.first_step = first_step
    if drafter is None:
        job.last_step = first_step + left - 1
        job.tokens = None
        return _STEPS[context : context + left]
    accepted = drafter.accepted(job, left, now_s, running)
    tokens = accepted + 1
    after = tokens.cumsum()
    steps = int(after.searchsorted(left)) + 1
    job.last_step = first_step + steps - 1
    job.accepted.append(accepted[:steps])
    after = after[:steps]
    reads = after - tokens[:steps]
    reads += context
    tokens[steps - 1] -= after[-1] - left
    job.tokens = tokens[:steps]
    return reads.astype(np.float64)


def reads_of(job: Job) -> Floats:
    """Return the context that the present run reads at each of its steps, as `begin` did."""
    context = job.ask.prompt_tokens + job.emitted
    if job.tokens is None:
        return _STEPS[context : context + job.last_step - job.first_step + 1]
    return (job.tokens.cumsum() - job.tokens + context).astype(np.float64)


def tokens_at(job: Job, step: int) -> int:
    """Return what a decoding request emits at a step of its run."""
    return 1 if job.tokens is None else int(job.tokens[step - job.first_step])


def fold(job: Job, stop_step: int, times_s: list[float]) -> None:
    """Close the present run before `stop_step`; `times_s` are the ends of its steps up to there."""
    steps = stop_step - job.first_step
    tokens = [1] * steps if job.tokens is None else job.tokens[:steps].tolist()
    if job.tokens is not None:
        job.accepted[-1] = job.accepted[-1][:steps]
    job.chunk_times_s += times_s
    job.chunk_tokens += tokens
    job.emitted += sum(tokens)
    job.spent_steps += steps
    job.first_step = job.last_step = -1
