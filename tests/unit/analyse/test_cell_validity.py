"""Each rule for a cell: broken, kept, and without data."""

from __future__ import annotations

from typing import Any

import pytest
from made_run import cell, request, table_of

from loadtest.analyse.counters import Deltas
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.analyse.validity import CellFacts, cell_marks, cell_unknowns
from loadtest.record import Request

GOOD = [request(session=i, body_hash=f"{i:x}") for i in range(20)]


def marks(rows: list[Request] | None = None, *, users: int = 1, thinks: bool = False, window: Deltas | None = None,
          whole: Deltas | None = None, **values: Any) -> list[tuple[str, bool]]:  # fmt: skip
    record = cell(**values)
    requests = derive(table_of(GOOD if rows is None else rows), [record])
    facts = CellFacts(measured=measure(requests, [record])[0], users=users, thinks=thinks, window=window, whole=whole,
                      rows=requests.cell(record))  # fmt: skip
    return [(mark.sentence, mark.invalid) for mark in cell_marks(facts)]


def test_a_good_cell_has_no_mark() -> None:
    assert marks() == []


ABSENT: dict[str, Any] = {
    "in_flight_mean": None,
    "lateness_p99_s": None,
    "client_cpu_ratio": None,
    "hub_lag_p99_s": None,
}


def test_what_was_not_measured_is_no_mark_and_is_named() -> None:
    assert marks(**ABSENT) == []
    record = cell(**ABSENT)
    requests = derive(table_of(GOOD), [record])
    facts = CellFacts(measured=measure(requests, [record])[0], users=1, thinks=False, rows=requests.cell(record))
    unknown = cell_unknowns(facts)
    assert unknown["load not reached"] == "requests in flight"
    assert unknown["late sends"] == "lateness of the sends"
    assert unknown["busy client"] == "the client's processor time"
    assert unknown["preemption"] == "the server's count of preemptions"
    assert "errors" not in unknown


