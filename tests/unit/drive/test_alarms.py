from __future__ import annotations

import time

import gevent
import pytest

from loadtest.drive import alarms as alarms_module
from loadtest.drive.alarms import GRAIN_S, Alarms


def test_alarms_ring_in_the_order_of_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    alarms, rung, now_s = Alarms(), [], time.perf_counter()
    with monkeypatch.context() as patch:
        patch.setattr(alarms_module.time, "perf_counter", lambda: now_s)  # a busy machine must not change the order
        for number, delay_s in enumerate([0.06, 0.02, 0.04, 0.02]):
            alarms.after(delay_s, lambda number=number: rung.append(number))
    gevent.sleep(0.3)
    assert rung == [1, 3, 2, 0]


def test_none_rings_early() -> None:
    alarms, early_s = Alarms(), []
    for delay_s in (0.05, 0.001, 0.1, 0.0):
        due_s = time.perf_counter() + delay_s
        alarms.after(delay_s, lambda due_s=due_s: early_s.append(due_s - time.perf_counter()))
    gevent.sleep(0.4)
    assert len(early_s) == 4
    assert max(early_s) <= 0


def test_an_earlier_alarm_does_not_wait_for_a_later_one() -> None:
    alarms, rung = Alarms(), []
    later = alarms.after(60.0, lambda: rung.append("later"))
    alarms.after(0.01, lambda: rung.append("earlier"))
    gevent.sleep(0.3)
    assert rung == ["earlier"]
    alarms.call_off(later)


def test_what_is_called_off_does_not_ring() -> None:
    alarms, rung = Alarms(), []
    first = alarms.after(0.01, lambda: rung.append("first"))
    alarms.after(0.02, lambda: rung.append("second"))
    alarms.call_off(first)
    gevent.sleep(0.2)
    assert rung == ["second"]


def test_an_alarm_may_set_another_one() -> None:
    alarms, rung = Alarms(), []

    def ring() -> None:
        rung.append(len(rung))
        if len(rung) < 3:
            alarms.after(0.0, ring)

    alarms.after(0.0, ring)
    gevent.sleep(0.3)
    assert rung == [0, 1, 2]


@pytest.mark.parametrize("number", [1000])
def test_many_alarms_share_few_timers(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alarms, rung, sets = Alarms(), [], []
    made = Alarms._set
    monkeypatch.setattr(Alarms, "_set", lambda self, now_s: (sets.append(now_s), made(self, now_s)))
    for i in range(number):
        alarms.after(0.02 + i * GRAIN_S / number, lambda i=i: rung.append(i))
    time.sleep(0.05)  # all are due when the hub comes to them, however busy the machine is
    gevent.sleep(0.3)
    assert rung == list(range(number))
    assert len(sets) <= 4


def test_the_timer_is_set_for_no_alarm_that_was_called_off() -> None:
    alarms, rung = Alarms(), []
    first = alarms.after(0.005, lambda: rung.append("first"))
    called_off = [alarms.after(0.01 + number * 1e-3, lambda: rung.append("called off")) for number in range(5)]
    for alarm in called_off:
        alarms.call_off(alarm)
    gevent.sleep(0.1)
    assert rung == ["first"]
    assert first not in alarms._alarms
    assert alarms._alarms == []
    assert alarms._timer is None
