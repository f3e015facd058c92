"""The whole experiment in virtual time: the same plan, sessions, phases and records, on servers without sockets.

This is the test bed of the statistics: a world whose truth is known, run thousands of times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from loadtest.drive.phases import Phase, Phases
from loadtest.drive.plan import Cell, make_plan
from loadtest.experiment import as_document
from loadtest.record import REQUEST_SCHEMA, CellRecord, Scrape
from loadtest.settings import Experiment
from loadtest.simulate.draws import mix
from loadtest.simulate.exposition import values
from loadtest.simulate.jobs import Ask, Job
from loadtest.simulate.models import ArmModel
from loadtest.simulate.text import answer_length, category_of, key_of, rendered, token_count
from loadtest.simulate.virtual import VirtualServer
from loadtest.workload.seeds import seed_of
from loadtest.workload.sessions import SessionKey, SessionSource

GAP_S = 0.2  # between two cells
CACHE_BLOCK = 16  # tokens; a turn finds the whole blocks of the turn before in the prefix cache


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnShape:
    """A turn as an engine sees it: lengths instead of text."""

    category: str
    served_category: str  # what the server takes it for
    key: int
    prompt_tokens: int
    cached_tokens: int
    think_s: float


Shape = tuple[TurnShape, ...]


class ShapePool:
    """Shapes of a source's own sessions, made once and drawn from by session key, with luck of their own each time."""

    def __init__(self, source: SessionSource, size: int = 2000, seed: int = 0) -> None:
        """Take `size` sessions of the source."""
        keys = (SessionKey(seed=seed, level=0, block=0, number=number) for number in range(size))
        self._shapes = [_shape(source, key) for key in keys]

    def session(self, key: SessionKey) -> tuple[Shape, int]:
        """Return (shape, salt of the request keys) of a session."""
        drawn = seed_of("shape", key.seed, key.level, key.block, key.number)
        return self._shapes[drawn % len(self._shapes)], drawn


def _shape(source: SessionSource, key: SessionKey) -> Shape:
    session = source.session(key)
    messages = [{"role": "system", "content": session.system}] if session.system else []
    turns: list[TurnShape] = []
    before = 0
    for turn in session.turns:
        messages.append({"role": "user", "content": turn.user})
        prompt = rendered(messages)
        tokens = token_count(prompt)
        turns.append(
            TurnShape(
                category=turn.category,
                served_category=category_of(session.turns[0].user),  # as the simulated server guesses it
                key=key_of(prompt),
                prompt_tokens=tokens,
                cached_tokens=before // CACHE_BLOCK * CACHE_BLOCK,
                think_s=turn.think_s,
            )
        )
        before = tokens
        messages.append({"role": "assistant", "content": turn.assistant})
    return tuple(turns)


@dataclass(slots=True)
class VirtualRun:
    """What a run leaves behind, in memory and in the form that the analysis reads from disk."""

    header: dict[str, Any]
    speculates: dict[str, bool]
    cells: list[CellRecord] = field(default_factory=list)
    scrapes: list[Scrape] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in REQUEST_SCHEMA.names})

    def requests(self) -> pa.Table:
        """Return the requests as the table that `record.read_requests` returns."""
        count = len(self.columns["due_s"])
        arrays = []
        for column in REQUEST_SCHEMA:
            values = self.columns[column.name] or _filled(column.type, count)
            arrays.append(pa.array(values, type=column.type))
        return pa.Table.from_arrays(arrays, schema=REQUEST_SCHEMA)


def _filled(kind: pa.DataType, count: int) -> Any:
    if pa.types.is_floating(kind):
        return np.full(count, np.nan)
    if pa.types.is_boolean(kind):
        return np.zeros(count, dtype=bool)
    return np.full(count, -1) if pa.types.is_integer(kind) else [""] * count


def run_virtual(experiment: Experiment, arms: Mapping[str, ArmModel], pool: ShapePool, *, stagger_s: float = 0.5,
                world: str | None = None) -> VirtualRun:  # fmt: skip
    """Run the plan of an experiment on simulated arms, the first of which is the baseline.

    The seed of the plan decides order, sessions and luck. `world` marks the run as simulated in its header; None
    leaves the mark out, for tests of what a judgement says of real servers.
    """
    names = list(arms)
    run = VirtualRun(_header(experiment, arms, world), {name: arm.declared_k > 0 for name, arm in arms.items()})
    servers = {name: VirtualServer(model, mix(experiment.plan.seed, i)) for i, (name, model) in enumerate(arms.items())}
    now_s = 0.0
    for order, cell in enumerate(make_plan(experiment, names)):
        server = servers[cell.arm]
        server.advance(now_s)
        now_s = _Cell(experiment, cell, server, pool, run, stagger_s).run(order) + GAP_S
    return run


