"""A server that the run starts: refused when its port is taken, waited for, and always ended with its children."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError, server_named
from loadtest.servers.control import Arm, Control
from loadtest.servers.fetch import NoAnswer
from loadtest.servers.file import Start
from loadtest.servers.hiding import clean, forms
from loadtest.servers.keeper import KILL_S, clear_away, end_all, members
from loadtest.servers.log_tail import log_tail
from loadtest.servers.ports import others_listen, wait_for_port
from loadtest.servers.process import killed_by

Tell = Callable[[dict[str, Any]], None]
POLL_S = 0.25
ASK_S = 2.0  # one question after its health
ASKS = 3  # of one that was healthy: a single answer may be late
MODELS, SERVER_ERROR = "/v1/models", 500
TELL_EVERY_S = 2.0
TAIL_LINES = 20
MAX_LINE = 256  # of a script's first line, as far as Linux reads it
ALIVE_LINES = 5  # of a server that still ran: the reason is known, and these may say more


class StartFailed(UsageError):
    """A server did not start; its log is kept."""

    def __init__(self, sentence: str, log: Path) -> None:
        """Say what happened, and where the whole log lies."""
        super().__init__(sentence)
        self.log = log


class ManagedServer:
    """One life of one server."""

    def __init__(self, arm: Arm, start: Start, log: Path) -> None:
        """Remember how it is started; nothing is started before `launch`."""
        self.arm, self.log = arm, log
        self._start, self._secrets = start, forms(start.secrets)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._heard = b""  # what the keeper has said: JSON lines
        self._began_s = 0.0

    def launch(self, patience_s: float = 0.0) -> None:
        """Start it; raises UsageError when its port is taken, also after `patience_s` seconds."""
        wait_for_port(self.arm, patience_s)
        self._began_s = time.monotonic()
        # A session of its own keeps Ctrl-C in a terminal from the keeper; this end of its stdin is what it lives by.
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "loadtest.servers.keeper", str(self.log.resolve())], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True, bufsize=0, env=os.environ | {"PYTHONPATH": _own_path()},
        )  # fmt: skip
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.write(json.dumps(self._spec()).encode() + b"\n")

    def _spec(self) -> dict[str, Any]:
        start = self._start
        return {"command": list(start.command), "stop": list(start.stop), "env": dict(os.environ) | start.env,
                "cwd": str(start.cwd or Path.cwd()), "stop_s": start.stop_s,
                "secrets": list(self._secrets)}  # fmt: skip

    def wait_until_healthy(self, tell: Tell) -> float:
        """Wait until it answers its health path; return the seconds since its start. Raises StartFailed."""
        told_s, answer = self._began_s, ""
        control = Control(self.arm)
        try:
            while True:
                if self.ended:
                    raise self._failed(self._how_it_ended())
                answer = self._ask(control)
                waited_s = time.monotonic() - self._began_s
                if not answer and self.shares_its_port:
                    raise self._failed("shares its port with another program, and the two answer in turn: end the other"
                                       f" one, or give the arm another port than that of {self.arm.url}")  # fmt: skip
                if not answer:
                    return waited_s
                if waited_s > self._start.ready_s:
                    raise self._failed(f"was not healthy within {self._start.ready_s:g} s ({answer}); `ready_s` gives"
                                       " it more time, `health` names another path to ask for")  # fmt: skip
                if time.monotonic() - told_s >= TELL_EVERY_S:
                    told_s = time.monotonic()
                    tell({"event": "server_wait", "arm": self.arm.name, "waited_s": waited_s,
                          "ready_s": self._start.ready_s, "line": self.tail(1)})  # fmt: skip
                time.sleep(POLL_S)
        finally:
            control.close()

    def _ask(self, control: Control) -> str:
        """Return the empty string when it is healthy, else what it answered.

        Some answer their health path before the model is there: what is asked for next must not be an error of theirs.
        """
        for path in (self._start.health, MODELS):
            try:
                status = control.fetch(path, ASK_S).status
            except NoAnswer as error:
                return f"GET {path}: {error}"
            if status >= SERVER_ERROR or (path == self._start.health and status != 200):
                return f"GET {path}: HTTP {status}"
        return ""

    def unhealthy(self) -> str:
        """Return how it answers what it answered well when it was healthy; empty where it still does."""
        answer, control = "", Control(self.arm)
        try:
            for attempt in range(ASKS):
                time.sleep(POLL_S if attempt else 0.0)
                answer = self._ask(control)
                if not answer:
                    break
        finally:
            control.close()
        return answer

    def failed(self, error: UsageError) -> StartFailed:
        """Return what to say when it was healthy and could not be used, with the end of its log; it is ended."""
        if self.ended:
            return self._failed(f"ended just after its start{self.how_it_ended()}")
        return self._with_log(str(error), ALIVE_LINES)

    def _failed(self, what: str) -> StartFailed:
        return self._with_log(f"T{server_named(self.arm.name)[1:]} {what}.", TAIL_LINES)

    def _with_log(self, sentence: str, lines: int) -> StartFailed:
        self.stop()
        tail = self.tail(lines)
        ending = f"The end of its log ({self.log}):\n{tail}" if tail else f"It wrote nothing ({self.log})."
        return StartFailed(f"{sentence} {ending}", self.log)

    def _how_it_ended(self) -> str:
        self._hear(1.0)
        refused, code = self._word("refused"), self._code
        if refused:
            return f"could not be started ({refused['reason']})"
        if code is not None:
            hint = "" if code else "; `start` must serve in the foreground, not leave a server behind"
            return f"ended at its start, {_by(code)}{hint}"
        return "was lost: the process that kept it has ended"

    def how_it_ended(self) -> str:
        """Say how a server that was not told to end did; empty where that is not known."""
        self._hear(1.0)
        return f", {_by(self._code)}" if self._code is not None else ""

    @property
    def _code(self) -> int | None:
        """Return what the server ended with, as far as the keeper has said."""
        word = self._word("left") or self._word("ended")
        return int(word["code"]) if word else None

    @property
    def shares_its_port(self) -> bool:
        """Whether another program listens where it does, so that the two answer in turn."""
        if self._keeper is None or self.pid is None:
            return False
        return others_listen(self.arm, {process.pid for process in members(self.pid, self._keeper.pid)})

    @property
    def ended(self) -> bool:
        """Whether it has ended, by itself or by `stop`; what it left, such as children, may still be."""
        if self._keeper is None or self._keeper.poll() is not None:
            return True
        self._hear(0.0)
        return self._code is not None

    @property
    def pid(self) -> int | None:
        """Process and group id of the server; None while it has not started."""
        self._hear(0.0)
        started = self._word("started")
        return int(started["pid"]) if started else None

    def _hear(self, limit_s: float) -> None:
        """Take in what the keeper has said, waiting for more at most `limit_s`."""
        if self._keeper is None or self._keeper.stdout is None:
            return
        while select.select([self._keeper.stdout], [], [], limit_s)[0]:
            part = os.read(self._keeper.stdout.fileno(), 65536)
            if not part:
                return
            self._heard += part

    def _word(self, event: str) -> dict[str, Any] | None:
        """Return what the keeper said under this name."""
        said = [json.loads(line) for line in self._heard.splitlines(keepends=True) if line.endswith(b"\n")]
        return next((word for word in said if word["event"] == event), None)

    def tail(self, lines: int) -> str:
        """Return the last lines of its log, without the secrets of its start."""
        return log_tail(self.log, lines, self._secrets)

    def stop(self) -> None:
        """End it and its children, and return once they have ended, also when Ctrl-C is pressed meanwhile."""
        interrupted: KeyboardInterrupt | None = None
        while self._keeper is not None:
            try:
                self._end(self._keeper)
                self._keeper = None
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def _end(self, keeper: subprocess.Popen[bytes]) -> None:
        try:
            words, _ = keeper.communicate(timeout=2 * (self._start.stop_s + KILL_S))  # closes its stdin
        except subprocess.TimeoutExpired:
            keeper.kill()
            words, _ = keeper.communicate()
        self._heard += words
        started = self._word("started")
        if started and not self._word("ended"):  # the keeper was killed: its orphans are ended from here
            end_all(int(started["pid"]), self._start.stop_s)
            clear_away(self._spec(), self.log)
        with contextlib.suppress(OSError):  # the disk is full: what could be hidden is
            clean(self.log, self._secrets)


def _by(code: int) -> str:
    return f"killed by {killed_by(code)}" if code < 0 else f"with code {code}"


def _own_path() -> str:
    """Return a PYTHONPATH that finds this very program."""
    own = str(Path(__file__).parents[2])
    given = os.environ.get("PYTHONPATH", "")
    return f"{own}{os.pathsep}{given}" if given else own


def refuse_missing_program(arm: Arm, start: Start) -> None:
    """Raise UsageError when the first word of an arm's command is no program, with what is there instead."""
    word, path = start.command[0], (os.environ | start.env).get("PATH")
    file = (start.cwd or Path.cwd()) / word if os.sep in word else None
    found = shutil.which(str(file or word), path=path)
    if found is not None and not (interpreter := _missing_interpreter(Path(found))):
        return
    if found is not None:
        why = f"the first line of {found} names {interpreter}, which is not there"
    elif file is None:
        why = f"there is no program {word!r} in any folder of PATH"
    elif file.is_dir():
        why = f"{word!r} is a folder, not a program"
    elif file.exists():
        why = f"{word!r} is not executable (chmod +x)"
    else:
        why = f"there is no program {word!r}" + ("" if Path(word).is_absolute() else f" in {start.cwd or Path.cwd()}")
    raise UsageError(f"T{server_named(arm.name)[1:]} cannot be started: {why}.")


def _missing_interpreter(program: Path) -> str:
    """Return the interpreter that a script asks for in its first line where there is none; else the empty string."""
    try:
        with program.open("rb") as file:
            line = file.readline(MAX_LINE).decode(errors="replace")
    except OSError:
        return ""
    words = line.removeprefix("#!").split() if line.startswith("#!") else []
    return words[0] if words and not Path(words[0]).exists() else ""
