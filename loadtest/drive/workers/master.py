"""The master's side: it welcomes workers, tells them what to drive and when, and takes in what they measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import asdict
from itertools import count
from typing import Any

import gevent

import loadtest
from loadtest.drive.header import boot_id
from loadtest.drive.job import Job
from loadtest.drive.workers.files import Offered, files_of
from loadtest.drive.workers.merged import MASTER
from loadtest.drive.workers.messages import (
    JOIN,
    LEAVE,
    PART,
    PING,
    PONG,
    REFUSED,
    REPORT,
    STATE,
    STRANGER,
    WANT,
    WELCOME,
    Heard,
    Hub,
)
from loadtest.drive.workers.peers import SAID, Peer, one_line, said_of, told
from loadtest.drive.workers.phases import Word
from loadtest.drive.workers.spool import rows_in
from loadtest.drive.workers.words import Begin, count_from, found_from, number_from
from loadtest.errors import UsageError
from loadtest.experiment import as_document
from loadtest.record import Request

BEAT_S = 0.25
SENSELESS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)  # what a message that is none raises
MOST_REFUSED = 20  # that are told of
MOST_PEERS = 1000  # that ever joined: what more there were would be no workers


class Master:
    """Speaks with the workers of a run; `keep` takes every request that they measured, once."""

    def __init__(self, job: Job, hub: Hub, keep: Callable[[Request], None]) -> None:
        """Listen from now on."""
        self._job, self._hub = job, hub
        self.late = self.keep = keep  # `keep` takes those of the cell under way, where there is one
        self.peers: dict[str, Peer] = {}
        self.refused: dict[str, str] = {}  # why, in a sentence, by worker
        self.agreement: dict[str, Any] | None = None  # of the clients with null servers of their own, where they have
        self._offered = Offered(files_of(job))
        self._begins: dict[str, Begin] = {}  # by worker, of the cell under way
        self._word, self._cut, self._over = Word(), False, False
        self._greenlets = [gevent.spawn(self._listen), gevent.spawn(self._beat)]

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._hub.port

    def there(self) -> list[Peer]:
        """Return the workers that are ready for a cell now, in the order in which they joined."""
        now_s = time.monotonic()
        return [peer for peer in self.peers.values() if peer.ready and not peer.lost(now_s)]

    def troubles(self) -> list[Peer]:
        """Return the workers that cannot do their part."""
        return [peer for peer in self.peers.values() if peer.trouble]

    def plan(self) -> str:
        """Offer the plan as it is now, and return the SHA-256 of it."""
        return self._offered.add(self._job.folder / "plan.jsonl").sha256

    def begin(self, begins: dict[str, Begin]) -> None:
        """Have workers drive a cell."""
        self._begins, self._word, self._cut = begins, Word(), False
        for node, begin in begins.items():
            peer = self.peers[node]
            peer.record, peer.attempt, peer.lacking = None, 0, False
            peer.counts = count_from({"heard": {}})
            self._say(peer, begin)

    def say(self, word: Word) -> None:
        """Let the workers of the cell under way know how it stands."""
        word = Word(opens_s=word.opens_s, closes_s=word.closes_s, drain=word.drain, cut=self._cut)
        if word != self._word:
            self._word = word
            self._say_all()

    def cut(self) -> None:
        """Have the workers end their part of the cell at once."""
        self._cut = True
        self.say(self._word)

    def end(self) -> None:
        """The cell is over."""
        self.keep = self.late
        self._begins, self._word, self._cut = {}, Word(), False

    def lose(self, name: str, why: str, left: Callable[[Peer], Collection[Request]]) -> None:
        """A worker is known to be gone, whether or not it took its leave; `left` returns what it had not sent."""
        for peer in self.peers.values():
            if peer.name == name:
                peer.gone = peer.gone or why
                for request in left(peer):
                    peer.rows += 1
                    self.keep(request)

    def obituary(self) -> str:
        """Return how the workers were lost, in sentences."""
        now_s = time.monotonic()
        found = [(peer, peer.trouble or peer.lost(now_s)) for peer in self.peers.values()]
        return " ".join(f"{peer.name}: {why}." for peer, why in found if why)

    def close(self, wait_s: float = 3.0) -> None:
        """Tell the workers that the run is over, wait until they have heard it, and hear nothing more."""
        self._over = True
        self._say_all()
        until_s = time.monotonic() + wait_s
        while any(not peer.gone for peer in self.peers.values()) and time.monotonic() < until_s:
            gevent.sleep(0.02)
        gevent.killall(self._greenlets)
        self._hub.close()

    def _beat(self) -> None:
        while True:
            gevent.sleep(BEAT_S)
            self._say_all()

    def _say_all(self) -> None:
        for peer in self.peers.values():
            self._say(peer, self._begins.get(peer.node))

    def _say(self, peer: Peer, begin: Begin | None) -> None:
        """Say how things stand; the cell in full until the worker is at it."""
        state: dict[str, Any] = {"rows": peer.rows, "over": self._over, "attempt": 0}
        if begin is not None:
            word = self._word
            state |= {"attempt": begin.attempt, "word": {"opens_s": word.opens_s, "closes_s": word.closes_s,
                                                         "drain": word.drain, "cut": word.cut}}  # fmt: skip
            if peer.attempt != begin.attempt:
                state["begin"] = begin.message()
                state["plan"] = self._named(begin.plan_sha256)
        self._hub.send(peer.node, STATE, state)

    def _named(self, sha256: str) -> dict[str, Any] | None:
        found = [named for named in self._offered.named if named.sha256 == sha256]
        return {"path": found[0].path, "sha256": sha256, "size": found[0].size} if found else None

    def _listen(self) -> None:
        while True:
            heard = self._hub.receive()
            now_ns = time.perf_counter_ns()
            if heard is None:
                continue
            try:
                self._take(heard, now_ns)
            except SENSELESS:
                continue  # it makes no sense: whoever sent it is no worker of this version

    def _take(self, heard: Heard, now_ns: int) -> None:
        if heard.kind == JOIN:
            self._join(heard)
            return
        peer = self.peers.get(heard.node)
        if peer is None:
            self._hub.send(heard.node, STRANGER, {"run_id": self._job.run_id})
            return
        peer.heard_s = time.monotonic()
        if heard.kind == PING:
            pong = {"asked_ns": heard.data["asked_ns"], "heard_ns": now_ns}
            self._hub.send(heard.node, PONG, pong | {"answered_ns": time.perf_counter_ns()})
        elif heard.kind == WANT:
            part = self._offered.part(heard.data)
            if part is not None:
                self._hub.send(heard.node, PART, part)
        elif heard.kind == REPORT:
            self._report(peer, heard.data)
        elif heard.kind == LEAVE:
            peer.gone = peer.gone or told(heard.data.get("why") or "it left")

    def _join(self, heard: Heard) -> None:
        """Welcome a worker, or say why not; one that did not hear it asks again."""
        version = heard.data.get("version")
        if version != loadtest.__version__:
            why = f"the master is loadtest {loadtest.__version__}, the worker {version!r}: install the same version."
            self._refuse(heard, why)
            return
        peer = self.peers.get(heard.node)
        if peer is None:
            names = {MASTER, *(other.name for other in self.peers.values())}
            if len(self.peers) >= MOST_PEERS:
                self._refuse(heard, f"{MOST_PEERS} workers have joined the run already.")
                return
            wanted = name = one_line(str(heard.data.get("name") or ""), 60).strip() or "worker"
            numbers = count(2)
            while name in names:
                name = f"{wanted}-{next(numbers)}"
            boot = boot_id()
            peer = Peer(node=heard.node, name=name, said=said_of(heard.data),
                        same_clock=boot is not None and heard.data.get("boot") == boot)  # fmt: skip
            self.peers[heard.node] = peer
        peer.heard_s = time.monotonic()
        job = self._job
        self._hub.send(heard.node, WELCOME, {
            "name": peer.name, "same_clock": peer.same_clock, "origin_ns": job.origin_ns, "run_id": job.run_id,
            "scenario": str(job.scenario), "prompts": job.prompts, "top": job.top,
            "experiment": as_document(job.experiment), "arms": [asdict(arm) for arm in job.arms],
            "files": [{"path": n.path, "sha256": n.sha256, "size": n.size} for n in self._offered.named],
        })  # fmt: skip

    def _refuse(self, heard: Heard, why: str) -> None:
        self._hub.send(heard.node, REFUSED, {"why": why})
        if len(self.refused) < MOST_REFUSED:
            host = one_line(str(heard.data.get("host") or "a machine"), SAID)
            self.refused.setdefault(heard.node, f"A worker on {host} was refused: {told(why)}")

    def _report(self, peer: Peer, data: dict[str, Any]) -> None:
        peer.ready, peer.trouble = data["ready"] is True, told(data["trouble"])
        peer.usage = data["usage"] is True
        peer.clock = {name: number_from(data[name]) for name in ("offset_s", "bound_s")}
        for part in data["parts"]:
            self._rows(peer, part)
        begin = self._begins.get(peer.node)
        if begin is None or data["attempt"] != begin.attempt:
            return
        peer.attempt, peer.counts = begin.attempt, count_from(data["count"])
        peer.lacking = data["rows"] > peer.rows
        if data["record"] is not None:
            try:
                peer.record = found_from(data["record"])
            except (UsageError, *SENSELESS) as error:  # its cell would wait for what it found without end
                why = str(error) if isinstance(error, UsageError) else repr(error)
                peer.trouble, peer.usage = f"what it found of its cell makes no sense: {why[:SAID]}", False

    def _rows(self, peer: Peer, part: dict[str, Any]) -> None:
        """Keep the rows of a part that are new; of one that leaves a gap none, since it will come again."""
        first = part["first"]
        if not first <= peer.rows < first + part["rows"]:
            return
        rows = rows_in(part["batch"], part["rows"])
        for row in (rows or ())[peer.rows - first :]:
            peer.rows += 1
            self.keep(Request(**row))
