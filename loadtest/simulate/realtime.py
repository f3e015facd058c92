"""The engine in real time: steps end on an absolute schedule, and what they emit is written at that moment."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable
from io import RawIOBase
from typing import Any

import orjson

from loadtest.simulate.engine import Engine
from loadtest.simulate.exposition import Buckets
from loadtest.simulate.intake import Call
from loadtest.simulate.jobs import Ask, Counters, Job, Step
from loadtest.simulate.wire import Answer

SLEEP_ERROR_S = 0.002  # an event loop sleeps in whole milliseconds, rounded up, and by one more for some floats
TICK_S = 0.0011  # what its shortest sleep takes; what is left after it is spent in turns of the loop
BEHIND_S = 0.25  # a schedule this far behind is given up: the machine stood still
COLLECT_AFTER_S = 1.0  # idle time after which garbage is collected, so that no pause falls into a step


def clock_s() -> float:
    """Return the seconds of CLOCK_MONOTONIC, the clock of every stamp of this server."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Flow:
    """One answer on its way to a client."""

    __slots__ = ("answer", "arrival_s", "call", "close", "done", "job", "sent_s", "tokens", "transport")

    def __init__(self, call: Call, answer: Answer, arrival_s: float, transport: asyncio.Transport | None) -> None:
        """Make the flow of a call; without a transport (no stream asked for) nothing is written before the end."""
        self.call = call
        self.answer = answer
        self.arrival_s = arrival_s
        self.transport = transport
        self.job: Job | None = None
        self.close: Callable[[], Awaitable[None]] | None = None  # ends the body of a stream
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent_s: list[float] = []
        self.tokens: list[int] = []

    def record(self) -> dict[str, Any]:
        """Return what the server's log says of a finished answer."""
        call = self.call
        return {
            "id": self.answer.response_id, "arrival_s": self.arrival_s, "sent_s": self.sent_s,
            "chunk_tokens": self.tokens, "prompt_tokens": call.prompt_tokens, "output_tokens": call.output_tokens,
            "finish_reason": call.finish, "category": call.category,
        }  # fmt: skip


class Pacer:
    """Drives an engine by the clock and counts the steps that ended late."""

    def __init__(self, engine: Engine, log: RawIOBase | None) -> None:
        """Pace an idle engine; its finished answers go to `log` as JSON lines."""
        self._engine = engine
        self._log = log
        self._origin_s = clock_s()  # the engine's time 0
        self._flows: dict[Job, Flow] = {}
        self._work = asyncio.Event()
        self._in_step = False
        self._scrapers: list[asyncio.Future[Counters]] = []
        self.buckets = Buckets()
        self.steps = 0
        self.late_steps = 0
        self.finished = 0
        self.cancelled = 0
        self.worst_late_s = 0.0

    def submit(self, flow: Flow, ask: Ask) -> None:
        """Hand a call to the engine; `flow.done` is set when its last byte has been written."""
        flow.job = self._engine.submit(flow.arrival_s - self._origin_s, ask)
        self._flows[flow.job] = flow
        self._work.set()

    def cancel(self, flow: Flow) -> None:
        """Forget a call whose client has gone."""
        if flow.job is not None and self._flows.pop(flow.job, None) is not None:
            self.cancelled += 1
            self._engine.cancel(flow.job)

    async def counters(self) -> Counters:
        """Return the counters at the end of a step: of the last one when idle, else of the one under way."""
        if not self._in_step:
            return self._engine.counters()
        waiting: asyncio.Future[Counters] = asyncio.get_running_loop().create_future()
        self._scrapers.append(waiting)
        return await waiting

    @property
    def in_flight(self) -> int:
        """Calls that have no answer yet."""
        return len(self._flows)

    async def run(self) -> None:
        """Run steps for ever."""
        while True:
            if self._engine.idle:
                await self._rest()
                continue
            now_s = clock_s() - self._origin_s
            before_s = self._engine.clock_s
            behind = now_s - self._engine.next_start_s() > BEHIND_S
            self._in_step = True
            step = self._engine.step(now_s if behind else 0.0)
            events = self._prepared(step)
            await self._until(step.end_s + self._origin_s)
            late_s = clock_s() - self._origin_s - step.end_s
            await self._write(events)
            self._in_step = False
            self._account(step, late_s, step.end_s - before_s)

    async def _rest(self) -> None:
        self._work.clear()
        try:
            await asyncio.wait_for(self._work.wait(), COLLECT_AFTER_S)
        except TimeoutError:
            gc.collect()
            await self._work.wait()

    async def _until(self, end_s: float) -> None:
        """Return at `end_s` of the monotonic clock, within some tens of microseconds on a quiet machine."""
        left_s = end_s - clock_s() - SLEEP_ERROR_S
        if left_s > 0:
            await asyncio.sleep(left_s)
        if end_s - clock_s() > TICK_S:
            await asyncio.sleep(1e-5)
        await asyncio.sleep(0)
        while clock_s() < end_s:
            await asyncio.sleep(0)

    def _prepared(self, step: Step) -> list[tuple[Flow, int, bytes, bool]]:
        """Return the bytes that leave at the end of a step, made while it lasts, and whether they are the last."""
        events, ending = [], set(step.finished)
        for job, tokens in step.emitted:
            flow = self._flows.get(job)
            if flow is not None:
                events.append((flow, tokens, flow.answer.emit(tokens) if flow.transport else b"", job in ending))
        return events

    async def _write(self, events: list[tuple[Flow, int, bytes, bool]]) -> None:
        for flow, tokens, data, last in events:
            flow.tokens.append(tokens)
            flow.sent_s.append(clock_s())
            if flow.transport is not None and not flow.transport.is_closing():
                flow.transport.write(data)
                if last and flow.close is not None and not flow.transport.get_write_buffer_size():
                    # At once, as a real server does: a client that reads both together dates them by the later one.
                    # A client that does not read gets it from its own task, which may wait.
                    with contextlib.suppress(ConnectionError):
                        await flow.close()

    def _account(self, step: Step, late_s: float, gap_s: float) -> None:
        self.steps += 1
        self.late_steps += late_s > (step.end_s - step.start_s) / 2
        self.worst_late_s = max(self.worst_late_s, late_s)
        self.buckets.step(step, gap_s)
        for job in step.finished:
            flow = self._flows.pop(job, None)
            if flow is None:
                continue
            self.finished += 1
            if not flow.done.done():
                flow.done.set_result(None)
            if self._log is not None:
                self._log.write(orjson.dumps(flow.record()) + b"\n")
        if self._scrapers:
            counters = self._engine.counters()
            for scraper in self._scrapers:
                if not scraper.done():
                    scraper.set_result(counters)
            self._scrapers.clear()
