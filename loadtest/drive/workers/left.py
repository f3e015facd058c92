"""What a worker that died had not sent: found in its spool and delivered, in its name, by a later process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent

from loadtest.drive.workers.contact import Contact
from loadtest.drive.workers.messages import LEAVE, REPORT
from loadtest.drive.workers.phases import Count
from loadtest.drive.workers.spool import STREAM, Outbox, batches_in

DELIVER_S = 5.0  # without a word of the master: it does not know the worker, or has gone
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


def deliver_left(host: str, port: int, spool: Path, why: str) -> list[str]:
    """Send what workers of this spool had not sent before they died; return a sentence on each of them."""
    said = []
    for folder in sorted(path.parent for path in spool.glob(f"*/{STREAM}")):
        with contextlib.suppress(OSError), claimed(folder) as own:
            if own:
                said.append(_delivered(host, port, folder, why))
    return said


def _delivered(host: str, port: int, folder: Path, why: str) -> str:
    outbox = Outbox()
    for batch in batches_in(folder):
        outbox.put(batch)
    known: list[Mapping[str, Any]] = []

    def hear(state: Mapping[str, Any]) -> None:
        known.append(state)
        outbox.has(int(state["rows"]))

    contact = Contact(host, port, folder.name, hear)
    try:
        while contact.silent_s < DELIVER_S:
            contact.send(LEAVE, {"why": why})
            if known:
                contact.send(REPORT, report(parts=outbox.to_send(), rows=outbox.rows))
                if outbox.heard == outbox.rows:
                    break
            gevent.sleep(BEAT_S)
        time.sleep(BEAT_S)
    finally:
        contact.close()
    if not known or outbox.heard < outbox.rows:
        return f"{outbox.rows - outbox.heard} requests of a worker that ended were not delivered; they are in {folder}."
    shutil.rmtree(folder, ignore_errors=True)
    return f"Delivered what a worker that ended had not sent ({outbox.rows} requests of it are with the master)."
