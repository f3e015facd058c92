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
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import locust  # noqa: F401  # before anything opens a socket: it makes the standard library cooperative

from loadtest.drive.asking import Asking, again, as_event, measure_price, settled, unmeasured
from loadtest.drive.calibration import calibration_event, calibration_experiment, calibration_level
from loadtest.drive.cell import wait_until_idle
from loadtest.drive.client import Clock, Endpoint
from loadtest.drive.context import Target
from loadtest.drive.driving import Driving
from loadtest.drive.job import Job, read_job
from loadtest.drive.orders import Orders
from loadtest.drive.outputs import Tell
from loadtest.drive.outputs_phase import collector_for, tell_likeness
from loadtest.drive.plan import Cell, coarse
from loadtest.drive.presence import Presence
from loadtest.drive.priority import ask_for_priority
from loadtest.drive.probe import probe
from loadtest.drive.records import Records
from loadtest.drive.without_pandas import keep_pandas_out
from loadtest.drive.workers.crew import Crew
from loadtest.errors import ExitCode, LoadtestError, RunError, UsageError, unwritable
from loadtest.loads import unit_of
from loadtest.record import CellRecord, Request
from loadtest.record_writer import RequestWriter
from loadtest.servers.control import Arm, Control, arm_from, reset_prefixes
from loadtest.settings import Experiment
from loadtest.workload.given import notes_of

WARM_UP = 3  # requests after a start that are not even timed
STAGGER_S = (0.1, 10.0)  # shortest and longest


