"""The account of the time to first token, term by term."""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_run import BASE, SPEC, cell

from loadtest.analyse.counters import Deltas
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import FirstToken
from loadtest.analyse.first_tokens import TERMS, by_cell, change, first_token, terms
from loadtest.analyse.results import ArmLevel
from loadtest.record import Scrape


def grown(**counters: float) -> Deltas:
    return Deltas(counters=counters)


def test_terms_add_up_to_what_the_client_saw() -> None:
    found = terms(0.100, grown(first_token_seconds=9.0, first_tokens=100, queue_seconds=2.0, queued=100,
                               prefill_seconds=6.0, prefilled=100))  # fmt: skip
    assert found == pytest.approx({"outside": 0.01, "front": 0.01, "queue": 0.02, "prefill": 0.06})
    assert sum(found.values()) == pytest.approx(0.100)
    assert set(found) == set(TERMS)


def test_what_the_server_does_not_count_is_absent() -> None:
    found = terms(0.1, grown(first_token_seconds=9.0, first_tokens=100))
    assert found["outside"] == pytest.approx(0.01)
    assert math.isnan(found["queue"])
    assert math.isnan(found["front"])
    assert all(math.isnan(value) for value in terms(0.1, grown()).values())


def row(arm: str, client: float) -> ArmLevel:
    return ArmLevel(arm=arm, level=8.0, requests=10, failed=0, means={"ttft": Estimate(value=client)}, kv_use=0.5)


def arm_of(arm: str, client: float, **values: Any) -> FirstToken:
    return FirstToken(arm=arm, level=8.0, client_s=client, **values)


def changed(queue: float, prefill: float, outside: float = 0.0, **second: Any) -> Any:
    found = {0: dict.fromkeys(TERMS, 0.02), 1: {"outside": 0.02 + outside, "front": 0.02, "queue": 0.02 + queue,
                                                "prefill": 0.02 + prefill}}  # fmt: skip
    found |= {2: found[0], 3: found[1]}
    client = {number: sum(parts.values()) for number, parts in found.items()}
    arms = (arm_of(BASE, client[0], cache_hit_ratio=0.92, preemptions=0), arm_of(SPEC, client[1], **second))
    return change(8.0, [(0, 1), (2, 3)], found, client, arms)


def test_the_term_that_grew_most_is_named() -> None:
    by_prefill = changed(0.01, 0.03)
    assert by_prefill.term == "prefill"
    assert by_prefill.total_s.value == pytest.approx(0.04)
    assert by_prefill.terms_s["queue"].value == pytest.approx(0.01)
    assert by_prefill.sentence == "At 8 users first tokens come 40 ms later; prefill grew most (+30 ms)."
    assert changed(0.03, 0.01).term == "queue"
    said = "At 8 users first tokens come 1.7 s later; prefill grew most (+1.69 s)."
    assert changed(0.01, 1.69).sentence == said  # not 1.69e+03 ms
    said = "At 8 users first tokens come 40 ms later; prefill grew most (+90 ms, others shrank)."
    assert changed(-0.05, 0.09).sentence == said
    assert changed(0.0, 0.01, outside=0.02).sentence.startswith(
        "At 8 users first tokens come 30 ms later; the way to the server and back grew most"
    )


def test_a_cache_that_hits_less_and_preemptions_are_said() -> None:
    found = changed(0.01, 0.03, cache_hit_ratio=0.71, preemptions=4)
    assert found.sentence.endswith(
        "(+30 ms); by the servers' counters prefix-cache hits fell from 92 % to 71 %; 4 preemptions instead of 0."
    )
    assert "cache" not in changed(0.01, 0.03, cache_hit_ratio=0.915).sentence


def test_nothing_is_named_when_it_does_not_grow() -> None:
    for queue, prefill in ((0.0, 0.0), (-0.01, 0.005), (0.001, 0.001)):  # the last: 2.5 % of 80 ms
        found = changed(queue, prefill)
        assert (found.term, found.sentence) == ("", "")


def test_an_arm_at_a_level_from_its_cells() -> None:
    cells = [cell(0), cell(1, block=1)]
    names = ("vllm:time_to_first_token_seconds", "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds")
    scrapes = {}
    for number, factor in ((0, 1.0), (1, 3.0)):
        values = {name + "_count": 10.0 for name in names}
        values |= {name + "_sum": factor * s for name, s in zip(names, (0.9, 0.2, 0.6), strict=True)}
        values |= {"vllm:prefix_cache_queries_total": 100.0, "vllm:prefix_cache_hits_total": 25.0 * factor,
                   "vllm:num_preemptions_total": factor}  # fmt: skip
        scrapes[number] = [Scrape(t_s=t, arm=BASE, cell=number, moment=m, values={k: t * v for k, v in values.items()})
                           for t, m in ((0.0, "window_open"), (1.0, "window_close"))]  # fmt: skip
    client = {0: 0.1, 1: 0.3}
    found = first_token(row(BASE, 0.2), cells, by_cell(cells, client, scrapes), scrapes)
    assert (found.client_s, found.queue_s, found.prefill_s) == pytest.approx((0.2, 0.04, 0.12))
    assert (found.outside_s, found.front_s) == pytest.approx((0.02, 0.02))
    assert (found.cache_hit_ratio, found.preemptions, found.kv_use) == (0.5, 4, 0.5)
    nothing = first_token(row(BASE, 0.2), cells, by_cell(cells, client, {}), {})
    assert (nothing.client_s, nothing.queue_s, nothing.preemptions) == (0.2, None, None)


def test_a_change_whose_interval_holds_none_is_said_to_be_unproven() -> None:
    terms = {number: dict.fromkeys(TERMS, size) for number, size in enumerate((0.02, 0.08, 0.02, 0.01))}
    client = {number: sum(parts.values()) for number, parts in terms.items()}  # +240 ms in one block, −40 in the other
    found = change(8.0, [(0, 1), (2, 3)], terms, client, (arm_of(BASE, 0.08), arm_of(SPEC, 0.18)))
    assert found.sentence.startswith("At 8 users first tokens come 100 ms later (not proven); ")
