"""The list of rules: each is broken by one case, kept by another, and never passes for want of data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from made_run import BASE, SPEC, cell, header, request, table_of

from loadtest.analyse.counters import Deltas
from loadtest.analyse.open_validity import RATE_SDS, most_by_chance
from loadtest.analyse.rules import CellFacts, Effect, Mark, Unknown
from loadtest.analyse.run_validity import RULES, RunFacts, twin_requests
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.analyse.validity import CELL_RULES
from loadtest.experiment import override
from loadtest.record import NOT_CARRIED, CellRecord, Request, Scrape

GOOD = [request(session=i, body_hash=f"{i:x}", cached_tokens=0) for i in range(20)]


def a_cell(rows: Sequence[Request] = GOOD, *, users: int = 1, window: dict[str, float] | None = None,
           whole: dict[str, float] | None = None, **values: Any) -> CellFacts:  # fmt: skip
    record = cell(**{"hub_lag_max_s": 0.01, "clock_steps": 0, "suspended_s": 0.0, **values})
    requests = derive(table_of(rows), [record])
    return CellFacts(
        measured=measure(requests, [record])[0], users=users, thinks=False,
        window=Deltas(counters=window) if window is not None else None,
        whole=Deltas(counters=whole) if whole is not None else None, rows=requests.cell(record),
    )  # fmt: skip


def an_open_cell(rate: float, count: int = 100, unfinished: int = 0, turns: int = 1,
                 users: Sequence[int] = (), **facts: Any) -> CellFacts:  # fmt: skip
    """A request every 0.1 s of the window of 10 s; the last ones end after it, the others at once."""
    rows = []
    for i in range(count):
        due_s = 99.05 + 10.0 * i / count
        end_s = due_s + (20.0 if i >= count - unfinished else 0.01)
        user = users[i] if users else i // turns
        rows.append(request(session=i // turns, user=user, turn=i % turns, level=rate, due_s=due_s, sent_s=due_s,
                            headers_s=due_s, first_visible_s=due_s, end_s=end_s, body_hash=f"{i:x}", chunk_s=[end_s],
                            chunk_tokens=[7]))  # fmt: skip
    made = a_cell(rows, level=rate)
    return replace(made, **{"closed": False, "unit": "requests/s", **facts})


def twins(count: int = 60, block: int = 0, *, base: dict[str, Any] | None = None,
          spec: dict[str, Any] | None = None) -> list[Request]:  # fmt: skip
    """The same requests to both arms, evenly due over the window of 99 to 109 s."""
    rows = []
    for i in range(count):
        due_s = 99.05 + 9.9 * i / count
        for number, arm, own in ((2 * block, BASE, base or {}), (2 * block + 1, SPEC, spec or {})):
            made = {name: value(i) if callable(value) else value for name, value in own.items()}
            decode_s = made.pop("decode_s", 0.1)
            rows.append(request(**{
                "cell": number, "arm": arm, "block": block, "session": i, "due_s": due_s, "sent_s": due_s,
                "body_hash": f"{i:x}", "cached_tokens": 0, "headers_s": due_s + 0.1, "first_visible_s": due_s + 0.1,
                "end_s": due_s + 0.1 + decode_s, "chunk_s": [due_s + 0.1, due_s + 0.1 + decode_s],
                "chunk_tokens": [1, 6], **made,
            }))  # fmt: skip
    return rows


DRAFTS = {"drafts": 50.0, "drafted": 150.0, "accepted": 60.0, "generation_tokens": 130.0, "first_tokens": 10.0,
          "steps": 60.0}  # fmt: skip
PLAIN = {"generation_tokens": 130.0, "first_tokens": 10.0, "steps": 120.0}
PROSE = {"coincidence": 0.01, "words": 5000}
EQUAL = [{"item": "dtype", "kind": "equal"}]


def a_run(rows: Sequence[Request] | None = None, *, base: dict[str, float] = PLAIN, spec: dict[str, float] = DRAFTS,
          blocks: int = 1, bodies: int = 0, pairs: int = 60, damage: tuple[str, ...] = (), valid: Sequence[int] = (),
          scrapes: dict[int, list[Scrape]] | None = None, levels: Sequence[float] = (1.0,),
          cells: Sequence[CellRecord] | None = None, **run: Any) -> RunFacts:  # fmt: skip
    if cells is None:
        cells = [cell(2 * block + side, arm=arm, block=block, level=levels[block % len(levels)])
                 for block in range(blocks) for side, arm in enumerate((BASE, SPEC))]  # fmt: skip
    requests = derive(table_of(twins() if rows is None else rows), cells)
    kept = [c for c in cells if not valid or c.cell in valid]
    return RunFacts(
        run=header(**{"prompts": PROSE, "comparability": EQUAL, **run}), baseline=BASE, candidate=SPEC, cells=cells,
        valid=kept, measured=measure(requests, cells), arm_levels=[],
        counters={BASE: Deltas(counters=base), SPEC: Deltas(counters=spec)}, bodies_differ=bodies, pairs=pairs,
        damage=damage, requests=requests, scrapes=scrapes or {}, twins=twin_requests(requests.frame, kept, BASE, SPEC),
    )  # fmt: skip


def drafting(first: float, second: float) -> dict[int, list[Scrape]]:
    """Counts of drafts that grow by so much in the candidate's windows of two blocks."""
    name = "vllm:spec_decode_num_drafts_total"
    found = {}
    for number, growth in ((1, first), (3, second)):
        found[number] = [
            Scrape(t_s=at, arm=SPEC, cell=number, moment=moment, values={name: 100.0 + grown})
            for at, moment, grown in ((99.0, "window_open", 0.0), (109.0, "window_close", growth))
        ]
    return found


