"""Driving one cell: its context, its timetable where sessions arrive, and the users that make its load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtest.drive.arriving import Opened
from loadtest.drive.cell import CellRun, Switches
from loadtest.drive.client import Clock
from loadtest.drive.context import CellContext, Target
from loadtest.drive.job import Job
from loadtest.drive.loading import load_user_class
from loadtest.drive.outputs import Tell
from loadtest.drive.own_users import OwnUsers, Users
from loadtest.drive.phases import Phases
from loadtest.drive.plan import Cell
from loadtest.drive.records import Records
from loadtest.drive.timetable import Habits, habits_of, timetable
from loadtest.drive.workers.crew import Crew
from loadtest.drive.workers.joined import JoinedContext, JoinedUsers
from loadtest.record import CellRecord, Request
from loadtest.servers.control import Arm, Control
from loadtest.settings import Experiment
from loadtest.workload.given import given_source


class Driving:
    """Drives the cells of a job, one at a time."""

    def __init__(self, job: Job, clock: Clock, switches: Switches, records: Records, tell: Tell) -> None:
        """Load the scenario and the prompts. Raises UsageError for what is wrong with them; nothing is sent."""
        self._job, self._clock, self._switches, self._tell = job, clock, switches, tell
        self._records = records
        self.crew: Crew | None = None  # workers that make the load in place of this process
        self._user_class = load_user_class(job.scenario, job.experiment.load)
        self.prompts = given_source(job.prompts, job.experiment)
        self.source = self.prompts or getattr(self._user_class, "source", None)
        self.stagger_s = 1.0  # over which the users of a cell start
        self._habits: dict[float, Habits] = {}  # of the sessions, by the factor on their pauses
        if job.experiment.load.kind == "open":  # what is wrong with it is said before anything is sent
            self._opened(Cell(cell=-1, block=0, level=job.top, arm=""), job.experiment)

    def drive(self, cell: Cell, arm: Arm, target: Target, control: Control | None, experiment: Experiment,
              keep: Callable[[Request], None], waited_s: float) -> CellRecord:  # fmt: skip
        """Drive a cell on an arm and return its record; `keep` is given every finished request.

        Raises UsageError when the scenario's own code raises, OSError when `keep` cannot write.
        """
        records = self._records
        run: CellRun | None = None

        def keep_request(request: Request) -> None:
            records.writing(keep, request)
            if run is not None:
                run.keep(request)

        texts = records.texts() if cell.cell >= 0 else None  # cells that are not of the plan have numbers below 0
        opened = self._opened(cell, experiment) if experiment.load.kind == "open" else None
        given: dict[str, Any] = {
            "experiment": experiment, "target": target, "cell": cell, "clock": self._clock,
            "stagger_s": self.stagger_s, "source": self.prompts, "salt": f"{self._job.run_id}-{cell.cell}",
            "phases": Phases(experiment.window, cell.users, self._clock.now_s(), self.stagger_s),
            "keep": keep_request, "opened": opened, "texts": texts,
        }  # fmt: skip
        context, users = self._made(arm, cell, given)
        run = CellRun(context=context, users=users, control=control, switches=self._switches,
                      keep_scrape=records.scraped, tell=self._tell)  # fmt: skip
        record = run.run(max(0, cell.cell), waited_s)
        if texts is not None:
            rows = users.texts() if isinstance(users, JoinedUsers) else texts.rows(target.endpoint.without_secrets)
            records.writing(records.keep_texts, rows)
        if self._switches.unwritten is not None:
            raise self._switches.unwritten
        if record.workers_lost:
            said = f"Cell {record.order + 1} is lost ({record.reason}); the workers that are there drive those to come."
            self._tell({"event": "note", "text": said})
        return record

    def _made(self, arm: Arm, cell: Cell, given: dict[str, Any]) -> tuple[CellContext, Users]:
        """Return a cell's context and its users: in this process, or on the workers."""
        if self.crew is not None:
            joined = JoinedUsers(self.crew.master, arm, planned=cell.cell >= 0)
            shared = JoinedContext(joined, **given)
            joined.over(shared)
            return shared, joined
        context = CellContext(**given)
        return context, OwnUsers(context, self._user_class, cell.users)

    def _opened(self, cell: Cell, experiment: Experiment) -> Opened:
        """Return the arrivals of a cell; its window opens and closes at the same times in every arm."""
        times = timetable(experiment, cell.level, self.habits(experiment), self.stagger_s)
        return Opened(experiment, cell.level, cell.block, times, self.source)

    def habits(self, experiment: Experiment) -> Habits:
        """Return what the sessions of an open load are like."""
        think_time = experiment.load.think_time
        if think_time not in self._habits:
            self._habits[think_time] = habits_of(self.source, experiment)
        return self._habits[think_time]
