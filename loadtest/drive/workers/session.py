"""What a worker has of a run: its scenario, prompts and keys, and the cells of which it drives a share."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from loadtest.drive.arriving import Opened
from loadtest.drive.cell import CellRun, Switches
from loadtest.drive.client import Clock, Endpoint
from loadtest.drive.context import CellContext, Target
from loadtest.drive.loading import load_user_class
from loadtest.drive.own_users import OwnUsers
from loadtest.drive.room import make_room
from loadtest.drive.texts import Texts
from loadtest.drive.timetable import Timetable
from loadtest.drive.truth import agreement
from loadtest.drive.workers.dealing import Share
from loadtest.drive.workers.files import Fetched
from loadtest.drive.workers.phases import ToldPhases, Word
from loadtest.drive.workers.spool import Spool
from loadtest.drive.workers.words import Begin
from loadtest.errors import UsageError
from loadtest.experiment import from_document, override
from loadtest.record import CellRecord, Request
from loadtest.record_writer import batch_of
from loadtest.servers.control import arm_from
from loadtest.settings import Experiment
from loadtest.workload.given import given_source


class SharedContext(CellContext):
    """A cell of which this worker has a share of the users, at times that the master set."""

    def __init__(self, share: Share, **given: Any) -> None:
        """As `CellContext`."""
        super().__init__(**given)
        self._share = share

    def new_user(self) -> tuple[int, float]:
        """Return the number of this worker's next user in the whole cell, and the time at which it starts."""
        position, planned_s = super().new_user()
        if self.opened is not None:
            return position, planned_s
        number = self._share.user(position)
        return number, self.starts_s(number)

    def begin(self) -> None:
        """Nothing: the master has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Null:
    """The null server of a worker's own machine."""

    url: str
    model: str
    truth: str  # the file in which it writes down what it truly did


@dataclass(slots=True)
class Driven:
    """A share of a cell under way."""

    begin: Begin
    phases: ToldPhases
    clock: Clock
    late_s: float = 0.0  # latest of the master's words, after the time that it speaks of

    def hear(self, word: Word) -> None:
        """Take the master's word."""
        before, now_s = self.phases.word, self.clock.now_s()
        for then, at_s in ((before.opens_s, word.opens_s), (before.closes_s, word.closes_s)):
            if then is None and at_s is not None:
                self.late_s = max(self.late_s, now_s - at_s)
        self.phases.hear(word)


class Session:
    """One run as a worker knows it."""

    def __init__(self, welcome: Mapping[str, Any], files: Fetched, spool: Spool, null: Null | None) -> None:
        """Load the scenario and the prompts, and see that there is a key for every server.

        `null` is the null server of this machine, in place of the master's. Raises UsageError for what is missing or
        wrong; nothing is sent.
        """
        self._files, self._spool, self._null, self.switches = files, spool, null, Switches()
        self.texts: list[tuple[float, float, dict[str, Any]]] = []  # of the latest cell, where text is kept
        self.agreement: dict[str, Any] | None = None  # of this client with its own null server
        experiment = self._here(from_document(welcome["experiment"]))
        self._user_class = load_user_class(files.local(welcome["scenario"]), experiment.load)
        prompts = welcome["prompts"]
        self._prompts = given_source(files.local(prompts) if prompts else None, experiment)
        self._source = self._prompts or getattr(self._user_class, "source", None)
        for arm in welcome["arms"]:
            arm_from(arm).headers()
        self._users = int(welcome["top"]) if experiment.load.kind == "closed" else experiment.load.max_in_flight
        make_room(self._users)
        self._plans: dict[str, dict[int, dict[str, Any]]] = {}  # by SHA-256: the plan's lines by cell
        self.driven: Driven | None = None

    def _here(self, experiment: Experiment) -> Experiment:
        """Return an experiment whose files are those of this machine."""
        trace = experiment.trace.file
        return override(experiment, "trace", file=str(self._files.local(trace))) if trace else experiment

    def drive(self, begin: Begin, origin_ns: int) -> CellRecord:
        """Drive a share of a cell to its end; `origin_ns` is the run's origin on this worker's own clock.

        Raises UsageError where the scenario's own code raises, or the cell is not of the plan.
        """
        self._must_be_planned(begin)
        clock = Clock(origin_ns)
        experiment = self._here(begin.experiment)
        arm, model, own = begin.arm, begin.model, self._null if begin.arm.role == "null" else None
        if own is not None:
            arm, model = replace(arm, url=own.url), own.model
        ca = self._files.local(arm.ca) if arm.ca else None
        endpoint = Endpoint(arm.url, arm.headers(), experiment.limits, verify=not arm.insecure, ca=ca, proxy=arm.proxy)
        target = Target(name=arm.name, endpoint=endpoint, model=model, count=begin.count,
                        asked_ratio=begin.asked_ratio, salted=begin.salted)  # fmt: skip
        phases = ToldPhases(experiment.window, begin.started_s, begin.stagger_s)
        texts = Texts() if experiment.outputs.keep_text and begin.cell.cell >= 0 else None
        self.driven = Driven(begin, phases, clock, max(0.0, clock.now_s() - begin.started_s))
        self.switches.stop, self.switches.cut = "", False
        run: CellRun | None = None
        answered: list[Request] = []  # by the null server of this machine

        def keep(request: Request) -> None:
            self._spool.add(request)
            self.switches.unwritten = self._spool.unwritten
            if own is not None:
                answered.append(request)
            if run is not None:
                run.keep(request)

        context = SharedContext(
            begin.share, experiment=experiment, target=target, cell=begin.cell, clock=clock, phases=phases,
            stagger_s=begin.stagger_s, salt=begin.salt, source=self._prompts, keep=keep,
            opened=self._opened(begin, experiment), texts=texts,
        )  # fmt: skip
        users = OwnUsers(context, self._user_class, begin.share.users(begin.cell.users))
        run = CellRun(context=context, users=users, control=None, switches=self.switches,
                      keep_scrape=lambda scrape: None, tell=lambda event: None)  # fmt: skip
        gc.collect()
        record = run.run(max(0, begin.cell.cell), 0.0)
        ranked = texts.ranked(endpoint.without_secrets) if texts is not None else []
        self.texts = [(late_s, due_s, asdict(text)) for late_s, due_s, text in ranked]
        if own is not None:
            table = pa.Table.from_batches([batch_of(answered)])
            self.agreement = asdict(agreement(table, Path(own.truth), origin_ns))
        return record

    def _opened(self, begin: Begin, experiment: Experiment) -> Opened | None:
        if begin.timetable is None:
            return None
        opened = Opened(experiment, begin.cell.level, begin.cell.block, Timetable(**begin.timetable), self._source,
                        begin.share.has)  # fmt: skip
        opened.begun_s = begin.started_s
        return opened

    def _must_be_planned(self, begin: Begin) -> None:
        """Hold the cell against the plan that the master names by its hash."""
        if begin.plan_sha256 and begin.plan_sha256 not in self._plans:
            lines = self._files.of(begin.plan_sha256).read_text(encoding="utf-8").splitlines()
            self._plans[begin.plan_sha256] = {row["cell"]: row for row in map(json.loads, lines)}
        if begin.plan_sha256 and self._plans[begin.plan_sha256].get(begin.cell.cell) != asdict(begin.cell):
            raise UsageError(f"Cell {begin.cell.cell} is not that of the plan; nothing of it was driven.")
