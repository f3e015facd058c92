"""Each rule for a cell: broken, kept, and without data."""

from __future__ import annotations

from typing import Any

import pytest
from made_run import cell, request, table_of

from loadtest.analyse.counters import Deltas
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.analyse.validity import CELL_RULES, CellFacts, cell_marks
from loadtest.record import Request

GOOD = [request(session=i) for i in range(20)]


def marks(rows: list[Request] | None = None, *, users: int = 1, thinks: bool = False, window: Deltas | None = None,
          whole: Deltas | None = None, **values: Any) -> list[tuple[str, bool]]:  # fmt: skip
    record = cell(**values)
    measured = measure(derive(table_of(GOOD if rows is None else rows), [record]), [record])[0]
    facts = CellFacts(measured=measured, users=users, thinks=thinks, window=window, whole=whole)
    return [(mark.sentence, mark.invalid) for mark in cell_marks(facts)]


def test_a_good_cell_has_no_mark() -> None:
    assert marks() == []
    assert len({rule.__name__ for rule in CELL_RULES}) == 10
    assert all(rule.__doc__ for rule in CELL_RULES)


ABSENT: dict[str, Any] = {
    "in_flight_mean": None,
    "lateness_p99_s": None,
    "client_cpu_ratio": None,
    "hub_lag_p99_s": None,
}


def test_what_was_not_measured_is_no_mark() -> None:
    assert marks(**ABSENT) == []


@pytest.mark.parametrize(
    ("values", "sentence", "invalid"),
    [
        ({"state": "aborted", "reason": "20 failures in a row"}, "The cell was aborted: 20 failures in a row.", True),
        ({"state": "interrupted"}, "The cell was interrupted.", True),
        ({"users": 10, "in_flight_mean": 8.9}, "The load was not reached: 8.9 in flight of 10 users.", True),
        ({"lateness_p99_s": 0.0111}, "The client sent late: p99 11.1 ms after due, limit 11.0 ms.", False),
        ({"lateness_p99_s": 0.034}, "The client sent late: p99 34.0 ms after due, limit 11.0 ms.", True),
        ({"client_cpu_ratio": 0.93}, "The client was busy 93 % of the window.", False),
        ({"client_cpu_ratio": 0.99}, "The client was busy 99 % of the window.", True),
        ({"hub_lag_p99_s": 0.0125}, "The client's timers fired late: p99 12.5 ms.", False),
        ({"hub_lag_p99_s": 0.2}, "The client's timers fired late: p99 200.0 ms.", True),
        ({"window": Deltas(counters={"preemptions": 3.0})}, "The server preempted 3 requests in the window.", False),
        ({"rows": GOOD[:9]}, "Only 9 requests fell due in the window.", False),
    ],
)
def test_a_broken_rule_says_what_and_how_much(values: dict[str, Any], sentence: str, invalid: bool) -> None:
    assert marks(**values) == [(sentence, invalid)]


@pytest.mark.parametrize(
    "values",
    [
        {"users": 10, "in_flight_mean": 9.0},
        {"users": 10, "in_flight_mean": 2.0, "thinks": True},
        {"lateness_p99_s": 0.0109},
        {"client_cpu_ratio": 0.9},
        {"hub_lag_p99_s": 0.01},
        {"window": Deltas(counters={"preemptions": 0.0})},
        {"window": Deltas(counters={})},
        {"whole": Deltas(counters={"generation_tokens": 140.0, "requests": 20.0})},
        {"whole": Deltas(counters={})},
        {"rows": GOOD[:10]},
    ],
)
def test_a_kept_rule_is_silent(values: dict[str, Any]) -> None:
    assert marks(**values) == []


def test_an_empty_window() -> None:
    assert marks([], window_close_s=None)[0] == ("The window never opened and closed.", True)
    assert marks([])[0] == ("No request fell due in the window.", True)
    assert marks([])[1] == ("Only 0 requests fell due in the window.", False)


def test_failures_are_shown_and_excuse_a_load_that_was_not_reached() -> None:
    rows = [*GOOD, request(session=20, outcome="timeout"), request(session=21, outcome="http_error")]
    assert marks(rows, users=10, in_flight_mean=5.0) == [
        ("The load was not reached: 5.0 in flight of 10 users, as users waited after failures.", False),
        ("2 of 22 requests failed.", False),
    ]
    assert marks([*(request(session=i) for i in range(100)), request(session=100, outcome="timeout")]) == []


def test_a_cell_of_failures_alone_is_measured() -> None:
    found = marks([request(session=i, outcome="timeout", chunk_s=[], chunk_tokens=[]) for i in range(12)])
    assert found == [("12 of 12 requests failed.", False)]


def test_client_and_server_must_count_the_same() -> None:
    other = Deltas(counters={"generation_tokens": 147.0, "requests": 21.0})
    said = "The server counted 147 tokens where the client counted 140 and 21 requests where the client counted 20:"
    assert marks(whole=other) == [(f"{said} other traffic, or lost answers.", False)]


def test_counts_are_not_compared_when_something_failed() -> None:
    other = Deltas(counters={"generation_tokens": 9999.0})
    assert [m for m in marks([*GOOD, request(outcome="timeout")], whole=other) if "server counted" in m[0]] == []


def test_the_mark_that_invalidates_comes_first() -> None:
    found = marks(GOOD[:5], client_cpu_ratio=0.99)
    assert [invalid for _, invalid in found] == [True, False]
