"""A worker whose master is silent: it waits, says so, and ends, or joins anew where another master answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loadtest.drive.failure import counted
from loadtest.drive.workers.contact import Contact
from loadtest.drive.workers.peers import LOST_S
from loadtest.drive.workers.spool import Spool
from loadtest.errors import RunError


class Outlived(RunError):
    """The master has gone, and another answers in its place."""


class Vigil:
    """Keeps an eye on the master between cells."""

    def __init__(self, settings: Mapping[str, Any], contact: Contact, say: Callable[[str], None]) -> None:
        """Take the master for present; `settings` are the worker's."""
        self._where, self._wait_s = f"{settings['host']}:{settings['port']}", settings["wait_s"]
        self._contact, self._say, self._waits = contact, say, False

    def keep(self, spool: Spool, folder: Path) -> None:
        """Say when the master begins and ends to be waited for.

        Raises Outlived when another answers, and RunError once the master has gone, with what is left in `folder`.
        """
        silent_s, where = self._contact.silent_s, self._where
        if self._contact.stranger:
            raise Outlived(f"The master has gone, and run {self._contact.stranger} answers at {where}: joining it.")
        if silent_s > max(LOST_S, self._wait_s):
            raise RunError(
                f"The master at {where} has gone: nothing was heard of it for {silent_s:.0f} s (--wait)."
                f" {counted(spool.rows - spool.heard, 'request')} that it did not say it has, and all that it may not"
                f" have written, are in {folder}. Once the run is resumed there (loadtest run --resume RUN), start it"
                f" again: loadtest worker --master {where}"
            )
        waited, self._waits = self._waits, silent_s > LOST_S
        if self._waits and not waited:
            self._say(f"The master at {where} is not heard of, and the load has ended. Waiting up to {self._wait_s:g} s"
                      " (--wait) for it, or for its run to be resumed there.")  # fmt: skip
        elif waited and not self._waits:
            self._say("The master is heard again.")