def slow_late(i: int) -> float:
    """The second half of the window decodes at half the pace, with a little noise."""
    return (0.1 if i < 30 else 0.2) + 0.001 * (i % 3)


def in_one_piece() -> list[Request]:
    """Answers of nine chunks of the candidate that came in one read each, after a second."""

    def arrivals(i: int) -> list[float]:
        return [99.05 + 9.9 * i / 60 + 1.0 + 1e-5 * n for n in range(9)]

    spec = {"chunk_s": arrivals, "chunk_tokens": lambda _: [1] * 9, "coalesced": 8, "output_tokens": 9}
    return twins(base={"output_tokens": 9}, spec=spec)


def arm_with(**identity: Any) -> dict[str, Any]:
    config = {"speculative_config.method": "suffix"}
    return {"name": SPEC, "identity": {"config": config, **identity}}


def accepting(accepted: Callable[[int], float]) -> dict[int, list[Scrape]]:
    """Windows of the candidate in which a hundred tokens were drafted, and so many accepted."""
    drafted, taken = (f"vllm:spec_decode_num_{what}_tokens_total" for what in ("draft", "accepted"))
    return {
        2 * block + 1: [
            Scrape(t_s=99.0, arm=SPEC, cell=2 * block + 1, moment="window_open", values={drafted: 0.0, taken: 0.0}),
            Scrape(t_s=109.0, arm=SPEC, cell=2 * block + 1, moment="window_close",
                   values={drafted: 100.0, taken: accepted(block)}),
        ]
        for block in range(8)
    }  # fmt: skip


def verifying(generated: Callable[[int], float]) -> dict[int, list[Scrape]]:
    """Windows of an SGLang, which counts verifications and tokens, and neither drafted nor accepted ones."""
    names = ("sglang:spec_verify_calls_total", "sglang:generation_tokens_total",
             "sglang:time_to_first_token_seconds_count")  # fmt: skip
    return {
        2 * block + 1: [
            Scrape(t_s=99.0, arm=SPEC, cell=2 * block + 1, moment="window_open", values=dict.fromkeys(names, 0.0)),
            Scrape(t_s=109.0, arm=SPEC, cell=2 * block + 1, moment="window_close",
                   values=dict(zip(names, (100.0, generated(block), 10.0), strict=True))),
        ]
        for block in range(8)
    }  # fmt: skip


def kept_cache(facts: RunFacts, *, cache: str = "keep", ignore_eos: bool = False) -> RunFacts:
    """The same run with servers.cache and generation.ignore_eos set so."""
    experiment = override(override(facts.experiment, "servers", cache=cache), "generation", ignore_eos=ignore_eos)
    return replace(facts, experiment=experiment)


OTHERS = {"body_hash": lambda i: f"{1000 + i:x}"}
NAMELESS = {"body_hash": lambda _: ""}
NO_REQUESTS: list[Request] = []
STEADY = [row for block in range(3) for row in twins(block=block)]
DRIFTING = [row for block in range(3) for row in twins(block=block, spec={"decode_s": slow_late})]
UNCOUNTED = twins(base={"output_tokens": -1}, spec={"output_tokens": -1})
UNCACHED = twins(base={"cached_tokens": -1}, spec={"cached_tokens": -1})
SAME = [request(session=i, body_hash="aa") for i in range(20)]


