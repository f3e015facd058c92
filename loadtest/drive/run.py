"""A run, from the choice of servers to records on disk; judging and drawing come after, from the records alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtest.drive.budget import level_s
from loadtest.drive.early_end import Looks
from loadtest.drive.failure import counted
from loadtest.drive.finish import Finish, how_it_ended, note_end
from loadtest.drive.folder import has_requests, make_folder, remove_if_empty
from loadtest.drive.header import boot_id, complete_header, make_header
from loadtest.drive.interrupts import hold_interrupts
from loadtest.drive.job import Job
from loadtest.drive.late_steps import LateSteps
from loadtest.drive.launch import DriverProcess
from loadtest.drive.meeting import Meeting
from loadtest.drive.outputs import wanted_in_run
from loadtest.drive.pair import refuse_violations
from loadtest.drive.planning import Planning
from loadtest.drive.preflight import salted, trial_notes
from loadtest.drive.prepare import Prepared, terms_of
from loadtest.drive.rate_limits import token_notes
from loadtest.drive.resume import (
    Resumed,
    clear_away,
    holding,
    recorded_identities,
    refuse_others,
    refuse_stale,
    set_truth_aside,
)
from loadtest.drive.room import connections, make_room
from loadtest.drive.truth import NULL, calibration_result
from loadtest.drive.turns import Managed, Turns
from loadtest.drive.workers.wanted import refuse_taken
from loadtest.errors import Interrupted, LoadtestError, NotComparable, RunError, UsageError, unwritable
from loadtest.json_files import write_json
from loadtest.servers.control import Arm
from loadtest.servers.identity import Identity
from loadtest.servers.managed import StartFailed
from loadtest.servers.process import ServerProcess, start_simulated

Tell = Callable[[dict[str, Any]], None]
KEPT = ("prompts", "habits", "asking", "workers")  # events of the driver that stand in the header as they come


def measure(prepared: Prepared, tell: Tell, looks: Looks | None = None) -> Path:
    """Run the whole plan and return the run's folder, whatever state it ended in (run.json says which).

    Raises UsageError, NotComparable or Interrupted when nothing was measured.
    """
    refuse_taken(prepared.workers)
    make_room(connections(prepared.experiment.load))
    started, origin_ns = datetime.now(UTC), time.perf_counter_ns()
    folder = make_folder(prepared.options.out, started, prepared.options.scenario.stem)
    managed = Managed(prepared.choice.starts, folder, tell)
    try:
        with ExitStack() as stack:
            held = stack.enter_context(holding(folder))
            return _Run(prepared, tell, folder, stack, held, managed, looks=looks).measure(started, origin_ns)
    except OSError as error:
        raise unwritable(folder, error) from error
    except LoadtestError as error:
        logs = () if isinstance(error, Interrupted) else managed.logs
        if remove_if_empty(folder, logs) and logs and not isinstance(error, StartFailed):  # which shows its log itself
            raise type(error)(f"{error} What the servers wrote is in {folder}.") from error
        raise
    except KeyboardInterrupt:
        if remove_if_empty(folder):
            raise Interrupted("Stopped before the first request; nothing was measured.") from None
        raise Interrupted(f"Stopped. What was measured is in {folder}: loadtest report {folder}") from None
    except Exception:  # our own mistake; it leaves no empty folder behind
        remove_if_empty(folder)
        raise


def go_on(resumed: Resumed, tell: Tell) -> Path:
    """Measure what is missing of a run, or its further blocks, and return its folder.

    Raises UsageError when its servers are others now, or when another process measures it.
    """
    folder, prepared = resumed.folder, resumed.prepared
    refuse_taken(prepared.workers)
    make_room(connections(prepared.experiment.load))
    try:
        with ExitStack() as stack:
            held = stack.enter_context(holding(folder))
            refuse_stale(resumed)
            run = _Run(prepared, tell, folder, stack, held, Managed(prepared.choice.starts, folder, tell), resumed)
            return run.measure(datetime.now(UTC), resumed.origin_ns())
    except OSError as error:
        raise unwritable(folder, error) from error
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped. What was measured is in {folder}: loadtest report {folder}") from None


class _Run:
    """One run under way: the servers, what is known of them, and the header on disk."""

    def __init__(self, prepared: Prepared, tell: Tell, folder: Path, stack: ExitStack, held: int,
                 managed: Managed, resumed: Resumed | None = None, looks: Looks | None = None) -> None:  # fmt: skip
        """Start the servers that stay up for the whole run; `stack` ends everything that is started.

        `held` is the descriptor that holds the folder; `resumed` is the run that is gone on with.
        """
        self._prepared, self._tell, self._folder, self._stack = prepared, tell, folder, stack
        self._held, self._resumed, self._began_s = held, resumed, time.perf_counter()
        self._looks = looks
        if resumed:
            set_truth_aside(resumed)
        self._processes: dict[str, ServerProcess] = {}
        known = recorded_identities(resumed.header) if resumed and prepared.choice.restarts else None
        self._met = Meeting(prepared.choice, prepared.options.waive, known)  # a start is held against what was known
        self._header: dict[str, Any] = {}
        self._trials: list[str] = []  # what was tried before anything was measured
        self._managed, self._late_steps = managed, LateSteps()
        stack.enter_context(managed.over(prepared.arms))
        if prepared.world:
            for seed, (name, origin) in enumerate(prepared.choice.origins.items()):
                self._met.arms[name] = replace(
                    self._met.arms[name], url=self._simulated(prepared.world, origin, name, seed)
                )
        self._simulated(NULL, "baseline", NULL, 0)
        if not prepared.choice.restarts:
            for name in prepared.choice.starts:
                self._managed.start(self._met.arms[name], 1, 1)

    def _simulated(self, world: str, arm: str, name: str, more: int) -> str:
        """Start a simulated server; two of one arm get luck of their own."""
        seed = self._prepared.experiment.plan.seed + (more if self._prepared.choice.aa else 0)
        process = start_simulated(world, arm, self._folder, seed=seed, name=name)
        self._stack.callback(process.stop)
        self._processes[name] = process
        return f"http://127.0.0.1:{process.announced['port']}"

    def measure(self, started: datetime, origin_ns: int) -> Path:
        """Introduce the arms, walk the plan, complete the records."""
        prepared, folder = self._prepared, self._folder
        restarts = prepared.choice.restarts
        for arm in () if restarts else tuple(self._met.arms.values()):
            self._meet(*self._managed.meet(arm, prepared.experiment.generation))
        if not restarts:
            self._agree()
        planning = self._planning = self._begin(started, origin_ns)
        course, sitting = planning.course, len(self._header["sittings"])
        cells = self._resumed.missing if self._resumed else planning.planned
        self._tell({"event": "ready", "folder": str(folder), "cells": len(cells), "comparability": self._met.rows})
        null = self._processes[NULL].announced
        job = Job(
            folder=folder.resolve(), scenario=prepared.options.scenario.resolve(), experiment=prepared.experiment,
            arms=tuple(self._met.arms.values()), cells=tuple(cells), open=course.opened, sitting=sitting,
            coarse_blocks=course.coarse_blocks,
            top=max(prepared.experiment.load.levels), total=course.expected(planning.planned),
            asking=self._header.get("asking") if self._resumed else None,
            prompts=str(prepared.options.prompts) if prepared.options.prompts else None,
            workers=prepared.workers, started=tuple(prepared.choice.starts),
            outputs=wanted_in_run(prepared, self._met.identities),
            salted=salted(self._met.identities),
            simulated={name: bool(identity.simulated_world) for name, identity in self._met.identities.items()},
            run_id=f"{started:%Y%m%dT%H%M%S}-{prepared.experiment.plan.seed}-{sitting}",
            origin_ns=origin_ns, restarts=restarts,
            calibration=Arm(name=NULL, role="null", url=f"http://127.0.0.1:{null['port']}", model=null["model"]),
        )  # fmt: skip
        self._looks = None if course.opened else self._looks  # a run that grows has looks of its own
        if self._looks is not None:
            self._looks.plan(cells)
        driver = DriverProcess(job, [self._held])
        self._stack.callback(driver.close)
        part, known = self._late_steps.close, self._met.identities
        turns = Turns(prepared, self._managed, self._meet, part, known) if restarts else None
        last = driver.follow(self._listener(driver, turns, origin_ns))
        hold_interrupts()  # what was measured is now written in its final form, which takes seconds at most
        given_up = self._looks.reason if self._looks is not None else ""
        last = how_it_ended(last, self._managed, stopped=driver.asked_to_stop, given_up=given_up)
        return self._conclude(last, turns.failure if turns else None, origin_ns)

    def _begin(self, started: datetime, origin_ns: int) -> Planning:
        """Write the header and what is planned so far."""
        prepared, resumed, budget_s = self._prepared, self._resumed, self._prepared.budget_s
        if resumed:
            taken = clear_away(resumed)
            if taken:
                self._tell({"event": "note", "text": f"{counted(taken, 'request')} of what is measured again"
                            f" {'is' if taken == 1 else 'are'} taken out of the records."})  # fmt: skip
            self._header, course = resumed.header, resumed.course
            self._header["clock"] = {"origin_monotonic_ns": origin_ns, "boot": boot_id()}
            if not self._header.get("look"):
                self._header |= {"status": "running", "reason": ""}
        else:
            self._header, course = make_header(prepared, "", started, origin_ns), prepared.course
            self._header["notes"] += self._trials
        self._header["sittings"].append(
            {"started": started.isoformat(timespec="milliseconds"), "state": "running", "budget_s": budget_s}
        )
        planning = Planning(self._folder, course, self._header, self._write_header, resumed.planned if resumed else ())
        if budget_s is not None:
            terms, experiment = terms_of(prepared), prepared.experiment
            cell_s = level_s(experiment, experiment.load.levels[0], terms.request_s, terms.habits)
            planning.limit(budget_s, self._began_s, cell_s)
        planning.append([] if resumed else course.first())
        return planning

    def _meet(self, arm: Arm, identity: Identity) -> None:
        """Note what an arm is. Raises NotComparable once a pair is known that differs in more than speculation."""
        if self._resumed and not self._header:
            refuse_others(self._resumed, arm.name, identity)
        self._met.met(arm, identity, self._tell)
        if identity.simulated_world:
            self._late_steps.open(arm)
        self._write_header()
        refuse_violations(self._met.rows, self._prepared.options.waive)

    def _agree(self) -> None:
        """Settle how the arms are asked, and that no rate limit stands in the way of the plan."""
        self._met.agree(self._prepared.experiment)
        experiment, arms = self._prepared.experiment, tuple(self._met.arms.values())
        self._trials = trial_notes(self._met.identities, experiment.servers.cache)
        self._trials += token_notes(arms, self._met.identities, experiment)

    def _write_header(self) -> None:
        """Bring the header on disk up to date, from the first time that there is one."""
        if self._header:
            complete_header(self._header, self._met.arms.values(), self._met.identities, self._met.rows)
            write_json(self._folder / "run.json", self._header)

    def _listener(self, driver: DriverProcess, turns: Turns | None, origin_ns: int) -> Tell:
        def listen(event: dict[str, Any]) -> None:
            if event["event"] == "arm_needed" and turns is not None:
                self._take_turn(driver, turns, event)
                return
            if event["event"] == "cells_needed":
                driver.answer(self._planning.answer())
                return
            if event["event"] == "still_there":
                driver.answer({"lost": bool(self._managed.lost(event["arm"]))})
                return
            if event["event"] == "note":
                self._header["notes"].append(event["text"])
            if event["event"] in KEPT:
                told = {name: value for name, value in event.items() if name != "event"}
                self._header[event["event"]] = told
                self._write_header()
            if event["event"] == "calibration_end":
                truth = self._folder / f"truth-{NULL}.jsonl"
                self._header["calibration"] = calibration_result(self._folder, event, truth, origin_ns)
                if event["state"] != "complete":
                    self._header["notes"].append(f"The client could not be calibrated: {event['reason']}.")
                self._write_header()
                self._processes.pop(NULL).stop()
            self._tell(event)
            if event["event"] == "cell_end" and self._is_over(event):
                driver.give_up()

        return listen

    def _take_turn(self, driver: DriverProcess, turns: Turns, event: dict[str, Any]) -> None:
        """Start the arm that the driver asks for, unless it was told to end: the start would be waited for in vain."""
        if not driver.ending:
            asked_s = time.perf_counter()
            driver.answer(turns.take(event["arm"], event["start"]))
            self._planning.start_took(time.perf_counter() - asked_s)

    def _is_over(self, event: dict[str, Any]) -> bool:
        """Return whether the run ends after this cell: an objective has failed for certain, or a server has gone."""
        lost = bool(self._managed.lost())
        if self._looks and self._looks.ended(self._folder, event):
            self._header["notes"].append(f"Ended early: {self._looks.reason}.")
            return True
        return lost

    def _conclude(self, last: dict[str, Any], failure: LoadtestError | None, origin_ns: int) -> Path:
        """Complete the records, or say why there are none."""
        measured, interrupted = has_requests(self._folder), last["state"] == "interrupted"
        if not measured:
            if interrupted:
                raise Interrupted("Stopped before the first request; nothing was measured.")
            if last.get("kind") == "usage":
                raise failure or UsageError(last["reason"])
            why = str(last.get("reason") or "no request fell due").removesuffix(".")
            raise failure or RunError(f"Nothing was measured: {why}.")
        note_end(self._header, last)
        self._planning.conclude(last["state"])
        self._late_steps.close()
        Finish(folder=self._folder, prepared=self._prepared, resumed=self._resumed, arms=tuple(self._met.arms),
               planned=frozenset(cell.cell for cell in self._planning.planned), late=self._late_steps.ratios(),
               origin_ns=origin_ns).finish(self._header)  # fmt: skip
        if not interrupted and (last.get("kind") == "usage" or isinstance(failure, NotComparable)):
            said = f"{last['reason']} What was measured before is in {self._folder}."
            raise NotComparable(said) if isinstance(failure, NotComparable) else UsageError(said)
        return self._folder
