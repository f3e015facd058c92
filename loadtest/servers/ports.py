"""Ports of servers that a run starts: free before a start, theirs alone while they serve, held against other runs."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtest.errors import UsageError, server_named
from loadtest.servers.arm import Arm
from loadtest.servers.keeper import LINUX

TRIAL_S = 2.0  # a connection to a port that something may hold
POLL_S = 0.1
LISTENS = "0A"  # state of a listening socket in /proc/net/tcp
ANY = ("0.0.0.0", "::")  # nosec B104  # compared, not listened at


@contextmanager
def held_against_other_runs(arms: Iterable[Arm]) -> Iterator[None]:
    """Hold the ports of these arms against other runs on this machine, also between two starts. Raises UsageError.

    By names of Linux's own (abstract sockets), which are as wide as ports are and end with this process; elsewhere two
    runs are kept apart only while a server listens.
    """
    with ExitStack() as stack:
        held: set[Any] = set()
        for arm in arms if LINUX else ():
            for _, address in _addresses(arm):
                if address[:2] in held:
                    continue  # arms that take turns share one
                held.add(address[:2])
                name = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                try:
                    name.bind(f"\0loadtest {address[0]} {address[1]}")
                except OSError as error:
                    raise UsageError(f"Another run of loadtest starts its servers at {arm.url}. Wait for its end, or"
                                     f" give {server_named(arm.name)} another port.") from error  # fmt: skip
        yield


def wait_for_port(arm: Arm, limit_s: float) -> None:
    """Return once nothing holds an arm's port; raises UsageError where something still does after `limit_s` seconds.

    What ends a container, or a machine of its own, may return before the port is free.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            refuse_taken_port(arm)
        except UsageError:
            if time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(POLL_S)


def refuse_taken_port(arm: Arm) -> None:
    """Raise UsageError when something already listens, or holds the port, where this arm is to be started."""
    if any(_taken(family, address) for family, address in _addresses(arm)):
        raise UsageError(
            f"Port {_port(arm)} of {urlsplit(arm.url).hostname} is in use: {server_named(arm.name)} cannot be started"
            f" at {arm.url}. End what listens there, or give the arm another port."
        )


def others_listen(arm: Arm, family: Iterable[int]) -> bool:
    """Return whether a process beyond a server's own listens at its address, besides one of these (by their ids).

    The kernel lets several (SO_REUSEPORT), and spreads connections over them. False where none of the family is seen to
    listen: a container's port is held by the engine. Known on Linux alone.
    """
    listening = _listening(_port(arm), {address[0] for _, address in _addresses(arm)}) if LINUX else {}
    own = listening.keys() & {inode for pid in family for inode in _sockets(pid)}
    # Of another's sockets those count that are as near to the address: one for any host comes after one for this host.
    near = {listening[inode] for inode in own} | (set(listening.values()) - set(map(_hex, ANY)))
    return bool(own) and any(host in near for inode, host in listening.items() if inode not in own)


def _addresses(arm: Arm) -> list[tuple[int, Any]]:
    host = urlsplit(arm.url).hostname or ""
    try:
        found = socket.getaddrinfo(host, _port(arm), type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"The host {host} of {server_named(arm.name)} cannot be looked up: {error}.") from error
    return [(family, address) for family, _, _, _, address in found]


def _port(arm: Arm) -> int:
    parts = urlsplit(arm.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _listening(port: int, hosts: Iterable[str]) -> dict[str, str]:
    """Return inode → host, as the kernel writes it, of the sockets that listen at a port of these hosts, or of any."""
    wanted = {_hex(host) for host in (*hosts, *ANY)}
    rows = [line.split() for table in ("tcp", "tcp6") for line in _lines(Path("/proc/net", table))[1:]]
    found = {row[9]: row[1].partition(":") for row in rows if row[3] == LISTENS}
    return {inode: host for inode, (host, _, at) in found.items() if host in wanted and at == f"{port:04X}"}


def _hex(host: str) -> str:
    """Return an address as /proc/net/tcp writes it: words of four bytes in the machine's own order."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    data = socket.inet_pton(family, host.partition("%")[0])
    words = [data[i : i + 4] for i in range(0, len(data), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _sockets(pid: int) -> Iterator[str]:
    """Yield the inodes of a process's sockets; none where they are not ours to see."""
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]


def _taken(family: int, address: Any) -> bool:
    """Return whether something listens at an address, or holds it; an address of another machine cannot be held."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.settimeout(TRIAL_S)
        if trial.connect_ex(address) == 0:
            return True
    held = _held(family, address, reuse=False)
    # Connections that have just ended keep a port from being bound strictly, though a server may have it.
    return held and (not _lingering(address[1]) or _held(family, address, reuse=True))


def _held(family: int, address: Any, *, reuse: bool) -> bool:
    """Return whether an address cannot be bound since it is in use; a server that still loads may hold its port."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
            trial.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _lingering(port: int) -> bool:
    """Return whether ended connections of this port may linger; where the system does not say, they may."""
    if not LINUX:
        return True
    rows = [line.split() for table in ("tcp", "tcp6") for line in _lines(Path("/proc/net", table))[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] != LISTENS for row in rows)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
