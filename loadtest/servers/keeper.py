"""Keeps one server: starts it in a session of its own, and ends it with its children when told, or left, by the parent.

`python -m loadtest.servers.keeper LOG` reads one JSON line {"command", "stop", "env", "cwd", "stop_s", "secrets"} from
its stdin, starts the command with its output in LOG, and says {"event": "started", "pid"}, {"event": "left", "code"}
once the command has ended by itself, and {"event": "ended", "code", "asked"} on its stdout. It ends the server when
its stdin ends, whatever became of the parent: a killed process cannot clean up, but its pipe closes.

Small on purpose: it must start quickly and outlive everything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

STOP_KILL_S = 1.0  # a `stop` that took too long has this long after TERM
KILL_S = 5.0  # what was killed disappears within this time, or hangs in the kernel
POLL_S = 0.05
LINUX = sys.platform == "linux"
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process as the system lists it; zombies are not listed."""

    pid: int
    parent: int
    group: int
    session: int


def processes() -> list[Process]:
    """Return the living processes of this machine."""
    return _from_proc() if LINUX else _from_ps()


def _from_proc() -> list[Process]:
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208  # called often while a server ends
        if not entry.isdigit():
            continue
        try:
            text = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has just ended
        state, parent, group, session = text.rpartition(")")[2].split()[:4]
        if state not in "ZX":
            found.append(Process(pid=int(entry), parent=int(parent), group=int(group), session=int(session)))
    return found


def _from_ps() -> list[Process]:
    listing = subprocess.run(["/bin/ps", "-axo", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=False)
    rows = [line.split() for line in listing.stdout.splitlines()]
    return [Process(pid=int(r[0]), parent=int(r[1]), group=int(r[2]), session=0)
            for r in rows if len(r) == 4 and not r[3].startswith("Z")]  # fmt: skip


def members(leader: int, ancestor: int | None = None) -> list[Process]:
    """Return the living processes of a leader's group or session, and the descendants of `ancestor`."""
    listed = processes()
    family = {ancestor} if ancestor is not None else set()
    grew = bool(family)
    while grew:
        more = {p.pid for p in listed if p.parent in family} - family
        family |= more
        grew = bool(more)
    return [p for p in listed if p.pid != ancestor and (leader in (p.group, p.session) or p.pid in family)]


def end_all(leader: int, stop_s: float, ancestor: int | None = None, reap: Callable[[], None] = lambda: None) -> None:
    """End a leader's group, session and the ancestor's descendants: TERM, after `stop_s` seconds KILL.

    The leader must not have been waited for yet, so that its id cannot belong to anyone else.
    """
    for number, limit_s in ((signal.SIGTERM, stop_s), (signal.SIGKILL, KILL_S)):
        deadline = time.monotonic() + limit_s
        found = members(leader, ancestor)
        if any(p.group == leader for p in found):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, number)
        for process in found:
            if process.group != leader:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, number)
        while found and time.monotonic() < deadline:
            time.sleep(POLL_S)
            reap()
            found = members(leader, ancestor)
        if not found:
            return


def clear_away(spec: dict[str, Any], log: Path) -> None:
    """Run the command for what outlives a server, such as a container, for at most `stop_s` seconds."""
    if not spec.get("stop"):
        return
    with _appended(log) as out:
        try:
            process = subprocess.Popen(
                spec["stop"], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=spec["env"],
                cwd=spec["cwd"], start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            with contextlib.suppress(OSError):  # the disk is full
                out.write(f"loadtest: `stop` could not be run: {error.strerror}\n".encode())
            return
        deadline = time.monotonic() + float(spec["stop_s"])
        while _ended_with(process) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        end_all(process.pid, STOP_KILL_S)  # with its children, whether it ended or not
        process.wait()


def _appended(log: Path) -> FileIO:
    """Open a log to write on; the null device where it is not there any more, or cannot be written."""
    try:
        return FileIO(log, "ab")
    except OSError:
        return FileIO(os.devnull, "ab")


def _ended_with(process: subprocess.Popen[bytes]) -> int | None:
    """Return the code of a process that has ended, -N by signal N, without waiting for it: its id stays taken."""
    if not hasattr(os, "waitid"):
        return process.poll()
    found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


class Keeper:
    """One server under this process."""

    def __init__(self, spec: dict[str, Any], log: Path) -> None:
        """Start the server; raises OSError when the command cannot be run."""
        self._spec, self._log = spec, log
        self._asked = False
        self._awake, wake = os.pipe()
        for end in (self._awake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                spec["command"], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=spec["env"],
                cwd=spec["cwd"], start_new_session=True, preexec_fn=_die_with_parent(),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Process, group and session id of the server."""
        return self._process.pid

    def watch(self) -> None:
        """Return when the server is to be ended, or has ended by itself, which is said before its rest is ended."""
        while (code := _ended_with(self._process)) is None:
            ready, _, _ = select.select([0, self._awake], [], [])
            if self._awake in ready:
                numbers = os.read(self._awake, 512)
                self._reap_strangers()
                self._asked = any(number != signal.SIGCHLD for number in numbers)
            if 0 in ready and not os.read(0, 4096):
                self._asked = True
            if self._asked:
                return
        _tell({"event": "left", "code": code})

    def _reap_strangers(self) -> None:
        """Wait for orphans that came to this process, but not for the server: its id must stay taken."""
        if not LINUX:
            return
        for process in _children(os.getpid()):
            if process != self.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)

    def end(self) -> dict[str, Any]:
        """End whatever is left of the server and its children; return the last word."""
        ancestor = os.getpid() if LINUX else None  # elsewhere `ps` itself would be a descendant
        end_all(self.pid, float(self._spec["stop_s"]), ancestor, self._reap_strangers)
        clear_away(self._spec, self._log)
        code = self._process.wait()
        if self._spec.get("secrets"):  # the parent cleans the log as well, if it lives
            from loadtest.servers.hiding import clean

            with contextlib.suppress(OSError):  # the disk is full: what could be hidden is
                clean(self._log, self._spec["secrets"])
        return {"event": "ended", "code": code, "asked": self._asked}


def _children(parent: int) -> list[int]:
    try:
        children = Path(f"/proc/self/task/{parent}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [int(child) for child in children]


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> Callable[[], None] | None:
    """Return what the server does between fork and exec: ask the kernel for TERM should this process be killed."""
    if not LINUX:
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork

    def ask() -> None:
        prctl(_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    return ask


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            break
        line += part
    return line


def _tell(event: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the parent may be gone
        os.write(1, json.dumps(event).encode() + b"\n")


def main() -> int:
    """Keep one server until it ends or is to be ended."""
    line = _first_line()
    if not line:
        return 0
    if LINUX:
        _prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        keeper = Keeper(json.loads(line), Path(sys.argv[1]))
    except (OSError, ValueError) as error:
        said = f"{error.filename or 'the command'}: {error.strerror}" if isinstance(error, OSError) else str(error)
        _tell({"event": "refused", "reason": said})
        return 1
    _tell({"event": "started", "pid": keeper.pid})
    keeper.watch()
    _tell(keeper.end())
    return 0


if __name__ == "__main__":
    sys.exit(main())
