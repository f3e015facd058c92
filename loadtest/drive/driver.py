"""The driver: a child process that walks the plan under Locust and gevent, writing records as it goes.

`python -m loadtest.drive.driver JOB.json`; tells its progress as JSON lines on stdout, ends when its stdin does.
SIGTERM or SIGINT once: issue nothing more, drain, end; twice, or end of stdin: end at once. Records stay.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import gevent
import locust  # noqa: F401  # before anything opens a socket: it makes the standard library cooperative

from loadtest.drive.cell import CellRun, wait_until_idle
from loadtest.drive.client import Clock, Endpoint
from loadtest.drive.context import CellContext, Target, open_prompts
from loadtest.drive.job import Job, read_job
from loadtest.drive.loading import load_user_class
from loadtest.drive.orders import Orders
from loadtest.drive.phases import Phases
from loadtest.drive.plan import Cell
from loadtest.drive.priority import ask_for_priority
from loadtest.drive.probe import probe
from loadtest.errors import ExitCode, LoadtestError, RunError, UsageError, unwritable
from loadtest.experiment import override
from loadtest.record import CellRecord, LineWriter, Request, RequestWriter
from loadtest.servers.control import Arm, Control, arm_from, must_stay_alive
from loadtest.settings import Experiment, Window

FLUSH_EVERY_S = 0.5
WARM_UP = 3  # requests after a start that are not even timed
STAGGER_S = (0.1, 10.0)  # shortest and longest
CALIBRATION_USERS = 256  # at most: beyond it the null server itself would be the limit
CALIBRATION_S = 2.0  # length of the calibration's window
CALIBRATION_TOKENS = 24
CALIBRATION_WARMUP_S = 10.0

Tell = Callable[[dict[str, Any]], None]


class Driver:
    """Walks the cells of a job."""

    def __init__(self, job: Job, tell: Tell) -> None:
        """Load the scenario and the prompts; nothing is sent."""
        self._job, self._tell = job, tell
        self.folder = job.folder
        self._clock = Clock(job.origin_ns)
        self.orders = Orders()
        self.switches = self.orders.switches
        self._user_class = load_user_class(job.scenario)
        self._prompts = open_prompts(job.prompts)
        self._controls = {arm.name: Control(arm) for arm in job.arms}
        self._targets: dict[str, Target] = {}
        self._stagger_s = 1.0
        self._running: tuple[str, int] | None = None  # arm and start, where the parent starts one arm after another
        self._requests = RequestWriter(job.folder / "requests.arrows")
        self._cells = LineWriter(job.folder / "cells.jsonl")
        self._scrapes = LineWriter(job.folder / "server.jsonl")
        self._flusher = gevent.spawn(self._flush)

    def _flush(self) -> None:
        while True:
            gevent.sleep(FLUSH_EVERY_S)
            self._requests.flush()
            self._tell({"event": "beat"})

    def close(self) -> None:
        """Write what is left."""
        self._flusher.kill()
        self._requests.close()
        self._cells.close()
        self._scrapes.close()
        for control in self._controls.values():
            control.close()

    def walk(self) -> None:
        """Probe the servers, calibrate the client, then run every cell until the end or a stop."""
        self._tell({"event": "beat"})  # from here on silence means that something does not give way
        for note in self._prompts.notes if self._prompts else ():
            self._tell({"event": "note", "text": note})
        arms = () if self._job.restarts else self._job.arms  # else each is met when it has been started
        requests_s = [self._meet(arm, salted=self._job.salted.get(arm.name, False)) for arm in arms]
        if self._job.calibration is not None:
            self._calibrate(self._job.calibration)
        self._settle_stagger(requests_s)
        for order, cell in enumerate(self._job.cells):
            if self._job.restarts:
                self._have_started(cell)
            if self.switches.stop or self.switches.cut:
                return
            self._run_cell(order, cell)

    def _endpoint(self, arm: Arm) -> Endpoint:
        ca = Path(arm.ca) if arm.ca else None
        return Endpoint(arm.url, arm.headers(), self._job.experiment.limits, verify=not arm.insecure, ca=ca)

    def _have_started(self, cell: Cell) -> None:
        """Wait until the parent has started the arm of a cell, if this cell is the first of a start."""
        if self._running == (cell.arm, cell.block):
            return
        self._tell({"event": "arm_needed", "arm": cell.arm, "start": cell.block})
        answer = self.orders.answer()
        if answer is None:
            return
        if "refused" in answer:
            raise (UsageError if answer["kind"] == "usage" else RunError)(answer["refused"])
        arm = arm_from(answer["arm"])
        self._controls[arm.name].close()  # its connections led to an earlier life of the server
        self._controls[arm.name] = Control(arm)
        try:
            request_s = self._meet(arm, salted=answer["salted"], warm=WARM_UP)
        except UsageError as error:
            raise (UsageError if self._running is None else RunError)(str(error)) from error
        if self._running is None:  # the same for every start
            self._settle_stagger([request_s])
        self._running = (cell.arm, cell.block)

    def _meet(self, arm: Arm, *, salted: bool, warm: int = 0) -> float:
        """Send a server its first requests; it is the target of its cells from now on. Return a request's seconds."""
        endpoint, generation = self._endpoint(arm), self._job.experiment.generation
        salt = f"{self._job.run_id}-probe" if salted else None
        found = probe(arm, endpoint, self._clock, generation, salt, warm)
        self._targets[arm.name] = Target(name=arm.name, endpoint=endpoint, model=arm.model, count=found.count,
                                         salted=salted)  # fmt: skip
        self._tell({"event": "probe", "arm": arm.name} | asdict(found))
        return found.token_s * generation.max_tokens

    def _settle_stagger(self, requests_s: Sequence[float]) -> None:
        """Let the users of a cell start over about the time of the slowest request."""
        if requests_s:
            self._stagger_s = min(STAGGER_S[1], max(STAGGER_S[0], *requests_s))

    def _calibrate(self, arm: Arm) -> None:
        users = min(CALIBRATION_USERS, max(cell.users for cell in self._job.cells))
        target = Target(name=arm.name, endpoint=self._endpoint(arm), model=arm.model, salted=False)
        writer = RequestWriter(self._job.folder / "calibration.arrows")
        window = Window(
            min_s=CALIBRATION_S,
            max_s=CALIBRATION_S,
            min_requests=1,
            warmup_requests=0.5,
            warmup_max_s=CALIBRATION_WARMUP_S,
        )
        self._tell({"event": "calibration_start", "users": users})
        experiment = override(self._job.experiment, "generation", max_tokens=CALIBRATION_TOKENS)
        experiment = override(override(experiment, "load", think_time=0.0), "window", **asdict(window))
        cell = Cell(cell=-1, block=0, level=users, arm=arm.name)
        record = self._drive(cell, target, None, experiment, writer.add, 0, 0.0)
        writer.close()
        self._tell({"event": "calibration_end", "users": users, "state": record.state, "reason": record.reason,
                    "lateness_p99_s": record.lateness_p99_s,
                    "client_cpu_ratio": record.client_cpu_ratio, "hub_lag_p99_s": record.hub_lag_p99_s,
                    "coalesced_ratio": record.coalesced_ratio, "window_open_s": record.window_open_s,
                    "window_close_s": record.window_close_s, "scheduling": ask_for_priority()})  # fmt: skip

    def _run_cell(self, order: int, cell: Cell) -> None:
        self._tell({"event": "cell_start", "cell": cell.cell, "arm": cell.arm, "level": cell.level, "block": cell.block,
                    "index": order, "total": len(self._job.cells)})  # fmt: skip
        control = self._controls[cell.arm]
        gc.collect()  # between cells, since it is off within them
        limit_s = self._job.experiment.limits.idle_s
        waited_s = wait_until_idle(control, self._clock, limit_s)
        if waited_s is None:
            record = CellRecord(
                cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block, order=order, state="aborted",
                reason=f"the server was still busy after {limit_s:g} s: is there other traffic?",
                started_s=self._clock.now_s(), idle_wait_s=limit_s,
            )  # fmt: skip
        else:
            record = self._drive(cell, self._targets[cell.arm], control, self._job.experiment,
                                 self._requests.add, order, waited_s)  # fmt: skip
        self._requests.flush()
        self._cells.write(record)
        self._tell({"event": "cell_end", "cell": cell.cell, "arm": cell.arm, "level": cell.level, "block": cell.block,
                    "index": order, "state": record.state, "reason": record.reason})  # fmt: skip
        if record.state != "interrupted":  # a server that died late in a cell fails few requests of that cell
            must_stay_alive(control)

    def _drive(self, cell: Cell, target: Target, control: Control | None, experiment: Experiment,
               keep: Callable[[Request], None], order: int, waited_s: float) -> CellRecord:  # fmt: skip
        run: CellRun | None = None

        def keep_request(request: Request) -> None:
            keep(request)
            if run is not None:
                run.keep(request)

        context = CellContext(
            experiment=experiment, target=target, cell=cell, clock=self._clock, stagger_s=self._stagger_s,
            phases=Phases(experiment.window, cell.users, self._clock.now_s(), self._stagger_s), source=self._prompts,
            salt=f"{self._job.run_id}-{cell.cell}", keep=keep_request,
        )  # fmt: skip
        run = CellRun(context=context, user_class=self._user_class, control=control, switches=self.switches,
                      keep_scrape=self._scrapes.write, tell=self._tell)  # fmt: skip
        return run.run(order, waited_s)


