"""What workers that died had not sent: found in their spool and delivered, in their names, by a later process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import pyarrow as pa
from gevent.pool import Pool

from loadtest.drive.failure import counted
from loadtest.drive.workers.contact import Contact
from loadtest.drive.workers.messages import LEAVE, REPORT
from loadtest.drive.workers.outbox import Outbox
from loadtest.drive.workers.phases import Count
from loadtest.drive.workers.spool import STREAM, batches_in

DELIVER_S = 5.0  # for all of them, since the master last took or refused something
TOGETHER = 8  # that are delivered at one time: each has a line of its own
BEAT_S = 0.05


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Yield whether this process alone has a worker's folder; the kernel lets go of it with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def report(**given: Any) -> dict[str, Any]:
    """Return what a worker reports of itself; without a word on it, one that does nothing."""
    nothing: dict[str, Any] = {
        "ready": False, "trouble": "", "usage": True, "offset_s": None, "bound_s": None, "attempt": 0,
        "count": Count().message(), "rows": 0, "parts": [], "record": None,
    }  # fmt: skip
    return nothing | given


class _Delivered(NamedTuple):
    """What became of one worker's records."""

    folder: Path
    rows: int
    lacking: int  # of these the master has not
    stranger: bool  # the master that answers is not the one that they are for


class _Patience:
    """Until when a master is waited for: the same for all that is delivered."""

    def __init__(self) -> None:
        self.moved()

    def moved(self) -> None:
        """Something has come of it."""
        self._until_s = time.monotonic() + DELIVER_S

    def over(self) -> bool:
        """Return whether nothing has come for too long."""
        return time.monotonic() > self._until_s


class Left(NamedTuple):
    """What became of all that was left."""

    sentence: str  # "" where nothing was left
    kept: int  # requests that were not delivered


def deliver_left(host: str, port: int, spool: Path, why: str) -> Left:
    """Send what workers of this spool had not sent before they died.

    All of it is given up once the master has taken nothing for `DELIVER_S`.
    """
    with ExitStack() as stack:
        own = []
        for folder in sorted(path.parent for path in spool.glob(f"*/{STREAM}")):
            with contextlib.suppress(OSError):  # taken away meanwhile
                if stack.enter_context(claimed(folder)):
                    own.append(folder)
        patience = _Patience()
        found = Pool(TOGETHER).map(lambda folder: _deliver(host, port, folder, why, patience), own)
        for one in found:
            if not one.lacking:
                shutil.rmtree(one.folder, ignore_errors=True)
    return Left(_sentence(spool, [one for one in found if one.rows]), sum(one.lacking for one in found))


def deliver_and_say(settings: Mapping[str, Any], say: Callable[[str], None]) -> int:
    """Deliver what earlier workers left, as a worker's settings say, say so, and return how many requests stay."""
    left = deliver_left(settings["host"], settings["port"], Path(settings["spool"]), settings["why_left"])
    if left.sentence:
        say(left.sentence)
    return left.kept


def _deliver(host: str, port: int, folder: Path, why: str, patience: _Patience) -> _Delivered:
    outbox = Outbox(seed=folder.name)
    for batch in batches_in(folder):
        outbox.put(batch.num_rows, _sent(batch))
    if patience.over():
        return _Delivered(folder, outbox.rows, outbox.rows, stranger=False)
    known = [-1]  # rows that the master has, as it says them; -1 before it does

    def hear(state: Mapping[str, Any]) -> None:
        outbox.has(int(state["rows"]))
        if outbox.heard > known[0]:
            patience.moved()
        known[0] = outbox.heard

    contact = Contact(host, port, folder.name, hear)
    try:
        while not (patience.over() or contact.stranger or known[0] == outbox.rows):
            contact.send(LEAVE, {"why": why})
            if known[0] >= 0:
                contact.send(REPORT, report(parts=outbox.to_send(), rows=outbox.rows))
            gevent.sleep(BEAT_S)
    finally:
        contact.close(at_once=True)
    if contact.stranger:
        patience.moved()
    return _Delivered(folder, outbox.rows, outbox.rows - outbox.heard, stranger=bool(contact.stranger))


def _sent(batch: pa.RecordBatch) -> Callable[[], bytes]:
    return lambda: batch.serialize().to_pybytes()


def _sentence(spool: Path, found: Sequence[_Delivered]) -> str:
    there = [one for one in found if not one.lacking]
    said = []
    if there:
        rows = counted(sum(one.rows for one in there), "request")
        said.append(f"Delivered what {_workers(there)} that ended had not sent (of {rows} the master has each).")
    for stranger in (False, True):
        kept = [one for one in found if one.lacking and one.stranger == stranger]
        if kept:
            rows = counted(sum(one.lacking for one in kept), "request")
            where = kept[0].folder if len(kept) == 1 else spool
            said.append(
                f"What {_workers(kept)} measured for another master ({rows}) stays in {where}: where that run is"
                " resumed, it measures anew what its master lacked, and this can be removed."
                if stranger
                else f"No master said that it has {rows} of {_workers(kept)} that ended; they are in {where}."
            )
    return " ".join(said)


def _workers(found: Sequence[_Delivered]) -> str:
    return "a worker" if len(found) == 1 else f"{len(found)} workers"
