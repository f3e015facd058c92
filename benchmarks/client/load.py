"""The client under measurement, in a process of its own: the parts of `loadtest run` that send, read and record.

`python -m benchmarks.client.load JOB.json` puts itself on its core and into its class, as the driver does; runs the
workload; leaves requests.arrows and client.json in the job's folder.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from locust import task

from benchmarks.client.ground import CA
from benchmarks.client.machine import memory_mb, peak_memory_mb, scheduling, waited_s
from benchmarks.client.workload import Workload
from loadtest.drive import clock as clock_module
from loadtest.drive import connection as connection_module
from loadtest.drive.cell import CellRun, Switches
from loadtest.drive.client import Client, Clock, Endpoint
from loadtest.drive.context import CellContext, Target
from loadtest.drive.evidence import cpu_s
from loadtest.drive.openai import CHAT_PATH, chat_body
from loadtest.drive.own_users import OwnUsers
from loadtest.drive.phases import PAUSE_AFTER_FAILURE_S, Phases
from loadtest.drive.plan import Cell
from loadtest.drive.priority import ask_for_priority
from loadtest.drive.punctual import sleep_until
from loadtest.drive.records import FLUSH_EVERY_S
from loadtest.drive.user import LLMUser
from loadtest.drive.without_pandas import keep_pandas_out
from loadtest.record import Outcome, Request
from loadtest.record_writer import RequestWriter, batch_of
from loadtest.settings import Experiment, Generation, Load, Window

MESSAGES = [{"role": "user", "content": "hello there"}]
SETTLE_S = 0.3  # after the last user has started, before anything is compared
SAMPLE_S = 1.0  # between two looks at the memory


@dataclass(slots=True)
class Run:
    """One workload under way: who sends, who writes, what was counted."""

    workload: Workload
    endpoint: Endpoint
    clock: Clock
    writer: RequestWriter
    requests: int = 0
    failed: int = 0
    coalesced: int = 0
    error: str = ""  # of the first request that failed
    stamps: dict[str, int] = field(default_factory=dict)  # source → requests
    memory: list[tuple[float, int, float]] = field(default_factory=list)  # seconds, requests, resident MB

    def keep(self, request: Request) -> None:
        """Write a finished request down, as the driver does, and count it."""
        self.writer.add(request)
        self.requests += 1
        self.coalesced += request.coalesced
        self.stamps[request.stamp_source] = self.stamps.get(request.stamp_source, 0) + 1
        if request.outcome != Outcome.OK:
            self.failed += 1
            self.error = self.error or f"{request.outcome}: {request.error}"

    @property
    def body(self) -> bytes:
        """The request, asking for running counts or not."""
        count = "continuous" if self.workload.usage else "none"
        tokens = self.workload.chunks * self.workload.tokens
        return chat_body(self.workload.model, MESSAGES, Generation(), tokens, count=count)


def closed(run: Run) -> tuple[float, float]:
    """Keep the users' requests in flight; return the window in which the load was whole."""
    workload, clock, body = run.workload, run.clock, run.body
    began_s = clock.now_s()
    until_s = began_s + workload.seconds

    def wanted() -> bool:
        return run.requests < workload.requests if workload.requests else clock.now_s() < until_s

    def user(number: int) -> None:
        client = Client(run.endpoint, clock)
        gevent.sleep(max(0.0, began_s + workload.ramp_s * number / workload.users - clock.now_s()))
        while wanted():
            request = Request(user=number, due_s=clock.now_s())
            client.stream(CHAT_PATH, body, request)
            run.keep(request)
            if request.outcome != Outcome.OK:
                gevent.sleep(PAUSE_AFTER_FAILURE_S)
        client.close()

    gevent.joinall([gevent.spawn(user, number) for number in range(workload.users)], raise_error=True)
    return began_s + workload.ramp_s + SETTLE_S, until_s


def opened(run: Run) -> tuple[float, float]:
    """Send requests at even times, whatever the server does, over connections kept between requests."""
    workload, clock, body = run.workload, run.clock, run.body
    idle: list[Client] = []
    began_s = clock.now_s() + SETTLE_S

    def send(due_s: float) -> None:
        client = idle.pop() if idle else Client(run.endpoint, clock)
        request = Request(due_s=due_s)
        client.stream(CHAT_PATH, body, request)
        run.keep(request)
        idle.append(client)

    sent = []
    for number in range(round(workload.seconds * workload.rate_per_s)):
        due_s = began_s + number / workload.rate_per_s
        sleep_until(clock.perf_s(due_s))
        sent.append(gevent.spawn(send, due_s))
    gevent.joinall(sent, raise_error=True)
    for client in idle:
        client.close()
    return began_s + workload.ramp_s, began_s + workload.seconds


