"""Sockets read together: nobody is missed, nobody is called who has stopped, and closing leaves nothing behind."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Iterator
from itertools import pairwise

import gevent
import pytest
from gevent.hub import get_hub

from loadtest.drive import gather
from loadtest.drive.gather import FEW, GATHER_S, GatheredReader, Gatherer, reader

Pairs = list[tuple[socket.socket, socket.socket]]


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
    readers = [reader(near.fileno(), stamped=True) for near, _ in pairs]
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
            gatherer.start(near.fileno(), lambda s=near: s.recv(1))
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
    stamped, plain = (reader(pairs[0][0].fileno(), stamped=given) for given in (True, False))
    assert isinstance(stamped, GatheredReader)
    assert isinstance(plain, GatheredReader)
    assert (stamped._gatherer._gather_s, plain._gatherer._gather_s) == (GATHER_S, 0.0)


def test_a_callback_that_stops_another_of_the_same_batch_silences_it(pairs: Pairs) -> None:
    (first, one), (second, two) = pairs[:2]
    readers = [reader(each.fileno(), stamped=True) for each in (first, second)]
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
    gatherer.start(near.fileno(), lambda: None)
    gatherer.stop(near.fileno())
    gatherer.stop(near.fileno())
    far.send(b"stray")
    gevent.sleep(0.02)
    assert near.fileno() not in gatherer._registered
    heard: list[bytes] = []
    gatherer.start(near.fileno(), lambda: heard.append(near.recv(100)))
    gevent.sleep(0.02)
    assert heard == [b"stray"]
    gatherer.forget(near.fileno())
    assert not gatherer._registered
    assert not gatherer._watcher.ref


def test_a_reader_that_is_closed_twice_silences_no_other_socket_of_its_number(pairs: Pairs) -> None:
    near, far = pairs[0]
    old, new = (reader(near.fileno(), stamped=True) for _ in range(2))
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
        one = reader(pairs[number][0].fileno(), stamped=True)
        assert isinstance(one, GatheredReader)
        return one._gatherer

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
    watcher = reader(near.fileno(), stamped=True)
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
    one = reader(near.fileno(), stamped=True)
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
