"""The rules on the client itself, broken, kept and without data; and what a reader is told of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_run import Made, cell, header, request, table_of

from loadtest.analyse.client_notes import client_notes
from loadtest.analyse.judge import judge_data
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.analyse.validity import CELL_RULES, CellFacts, Mark, Unknown
from loadtest.record import Request

RULES = {rule.name: rule for rule in CELL_RULES}
GOOD = [request(session=i) for i in range(20)]  # gaps of 40, 40 and 60 ms


def checked(name: str, rows: list[Request] = GOOD, **values: Any) -> Mark | Unknown | None:
    record = cell(**values)
    measured = measure(derive(table_of(rows), [record]), [record])[0]
    return RULES[name].check(CellFacts(measured=measured, users=1, thinks=False))


@pytest.mark.parametrize(
    ("name", "values", "said", "invalid"),
    [
        ("client stood still", {"hub_lag_max_s": 1.2}, "The client stood still for 1.2 s (limit 1 s)", True),
        ("client stood still", {"suspended_s": 42.0}, "The client slept with its machine for 42.0 s (limit 1 s)", True),
        ("wall clock set", {"clock_steps": 2}, "The wall clock was set within the window (2 seen, limit 0)", False),
        ("coalesced chunks", {"coalesced_ratio": 0.06, "lag_p99_s": 0.001},
         "6 % of the chunks shared a read with an earlier one (limit 5 %): the server, or something before it", False),
        ("coalesced chunks", {"coalesced_ratio": 0.06, "lag_p99_s": 0.047},
         "6 % of the chunks shared a read with an earlier one (limit 5 %): the client read up to 47.0 ms late", True),
    ],
)  # fmt: skip
def test_a_broken_rule_says_how_much(name: str, values: dict[str, Any], said: str, invalid: bool) -> None:
    mark = checked(name, **values)
    assert isinstance(mark, Mark)
    assert mark.sentence.startswith(said)
    assert mark.invalid is invalid


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("client stood still", {"hub_lag_max_s": 0.9, "suspended_s": 0.5}),
        ("client stood still", {"hub_lag_max_s": 0.9, "suspended_s": None}),
        ("wall clock set", {"clock_steps": 0}),
        ("coalesced chunks", {"coalesced_ratio": 0.05, "lag_p99_s": 9.0}),
        ("failures in the client", {}),
    ],
)
def test_a_kept_rule_is_silent(name: str, values: dict[str, Any]) -> None:
    assert checked(name, **values) is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("client stood still", {"hub_lag_max_s": None}),
        ("wall clock set", {"clock_steps": None}),
        ("coalesced chunks", {"coalesced_ratio": None}),
    ],
)
def test_what_was_not_recorded_is_unknown(name: str, values: dict[str, Any]) -> None:
    assert isinstance(checked(name, **values), Unknown)


def test_a_lag_without_a_gap_to_hold_it_against_is_not_the_clients_fault() -> None:
    whole = [request(session=i, chunk_s=[100.2], chunk_tokens=[7]) for i in range(20)]
    mark = checked("coalesced chunks", whole, coalesced_ratio=0.5, lag_p99_s=9.0)
    assert isinstance(mark, Mark)
    assert not mark.invalid


def test_one_failure_in_the_client_invalidates_its_cell_and_another_kind_does_not() -> None:
    own = request(session=20, outcome="client_error", chunk_s=[], chunk_tokens=[], sent_s=math.nan)
    mark = checked("failures in the client", [*GOOD, own])
    assert isinstance(mark, Mark)
    assert mark.sentence.startswith("1 of 21 requests failed in the client (limit 0), not in the server")
    assert mark.invalid
    assert checked("failures in the client", [*GOOD, request(session=20, outcome="timeout")]) is None
    assert isinstance(checked("failures in the client", []), Unknown)


CALIBRATION = {
    "users": 64, "requests": 300, "missing": 0, "tokens_differ": 0, "first_error_p50_s": 0.0000123,
    "first_error_p99_s": 0.000087, "lateness_p99_s": 0.00042, "state": "complete",
}  # fmt: skip
FLOOR = (
    "The client's floor (its own error, against its null server at 64 users): 99 % of requests go out within 0.42 ms of"
    " their due time, and 99 % of first tokens are stamped within 0.087 ms (half within 0.012 ms). So about 0.42 ms"
    " of a latency may be the client's and no server's; what each cell had itself stands in the table of cells."
)
LOST = "2 of 300 answers lost and 1 of 300 answers miscounted"
ASKING = {
    "asked_ratio": 1.0, "why": "measured, and not above the limit", "measured": True, "arm": "baseline", "level": 32.0,
    "way": "continuous", "limit_ratio": 0.02, "cost_ratio": 0.0042, "cost_low": -0.0061, "cost_high": 0.0147,
}  # fmt: skip
COST = (
    "Asking for the tokens of each chunk changes the time per token by +0.4 % [−0.6, +1.5] (of baseline, at 32 users)."
)
UNCOUNTED = (
    "How many tokens a chunk has is not told by every server: tpot, token_gap, tokens_per_chunk and on_time have no"
    " data. A comparison without on_time cannot say that speculation pays at a level, since that guard is open;"
    " end-to-end times, times to first tokens and tokens per second of whole answers are not touched."
)
SAMPLE = (
    "10 % of the requests asked, the same in both arms: tpot, token_gap, tokens_per_chunk and on_time are theirs alone;"
    " tokens per second count all answers."
)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({}, ()),
        ({"calibration": None, "asking": None, "notes": ["a note of the run"]}, ("a note of the run",)),
        ({"calibration": CALIBRATION}, (FLOOR,)),
        ({"calibration": CALIBRATION | {"state": "aborted"}}, ()),
        ({"calibration": CALIBRATION | {"missing": 2, "tokens_differ": 1}},
         (f"{FLOOR} In calibration it had {LOST}: do not trust its counts.",)),
        ({"calibration": CALIBRATION | {"first_error_p50_s": None}}, ()),
        ({"asking": ASKING}, (COST,)),
        ({"asking": ASKING | {"cost_low": None, "cost_high": None}}, (COST.replace(" [−0.6, +1.5]", ""),)),
        ({"asking": ASKING | {"asked_ratio": 0.1, "cost_ratio": 0.0042}}, (f"{COST} {SAMPLE}",)),
        ({"asking": {"asked_ratio": 0.1, "why": "not measured", "measured": False}}, (SAMPLE,)),
        ({"asking": {"asked_ratio": 1.0, "why": "not measured: the servers are simulated", "measured": False}}, ()),
        ({"asking": {"asked_ratio": 0.0, "why": "the server does not say", "measured": False, "way": "none"}},
         (UNCOUNTED,)),
        ({"asking": {"asked_ratio": 1.0, "why": "could not be measured: it broke", "measured": False}},
         ("What asking for the tokens of each chunk costs could not be measured: it broke.",)),
        ({"calibration": "x", "asking": [1], "notes": {"a": 1}}, ()),
    ],
)  # fmt: skip
def test_what_a_reader_is_told_of_the_client(run: dict[str, Any], said: tuple[str, ...]) -> None:
    assert client_notes(run) == said


def test_it_stands_among_the_notes_of_a_judgement_of_two_arms_and_of_one() -> None:
    both = header(calibration=CALIBRATION, asking=ASKING)
    run, cells, scrapes, table = Made(blocks=2, levels=(1.0,), run=both).build()
    assert judge_data(run, cells, scrapes, table).notes[-2:] == (FLOOR, COST)
    alone = header(calibration=CALIBRATION, asking=ASKING, candidate=None)
    run, cells, scrapes, table = Made(blocks=2, levels=(1.0,), arms=("baseline",), run=alone).build()
    assert judge_data(run, cells, scrapes, table).notes[-2:] == (FLOOR, COST)
