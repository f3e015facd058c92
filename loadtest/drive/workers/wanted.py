"""How many workers the command line asks for, and where; imports neither Locust nor gevent."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from loadtest.checks import positive_s, shown
from loadtest.drive.failure import counted
from loadtest.drive.job import Workers
from loadtest.drive.options import Options
from loadtest.errors import UsageError
from loadtest.servers.address import is_loopback, read_address

HOST, PORT = "127.0.0.1", 5557  # Locust's own port
WAIT = "5m"
MOST = 1000  # workers
PER_CORE = 4  # workers of this machine: beyond that they only take turns


def wanted(options: Options) -> Workers | None:
    """Return the workers that the options ask for; None: the driver makes the load itself. Raises UsageError."""
    local, awaited = options.workers, options.expect_workers
    if local is not None and awaited is not None:
        raise UsageError("--workers starts workers here and --expect-workers awaits them from elsewhere; give one.")
    for name, count in (("--workers", local), ("--expect-workers", awaited)):
        if count is not None and not 1 <= count <= MOST:
            raise UsageError(f"{name} is {count}; it must be a whole number from 1 to {MOST}.")
    cores = os.cpu_count() or 1
    if local is not None and local > PER_CORE * cores:
        raise UsageError(f"--workers is {local}, and this machine has {counted(cores, 'core')}, which take at most"
                         f" {PER_CORE * cores} workers, since each can fill one. For more, give --expect-workers and"
                         " start them on other machines.")  # fmt: skip
    if awaited is None:
        for name, value in (("--bind", options.bind), ("--wait", options.wait)):
            if value is not None:
                raise UsageError(f"{name} is on workers from elsewhere; give --expect-workers N beside it.")
        return None if local is None else Workers(count=local, local=True)
    host, port = place_of(options.bind or f"{HOST}:{PORT}", "--bind")
    return Workers(count=awaited, local=False, host=host, port=port, wait_s=waited(options.wait or WAIT))


def refuse_unreachable(workers: Workers | None, urls: Iterable[str]) -> None:
    """Raise UsageError for a server on this machine's loopback, where workers elsewhere are asked to load it."""
    if workers is None or workers.local or is_loopback(workers.host):
        return
    for url in urls:
        host = read_address(url, "a URL").host if url else HOST  # a simulated server has no URL yet
        if is_loopback(host):
            what = url or "the simulated pair"
            raise UsageError(
                f"Workers are awaited from other machines (--bind {workers.host}), and {what} is on the loopback of"
                " this one: to them that is their own. Name the servers by an address that they reach."
            )


def refuse_taken(workers: Workers | None) -> None:
    """Raise UsageError where workers cannot be listened for, before servers are started for it."""
    if workers is None or workers.local:
        return
    try:
        places = socket.getaddrinfo(workers.host, workers.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return  # the name of an interface, or of nothing: who listens says so
    family, kind, _, _, place = places[0]
    with socket.socket(family, kind) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ZeroMQ does
        try:
            tried.bind(place)
            tried.listen()
        except OSError as error:
            raise cannot_listen(workers.host, workers.port, error.strerror) from None


def cannot_listen(host: str, port: int, why: object) -> UsageError:
    """Return what to say of a place where workers cannot be listened for."""
    return UsageError(f"Workers cannot be listened for on {host}:{port} ({why}); give another --bind.")


def waited(word: str) -> float:
    """Return the seconds of --wait. Raises UsageError."""
    try:
        return positive_s(word)
    except ValueError as allowed:
        raise UsageError(f"--wait is {shown(word)}; it must be {allowed}.") from None


def place_of(word: str, named: str, port: int = PORT) -> tuple[str, int]:
    """Return (host, port) of HOST[:PORT]. Raises UsageError, with a sentence that calls it `named`."""
    host, colon, number = word.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):  # no port: a name, or an IPv6 address by itself
        host, number = word, str(port)
    host = host.removeprefix("[").removesuffix("]")
    port_number = int(number) if number.isascii() and number.isdecimal() and len(number) < 6 else 2**16
    if not host or port_number >= 2**16 or "/" in host:
        raise UsageError(f"{named} is {word!r}; write HOST:PORT, such as {HOST}:{PORT}.")
    return host, port_number