class Driver:
    """Walks the cells of a job."""

    def __init__(self, job: Job, tell: Tell) -> None:
        """Load the scenario and the prompts; nothing is sent."""
        self._job, self._tell = job, tell
        self.folder = job.folder
        self._clock = Clock(job.origin_ns)
        self.orders = Orders()
        self.switches = self.orders.switches
        self._records = Records(job, self.switches, lambda: tell({"event": "beat"}))
        self._driving = Driving(job, self._clock, self.switches, self._records, tell)
        self._presence = Presence(job.started, tell, self.orders)
        self._controls = {arm.name: Control(arm) for arm in job.arms}
        self._targets: dict[str, Target] = {}
        self._unit = unit_of(job.experiment.load)
        self._asking: Asking | None = None
        self._running: tuple[str, int] | None = None  # arm and start, where the parent starts one arm after another
        self._total = job.total or len(job.cells)
        self._outputs = collector_for(job, self._driving.source, tell, lambda: self._stopped)

    def close(self) -> None:
        """Write what is left."""
        if self._driving.crew is not None:
            self._driving.crew.close()
        self._records.close()
        for control in self._controls.values():
            control.close()

    def walk(self) -> None:
        """Probe the servers, calibrate the client, then run every cell until the end or a stop."""
        self._tell({"event": "beat"})  # from here on silence means that something does not give way
        for note in notes_of(self._driving.prompts, self._job.experiment):
            self._tell({"event": "note", "text": note})
        self._tell_sessions()
        self._assemble()
        if self._stopped:
            return
        arms = () if self._job.restarts else self._job.arms  # else each is met when it has been started
        requests_s = [self._meet(arm, salted=self._job.salted.get(arm.name, False)) for arm in arms]
        if self._job.calibration is not None:
            self._calibrate(self._job.calibration)
        self._settle_stagger(requests_s)
        if arms:
            self._settle_asking(arms[0].name, simulated=self._job.simulated.get(arms[0].name, False))
        cells: Sequence[Cell] = self._job.cells
        while cells or self._job.open:
            for cell in cells:
                if self._job.restarts and not self._stopped:
                    self._have_started(cell)
                if self._stopped:
                    return
                self._run_cell(cell)
            cells = self._further()
            if not cells:
                return

    def _tell_sessions(self) -> None:
        """Tell what the sessions are like: of which words, and in an open load of how many requests."""
        tell_likeness(self._job, self._driving.source, self._tell)
        if self._job.experiment.load.kind == "open":
            self._tell({"event": "habits"} | self._driving.habits(self._job.experiment).told())

    def _assemble(self) -> None:
        """Wait for the workers that are to make the load, if they are."""
        if self._job.workers is not None:
            self._driving.crew = Crew(self._job, self._records.late, self._tell)
            self._driving.crew.gather(lambda: self._stopped)

    def _further(self) -> list[Cell]:
        """Ask the parent for the cells that follow, if it chooses them as results come in."""
        if not self._job.open:
            return []
        self._tell({"event": "cells_needed"})
        answer = self.orders.answer()
        if answer is None:
            return []
        if "refused" in answer:
            raise (UsageError if answer["kind"] == "usage" else RunError)(answer["refused"])
        self._total = answer["total"]
        return [Cell(**cell) for cell in answer["cells"]]

    def _endpoint(self, arm: Arm) -> Endpoint:
        ca = Path(arm.ca) if arm.ca else None
        return Endpoint(arm.url, arm.headers(), self._job.experiment.limits, verify=not arm.insecure, ca=ca,
                        proxy=arm.proxy)  # fmt: skip

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
        if answer["simulated"]:
            self._outputs.spare()
        try:
            request_s = self._meet(arm, salted=answer["salted"], warm=WARM_UP)
        except UsageError as error:
            raise (UsageError if self._running is None else RunError)(str(error)) from error
        if self._running is None:  # the same for every start
            self._settle_stagger([request_s])
            self._settle_asking(arm.name, simulated=answer["simulated"])
        self._running = (cell.arm, cell.block)

    def _meet(self, arm: Arm, *, salted: bool, warm: int = 0) -> float:
        """Send a server its first requests; it is the target of its cells from now on. Return a request's seconds."""
        endpoint, generation = self._endpoint(arm), self._job.experiment.generation
        salt = f"{self._job.run_id}-probe" if salted else None
        found = probe(arm, endpoint, self._clock, generation, salt, warm)
        self._targets[arm.name] = Target(name=arm.name, endpoint=endpoint, model=arm.model, count=found.count,
                                         salted=salted)  # fmt: skip
        self._tell({"event": "probe", "arm": arm.name} | asdict(found))
        self._outputs.collect(self._controls[arm.name], arm, salted=salted, gone=self._presence.gone)
        return found.token_s * generation.max_tokens

    def _settle_stagger(self, requests_s: Sequence[float]) -> None:
        """Let the users of a cell start over about the time of the slowest request."""
        if requests_s:
            self._driving.stagger_s = min(STAGGER_S[1], max(STAGGER_S[0], *requests_s))

    def _settle_asking(self, name: str, *, simulated: bool) -> None:
        """Settle which requests of the plan ask for token counts, by what that costs on this arm where it matters."""
        setting, way = self._job.experiment.servers.token_counts, self._targets[name].count
        level = self._job.top
        asking = unmeasured(setting, way, simulated=simulated) if self._job.asking is None else again(self._job.asking)
        if asking is None:
            self._tell({"event": "asking_start", "arm": name, "level": level, "unit": self._unit})
            price = measure_price(self._drive_short, self._job.experiment, name, level, way, lambda: self._stopped)
            asking = settled(price, arm=name, level=level, way=way)
        self._asking = asking
        self._tell({"event": "asking"} | as_event(asking))

    def _drive_short(self, cell: Cell, way: str, experiment: Experiment,
                     keep: Callable[[Request], None]) -> CellRecord:  # fmt: skip
        """Run a cell that is not of the plan, without scrapes, in which all requests ask in one way."""
        gc.collect()
        limit_s = experiment.limits.idle_s
        waited_s = wait_until_idle(self._controls[cell.arm], self._clock, limit_s)
        target = replace(self._targets[cell.arm], count=way)
        return self._driving.drive(cell, self._controls[cell.arm].arm, target, None, experiment, keep,
                                   limit_s if waited_s is None else waited_s)  # fmt: skip

    @property
    def _stopped(self) -> bool:
        return bool(self.switches.stop or self.switches.cut)

    def _calibrate(self, arm: Arm) -> None:
        load = self._job.experiment.load
        users = calibration_level(load, self._job.top)
        target = Target(name=arm.name, endpoint=self._endpoint(arm), model=arm.model, salted=False)
        writer = RequestWriter(self._job.folder / "calibration.arrows")
        self._tell({"event": "calibration_start", "users": users, "unit": self._unit})
        cell = Cell(cell=-1, block=0, level=users, arm=arm.name)
        record = self._driving.drive(cell, arm, target, None, calibration_experiment(self._job.experiment), writer.add,
                                     0.0)  # fmt: skip
        writer.close()
        own = self._driving.crew.master.agreement if self._driving.crew else None
        self._tell(calibration_event(users, record) | {"unit": self._unit} | ({"agreement": own} if own else {}))

    def _run_cell(self, cell: Cell) -> None:
        order = cell.cell  # its place in the plan
        self._tell({"event": "cell_start", "cell": cell.cell, "arm": cell.arm, "level": cell.level, "block": cell.block,
                    "index": order, "total": self._total, "unit": self._unit})  # fmt: skip
        control = self._controls[cell.arm]
        gc.collect()  # between cells, since it is off within them
        limit_s = self._job.experiment.limits.idle_s
        waited_s = wait_until_idle(control, self._clock, limit_s)
        unready = self._unready(control, waited_s)
        if unready or waited_s is None:
            record = CellRecord(
                cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block, order=order, state="aborted",
                reason=unready, started_s=self._clock.now_s(), idle_wait_s=limit_s,
            )  # fmt: skip
        else:
            target = replace(self._targets[cell.arm], asked_ratio=self._asking.ratio if self._asking else 1.0)
            experiment = self._job.experiment
            if cell.block < self._job.coarse_blocks:
                experiment = coarse(experiment)
            record = self._driving.drive(cell, control.arm, target, control, experiment, self._records.keep,
                                         waited_s)  # fmt: skip
        gone = None if record.state == "interrupted" else self._presence.gone(control)
        if gone is not None:  # its cell says nothing of the arm, however few requests failed, and is measured again
            record = replace(record, state="interrupted", reason=str(gone))
        self._records.ended(record)
        self._tell({"event": "cell_end", "cell": cell.cell, "arm": cell.arm, "level": cell.level, "block": cell.block,
                    "index": order, "state": record.state, "reason": record.reason})  # fmt: skip
        if gone is not None:
            raise gone

    def _unready(self, control: Control, waited_s: float | None) -> str:
        """Return why a cell cannot begin; its prefix cache is emptied where that is asked for."""
        if waited_s is None:
            limit_s = self._job.experiment.limits.idle_s
            return f"the server was still busy after {limit_s:g} s: is there other traffic?"
        return reset_prefixes(control) if self._job.experiment.servers.cache == "reset" else ""


def main(arguments: list[str]) -> int:
    """Run a job file; returns the process's exit code."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what a scenario prints must not mix with the progress lines
    tell = _teller(out)
    ask_for_priority()
    keep_pandas_out()
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
