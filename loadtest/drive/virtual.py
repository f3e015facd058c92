"""The whole experiment in virtual time: the same plan, sessions, phases and records, on servers without sockets.

This is the test bed of the statistics: a world whose truth is known, run thousands of times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from loadtest.drive.asking import NOBODY, Asking, as_event, is_sampled, unmeasured
from loadtest.drive.crowds import Crowd, Sending, Sessions, Users
from loadtest.drive.figures import cell_figures
from loadtest.drive.phases import Phase, Phases
from loadtest.drive.plan import Cell, cell_duration_s
from loadtest.drive.shapes import Shape, ShapePool
from loadtest.drive.stages import Course, Time
from loadtest.drive.timetable import pattern_of, timetable
from loadtest.experiment import as_document
from loadtest.record import NOT_CARRIED, REQUEST_SCHEMA, TOO_MANY, CellRecord, Scrape, compared, header_version
from loadtest.settings import Experiment
from loadtest.simulate.draws import mix
from loadtest.simulate.exposition import values
from loadtest.simulate.jobs import Ask, Job
from loadtest.simulate.models import ArmModel
from loadtest.simulate.text import answer_length
from loadtest.simulate.virtual import VirtualServer
from loadtest.workload.arrivals import schedule
from loadtest.workload.sessions import SessionKey

GAP_S = 0.2  # between two cells


@dataclass(slots=True)
class VirtualRun:
    """What a run leaves behind, in memory and in the form that the analysis reads from disk."""

    header: dict[str, Any]
    speculates: dict[str, bool]
    cells: list[CellRecord] = field(default_factory=list)
    scrapes: list[Scrape] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # one per request, by name of the column

    def requests(self) -> pa.Table:
        """Return the requests as the table that `run_folder.read_requests` returns."""
        known = self.rows[0] if self.rows else {}
        arrays = []
        for column in REQUEST_SCHEMA:
            name = column.name
            values = [row[name] for row in self.rows] if name in known else _filled(column.type, len(self.rows))
            arrays.append(pa.array(values, type=column.type))
        return pa.Table.from_arrays(arrays, schema=REQUEST_SCHEMA)


def _filled(kind: pa.DataType, count: int) -> Any:
    if pa.types.is_floating(kind):
        return np.full(count, np.nan)
    if pa.types.is_boolean(kind):
        return np.zeros(count, dtype=bool)
    return np.full(count, -1) if pa.types.is_integer(kind) else [""] * count


def run_virtual(experiment: Experiment, arms: Mapping[str, ArmModel], pool: ShapePool, *, stagger_s: float = 0.5,
                world: str | None = None, budget_s: float | None = None, looks: int = 1,
                restarts: bool = False) -> VirtualRun:  # fmt: skip
    """Run the plan of an experiment on simulated arms, the first of which is the baseline.

    The seed of the plan decides order, sessions and luck. `world` marks the run as simulated in its header; None
    leaves the mark out, for tests of what a judgement says of real servers. `budget_s` is of the servers' own seconds,
    `looks` the look at which the run ends. With `restarts` a block is one start of each arm, each of its own luck.
    """
    names = list(arms)
    run = VirtualRun(_header(experiment, arms, world), {name: arm.declared_k > 0 for name, arm in arms.items()})
    run.header["starts"] = experiment.plan.blocks if restarts else 1
    run.header["habits"] = pool.habits(experiment).told() if experiment.load.kind == "open" else None
    servers: dict[tuple[str, int], VirtualServer] = {}
    course = Course(experiment=experiment, arms=tuple(names), restarts=restarts,
                    by_block=budget_s is not None, looks=looks)  # fmt: skip
    planned: list[Cell] = []
    coming, now_s = course.first(), 0.0
    while coming:
        for cell in coming:
            start = cell.block if restarts else 0
            if (cell.arm, start) not in servers:
                parts = (experiment.plan.seed, names.index(cell.arm), *((start + 1,) if restarts else ()))
                servers[cell.arm, start] = VirtualServer(arms[cell.arm], mix(*parts), now_s)
            server = servers[cell.arm, start]
            server.advance(now_s)
            now_s = _Cell(course.experiment_of(cell), cell, server, pool, run, stagger_s).run(len(planned)) + GAP_S
            planned.append(cell)
        coming = _following(course, run, planned, None if budget_s is None else budget_s - now_s)
    return run


def _following(course: Course, run: VirtualRun, planned: Sequence[Cell], left_s: float | None) -> list[Cell]:
    """Return the cells that come next, as the real driver would be told, and complete the header."""
    if not course.opened:
        return []
    metric, choosing = course.experiment.decision.metric, course.staged and not course.judged(planned)
    figures = cell_figures(run.cells, run.requests() if choosing else None, run.scrapes, metric, course.experiment.load,
                           run.header.get("habits"))  # fmt: skip
    time = None
    if left_s is not None:
        time = Time(left_s=left_s, cell_s=cell_duration_s(course.experiment.window, 1.0)[0])
    following = course.more(planned, figures, time)
    run.header |= course.looked([*planned, *following.cells])
    if following.said:
        run.header["notes"].append(following.said)
    return list(following.cells)


class _Cell:
    """One cell on one server."""

    def __init__(self, experiment: Experiment, cell: Cell, server: VirtualServer, pool: ShapePool, run: VirtualRun,
                 stagger_s: float) -> None:  # fmt: skip
        self._experiment, self._cell, self._server, self._pool, self._run = experiment, cell, server, pool, run
        self._started_s = server.now_s
        self._reason = ""  # why it was given up
        self._asked_ratio = who_asks(experiment).ratio
        self._sent: dict[Job, Sending] = {}
        self._area = self._since_s = 0.0
        self._phases, self._crowd = (
            self._closed(stagger_s) if experiment.load.kind == "closed" else self._open(stagger_s)
        )

    def _closed(self, stagger_s: float) -> tuple[Phases, Crowd]:
        users, now_s, load = self._cell.users, self._server.now_s, self._experiment.load
        phases = Phases(self._experiment.window, users, now_s, stagger_s)
        return phases, Users(users, load.think_time, now_s, stagger_s, self._draw)

    def _open(self, request_s: float) -> tuple[Phases, Crowd]:
        experiment, cell, now_s = self._experiment, self._cell, self._server.now_s
        times = timetable(experiment, cell.level, self._pool.habits(experiment), request_s)
        arrivals = schedule(pattern_of(experiment), times.sessions_per_s, seed=experiment.plan.seed, level=cell.level,
                            block=cell.block, opens_s=times.opens_s, window_s=times.window_s)  # fmt: skip
        phases = Phases(experiment.window, 0, now_s, 0.0, (now_s + times.opens_s, now_s + times.closes_s))
        return phases, Sessions(arrivals, experiment.load.think_time, now_s, self._draw)

    def _key(self, number: int) -> SessionKey:
        cell = self._cell
        return SessionKey(seed=self._experiment.plan.seed, level=cell.level, block=cell.block, number=number)

    def _draw(self, number: int) -> tuple[Shape, int]:
        return self._pool.session(self._key(number))

    def run(self, order: int) -> float:
        phases, server = self._phases, self._server
        before = Phase.START
        self._scrape("idle_before")
        while True:
            phase = phases.tick(server.now_s)
            if phase is not before:
                self._turned(before, phase)
                before = phase
            if phase is Phase.OVER:
                break
            accepting = phase is not Phase.DRAIN
            if accepting and self._crowd.next_s <= server.now_s:
                self._send(self._crowd.take())
                continue
            next_due_s = self._crowd.next_s if accepting else math.inf
            for job in server.advance(min(next_due_s, phases.next_time_s())):
                self._ended(job)
        self._scrape("idle_after")
        self._keep(order)
        return server.now_s

    def _turned(self, before: Phase, phase: Phase) -> None:
        if phase is Phase.WINDOW:
            self._area, self._since_s = 0.0, self._server.now_s
            self._scrape("window_open")
        elif before is Phase.WINDOW:
            self._scrape("window_close")
            self._count()

    def _count(self) -> None:
        now_s = self._server.now_s
        self._area += self._phases.in_flight * (now_s - self._since_s)
        self._since_s = now_s

    def _send(self, sent: Sending) -> None:
        load = self._experiment.load
        if load.kind == "open" and self._phases.in_flight >= load.max_in_flight:
            self._reason = f"{load.max_in_flight} {TOO_MANY}"
            self._phases.stop()
            return
        if self._phases.phase is Phase.WINDOW:
            self._count()
        turn = sent.turn
        key = mix(turn.key, sent.salt)
        tokens, finish = answer_length(key, turn.served_category, self._experiment.generation.max_tokens)
        ask = Ask(key=key, prompt_tokens=turn.prompt_tokens, cached_tokens=turn.cached_tokens, output_tokens=tokens,
                  category=turn.served_category, finish=finish)  # fmt: skip
        self._phases.due(sent.due_s)
        self._sent[self._server.submit(self._server.now_s, ask)] = sent

    def _ended(self, job: Job) -> None:
        if self._phases.phase is Phase.WINDOW:
            self._count()
        sent = self._sent.pop(job)
        self._phases.ended(sent.due_s, job.finished_s)
        self._row(job, sent)
        self._crowd.ended(sent, job.finished_s, failed=not job.chunk_times_s)

    def _row(self, job: Job, sent: Sending) -> None:
        times, tokens, good = job.chunk_times_s, job.chunk_tokens, bool(job.chunk_times_s)
        asks = self._asked_ratio >= 1 or is_sampled(self._key(sent.number), sent.position, self._asked_ratio)
        user, number, position, turn, due_s = sent.user, sent.number, sent.position, sent.turn, sent.due_s
        row = {
            "cell": self._cell.cell, "arm": self._cell.arm, "level": self._cell.level, "block": self._cell.block,
            "user": user, "session": number, "turn": position, "category": turn.category, "due_s": due_s,
            "body_hash": f"{job.ask.key:016x}", "sent_s": due_s, "headers_s": times[0] if good else job.finished_s,
            "first_visible_s": times[0] if good else math.nan, "end_s": job.finished_s,
            "outcome": "ok" if good else "http_error", "http_status": 200 if good else 500,
            "finish_reason": job.finish if good else "", "prompt_tokens": job.ask.prompt_tokens,
            "output_tokens": job.ask.output_tokens if good else 0, "cached_tokens": job.cached,
            "asked": "continuous" if asks else NOBODY, "tokens_source": "usage" if asks else "none",
            "stamp_source": "virtual", "coalesced": 0, "chunk_s": times, "chunk_tokens": tokens if asks else [],
        }  # fmt: skip
        self._run.rows.append(row)

    def _scrape(self, moment: str) -> None:
        speculates = self._run.speculates[self._cell.arm]
        found, positions = values(self._server.counters(), speculates=speculates)
        self._run.scrapes.append(
            Scrape(
                t_s=self._server.now_s,
                arm=self._cell.arm,
                cell=self._cell.cell,
                moment=moment,
                values=found,
                per_position=positions,
            )
        )

    def _keep(self, order: int) -> None:
        phases, cell = self._phases, self._cell
        opened, closed = phases.window_open_s, phases.window_close_s
        self._run.cells.append(
            CellRecord(
                cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block, order=order,
                state=NOT_CARRIED if self._reason else "complete", reason=self._reason, started_s=self._started_s,
                window_open_s=opened, window_close_s=closed, drained_s=phases.drained_s,
                in_flight_mean=self._area / (closed - opened) if opened is not None and closed is not None else None,
                lateness_p50_s=0.0, lateness_p99_s=0.0,
                client_cpu_ratio=0.0, hub_lag_p99_s=0.0, hub_lag_max_s=0.0, clock_steps=0, coalesced_ratio=0.0,
                lag_p99_s=0.0, idle_wait_s=0.0, warmup_requests=phases.warmup_requests,
            )
        )  # fmt: skip


def who_asks(experiment: Experiment) -> Asking:
    """Return which requests ask for token counts: asking costs a virtual server nothing, so that it is not measured."""
    setting = "sample" if experiment.servers.token_counts == "sample" else "all"
    found = unmeasured(setting, "continuous", simulated=True)
    assert found is not None
    return found


def _header(experiment: Experiment, arms: Mapping[str, ArmModel], world: str | None) -> dict[str, Any]:
    names = list(arms)
    return {
        "schema": header_version(names[1:]), "version": "virtual", "status": "complete", "reason": "",
        "command": "", "notes": [],
        "scenario": {"name": "virtual", "path": "", "sha256": ""}, "experiment": as_document(experiment),
        "arms": [{"name": name, "role": "candidate" if i else "baseline", "url": "", "model": "simulated",
                  "version": "", "identity": {}, "speculative": None} for i, name in enumerate(names)],
        "baseline": names[0], **compared(names[1:]), "comparability": [], "waived": [],
        "simulated": {"world": world, "late_ratio": {}} if world else None, "smoke": False, "measure_only": False,
        "calibration": None, "asking": as_event(who_asks(experiment)), "host": {},
    }  # fmt: skip
