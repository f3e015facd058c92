"""Continuous batching in virtual time: chunked prefill, speculative decode steps, limits, preemption by recomputing.

The engine never waits. `advance` runs ahead to the next finished request, many steps at a time; `step` runs one step
and tells what it emits. A request's whole run of decode steps is drawn when its prefill ends, so that what the batch
will read at each coming step is known and a stretch of steps without arrivals costs a few array operations.
Admission, steps and ends change one state in turn, step by step; hence the length of this module.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush

import numpy as np

from loadtest.simulate import runs
from loadtest.simulate.draws import gauss, uniform
from loadtest.simulate.jobs import Ask, Counters, Job, Step
from loadtest.simulate.ledger import Ledger
from loadtest.simulate.models import ArmModel
from loadtest.simulate.pace import Wander
from loadtest.simulate.timeline import Timeline

BLOCK_TOKENS = 16  # of the prefix cache, as in vLLM on a GPU
_START, _FAILURE = 0x57A27, 0xFA11  # purposes of draws


class Engine:
    """One server's scheduler and clock. Equal arms, seeds and submissions give equal histories."""

    def __init__(self, arm: ArmModel, seed: int, born_s: float = 0.0) -> None:
        """Start an idle engine at `born_s`; `seed` decides this start's speed and the luck of its drafts."""
        self.arm = arm
        self.seed = seed
        self.born_s = born_s
        self.clock_s = born_s  # end of the last step
        factor = math.exp(arm.start_sd * gauss(seed, _START)) if arm.start_sd else 1.0
        self._forward_s: list[float] = ((arm.forward_s() + arm.overhead_s) * factor).tolist()
        self._kv_s = arm.per_kv_token_s * factor
        self._draft_s = (arm.draft_floor_s * factor, arm.draft_per_token_s * arm.k * factor, arm.draft_kv_s * factor)
        self._per_decode = arm.k + 1
        self._costed = arm.costed
        self._wander = Wander(seed, arm.wander_sd, arm.wander_s) if arm.wander_sd else None
        self._drafter = runs.Drafter(arm.acceptance, seed) if arm.acceptance else None
        self._line = Timeline()
        self._next = 0  # number of the coming step
        self._order = 0
        self._pending: list[tuple[float, int, Job]] = []  # not yet arrived, by time
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, None] = {}  # in order of admission
        self._prefilling: list[Job] = []
        self._decoders = 0
        self._finishes: list[tuple[int, int, Job]] = []
        self._bound = 0  # KV tokens that the running requests can come to hold
        self._closed_at = -1  # step at which nobody is admitted, because it preempted
        self._ledger = Ledger(arm.declared_k)

    @property
    def idle(self) -> bool:
        """True when no request is running, waiting or due to arrive."""
        return not (self._running or self._waiting or self._pending)

    def refuses(self, key: int) -> bool:
        """Say whether this start answers a request with a server error instead of serving it."""
        return self.arm.failure_ratio > 0 and uniform(self.seed, key, _FAILURE) < self.arm.failure_ratio

    def submit(self, now_s: float, ask: Ask) -> Job:
        """Take a request that arrives at `now_s`, which may lie ahead; ValueError if it can never fit."""
        if ask.prompt_tokens < 1 or ask.output_tokens < 1:
            raise ValueError("a request has at least one prompt token and one output token")
        if ask.prompt_tokens + ask.output_tokens > self.arm.max_model_len:
            raise ValueError(f"prompt and output exceed max_model_len={self.arm.max_model_len}")
        job = Job(ask, now_s, now_s + self.arm.frontend_s)
        cached = ask.cached_tokens - self.arm.cache_lost_blocks * BLOCK_TOKENS
        job.cached = min(max(cached, 0), ask.prompt_tokens - 1)
        job.left = ask.prompt_tokens - job.cached
        self._order += 1
        heappush(self._pending, (job.ready_s, self._order, job))
        return job

    def cancel(self, job: Job) -> None:
        """Forget a request at once. Its tokens stay counted, the request itself is not: vLLM does the same."""
        if job.finish:
            return
        self._pending = sorted(entry for entry in self._pending if entry[2] is not job)
        if job in self._waiting:
            self._waiting.remove(job)
        self._leave(job)
        job.finish, job.finished_s = "abort", self.clock_s

    def next_start_s(self) -> float:
        """Return when the coming step can start; infinite while the engine is idle."""
        if self._running:
            return self.clock_s
        if self._waiting:  # who woke an idle engine may wait for a step that was not run: it would have ended too late
            return max(self.clock_s, self._waiting[0].ready_s)
        return max(self.clock_s, self._pending[0][0]) if self._pending else math.inf

    def advance(self, until_s: float = math.inf) -> list[Job]:
        """Run steps up to the first that ends requests and return these; [] once no step ends by `until_s`."""
        while True:
            start = self.next_start_s()
            if start >= until_s:
                return []
            self._open(start)
            run = self._mixed if self._waiting or self._prefilling else self._stretch
            done = run(start, until_s)
            if done is None:
                return []
            if done:
                return done

    def step(self, now_s: float) -> Step:
        """Run exactly one step, starting at `now_s` or when there is work, whichever is later."""
        start = max(now_s, self.next_start_s())
        if not math.isfinite(start):
            raise RuntimeError("an idle engine has no step to run")
        self._open(start)
        at = self._next
        emitted = [(job, runs.tokens_at(job, at)) for job in self._running if job.first_step >= 0]
        chunks = self._plan(start)
        prefilled = [job for job, tokens in chunks if tokens == job.left]
        batched = self._batched(chunks)
        end = start + self._cost_s(chunks, start)
        finished = self._commit(chunks, batched, start, end)
        emitted += [(job, 1) for job in prefilled]
        return Step(
            start_s=start, end_s=end, batched_tokens=batched, prefilled=prefilled, emitted=emitted, finished=finished
        )

    def counters(self) -> Counters:
        """Return what was done up to the end of the last step."""
        now = self._ledger.snapshot(self._running, self._next)
        now.running, now.waiting = len(self._running), len(self._waiting)
        now.kv_use_ratio = min(1.0, self._held() / self.arm.kv_limit_tokens)
        return now

    # Admission and memory

    def _open(self, start: float) -> None:
        """Let those who have arrived by `start` queue, and make room for the coming step where memory is short."""
        while self._pending and self._pending[0][0] <= start:
            self._waiting.append(heappop(self._pending)[2])
        if self._bound > self.arm.kv_limit_tokens:
            while self._held() + self._decoders * self._per_decode > self.arm.kv_limit_tokens:
                self._preempt(next(reversed(self._running)))

    def _held(self) -> float:
        reads = float(self._line.kv_tokens[self._next - self._line.base]) if self._decoders else 0.0
        return reads + sum(job.ask.prompt_tokens + job.emitted for job in self._prefilling)

    def _preempt(self, job: Job) -> None:
        """Give up a running request's memory: it queues first again and recomputes all it had."""
        self._leave(job)
        job.left = job.ask.prompt_tokens + job.emitted
        job.preemptions += 1
        self._waiting.appendleft(job)
        self._ledger.done.preemptions += 1
        self._closed_at = self._next

    def _leave(self, job: Job) -> None:
        """Take a request out of the running ones, with the reads it had laid out ahead."""
        if job not in self._running:
            return
        del self._running[job]
        self._bound -= _bound(job, self._per_decode)
        if job.first_step < 0:
            self._prefilling.remove(job)
            return
        reads = runs.reads_of(job)[self._next - job.first_step :]
        first = self._next - self._line.base
        self._line.kv_tokens[first : first + len(reads)] -= reads
        self._decoders -= 1
        self._close_run(job)

    def _plan(self, start: float) -> list[tuple[Job, int]]:
        """Return which prompts are computed in the coming step, and how many tokens of each; admits nobody yet."""
        budget = self.arm.max_batched_tokens - self._decoders * self._per_decode
        chunks: list[tuple[Job, int]] = []
        for job in self._prefilling:
            take = min(job.left, budget)
            if take:
                chunks.append((job, take))
                budget -= take
        if not self._waiting or self._closed_at == self._next:
            return chunks
        seats, bound, held = self.arm.max_seqs - len(self._running), self._bound, -1.0
        for job in self._waiting:
            bound += _bound(job, self._per_decode)
            if bound > self.arm.kv_limit_tokens:  # may not fit: look closer
                held = self._held() + self._decoders * self._per_decode if held < 0 else held
                held += job.ask.prompt_tokens + job.emitted + self._per_decode
                if held > self.arm.kv_limit_tokens:
                    break
            if seats <= 0 or budget <= 0:
                break
            take = min(job.left, budget)
            chunks.append((job, take))
            budget -= take
            seats -= 1
        return chunks

    # Steps

    def _batched(self, chunks: list[tuple[Job, int]]) -> int:
        return self._decoders * self._per_decode + sum(tokens for _, tokens in chunks)

    def _cost_s(self, chunks: list[tuple[Job, int]], start: float) -> float:
        """Return the step's seconds: the formula of ArmModel.step_s at the speed of this start and moment."""
        reads = float(self._line.kv_tokens[self._next - self._line.base]) if self._decoders else 0.0
        drafting = self._decoders
        costed = self._decoders * self._costed
        for job, tokens in chunks:
            reads += job.ask.prompt_tokens + job.emitted - job.left + tokens
            drafting += tokens == job.left
            costed += tokens
        cost = self._forward_s[costed] + self._kv_s * reads
        if drafting and self._per_decode > 1:
            floor, slope, kv = self._draft_s
            cost += floor + slope * drafting + kv * reads
        return cost * self._wander.factor(start - self.born_s)[0] if self._wander else cost

    def _mixed(self, start: float, until_s: float) -> list[Job] | None:
        """Run one step with prompts in it, or with requests that must wait; None if it would end after `until_s`."""
        chunks = self._plan(start)
        batched = self._batched(chunks)
        end = start + self._cost_s(chunks, start)
        return None if end > until_s else self._commit(chunks, batched, start, end)

    def _commit(self, chunks: list[tuple[Job, int]], batched: int, start: float, end: float) -> list[Job]:
        self._line.reserve(self._next + 1, self._oldest)
        self._line.ends_s[self._next - self._line.base] = end
        self._pass(1, batched, end)
        finished = self._finish()
        for job, tokens in chunks:
            if job not in self._running:
                self._admit(job, start)
            job.left -= tokens
            if not job.left:
                self._prefilling.remove(job)
                if self._emit_first(job, end):
                    finished.append(job)
        return finished

    def _stretch(self, start: float, until_s: float) -> list[Job] | None:
        """Run decode steps up to the next end of a request, arrival, shortage of memory or `until_s`."""
        line, at = self._line, self._next - self._line.base
        floor, slope, kv = self._draft_s if self._per_decode > 1 else (0.0, 0.0, 0.0)
        batched = self._decoders * self._per_decode
        reads = line.kv_tokens[at : at + self._steps_to_finish()]
        ends = reads * (self._kv_s + kv)
        ends += self._forward_s[self._decoders * self._costed] + floor + slope * self._decoders
        fresh_s = math.inf  # from when on steps take another time
        if self._wander:
            factor, fresh_s = self._wander.factor(start - self.born_s)
            ends *= factor
            fresh_s += self.born_s
        ends[0] += start
        np.add.accumulate(ends, out=ends)
        count = len(ends)
        if ends[-1] >= fresh_s:
            count = int(ends.searchsorted(fresh_s, side="left")) + 1
        if ends[count - 1] > until_s:
            count = int(ends.searchsorted(until_s, side="right"))
        if self._pending and count and ends[count - 1] >= self._pending[0][0]:
            count = min(count, int(ends.searchsorted(self._pending[0][0], side="left")) + 1)
        if self._bound > self.arm.kv_limit_tokens:
            short = np.flatnonzero(reads[:count] + batched > self.arm.kv_limit_tokens)
            count = int(short[0]) if short.size else count
        if not count:
            return None
        line.ends_s[at : at + count] = ends[:count]
        self._pass(count, batched, float(ends[count - 1]))
        return self._finish()

    def _pass(self, steps: int, batched: int, end: float) -> None:
        self._ledger.steps(steps, batched, self._decoders, end - self.clock_s)
        self._next += steps
        self.clock_s = end

    def _steps_to_finish(self) -> int:
        while self._finishes[0][2].last_step != self._finishes[0][0]:
            heappop(self._finishes)  # left behind by a preemption
        return self._finishes[0][0] - self._next + 1

    def _oldest(self) -> int:
        return min((job.first_step for job in self._running if job.first_step >= 0), default=self._next)

    # Requests

    def _admit(self, job: Job, start: float) -> None:
        self._waiting.popleft()
        self._running[job] = None
        self._prefilling.append(job)
        self._bound += _bound(job, self._per_decode)
        if math.isnan(job.scheduled_s):
            job.scheduled_s = start
            self._ledger.admitted(job)

    def _emit_first(self, job: Job, end: float) -> bool:
        """Emit the token of a complete prefill and lay out what follows; True if nothing does."""
        job.emitted += 1
        job.chunk_times_s.append(end)
        job.chunk_tokens.append(1)
        if job.emitted == 1:
            job.first_token_s = end
        self._ledger.prefilled(job, end)
        if job.emitted == job.ask.output_tokens:
            self._end(job, end)
            return True
        reads = runs.begin(job, self._drafter, self._next, end - self.born_s, len(self._running))
        self._line.reserve(job.last_step + 1, self._oldest)
        at = self._next - self._line.base
        self._line.kv_tokens[at : at + len(reads)] += reads
        self._decoders += 1
        self._order += 1
        heappush(self._finishes, (job.last_step, self._order, job))
        return False

    def _finish(self) -> list[Job]:
        """End the requests whose last step has just been run."""
        ended: list[Job] = []
        while self._finishes and self._finishes[0][0] < self._next:
            step, _, job = heappop(self._finishes)
            if job.last_step == step:
                self._decoders -= 1
                self._close_run(job)
                self._end(job, self.clock_s)
                ended.append(job)
        return ended

    def _close_run(self, job: Job) -> None:
        had = job.emitted
        runs.fold(job, self._next, self._line.times_s(job.first_step, self._next))
        self._ledger.run_ended(job, job.emitted - had)

    def _end(self, job: Job, end: float) -> None:
        del self._running[job]
        self._bound -= _bound(job, self._per_decode)
        job.finish, job.finished_s = job.ask.finish, end
        self._ledger.ended(job)


def _bound(job: Job, per_decode: int) -> int:
    return job.ask.prompt_tokens + job.ask.output_tokens + per_decode
