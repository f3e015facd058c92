"""Sockets read together: nobody is missed, nobody is called who has stopped, and closing leaves nothing behind."""

from __future__ import annotations

import math
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from itertools import pairwise

import gevent
import pytest
from gevent.hub import get_hub

from loadtest.drive import gather
from loadtest.drive.gather import AT_ONCE, FEW, GATHER_S, GatheredReader, Gatherer, busy_since_ns, reader

Pairs = list[tuple[socket.socket, socket.socket]]


def nothing() -> None:
    """Read nothing ahead."""


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    made = [socket.socketpair() for _ in range(FEW + 6)]
    for near, far in made:
        near.setblocking(False)
        far.setblocking(False)
    yield made
    for near, far in made:
        near.close()
        far.close()


def test_all_are_read_and_each_by_its_own_callback(pairs: Pairs) -> None:
    readers = [reader(near.fileno(), nothing, stamped=True) for near, _ in pairs]
    came: dict[int, bytes] = {}
    for number, (near, _) in enumerate(pairs):
        readers[number].start(lambda n=number, s=near: came.__setitem__(n, came.get(n, b"") + s.recv(100)))
    for number, (_, far) in enumerate(pairs):
        far.send(b"%d" % number)
    gevent.sleep(0.05)
    pairs[3][1].send(b"!")
    gevent.sleep(0.05)
    for one in readers:
        one.close()
    assert came == {n: b"%d" % n + b"!" * (n == 3) for n in range(len(pairs))}


