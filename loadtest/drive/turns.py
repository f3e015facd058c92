"""Servers that the run starts: all at once, or one at a time where they share a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtest.drive.pair import introduce, refuse_another, takes_salt
from loadtest.drive.prepare import Prepared
from loadtest.errors import LoadtestError, NotComparable, RunError, UsageError, server_named
from loadtest.servers.control import Arm
from loadtest.servers.file import Start
from loadtest.servers.identity import Identity
from loadtest.servers.managed import ManagedServer, refuse_missing_program
from loadtest.servers.ports import held_against_other_runs, refuse_taken_port
from loadtest.settings import Generation

Tell = Callable[[dict[str, Any]], None]
Meet = Callable[[Arm, Identity], None]
LAST_LINES = 5


class Managed:
    """The servers that this run has started and not yet ended."""

    def __init__(self, starts: Mapping[str, Start], folder: Path, tell: Tell) -> None:
        """Start nothing yet; `starts` says how, by arm."""
        self._starts, self._folder, self._tell = starts, folder, tell
        self._up: dict[str, ManagedServer] = {}
        self.logs: list[Path] = []  # of every start so far
        self.gone = ""  # what was first said of servers that were lost

    @contextmanager
    def over(self, arms: Sequence[Arm]) -> Iterator[None]:
        """Hold the ports of those arms that are to be started; in the end, end all servers.

        Raises UsageError when a port is in use, or a program is missing, before any server is started.
        """
        own = [arm for arm in arms if arm.name in self._starts]
        with held_against_other_runs(own), ExitStack() as stack:
            stack.callback(self.stop)
            for arm in own:
                refuse_taken_port(arm)
                refuse_missing_program(arm, self._starts[arm.name])
            yield

    def start(self, arm: Arm, number: int, total: int) -> None:
        """Start an arm for the `number`-th time (from 1) of `total`, and wait for its health. Raises UsageError."""
        server = ManagedServer(arm, self._starts[arm.name], self._folder / f"server-{arm.name}-{number}.log")
        patience_s = self._starts[arm.name].stop_s if self.logs else 0.0  # what ended before may hold it for a while
        self._up[arm.name] = server  # before it runs, so that nothing can be left behind
        self._tell({"event": "server_start", "arm": arm.name, "start": number, "starts": total, "url": arm.url})
        try:
            server.launch(patience_s)
            self.logs.append(server.log)
            took_s = server.wait_until_healthy(self._tell)
        except UsageError:
            del self._up[arm.name]  # it has been stopped, or was never started
            raise
        self._tell({"event": "server_ready", "arm": arm.name, "took_s": took_s})

    def meet(self, arm: Arm, generation: Generation, *, answers: bool = False) -> tuple[Arm, Identity]:
        """Introduce an arm; where that fails, one that was started is ended and told of with the end of its log."""
        try:
            return introduce(arm, generation, answers=answers)
        except UsageError as error:
            server = self._up.pop(arm.name, None)
            if server is None:
                raise
            raise server.failed(error) from error

    def stop(self) -> None:
        """End all, each after the other."""
        with ExitStack() as stack:  # one that cannot be ended does not keep the others
            for name in list(self._up):
                self._tell({"event": "server_stop", "arm": name})
                stack.callback(self._up.pop(name).stop)

    def lost(self, asked: str = "") -> str:
        """Say which servers ended by themselves, and how their logs end, or share their port; empty when none did.

        The arm `asked`, which must be idle, is asked for its health: it may outlive the process that does its work.
        What was said once stays: what answers from then on is not what was started.
        """
        self.gone = self.gone or " ".join(
            f"T{server_named(name)[1:]} {said}"
            for name, server in self._up.items()
            if (said := _lost(server, ask=name == asked))
        )
        return self.gone


def _lost(server: ManagedServer, *, ask: bool) -> str:
    answer = server.unhealthy() if ask else ""  # first: what ends meanwhile is told by its end
    if server.ended:
        how = server.how_it_ended()
        said = f"ended by itself{how}" if how else "was ended, since the process that kept it had gone"
        return f"{said}; {_log_of(server)}"
    if server.shares_its_port:
        return f"shares its port with another program, and {server.arm.url} is answered by the two in turn."
    if answer:
        return f"runs and is not healthy any more ({answer}); {_log_of(server)}"
    return ""


def _log_of(server: ManagedServer) -> str:
    return f"its log ends: {server.tail(LAST_LINES) or '(empty)'}"


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
            arm, identity = self._managed.meet(self._arms[name], self._generation)
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
