"""What signals and the parent tell the driver: to stop, to end at once, and answers to its questions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any

import gevent
from gevent.queue import Empty, Queue

from loadtest.drive.cell import Switches
from loadtest.errors import ExitCode

GONE_GRACE_S = 3.0
POLL_S = 0.1


class Orders:
    """SIGTERM or SIGINT once: stop; twice, or the end of stdin: end at once. Lines of stdin are answers."""

    def __init__(self) -> None:
        """Hear nothing before `listen`."""
        self.switches = Switches()
        self._answers: Queue[bytes] = Queue()
        self._cut_line = b""
        self._watchers: list[Any] = []

    def listen(self) -> None:
        """Hear signals and stdin from now on."""
        loop = gevent.get_hub().loop
        self._watchers = [loop.signal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        for watcher in self._watchers:
            watcher.start(self._on_signal)
        self._stdin = loop.io(0, 1)
        self._stdin.start(self._on_stdin)
        self._watchers.append(self._stdin)

    def close(self) -> None:
        """Hear nothing more."""
        for watcher in self._watchers:
            watcher.stop()

    def _on_signal(self) -> None:
        self.switches.cut = bool(self.switches.stop)
        self.switches.stop = self.switches.stop or "told to end"  # by the user, or by a look that gave the run up

    def _on_stdin(self) -> None:
        part = os.read(0, 65536)
        *lines, self._cut_line = (self._cut_line + part).split(b"\n")
        for line in lines:
            self._answers.put_nowait(line)
        if not part:
            self.switches.stop = self.switches.stop or "the program that started the driver has gone"
            self.switches.cut = True
            self._stdin.stop()
            gevent.spawn_later(GONE_GRACE_S, os._exit, ExitCode.INVALID)

    def answer(self) -> dict[str, Any] | None:
        """Wait for the parent's next answer; None when the run is to stop."""
        while not self.switches.stop:
            with contextlib.suppress(Empty):
                return json.loads(self._answers.get(timeout=POLL_S))  # type: ignore[no-any-return]  # the parent's own
        return None
