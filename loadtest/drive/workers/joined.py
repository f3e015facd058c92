"""A cell on the master: its users are the workers', its phases follow what they count, its record is made of theirs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import gevent

from loadtest.drive.arriving import LEAD_S
from loadtest.drive.context import CellContext
from loadtest.drive.own_users import Failed
from loadtest.drive.texts import KEPT
from loadtest.drive.workers.dealing import Share
from loadtest.drive.workers.master import Master
from loadtest.drive.workers.merged import merged, worst_agreement
from loadtest.drive.workers.peers import LOST_S
from loadtest.drive.workers.phases import Count, JoinedPhases
from loadtest.drive.workers.words import Begin
from loadtest.errors import RunError, UsageError
from loadtest.reading import row_of
from loadtest.record import CellRecord, KeptText, Request
from loadtest.servers.control import Arm

BEGIN_S = 0.5  # from the master's word to the first user: the workers have heard it by then
LAST_S = 2.0  # for what workers that were cut off had still to say


class JoinedContext(CellContext):
    """A cell that the workers drive."""

    def __init__(self, users: JoinedUsers, **given: Any) -> None:
        """As `CellContext`."""
        super().__init__(**given)
        self._joined, self.begun_s = users, 0.0
        self.cells_own: str = given["salt"]  # whatever servers.cache makes of it

    def begin(self) -> None:
        """Set the times of the cell, now that it begins."""
        begun_s, fixed, opened = self.clock.now_s() + BEGIN_S, None, self.opened
        if opened is not None:
            opened.begun_s = begun_s = begun_s + LEAD_S
            fixed = begun_s + opened.timetable.opens_s, begun_s + opened.timetable.closes_s
        self.begun_s = begun_s
        self.phases = JoinedPhases(
            self.experiment.window, self.cell.users, begun_s, 0.0 if opened else self.stagger_s, fixed,
            self._joined.counts, self._joined.master.say,
        )  # fmt: skip


def _ignore(error: BaseException) -> None:
    """Nothing was begun that could fail."""


class JoinedUsers:
    """The users of one cell, on the workers."""

    attempts = 0  # cells that were begun in this process

    def __init__(self, master: Master, arm: Arm, *, planned: bool) -> None:
        """Take the workers that are there. Raises RunError when there is none."""
        self.master, self._arm, self._planned = master, arm, planned
        self._peers = master.there()
        if not self._peers:
            raise RunError(f"No worker is left to drive the load. {master.obituary()}")
        self._context: JoinedContext | None = None
        self._failed: Failed = _ignore
        self._lost: dict[str, str] = {}
        self._looked_s = time.monotonic()  # after them
        JoinedUsers.attempts += 1
        self._attempt = JoinedUsers.attempts

    def over(self, context: JoinedContext) -> None:
        """Be the users of this context."""
        self._context = context

    def start(self, failed: Failed) -> None:
        """Tell the workers to begin."""
        context = self._context
        assert context is not None
        self._failed = failed
        self.master.keep = self._keep
        target, count = context.target, len(self._peers)
        plan = self.master.plan() if self._planned else ""
        begin = Begin(
            attempt=self._attempt, cell=context.cell, share=Share(index=0, count=count), arm=self._arm,
            model=target.model, count=target.count, asked_ratio=target.asked_ratio, salted=target.salted,
            salt=context.cells_own, experiment=context.experiment, started_s=context.begun_s,
            stagger_s=0.0 if context.opened else context.stagger_s,
            timetable=asdict(context.opened.timetable) if context.opened else None, plan_sha256=plan,
        )  # fmt: skip
        self.master.begin({
            peer.node: replace(begin, share=Share(index=index, count=count)) for index, peer in enumerate(self._peers)
        })  # fmt: skip

    def _keep(self, request: Request) -> None:
        """Take a request that a worker measured: of this cell, or of an earlier one that it was cut off from."""
        context = self._context
        assert context is not None
        try:
            if request.cell == context.cell.cell:
                context.ended(request)
            else:
                self.master.late(request)
        except UsageError as error:
            self._failed(error)

    def counts(self) -> Sequence[Count]:
        """Return what the workers that are there count."""
        self._note_lost()
        return [peer.counts if not peer.counts.over or peer.ended(self._attempt) else replace(peer.counts, over=False)
                for peer in self._peers if peer.name not in self._lost and not peer.trouble]  # fmt: skip

    def _note_lost(self) -> None:
        now_s = time.monotonic()
        stood_s, self._looked_s = now_s - self._looked_s, now_s
        for peer in self._peers:
            why = peer.lost(now_s)
            if why and not peer.gone and stood_s > LOST_S:
                why = f"the master itself stood still for {stood_s:.0f} s"
            if why and peer.name not in self._lost and not peer.ended(self._attempt):
                self._lost[peer.name] = why

    def trouble(self) -> str:
        """Return why the cell is to be given up."""
        for name, why in self._lost.items():
            return f"{name} was lost: {why}"
        for peer in self._peers:
            record = (peer.record or {}) if peer.ended(self._attempt) else {}
            if record.get("error"):
                self._failed(UsageError(str(record["error"])))
            cell = record.get("cell")
            if cell and cell["state"] != "complete":
                return f"{peer.name}: {cell['reason'] or cell['state']}"
            if peer.trouble:
                return f"{peer.name}: {peer.trouble}"
        opened, context = (self._context.opened if self._context else None), self._context
        if opened is not None and context is not None and context.phases.in_flight > opened.most:
            opened.turned_away += 1
        return ""

    def stop(self) -> None:
        """End whatever is still under way, and wait a little for what was measured."""
        self.master.cut()
        until_s = time.monotonic() + LAST_S
        while time.monotonic() < until_s and not all(
            peer.ended(self._attempt) or peer.name in self._lost or peer.trouble for peer in self._peers
        ):
            self._note_lost()
            gevent.sleep(0.02)
        self.master.end()

    def texts(self) -> list[KeptText]:
        """Return what the workers kept of the slowest requests of all, where text is kept."""
        found = [text for peer in self._peers if peer.record for text in peer.record["texts"]]
        found.sort(key=lambda one: (one[0], one[1]))
        return [row_of(KeptText, text, "what a worker kept") for _, _, text in found[:KEPT]]

    def whole(self, record: CellRecord) -> CellRecord:
        """Return the cell's record with what the workers found of themselves."""
        found = [(peer, peer.record) for peer in self._peers if peer.ended(self._attempt) and peer.record]
        self.master.agreement = worst_agreement([row["agreement"] for _, row in found])
        return merged(record, found, self._lost, [peer.name for peer in self._peers if peer.trouble])
