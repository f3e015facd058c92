"""Many sockets read at one wake of the hub.

A wake of the hub has a cost of its own. The kernel writes down when bytes arrive, so that with many streams under way
it does no harm to read them a little later, and together: the stamps are the same. Where it does not, the time of the
read is the stamp: nothing is put off, and all that has come is read before more than a little of it is parsed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

from gevent import monkey
from gevent.hub import get_hub

from loadtest.drive.punctual import EARLY_S, waits_of_hub

GATHER_S = 0.0004  # from the end of one batch of reads to the next, where FEW or more streams are under way
FEW = 64  # below them a wake is rare, and a read at once is worth more
MANY = 2  # sockets of a usual batch, above which the pause comes before the hub waits
MOST = 1024  # sockets read at one wake
AT_ONCE = 4  # parsed before a look at what else has come, where the read is the stamp
AHEAD_S = 0.001  # at one wake of the hub, where it is
WAITED_NS = 100_000  # for events: less is what asking for them takes
_READABLE = 1
_LAST, _FIRST = -2, 2  # priorities of libev
_sleep: Any = monkey.get_original("time", "sleep")


class Reader(Protocol):
    """Calls back whenever one socket is readable, from `start` to `stop`; also what a watcher of the hub does."""

    def start(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever the socket is readable."""

    def stop(self) -> None:
        """Call nobody any longer."""

    def close(self) -> None:
        """Let go of the socket, before it is closed."""


def busy_since_ns(of: Reader) -> float:
    """Return since when the hub has not waited for events, on `time.perf_counter_ns`; infinity where that is not known.

    What had come before was read; what came later may have waited for the hub.
    """
    gatherer = gatherer_of(of)
    return math.inf if gatherer is None else gatherer.busy_since_ns


def gatherer_of(of: Reader) -> Gatherer | None:
    """Return what reads a socket together with others; None where it is read by itself."""
    return of.gatherer if isinstance(of, GatheredReader) else None