class _Cell:
    """One cell on one server."""

    def __init__(self, experiment: Experiment, cell: Cell, server: VirtualServer, pool: ShapePool, run: VirtualRun,
                 stagger_s: float) -> None:  # fmt: skip
        self._experiment, self._cell, self._server, self._pool, self._run = experiment, cell, server, pool, run
        self._started_s = server.now_s
        self._phases = Phases(experiment.window, cell.users, server.now_s, stagger_s)
        users = range(cell.users)
        self._plans: list[list[TurnShape]] = [[] for _ in users]
        self._salts = [0] * cell.users
        self._rounds = [0] * cell.users
        self._turns = [0] * cell.users
        self._sent: dict[Job, tuple[int, float, TurnShape, int, int]] = {}
        self._area = self._since_s = 0.0
        for user in users:
            self._draw(user)
        self._ready = [(server.now_s + stagger_s * user / cell.users + self._think_s(user), user) for user in users]
        heapq.heapify(self._ready)

    def _think_s(self, user: int) -> float:
        return self._plans[user][0].think_s * self._experiment.load.think_time

    def _draw(self, user: int) -> None:
        cell = self._cell
        number = user + self._rounds[user] * cell.users
        key = SessionKey(seed=self._experiment.plan.seed, level=cell.level, block=cell.block, number=number)
        shape, self._salts[user] = self._pool.session(key)
        self._plans[user] = list(shape)
        self._turns[user] = 0

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
            if accepting and self._ready and self._ready[0][0] <= server.now_s:
                self._send(*heapq.heappop(self._ready))
                continue
            next_due_s = self._ready[0][0] if accepting and self._ready else math.inf
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

    def _send(self, due_s: float, user: int) -> None:
        if self._phases.phase is Phase.WINDOW:
            self._count()
        turn = self._plans[user].pop(0)
        key = mix(turn.key, self._salts[user])
        tokens, finish = answer_length(key, turn.served_category, self._experiment.generation.max_tokens)
        ask = Ask(key=key, prompt_tokens=turn.prompt_tokens, cached_tokens=turn.cached_tokens, output_tokens=tokens,
                  category=turn.served_category, finish=finish)  # fmt: skip
        number = user + self._rounds[user] * self._cell.users
        self._phases.due(due_s)
        self._sent[self._server.submit(self._server.now_s, ask)] = (user, due_s, turn, number, self._turns[user])
        self._turns[user] += 1

    def _ended(self, job: Job) -> None:
        if self._phases.phase is Phase.WINDOW:
            self._count()
        user, due_s, turn, number, position = self._sent.pop(job)
        self._phases.ended(due_s, job.finished_s)
        self._row(job, user, due_s, turn, number, position)
        if not self._plans[user]:
            self._rounds[user] += 1
            self._draw(user)
        pause_s = self._think_s(user)
        if not job.chunk_times_s:
            pause_s = max(pause_s, 1.0)
        heapq.heappush(self._ready, (job.finished_s + pause_s, user))

    def _row(self, job: Job, user: int, due_s: float, turn: TurnShape, number: int, position: int) -> None:
        times, tokens, good = job.chunk_times_s, job.chunk_tokens, bool(job.chunk_times_s)
        row = {
            "cell": self._cell.cell, "arm": self._cell.arm, "level": self._cell.level, "block": self._cell.block,
            "user": user, "session": number, "turn": position, "category": turn.category, "due_s": due_s,
            "body_hash": f"{turn.key:016x}", "sent_s": due_s, "headers_s": times[0] if good else job.finished_s,
            "first_visible_s": times[0] if good else math.nan, "end_s": job.finished_s,
            "outcome": "ok" if good else "http_error", "http_status": 200 if good else 500,
            "finish_reason": job.finish if good else "", "prompt_tokens": job.ask.prompt_tokens,
            "output_tokens": sum(tokens), "cached_tokens": job.cached, "tokens_source": "usage",
            "stamp_source": "virtual", "coalesced": 0, "chunk_s": times, "chunk_tokens": tokens,
        }  # fmt: skip
        columns = self._run.columns
        for name, value in row.items():
            columns[name].append(value)

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
        assert opened is not None
        assert closed is not None
        self._run.cells.append(
            CellRecord(
                cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block, order=order, state="complete",
                started_s=self._started_s, window_open_s=opened, window_close_s=closed, drained_s=phases.drained_s,
                in_flight_mean=self._area / (closed - opened), lateness_p50_s=0.0, lateness_p99_s=0.0,
                client_cpu_ratio=0.0, hub_lag_p99_s=0.0, coalesced_ratio=0.0, lag_p99_s=0.0, idle_wait_s=0.0,
                warmup_requests=phases.warmup_requests,
            )
        )  # fmt: skip


def _header(experiment: Experiment, arms: Mapping[str, ArmModel], world: str | None) -> dict[str, Any]:
    names = list(arms)
    return {
        "schema": 1, "version": "virtual", "status": "complete", "reason": "", "command": "", "notes": [],
        "scenario": {"name": "virtual", "path": "", "sha256": ""}, "experiment": as_document(experiment),
        "arms": [{"name": name, "role": "candidate" if i else "baseline", "url": "", "model": "simulated",
                  "version": "", "identity": {}, "speculative": None} for i, name in enumerate(names)],
        "baseline": names[0], "candidate": names[1] if len(names) > 1 else None, "comparability": [], "waived": [],
        "simulated": {"world": world, "late_ratio": {}} if world else None, "smoke": False, "measure_only": False,
        "calibration": None, "host": {},
    }  # fmt: skip
