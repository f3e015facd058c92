"""Servers that the run starts: all at once, or one at a time where they share a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtest.drive.pair import introduce, refuse_another, takes_salt
from loadtest.drive.prepare import Prepared
from loadtest.errors import LoadtestError, NotComparable, RunError, UsageError
from loadtest.servers.control import Arm, server_named
from loadtest.servers.file import Start
from loadtest.servers.identity import Identity
from loadtest.servers.managed import ManagedServer, refuse_missing_program, refuse_taken_port

Tell = Callable[[dict[str, Any]], None]
Meet = Callable[[Arm, Identity], None]
LAST_LINES = 5


class Managed:
    """The servers that this run has started and not yet ended."""

    def __init__(self, starts: Mapping[str, Start], folder: Path, tell: Tell) -> None:
        """Start nothing yet; `starts` says how, by arm."""
        self._starts, self._folder, self._tell = starts, folder, tell
        self._up: dict[str, ManagedServer] = {}

    def refuse_what_cannot_start(self, arms: Iterable[Arm]) -> None:
        """Raise UsageError when a port is in use or a program is missing, before any server is started."""
        for arm in arms:
            if arm.name in self._starts:
                refuse_taken_port(arm)
                refuse_missing_program(arm, self._starts[arm.name])

    def start(self, arm: Arm, number: int, total: int) -> None:
        """Start an arm for the `number`-th time (from 1) of `total`, and wait for its health. Raises UsageError."""
        server = ManagedServer(arm, self._starts[arm.name], self._folder / f"server-{arm.name}-{number}.log")
        self._up[arm.name] = server  # before it runs, so that nothing can be left behind
        self._tell({"event": "server_start", "arm": arm.name, "start": number, "starts": total, "url": arm.url})
        try:
            server.launch()
            took_s = server.wait_until_healthy(self._tell)
        except UsageError:
            del self._up[arm.name]  # it has been stopped, or was never started
            raise
        self._tell({"event": "server_ready", "arm": arm.name, "took_s": took_s})

    def stop(self) -> None:
        """End all, each after the other."""
        with ExitStack() as stack:  # one that cannot be ended does not keep the others
            for name in list(self._up):
                self._tell({"event": "server_stop", "arm": name})
                stack.callback(self._up.pop(name).stop)

    def obituary(self) -> str:
        """Say how the logs of servers that ended by themselves end; empty when none did."""
        ended = [(name, server) for name, server in self._up.items() if server.ended]
        return "".join(
            f" T{server_named(name)[1:]} ended by itself{server.how_it_ended()}; its log ends:"
            f" {server.tail(LAST_LINES) or '(empty)'}"
            for name, server in ended
        )


class Turns:
    """Gives each arm its turn on a shared machine, whenever the driver asks for it."""

    def __init__(self, prepared: Prepared, managed: Managed, meet: Meet, part: Callable[[], None],
                 first: Mapping[str, Identity] | None = None) -> None:  # fmt: skip
        """`meet` is told each arm that was started, and may refuse to go on by raising; `part` comes before its end.

        `first` is what the arms were when the run was begun, where it is gone on with.
        """
        self._arms = {arm.name: arm for arm in prepared.arms}
        self._generation = prepared.experiment.generation
        self._total = prepared.course.coarse_blocks + prepared.course.wanted
        self._managed, self._meet, self._part = managed, meet, part
        self._first = dict(first or {})
        self.failure: LoadtestError | None = None

    def take(self, name: str, start: int) -> dict[str, Any]:
        """End the arm that runs and start this one; return the answer for the driver."""
        try:
            self._part()
            self._managed.stop()
            self._managed.start(self._arms[name], start + 1, self._total)
            arm, identity = introduce(self._arms[name], self._generation)
            refuse_another(name, start + 1, self._first.setdefault(name, identity), identity)
            self._meet(arm, identity)
        except LoadtestError as error:
            self.failure = self._as_failure(error, name)
            kind = "run" if isinstance(self.failure, RunError) else "usage"
            return {"refused": str(self.failure), "kind": kind}
        simulated = bool(identity.simulated_world)
        return {"arm": asdict(arm), "salted": takes_salt(identity), "simulated": simulated}

    def _as_failure(self, error: LoadtestError, name: str) -> LoadtestError:
        """A start that fails although the same one worked before is no mistake of the user's."""
        wrong_from_the_start = isinstance(error, UsageError) and name not in self._first
        return error if wrong_from_the_start or isinstance(error, NotComparable) else RunError(str(error))