@dataclass(frozen=True)
class Case:
    """A rule broken, kept, and without the data it reads."""

    red: Callable[[], Any]
    green: Callable[[], Any]
    no_data: Callable[[], Any]
    invalid: bool | None = None  # what the red case does; None: as the rule's effect says


CASES: dict[str, Case] = {
    "damaged records": Case(
        lambda: a_cell([*GOOD, GOOD[0]]), a_cell, lambda: a_cell(NO_REQUESTS)),
    "cell not complete": Case(
        lambda: a_cell(state="aborted"), a_cell, lambda: a_cell(window_open_s=None, window_close_s=None)),
    "load not reached": Case(
        lambda: a_cell(users=10, in_flight_mean=8.9), lambda: a_cell(users=10, in_flight_mean=9.0),
        lambda: a_cell(in_flight_mean=None), invalid=True),
    # 149 requests expected and 100 seen: 49 is more than four times √149 = 12.2; 48 is less than four times √148
    "rate not reached": Case(
        lambda: an_open_cell(14.9), lambda: an_open_cell(14.8), lambda: replace(an_open_cell(1.0), rows=None)),
    # ten in flight that were not before: more than three times √10 = 3.16; nine are just three times √9
    "arrivals exceed completions": Case(
        lambda: an_open_cell(10.0, unfinished=10), lambda: an_open_cell(10.0, unfinished=9),
        lambda: replace(an_open_cell(10.0), rows=None)),
    "late sends": Case(
        lambda: a_cell(lateness_p99_s=0.0111), lambda: a_cell(lateness_p99_s=0.0109),
        lambda: a_cell(lateness_p99_s=None), invalid=False),
    "busy client": Case(
        lambda: a_cell(client_cpu_ratio=0.91), lambda: a_cell(client_cpu_ratio=0.90),
        lambda: a_cell(client_cpu_ratio=None), invalid=False),
    "late timers": Case(
        lambda: a_cell(hub_lag_p99_s=0.0101), lambda: a_cell(hub_lag_p99_s=0.010), lambda: a_cell(hub_lag_p99_s=None),
        invalid=False),
    "client stood still": Case(
        lambda: a_cell(hub_lag_max_s=1.1), lambda: a_cell(hub_lag_max_s=1.0),
        lambda: a_cell(hub_lag_max_s=None, suspended_s=None)),
    "worker lost": Case(
        lambda: a_cell(workers={"w1": 2.0}, workers_lost=["w2"]), lambda: a_cell(workers={"w1": 2.0, "w2": 2.0}),
        lambda: a_cell(workers_lost=["w1"])),
    # the window is 10 s: 5 thousandths of it are 50 ms, and invalid from 150 ms on
    "clocks apart": Case(
        lambda: a_cell(workers={"w1": 4.0}, clock_bound_s={"w1": 0.051}),
        lambda: a_cell(workers={"w1": 4.0}, clock_bound_s={"w1": 0.049}),
        lambda: a_cell(workers={"w1": 4.0}), invalid=False),
    "word late": Case(
        lambda: a_cell(workers={"w1": 4.0}, word_late_s={"w1": 0.101}),
        lambda: a_cell(workers={"w1": 4.0}, word_late_s={"w1": 0.1}),
        lambda: a_cell(workers={"w1": 4.0}), invalid=False),
    "wall clock set": Case(
        lambda: a_cell(clock_steps=1), a_cell, lambda: a_cell(clock_steps=None)),
    "coalesced chunks": Case(
        lambda: a_cell(coalesced_ratio=0.06), lambda: a_cell(coalesced_ratio=0.05),
        lambda: a_cell(coalesced_ratio=None), invalid=False),
    "failures in the client": Case(
        lambda: a_cell([*GOOD, request(session=99, outcome="client_error")]), a_cell, lambda: a_cell(NO_REQUESTS)),
    "errors": Case(
        lambda: a_cell([*GOOD, request(session=99, outcome="http_error")]), a_cell, lambda: a_cell(NO_REQUESTS)),
    "several models": Case(
        lambda: a_cell(models=["tiny", "other"]), lambda: a_cell(models=["tiny"]), lambda: a_cell(models=[])),
    "preemption": Case(
        lambda: a_cell(window={"preemptions": 1.0}), lambda: a_cell(window={"preemptions": 0.0}),
        lambda: a_cell(window={})),
    "few requests": Case(lambda: a_cell(GOOD[:9]), lambda: a_cell(GOOD[:10]), lambda: a_cell(NO_REQUESTS)),
    "window too short": Case(
        lambda: a_cell(window_open_s=99.95, window_close_s=100.05),
        lambda: a_cell(window_open_s=99.75, window_close_s=100.05),
        lambda: a_cell([request(session=i, outcome="timeout", chunk_s=[], chunk_tokens=[]) for i in range(20)])),
    "repeated prompts": Case(
        lambda: a_cell(SAME), a_cell, lambda: a_cell([request(session=i, body_hash="") for i in range(20)])),
    "caches carried over between cells": Case(
        lambda: a_cell([request(session=i, cached_tokens=11) for i in range(20)]),
        lambda: a_cell([request(session=i, cached_tokens=10) for i in range(20)]),
        lambda: a_cell([request(session=i, cached_tokens=-1) for i in range(20)])),
    "foreign traffic": Case(
        lambda: a_cell(whole={"requests": 21.0}), lambda: a_cell(whole={"requests": 20.0}), lambda: a_cell(whole={}),
        invalid=True),
    "counts apart": Case(
        lambda: a_cell(whole={"generation_tokens": 139.0}), lambda: a_cell(whole={"generation_tokens": 140.0}),
        lambda: a_cell(whole={})),
    "rate limit": Case(
        lambda: a_cell([*GOOD, request(session=99, outcome="rate_limited")]), a_cell, lambda: a_cell(NO_REQUESTS)),
    "server restarted": Case(
        lambda: replace(a_cell(), restarted=True), lambda: replace(a_cell(), restarted=False), a_cell),
    "not comparable": Case(
        lambda: a_run(comparability=[{"item": "dtype", "kind": "violation"}]), a_run,
        lambda: a_run(comparability=[])),
    "speculation not active": Case(
        lambda: a_run(spec={**DRAFTS, "drafts": 0.0}), a_run,
        lambda: a_run(twins(base={"chunk_tokens": []}, spec={"chunk_tokens": []}), spec={}), invalid=True),
    "baseline speculates": Case(
        lambda: a_run(base=DRAFTS), a_run, lambda: a_run(base={}), invalid=True),
    "drafting stops": Case(
        lambda: a_run(STEADY[:240], blocks=2, levels=(1.0, 2.0), scrapes=drafting(50.0, 0.0)),
        lambda: a_run(STEADY[:240], blocks=2, levels=(1.0, 2.0), scrapes=drafting(50.0, 1.0)), a_run),
    "unequal lengths": Case(
        lambda: a_run(twins(base={"output_tokens": lambda i: 90 + i % 21},
                            spec={"output_tokens": lambda i: 110 + i % 21})),
        lambda: a_run(twins(base={"output_tokens": lambda i: 90 + i % 21},
                            spec={"output_tokens": lambda i: 98 + i % 21})),
        lambda: a_run(UNCOUNTED), invalid=True),
    "unequal finish reasons": Case(
        lambda: a_run(twins(spec={"finish_reason": lambda i: "length" if i % 3 == 0 else "stop"})),
        lambda: a_run(twins(spec={"finish_reason": lambda i: "length" if i % 20 == 0 else "stop"})),
        lambda: a_run(twins(29))),
    "draft does not fit": Case(
        lambda: a_run(spec={**DRAFTS, "accepted": 1.0}), lambda: a_run(spec={**DRAFTS, "accepted": 1.5}),
        lambda: a_run(spec=PLAIN)),
    "cache imbalance": Case(
        lambda: a_run(twins(base={"cached_tokens": 6}, spec={"cached_tokens": 4})),
        lambda: a_run(twins(base={"cached_tokens": lambda i: 4 + i % 2}, spec={"cached_tokens": 4})),
        lambda: a_run(UNCACHED)),
    "load not carried": Case(
        lambda: a_run(cells=[cell(0), cell(1, arm=SPEC), cell(2, arm=SPEC, block=1, state=NOT_CARRIED)], valid=(0, 1)),
        a_run, lambda: a_run(NO_REQUESTS, cells=())),
    "prompts differ": Case(lambda: a_run(bodies=4), a_run, lambda: a_run(pairs=0)),
    "nothing succeeded": Case(
        lambda: a_run(twins(spec={"outcome": "timeout", "chunk_s": [], "chunk_tokens": []})), a_run,
        lambda: a_run(NO_REQUESTS)),
    "not finished": Case(lambda: a_run(status="aborted"), a_run, lambda: a_run(status=None)),
    "contradictory records": Case(lambda: a_run(damage=("One.",)), a_run, lambda: a_run(NO_REQUESTS, cells=())),
    "nothing valid": Case(lambda: a_run(valid=(0,)), a_run, lambda: a_run(NO_REQUESTS, cells=())),
    "late steps": Case(
        lambda: a_run(simulated={"world": "default", "late_ratio": {BASE: 0.021}}),
        lambda: a_run(simulated={"world": "default", "late_ratio": {BASE: 0.02}}),
        lambda: a_run(simulated={"world": "default"})),
    "cells left out": Case(lambda: a_run(valid=(0,)), a_run, lambda: a_run(NO_REQUESTS, cells=())),
    "not steady": Case(
        lambda: a_run(DRIFTING, blocks=3), lambda: a_run(STEADY, blocks=3), lambda: a_run(STEADY[:120], blocks=1)),
    "random prompts": Case(
        lambda: a_run(prompts={"coincidence": 0.0005, "words": 5000}), a_run, lambda: a_run(prompts=None)),
    "forced answers": Case(
        lambda: kept_cache(a_run(), cache="salt", ignore_eos=True), a_run, lambda: a_run(experiment=None)),
    "asked in other cells": Case(
        lambda: kept_cache(a_run([*twins(), *twins(block=1)], blocks=2)),
        lambda: kept_cache(a_run([*twins(), *twins(block=1, base=OTHERS, spec=OTHERS)], blocks=2)),
        lambda: kept_cache(a_run(twins(base=NAMELESS, spec=NAMELESS)))),
    "streams held back": Case(
        lambda: a_run(in_one_piece()), a_run, lambda: a_run(NO_REQUESTS, cells=())),
    "unusual acceptance": Case(
        lambda: a_run(arms=[arm_with(modes=["faked acceptance"])]), lambda: a_run(arms=[arm_with(modes=[])]), a_run),
    "drafter learns": Case(
        lambda: a_run(arms=[arm_with(remembers=True)], blocks=8, scrapes=accepting(lambda i: 30.0 + 5 * i)),
        lambda: a_run(arms=[arm_with(remembers=True)], blocks=8, scrapes=accepting(lambda i: 50.0 + (i * 5) % 3)),
        lambda: a_run(arms=[arm_with(remembers=True)])),
}  # fmt: skip