class Gatherer:
    """The sockets of one hub. Between requests they stay registered, which saves two system calls for each request."""

    def __init__(self, gather_s: float) -> None:
        """Raise OSError where the system gives no epoll."""
        self._gather_s = gather_s
        self._poll = monkey.get_original("select", "epoll")()
        self._registered: set[int] = set()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._read_aheads: dict[int, Callable[[], object]] = {}
        self._waiting: deque[int] = deque()  # sockets that were read ahead, and are not parsed yet
        self._ahead: set[int] = set()  # the same: one that was closed stays readable
        self.busy_since_ns = math.inf  # the end of the hub's latest wait
        self._waits_ns = 0  # the beginning of it
        self._ended_s = 0.0  # of the last batch
        self._usual = 0.0  # sockets of a batch, a running mean
        self._waits = waits_of_hub()
        self._loop = cast(Any, get_hub().loop)
        self._before = self._loop.prepare(ref=False, priority=_LAST)
        self._before.start(self._waiting_begins)
        self._after = self._loop.check(ref=False, priority=_FIRST)
        self._after.start(self._waiting_ends)
        self._watcher = cast(Any, get_hub().loop.io(self._poll.fileno(), _READABLE))
        self._watcher.start(self._read)
        self._watcher.ref = False  # while nobody reads: a hub with nothing else to do may end

    def start(self, descriptor: int, callback: Callable[[], object], read_ahead: Callable[[], object]) -> None:
        """Call `callback` whenever the socket is readable, after `read_ahead` where the kernel does not stamp."""
        if not self._callbacks:
            self._watcher.ref = True
        self._callbacks[descriptor] = callback
        if descriptor not in self._registered:
            self._read_aheads[descriptor] = read_ahead
            self._poll.register(descriptor, _READABLE)
            self._registered.add(descriptor)

    def stop(self, descriptor: int) -> None:
        """Call nobody for this socket; stopping twice is allowed."""
        if self._callbacks.pop(descriptor, None) is not None and not self._callbacks:
            self._watcher.ref = False

    def forget(self, descriptor: int) -> None:
        """Let go of a socket that is about to be closed."""
        self.stop(descriptor)
        if descriptor in self._registered:
            self._registered.remove(descriptor)
            self._poll.unregister(descriptor)
        self._read_aheads.pop(descriptor, None)

    def _read(self) -> None:
        self._pause()
        ready = self._poll.poll(0, MOST)
        if not self._gather_s:
            self._read_all_first(ready)
            return
        callbacks = self._callbacks
        for descriptor, _ in ready:
            callback = callbacks.get(descriptor)
            if callback is not None:
                callback()
            else:
                self._unasked(descriptor)
        self._ended_s = time.perf_counter()
        self._usual += (len(ready) - self._usual) / 8
        if self._usual > MANY:  # pausing here spares the hub a wake for the first socket of the next batch
            self._loop.run_callback(self._pause)

    def _waiting_begins(self) -> None:
        self._waits_ns = time.perf_counter_ns()

    def _waiting_ends(self) -> None:
        now_ns = time.perf_counter_ns()
        if now_ns - self._waits_ns > WAITED_NS:
            self.busy_since_ns = now_ns

    def _unasked(self, descriptor: int) -> None:
        """Let go of a socket that was closed, or said something, between two requests: seen at the next."""
        if descriptor in self._registered:
            self.forget(descriptor)

    def _read_all_first(self, ready: list[tuple[int, int]]) -> None:
        """Read whatever has come before a few of the reads are parsed, again and again until all are."""
        until_s = time.perf_counter() + AHEAD_S
        waiting, ahead = self._waiting, self._ahead
        while ready or waiting:
            for descriptor, _ in ready:
                if descriptor not in ahead:
                    ahead.add(descriptor)
                    waiting.append(descriptor)
                    if descriptor in self._callbacks:
                        self._read_aheads[descriptor]()
            for _ in range(min(AT_ONCE, len(waiting))):
                descriptor = waiting.popleft()
                ahead.remove(descriptor)
                callback = self._callbacks.get(descriptor)
                if callback is not None:
                    callback()
                else:
                    self._unasked(descriptor)
            if waiting and time.perf_counter() > until_s:  # others of the hub have waited long enough
                self._loop.run_callback(self._read)
                return
            ready = self._poll.poll(0, MOST) if waiting else []

    def _pause(self) -> None:
        """Let more bytes arrive, until the last batch ended long enough ago."""
        if len(self._callbacks) >= FEW:
            until_s = self._ended_s + self._gather_s
            if self._waits is not None:
                until_s = min(until_s, self._waits.next_s - EARLY_S)
            early_s = until_s - time.perf_counter()
            if early_s > 0:
                _sleep(early_s)


class GatheredReader:
    """One socket of a Gatherer."""

    __slots__ = ("_descriptor", "_read_ahead", "gatherer")

    def __init__(self, gatherer: Gatherer, descriptor: int, read_ahead: Callable[[], object]) -> None:
        self.gatherer, self._descriptor, self._read_ahead = gatherer, descriptor, read_ahead

    def start(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever the socket is readable; it must not raise."""
        self.gatherer.start(self._descriptor, callback, self._read_ahead)

    def stop(self) -> None:
        """Call nobody any longer."""
        self.gatherer.stop(self._descriptor)

    def close(self) -> None:
        """Let go of the socket, before it is closed; doing so twice is allowed."""
        self.gatherer.forget(self._descriptor)
        self._descriptor = -1  # another socket may have the number from now on


_gatherers: WeakKeyDictionary[Any, dict[float, Gatherer | None]] = WeakKeyDictionary()  # by hub, and by pause


def reader(descriptor: int, read_ahead: Callable[[], object], *, stamped: bool) -> Reader:
    """Return the reader of a socket.

    Where the kernel does not stamp what arrives, nothing is ever put off, and `read_ahead` is called before the
    callback: it reads and keeps what has arrived, and raises nothing.
    """
    hub = get_hub()
    own = _gatherers.setdefault(hub, {})
    gather_s = GATHER_S if stamped else 0.0
    if gather_s not in own:
        own[gather_s] = _gatherer(gather_s)
    gatherer = own[gather_s]
    if gatherer is None:
        watcher: Reader = cast(Any, hub.loop.io(descriptor, _READABLE))
        return watcher
    return GatheredReader(gatherer, descriptor, read_ahead)


def _gatherer(gather_s: float) -> Gatherer | None:
    """Return a gatherer of this hub; None where the system has no epoll."""
    try:
        return Gatherer(gather_s)
    except (OSError, AttributeError):
        return None