def main(arguments: list[str]) -> int:
    """Run a job file; returns the process's exit code."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what a scenario prints must not mix with the progress lines
    tell = _teller(out)
    ask_for_priority()
    try:
        driver = Driver(read_job(Path(arguments[0])), tell)
    except LoadtestError as error:
        return _fail(tell, error)
    driver.orders.listen()
    gc.freeze()
    gc.disable()  # a full collection would stop the clock of every stream
    try:
        driver.walk()
        tell({"event": "end", "state": "interrupted" if driver.switches.stop or driver.switches.cut else "complete"})
    except LoadtestError as error:
        return _fail(tell, error)
    except OSError as error:
        return _fail(tell, unwritable(driver.folder, error))
    finally:
        with contextlib.suppress(OSError):  # it was said above
            driver.close()
        driver.orders.close()
    return ExitCode.PASS


def _fail(tell: Tell, error: LoadtestError) -> int:
    kind = "run" if isinstance(error, RunError) else "usage"
    tell({"event": "end", "state": "aborted", "kind": kind, "reason": str(error)})
    return int(error.exit_code)


def _teller(out: IO[str]) -> Tell:
    def tell(event: dict[str, Any]) -> None:
        try:
            out.write(json.dumps(event) + "\n")
        except BrokenPipeError:
            os._exit(ExitCode.INVALID)  # the parent is gone; records are flushed twice a second

    return tell


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