def test_a_drafter_that_accepts_the_same_everywhere_shows_no_trend() -> None:
    (learns,) = (rule for rule in RULES if rule.name == "drafter learns")
    facts = a_run(arms=[arm_with(remembers=True)], blocks=8, scrapes=accepting(lambda _: 100.0))
    assert learns.check(facts) is None  # and SciPy, which warns of what does not vary, is not asked


def test_a_drafter_whose_server_counts_no_drafted_tokens_is_judged_by_tokens_per_step() -> None:
    (learns,) = (rule for rule in RULES if rule.name == "drafter learns")
    rising = a_run(arms=[arm_with(remembers=True)], blocks=8, scrapes=verifying(lambda i: 200.0 + 10 * i))
    told = learns.check(rising)
    assert isinstance(told, Mark)
    assert "its acceptance rose as the run went on (rank correlation 1.00" in told.sentence
    steady = a_run(arms=[arm_with(remembers=True)], blocks=8, scrapes=verifying(lambda i: 200.0 + (i * 5) % 3))
    assert learns.check(steady) is None


def test_every_rule_has_its_three_cases() -> None:
    assert list(CASES) == [rule.name for rule in RULES]
    assert all(rule.reads and rule.limit for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_broken_kept_and_never_passed_without_data(rule: Any) -> None:
    case = CASES[rule.name]
    broken = rule.check(case.red())
    assert isinstance(broken, Mark), broken
    expected = {Effect.INVALID: True, Effect.FLAG: False, Effect.EITHER: case.invalid}[rule.effect]
    assert broken.invalid is expected, broken.sentence
    assert rule.check(case.green()) is None
    assert isinstance(rule.check(case.no_data()), Mark | Unknown)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_broken_rule_breaks_no_other_that_invalidates(rule: Any) -> None:
    """The cases show their own rule: what else they break is only ever a flag, or follows from it."""
    facts = CASES[rule.name].red()
    others = CELL_RULES if isinstance(facts, CellFacts) else [r for r in RULES if r.level.value != "cell"]
    found = {other.name for other in others if isinstance(m := other.check(facts), Mark) and m.invalid}
    follows = {"cells left out": {"nothing valid"}, "nothing succeeded": set()}
    assert found - {rule.name} <= follows.get(rule.name, set())


def test_chance_is_wider_where_gaps_vary_more_and_sessions_have_several_turns() -> None:
    rules = {rule.name: rule.check for rule in CELL_RULES}
    assert rules["rate not reached"](an_open_cell(16.0)) is not None
    assert rules["rate not reached"](an_open_cell(16.0, gap_cv=2.0)) is None  # 60 apart, four sd of 2 · √160 = 25
    assert rules["arrivals exceed completions"](an_open_cell(10.0, unfinished=20, gap_cv=2.0)) is None


def test_chance_is_wider_where_sessions_differ_in_their_turns_and_a_trace_is_told_of_its_own_rate() -> None:
    check = {rule.name: rule.check for rule in CELL_RULES}["rate not reached"]
    varying = [1] * 60 + [4] * 10  # of 100 requests, whose squares come to 220; four sd are 4 · √(150 · 2.2) = 72
    users = [user for user, turns in enumerate(varying) for _ in range(turns)]
    assert check(an_open_cell(15.0)) is not None  # 50 apart, four sd of √150 = 49
    assert check(an_open_cell(15.0, users=users)) is None
    mark = check(an_open_cell(15.0, recorded=True))
    assert isinstance(mark, Mark)
    assert "the trace's own rate moves" in mark.sentence
    assert "load.turns" not in mark.sentence


@pytest.mark.parametrize("pause_s", [0.01, 2.0, 20.0, 100.0])
@pytest.mark.parametrize(("gap_cv", "high"), [(1.0, 1.04), (2.0, 1.04)])
def test_counts_of_sessions_of_varying_turns_vary_by_chance_as_was_said(
    pause_s: float, gap_cv: float, high: float
) -> None:
    """Sessions of a geometric number of turns with pauses between them; their windows of 20 s are seen often enough."""
    generator, turns, windows, window_s = np.random.default_rng(5), 4.0, 10_000, 20.0
    arrive_s = np.cumsum(generator.gamma(gap_cv**-2, gap_cv**2, size=windows * 20))  # a session a second
    asked = generator.geometric(1 / turns, size=len(arrive_s))
    place = np.arange(asked.sum()) - np.repeat(np.cumsum(asked) - asked, asked)
    session = np.repeat(np.arange(len(asked)), asked)
    window = ((np.repeat(arrive_s, asked) + pause_s * place - 2000.0) // window_s).astype(int)
    inside = (window >= 0) & (window < windows - 500)
    counts = np.bincount(window[inside])
    _, each = np.unique(window[inside] * len(asked) + session[inside], return_counts=True)
    said = (most_by_chance(turns * window_s, each, gap_cv) / RATE_SDS) ** 2
    assert counts.mean() == pytest.approx(turns * window_s, rel=0.03)
    low = 0.95 if gap_cv == 1.0 else 0.55  # Poisson arrivals vary as was said; of bursts it is the most they can vary
    assert low < counts.var() / said < high


def test_rules_of_open_loads_leave_closed_ones_and_moving_rates_alone() -> None:
    rules = {rule.name: rule.check for rule in CELL_RULES}
    growing = {"unfinished": 50}
    assert rules["rate not reached"](an_open_cell(50.0, closed=True)) is None
    assert rules["arrivals exceed completions"](an_open_cell(10.0, closed=True, **growing)) is None
    assert rules["arrivals exceed completions"](an_open_cell(10.0, steady=False, **growing)) is None
    assert rules["load not reached"](an_open_cell(10.0)) is None


def test_a_level_in_sessions_is_held_against_first_turns() -> None:
    rules = {rule.name: rule.check for rule in CELL_RULES}
    assert rules["rate not reached"](an_open_cell(10.0, unit="sessions/s")) is None
    assert rules["rate not reached"](an_open_cell(2.0, turns=5, unit="sessions/s")) is None
    assert rules["rate not reached"](an_open_cell(10.0, turns=5)) is None
    assert rules["rate not reached"](an_open_cell(25.0, turns=2)) is not None
    mark = rules["rate not reached"](an_open_cell(20.0, unit="sessions/s"))
    assert isinstance(mark, Mark)
    assert "fell due where 20 were asked for" in mark.sentence