@pytest.mark.parametrize(
    ("values", "sentence", "invalid"),
    [
        ({"state": "aborted", "reason": "20 failures in a row"}, "The cell was aborted: 20 failures in a row.", True),
        ({"state": "interrupted"}, "The cell was interrupted.", True),
        (
            {"users": 10, "in_flight_mean": 8.9},
            "The load was not reached: 8.9 in flight of 10 users (limit 90 %); see what held users up.",
            True,
        ),
        (
            {"lateness_p99_s": 0.0111},
            "The client sent late: p99 11.1 ms after due (limit 11.0 ms); give it a faster or less busy machine.",
            False,
        ),
        (
            {"lateness_p99_s": 0.034},
            "The client sent late: p99 34.0 ms after due (limit 11.0 ms); give it a faster or less busy machine.",
            True,
        ),
        (
            {"client_cpu_ratio": 0.93},
            "The client was busy 93 % of the window (limit 90 %); lower the load, or give it more --workers.",
            False,
        ),
        (
            {"client_cpu_ratio": 0.99},
            "The client was busy 99 % of the window (limit 90 %); lower the load, or give it more --workers.",
            True,
        ),
        (
            {"hub_lag_p99_s": 0.0125},
            "The client's timers fired late: p99 12.5 ms (limit 10 ms); give it a less busy machine.",
            False,
        ),
        (
            {"hub_lag_p99_s": 0.2},
            "The client's timers fired late: p99 200.0 ms (limit 10 ms); give it a less busy machine.",
            True,
        ),
        (
            {"window": Deltas(counters={"preemptions": 3.0})},
            "The server preempted 3 requests in the window (limit 0): its KV cache is full at this load.",
            False,
        ),
        ({"rows": GOOD[:9]}, "Only 9 requests fell due in the window (limit 10): lengthen it.", False),
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
    assert marks([])[0] == ("No request fell due in the window: lengthen it.", True)
    assert marks([])[1] == ("No request fell due in the window (limit 10): lengthen it.", False)


def test_failures_are_shown_and_excuse_a_load_that_was_not_reached() -> None:
    rows = [*GOOD, request(session=20, outcome="timeout"), request(session=21, outcome="http_error")]
    reached = "The load was not reached: 5.0 in flight of 10 users (limit 90 %)"
    assert marks(rows, users=10, in_flight_mean=5.0) == [
        (f"{reached}, as users waited after failures; mend the failures.", False),
        ("2 of 22 requests failed (limit 1 %); the outcomes say how, the server's log may say why.", False),
    ]
    assert (
        marks([*(request(session=i, body_hash=f"{i:x}") for i in range(100)), request(session=100, outcome="timeout")])
        == []
    )


def test_a_failure_just_before_the_window_excuses_users_who_wait_in_it() -> None:
    early = request(
        session=20, body_hash="e", outcome="http_error", due_s=98.9, sent_s=98.9, chunk_s=[], chunk_tokens=[]
    )
    found = marks([*GOOD, early], users=10, in_flight_mean=8.9)
    assert [invalid for _, invalid in found] == [False]
    assert "as users waited after failures" in found[0][0]


def test_a_cell_of_failures_alone_is_measured() -> None:
    found = marks(
        [request(session=i, body_hash=f"{i:x}", outcome="timeout", chunk_s=[], chunk_tokens=[]) for i in range(12)]
    )
    assert found == [
        ("12 of 12 requests failed (limit 1 %); the outcomes say how, the server's log may say why.", False)
    ]


def test_client_and_server_must_count_the_same() -> None:
    fewer = Deltas(counters={"generation_tokens": 133.0, "requests": 19.0})
    said = "The server counted 133 tokens where the client counted 140 and 19 requests where the client counted 20"
    why = "other traffic, lost answers, or replicas whose metrics were not read"
    assert marks(whole=fewer) == [(f"{said} (limit: none apart): {why}.", False)]


@pytest.mark.parametrize(("served", "sent", "invalid"), [(103.0, 100, True), (102.0, 100, False), (100.0, 100, None)])
def test_a_server_that_ends_more_than_the_client_sends_has_other_traffic(
    served: float, sent: int, invalid: bool | None
) -> None:
    """It holds where requests failed too, since every one that was sent counts."""
    rows = [request(session=i, body_hash=f"{i:x}", outcome="timeout" if i < 1 else "ok") for i in range(sent)]
    said = f"The server ended {served:.0f} requests and the client sent {sent} (limit of others 2 %): it had other"
    found = marks(rows, whole=Deltas(counters={"requests": served}))
    assert found == ([] if invalid is None else [(f"{said} traffic; measure it alone.", invalid)])


def test_counts_are_not_compared_when_something_failed() -> None:
    other = Deltas(counters={"generation_tokens": 9999.0})
    assert [m for m in marks([*GOOD, request(outcome="timeout")], whole=other) if "server counted" in m[0]] == []


def test_the_mark_that_invalidates_comes_first() -> None:
    found = marks(GOOD[:5], client_cpu_ratio=0.99)
    assert [invalid for _, invalid in found] == [True, False]


def test_a_prompt_that_comes_again_is_a_repeat_even_where_the_first_came_before_the_window() -> None:
    early = request(session=50, body_hash="0", due_s=98.5)
    rows = [early, *GOOD]
    assert marks(rows) == []  # 1 of 20 is the limit
    said = "2 of 20 requests repeated an earlier one of the cell (limit 5 %): caches and drafts from memory gain by it;"
    assert marks([*rows, request(session=51, body_hash="1", due_s=98.6)]) == [(f"{said} give more prompts.", False)]


def test_repeats_before_the_window_are_not_counted() -> None:
    early = [request(session=50 + i, body_hash="e", due_s=98.5) for i in range(10)]
    assert marks([*early, *GOOD]) == []


def test_a_late_client_is_invalid_from_three_times_the_limit_on() -> None:
    assert [invalid for _, invalid in marks(lateness_p99_s=0.0329)] == [False]
    assert [invalid for _, invalid in marks(lateness_p99_s=0.0331)] == [True]


def test_later_turns_may_find_their_history_in_the_cache() -> None:
    assert marks([request(session=i, turn=1, body_hash=f"{i:x}", cached_tokens=20) for i in range(20)]) == []