class OneQuestion(LLMUser):
    """A user who asks the same again and again: what Locust's users and the driver's cells add to the client."""

    @task
    def ask(self) -> None:
        self.chat(MESSAGES)


def through_cell(run: Run) -> tuple[float, float]:
    """Run a whole cell of the driver; return its window."""
    workload, clock = run.workload, run.clock
    window = Window(min_s=workload.seconds, max_s=workload.seconds, min_requests=1, warmup_requests=0.5)
    experiment = Experiment(load=Load(think_time=0.0), window=window,
                            generation=Generation(max_tokens=workload.chunks * workload.tokens))  # fmt: skip
    count = "continuous" if workload.usage else "none"
    context = CellContext(
        experiment=experiment, cell=Cell(cell=0, block=0, level=float(workload.users), arm="truth"), clock=clock,
        target=Target(name="truth", endpoint=run.endpoint, model=workload.model, count=count, salted=False),
        phases=Phases(window, workload.users, clock.now_s(), workload.ramp_s), stagger_s=workload.ramp_s, salt="",
        source=None, keep=run.keep,
    )  # fmt: skip
    cell = CellRun(context=context, users=OwnUsers(context, OneQuestion, workload.users), control=None,
                   switches=Switches(), keep_scrape=lambda scrape: None, tell=lambda event: None)  # fmt: skip
    record = cell.run(0, 0.0)
    if record.window_open_s is None or record.window_close_s is None:
        raise RuntimeError(f"the cell had no window: {record.state} ({record.reason})")
    return record.window_open_s, record.window_close_s


def measured(run: Run, seconds_at_most: float) -> dict[str, Any]:
    """Run the workload; return its counts, and what it took."""
    workload = run.workload
    way = through_cell if workload.through == "cell" else opened if workload.rate_per_s else closed
    began_s, used_s, waited_before_s = run.clock.now_s(), cpu_s(), waited_s()
    signal.alarm(int(seconds_at_most))  # ends the process: nothing here may last for ever
    with _flushing(run), _sampling(run):
        window_s = way(run)
    run.writer.flush()
    return {
        "origin_ns": run.clock.origin_ns, "began_s": began_s, "window_s": window_s,
        "wall_s": run.clock.now_s() - began_s, "cpu_s": cpu_s() - used_s, "waited_s": waited_s() - waited_before_s,
        "requests": run.requests, "failed": run.failed, "error": run.error, "coalesced": run.coalesced,
        "stamps": run.stamps, "clock_steps": run.clock.steps, "scheduling": scheduling(),
        "peak_memory_mb": peak_memory_mb(), "memory": run.memory,
    }  # fmt: skip


@contextlib.contextmanager
def _flushing(run: Run) -> Iterator[None]:
    with _every(FLUSH_EVERY_S, run.writer.flush):
        yield


@contextlib.contextmanager
def _sampling(run: Run) -> Iterator[None]:
    """Look at the memory of a long run."""
    if not run.workload.requests:
        yield
        return
    began_s = run.clock.now_s()
    with _every(SAMPLE_S, lambda: run.memory.append((run.clock.now_s() - began_s, run.requests, memory_mb()))):
        yield


@contextlib.contextmanager
def _every(seconds: float, step: Any) -> Iterator[None]:
    def repeat() -> None:
        while True:
            gevent.sleep(seconds)
            step()

    greenlet = gevent.spawn(repeat)
    try:
        yield
    finally:
        greenlet.kill()


def settle_in(core: int, *, realtime: bool) -> None:
    """Take the core and the class of the measurement, and as many files as the system allows."""
    os.sched_setaffinity(0, {core})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if realtime:
        ask_for_priority()


def use_user_clock() -> None:
    """Do without the kernel's stamps, as on a system that gives none."""
    for module in (clock_module, connection_module):
        vars(module)["KERNEL_STAMPS"] = False


def main(path: Path) -> None:
    job = json.loads(path.read_text(encoding="utf-8"))
    folder = path.parent
    workload = Workload(**job["workload"])
    settle_in(job["core"], realtime=job["realtime"])
    if workload.stamps == "user":
        use_user_clock()
    run = Run(
        workload=workload, endpoint=Endpoint(job["url"], ca=CA if workload.tls else None), clock=Clock(),
        writer=RequestWriter(Path(os.devnull) if workload.requests else folder / "requests.arrows"),
    )  # fmt: skip
    keep_pandas_out()  # as the driver does
    batch_of([Request()])  # loads what Arrow loads on first use, as a run's calibration does before any cell
    gc.collect()
    gc.freeze()
    gc.disable()  # as the driver does within a cell
    result = measured(run, job["seconds_at_most"])
    if not workload.requests:
        run.writer.close()
    (folder / "client.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