def test_many_streams_are_read_in_batches_and_few_at_once(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(gather, "_sleep", slept.append)

    def run(count: int, gather_s: float) -> int:
        slept.clear()
        gatherer = Gatherer(gather_s)
        for near, _ in pairs[:count]:
            gatherer.start(near.fileno(), lambda s=near: s.recv(1), nothing)
        for _, far in pairs[:count]:
            far.send(b"xy")  # each is ready at two wakes that follow each other
        gevent.sleep(0.02)
        for near, _ in pairs[:count]:
            gatherer.forget(near.fileno())
        return len(slept)

    pause_s = 10.0  # so that however slow this machine is, the second wake comes within it
    assert run(FEW, pause_s) >= 1
    assert all(0 < seconds <= pause_s for seconds in slept)
    assert run(FEW - 1, pause_s) == 0
    assert run(FEW, 0.0) == 0


def test_what_the_kernel_does_not_stamp_is_never_put_off(pairs: Pairs) -> None:
    stamped, plain = (reader(pairs[0][0].fileno(), nothing, stamped=given) for given in (True, False))
    assert isinstance(stamped, GatheredReader)
    assert isinstance(plain, GatheredReader)
    assert (stamped.gatherer._gather_s, plain.gatherer._gather_s) == (GATHER_S, 0.0)


def test_where_the_read_is_the_stamp_all_that_has_come_is_read_before_more_than_a_few_are_parsed(pairs: Pairs) -> None:
    done: list[str] = []

    def read(near: socket.socket) -> None:
        done.append("read")
        near.recv(100)

    def parse() -> None:
        done.append("parse")
        if done.count("parse") == 1:  # what comes while others are parsed is read before the rest of them
            pairs[-1][1].send(b"y")

    readers = [reader(near.fileno(), lambda n=near: read(n), stamped=False) for near, _ in pairs]
    for one in readers:
        one.start(parse)
    for _, far in pairs[:-1]:
        far.send(b"x")
    gevent.sleep(0.05)
    for one in readers:
        one.close()
    first = len(pairs) - 1
    assert done == ["read"] * first + ["parse"] * AT_ONCE + ["read"] + ["parse"] * (len(pairs) - AT_ONCE)


def test_a_socket_that_stays_readable_is_read_ahead_once_for_each_turn(pairs: Pairs) -> None:
    ahead: list[int] = []
    turns: list[int] = []
    readers = [reader(near.fileno(), lambda n=number: ahead.append(n), stamped=False)
               for number, (near, _) in enumerate(pairs)]  # fmt: skip

    def turn(number: int) -> None:
        turns.append(number)
        readers[number].stop()

    for number, one in enumerate(readers):
        one.start(lambda n=number: turn(n))
    for _, far in pairs:
        far.close()
    gevent.sleep(0.05)
    for one in readers:
        one.close()
    assert sorted(turns) == list(range(len(pairs)))
    assert sorted(ahead) == sorted(turns)


def test_others_of_the_hub_have_their_turn_while_much_is_parsed(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "AHEAD_S", 0.0)
    done: list[str] = []
    readers = [reader(near.fileno(), nothing, stamped=False) for near, _ in pairs[:12]]
    for one, (near, _) in zip(readers, pairs, strict=False):
        one.start(lambda n=near: done.append("parse") if n.recv(100) else None)
    for _, far in pairs[:12]:
        far.send(b"x")

    def other() -> None:
        for _ in range(3):
            done.append("other")
            gevent.sleep(0)

    gevent.spawn(other)
    gevent.sleep(0.05)
    for each in readers:
        each.close()
    assert done.count("parse") == 12
    assert done.index("other") < 11 - done[::-1].index("parse") + 3


def test_the_pause_leaves_off_before_somebody_is_due(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(gather, "_sleep", slept.append)
    gatherer = Gatherer(10.0)
    waits = gatherer._waits
    assert waits is not None
    for near, _ in pairs[:FEW]:
        gatherer.start(near.fileno(), nothing, nothing)
    gatherer._ended_s = time.perf_counter()
    monkeypatch.setattr(waits, "next_s", gatherer._ended_s + 5.0)
    gatherer._pause()
    monkeypatch.setattr(waits, "next_s", gatherer._ended_s)
    gatherer._pause()
    monkeypatch.setattr(waits, "next_s", math.inf)
    gatherer._pause()
    for near, _ in pairs[:FEW]:
        gatherer.forget(near.fileno())
    assert [round(seconds) for seconds in slept] == [5, 10]


def test_what_waited_for_a_busy_hub_is_told_from_what_waited_elsewhere(pairs: Pairs) -> None:
    (near, far), (other, another) = pairs[:2]
    one, busy = (reader(each.fileno(), nothing, stamped=True) for each in (near, other))
    since: list[float] = []
    came_ns: list[int] = []

    def say() -> None:
        time.sleep(0.01)
        came_ns.append(time.perf_counter_ns())
        far.send(b"a")  # it comes while the hub waits

    def take() -> None:
        near.recv(100)
        since.append(busy_since_ns(one))

    def keep_busy() -> None:
        other.recv(100)
        came_ns.append(time.perf_counter_ns())
        far.send(b"b")  # it comes while the hub does something else
        end_s = time.perf_counter() + 0.01
        while time.perf_counter() < end_s:
            pass

    one.start(take)
    busy.start(keep_busy)
    speaker = threading.Thread(target=say)
    speaker.start()
    gevent.sleep(0.03)
    another.send(b"x")
    gevent.sleep(0.05)
    speaker.join()
    one.close()
    busy.close()
    assert since[0] > came_ns[0]  # the hub had waited for it
    assert since[1] < came_ns[1]  # it has been busy since before that came


def test_a_hub_that_never_waits_is_busy_all_along(pairs: Pairs) -> None:
    """Also where other work lies between two batches, and where more is readable than one batch takes."""
    near, far = pairs[0]
    one = reader(near.fileno(), nothing, stamped=True)
    since: list[float] = []

    def take() -> None:
        near.recv(100)
        since.append(busy_since_ns(one))
        end_s = time.perf_counter() + 0.003
        while time.perf_counter() < end_s:
            pass
        if len(since) < 5:
            far.send(b"b")

    one.start(take)
    gevent.sleep(0.01)
    far.send(b"a")
    gevent.sleep(0.1)
    one.close()
    assert len(since) == 5
    assert len(set(since)) == 1


def test_a_callback_that_stops_another_of_the_same_batch_silences_it(pairs: Pairs) -> None:
    (first, one), (second, two) = pairs[:2]
    readers = [reader(each.fileno(), nothing, stamped=True) for each in (first, second)]
    called: list[int] = []

    def stops(own: int, other: int) -> None:
        called.append(own)
        readers[own].stop()
        readers[other].stop()

    readers[0].start(lambda: stops(0, 1))
    readers[1].start(lambda: stops(1, 0))
    one.send(b"x")
    two.send(b"x")
    gevent.sleep(0.05)
    assert len(called) == 1
    for each in readers:
        each.close()


def test_what_comes_between_two_requests_does_not_keep_the_hub_awake(pairs: Pairs) -> None:
    near, far = pairs[0]
    gatherer = Gatherer(GATHER_S)
    gatherer.start(near.fileno(), lambda: None, nothing)
    gatherer.stop(near.fileno())
    gatherer.stop(near.fileno())
    far.send(b"stray")
    gevent.sleep(0.02)
    assert near.fileno() not in gatherer._registered
    heard: list[bytes] = []
    gatherer.start(near.fileno(), lambda: heard.append(near.recv(100)), nothing)
    gevent.sleep(0.02)
    assert heard == [b"stray"]
    gatherer.forget(near.fileno())
    assert not gatherer._registered
    assert not gatherer._watcher.ref


def test_a_reader_that_is_closed_twice_silences_no_other_socket_of_its_number(pairs: Pairs) -> None:
    near, far = pairs[0]
    old, new = (reader(near.fileno(), nothing, stamped=True) for _ in range(2))
    old.start(lambda: None)
    old.close()  # and its socket; the next one gets the number
    heard: list[bytes] = []
    new.start(lambda: heard.append(near.recv(100)))
    old.stop()
    old.close()
    far.send(b"x")
    gevent.sleep(0.02)
    new.close()
    assert heard == [b"x"]


def test_each_thread_has_a_gatherer_of_its_own(pairs: Pairs) -> None:
    def gatherer(number: int) -> Gatherer:
        one = reader(pairs[number][0].fileno(), nothing, stamped=True)
        assert isinstance(one, GatheredReader)
        return one.gatherer

    others: list[Gatherer] = []

    def other() -> None:
        others.append(gatherer(1))
        get_hub().destroy(destroy_loop=True)

    get_hub().threadpool.apply(other)  # a thread of the system, also where the standard library is patched
    assert others[0] is not gatherer(0)
    assert gatherer(0) is gatherer(2)


def test_where_there_is_no_epoll_the_hub_watches_by_itself(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_gatherer", lambda gather_s: None)
    monkeypatch.setattr(gather, "_gatherers", weakref.WeakKeyDictionary())
    near, far = pairs[0]
    watcher = reader(near.fileno(), nothing, stamped=True)
    assert not isinstance(watcher, GatheredReader)
    heard: list[bytes] = []
    watcher.start(lambda: heard.append(near.recv(100)))
    for word in (b"a", b"b"):
        far.send(word)
        gevent.sleep(0.02)
    watcher.stop()
    watcher.close()
    assert heard == [b"a", b"b"]


def test_events_of_one_socket_keep_their_order(pairs: Pairs) -> None:
    near, far = pairs[0]
    one = reader(near.fileno(), nothing, stamped=True)
    heard: list[int] = []
    one.start(lambda: heard.extend(near.recv(3)))
    for number in range(60):
        far.send(bytes([number]))
        if number % 7 == 0:
            gevent.sleep(0.001)
    gevent.sleep(0.05)
    one.close()
    assert all(a + 1 == b for a, b in pairwise(heard))
    assert len(heard) == 60
