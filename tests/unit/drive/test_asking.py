"""What asking for token counts costs, who asks at that price, and what a sample leaves of the figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from loadtest.analyse.judge import judge_data
from loadtest.drive.asking import (
    NOBODY,
    PAIRS,
    Price,
    as_event,
    is_sampled,
    measure_price,
    price_of,
    settled,
    short_cells,
    unmeasured,
)
from loadtest.drive.client import Clock, Endpoint
from loadtest.drive.context import CellContext, Target
from loadtest.drive.forecast import announcement
from loadtest.drive.openai import nonce_of
from loadtest.drive.options import Options
from loadtest.drive.phases import Phases
from loadtest.drive.plan import Cell
from loadtest.drive.prepare import prepare
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import run_virtual
from loadtest.experiment import override
from loadtest.record import CellRecord, Request
from loadtest.settings import Experiment
from loadtest.simulate.worlds import world
from loadtest.workload.sessions import SessionKey
from loadtest.workload.templates import TemplateSource

CHAT = Path(__file__).parents[3] / "scenarios" / "chat.py"
FOUR = [(1.03, 1.0), (1.05, 1.0), (2.02, 2.0), (1.04, 1.0)]


def key(number: int = 0, **other: float) -> SessionKey:
    return SessionKey(**{"seed": 1, "level": 8.0, "block": 0, "number": number} | other)  # type: ignore[arg-type]


def test_the_price_is_a_t_interval_on_the_log_ratios_of_the_pairs() -> None:
    logs = np.log([1.03, 1.05, 1.01, 1.04])
    low, high = stats.t.interval(0.95, 3, loc=logs.mean(), scale=stats.sem(logs))
    price = price_of(FOUR)
    assert price.pairs == pytest.approx([1.03, 1.05, 1.01, 1.04])
    assert price.cost_ratio == pytest.approx(stats.gmean([1.03, 1.05, 1.01, 1.04]) - 1)
    assert price.cost_low == pytest.approx(math.exp(low) - 1, rel=1e-3)
    assert price.cost_high == pytest.approx(math.exp(high) - 1, rel=1e-3)


@pytest.mark.parametrize("count", [2, 3])
def test_fewer_pairs_give_wider_intervals_by_the_same_law(count: int) -> None:
    logs = np.log([1.03, 1.05, 1.01][:count])
    low, high = stats.t.interval(0.95, count - 1, loc=logs.mean(), scale=stats.sem(logs))
    price = price_of(FOUR[:count], "the run was stopped")
    assert price.cost_low == pytest.approx(math.exp(low) - 1, rel=1e-3)
    assert price.cost_high == pytest.approx(math.exp(high) - 1, rel=1e-3)
    assert price.reason == "the run was stopped"


def test_one_pair_has_no_interval_and_none_no_price() -> None:
    one = price_of(FOUR[:1])
    assert (round(one.cost_ratio or 0, 6), one.cost_low, one.cost_high) == (0.03, None, None)
    assert price_of([], "the server failed") == Price(reason="the server failed")


@pytest.mark.parametrize(
    ("cost", "ratio", "why"),
    [
        (0.021, 0.1, "measured, and above the limit"),
        (0.019, 1.0, "measured, and not above the limit"),
        (-0.3, 1.0, "measured, and not above the limit"),
        (None, 1.0, "could not be measured: the server failed"),
    ],
)
def test_above_two_per_cent_a_sample_asks(cost: float | None, ratio: float, why: str) -> None:
    asking = settled(Price(cost_ratio=cost, reason="the server failed"), arm="baseline", level=8, way="ids")
    assert (asking.ratio, asking.why, asking.measured) == (ratio, why, cost is not None)
    event = as_event(asking)
    assert (event["asked_ratio"], event["cost_ratio"], event["limit_ratio"]) == (ratio, cost, 0.02)
    assert (event["arm"], event["level"], event["way"]) == ("baseline", 8, "ids")


@pytest.mark.parametrize(
    ("setting", "way", "simulated", "ratio", "why"),
    [
        ("auto", "none", False, 0.0, "the server does not say how many tokens a chunk has"),
        ("auto", "continuous", True, 1.0, "not measured: the servers are simulated"),
        ("all", "continuous", False, 1.0, 'not measured: token_counts is "all"'),
        ("sample", "ids", True, 0.1, 'not measured: token_counts is "sample"'),
    ],
)
def test_what_needs_no_measuring(setting: str, way: str, simulated: bool, ratio: float, why: str) -> None:
    asking = unmeasured(setting, way, simulated=simulated)
    assert asking is not None
    assert (asking.ratio, asking.why, asking.measured) == (ratio, why, False)


@pytest.mark.parametrize(("setting", "simulated"), [("auto", False), ("measure", False), ("measure", True)])
def test_what_is_measured(setting: str, simulated: bool) -> None:
    assert unmeasured(setting, "continuous", simulated=simulated) is None


def test_the_sample_is_a_tenth_and_depends_on_session_and_turn_alone() -> None:
    chosen = [is_sampled(key(number), turn, 0.1) for number in range(2000) for turn in range(5)]
    assert 0.09 < sum(chosen) / len(chosen) < 0.11  # 3.3 standard deviations
    assert chosen == [is_sampled(key(number), turn, 0.1) for number in range(2000) for turn in range(5)]
    assert all(is_sampled(key(n), 0, 1.0) for n in range(50))
    assert not any(is_sampled(key(n), 0, 0.0) for n in range(50))
    for other in ({"seed": 2}, {"level": 16.0}, {"block": 1}):
        assert chosen[::5] != [is_sampled(key(number, **other), 0, 0.1) for number in range(2000)]


def test_a_cell_lets_its_sample_ask_as_the_server_allows_and_the_others_not() -> None:
    experiment, cell = Experiment(), Cell(cell=3, block=0, level=8.0, arm="a")
    for ratio in (1.0, 0.1, 0.0):
        target = Target(name="a", endpoint=Endpoint("http://a:1"), model="m", count="ids", asked_ratio=ratio)
        context = CellContext(
            experiment=experiment, target=target, cell=cell, clock=Clock(), phases=Phases(experiment.window, 8, 0, 1),
            stagger_s=1.0, salt="s", source=None, keep=lambda request: None,
        )  # fmt: skip
        ways = [context.asks(key(number), turn) for number in range(100) for turn in range(3)]
        chosen = [is_sampled(key(number), turn, ratio) for number in range(100) for turn in range(3)]
        assert ways == ["ids" if asks else "none" for asks in chosen]
        assert (sum(chosen) > 0, all(chosen)) == (ratio > 0, ratio == 1)


@pytest.mark.parametrize(
    ("cache", "salted", "kept_apart"),
    [("salt", True, ("s", "")), ("salt", False, (None, "")), ("nonce", True, (None, nonce_of("s"))),
     ("nonce", False, (None, nonce_of("s"))), ("keep", True, (None, "")), ("reset", True, (None, ""))],
)  # fmt: skip
def test_a_cell_is_kept_apart_as_servers_cache_says(
    cache: str, salted: bool, kept_apart: tuple[str | None, str]
) -> None:
    experiment = override(Experiment(), "servers", cache=cache)
    target = Target(name="a", endpoint=Endpoint("http://a:1"), model="m", salted=salted)
    context = CellContext(
        experiment=experiment, target=target, cell=Cell(cell=3, block=0, level=8.0, arm="a"), clock=Clock(),
        phases=Phases(experiment.window, 8, 0, 1), stagger_s=1.0, salt="s", source=None, keep=lambda request: None,
    )  # fmt: skip
    assert (context.salt, context.nonce) == kept_apart


def driver(said: list[tuple[Cell, str]], token_s: Callable[[str], float], state: str = "complete"):  # type: ignore[no-untyped-def]
    """A cell in which ten requests of 20 tokens take `token_s` per token; others do not count."""

    def drive(cell: Cell, how: str, experiment: Experiment, keep: Callable[[Request], None]) -> CellRecord:
        said.append((cell, how))
        took = 20 * token_s(how)
        for number in range(10):
            keep(Request(outcome="ok", due_s=100.0 + number, end_s=100.0 + number + took, output_tokens=20))
        keep(Request(outcome="timeout", due_s=101.0, end_s=900.0, output_tokens=20))
        keep(Request(outcome="ok", due_s=101.0, end_s=900.0))  # without a count
        keep(Request(outcome="ok", due_s=99.0, end_s=900.0, output_tokens=20))  # before the window
        keep(Request(outcome="ok", due_s=110.0, end_s=900.0, output_tokens=20))  # after it
        return CellRecord(cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block, order=0, state=state,
                          reason="it broke" if state != "complete" else "", started_s=90.0, window_open_s=100.0,
                          window_close_s=110.0)  # fmt: skip

    return drive


def test_pairs_of_cells_alternate_and_share_sessions_that_no_cell_of_the_plan_has() -> None:
    said: list[tuple[Cell, str]] = []
    drive = driver(said, lambda how: 0.010 if how == NOBODY else 0.0105)
    price = measure_price(drive, Experiment(), "baseline", 32, "continuous", lambda: False)
    assert price.cost_ratio == pytest.approx(0.05)
    assert (price.cost_low, price.cost_high) == pytest.approx((0.05, 0.05))
    ways = [how for _, how in said]
    assert ways == ["continuous", "none", "none", "continuous"] * (PAIRS // 2)
    assert [cell.block for cell, _ in said] == [-1, -1, -2, -2, -3, -3, -4, -4]
    assert len({cell.cell for cell, _ in said}) == 2 * PAIRS
    assert all(cell.cell < -1 and cell.level == 32 and cell.arm == "baseline" for cell, _ in said)


def test_a_stop_or_a_cell_that_is_not_whole_ends_the_measurement_and_says_why() -> None:
    said: list[tuple[Cell, str]] = []
    drive = driver(said, lambda how: 0.01)
    stopped = measure_price(drive, Experiment(), "a", 1, "ids", lambda: len(said) == 5)
    assert (len(stopped.pairs), stopped.reason) == (2, "the run was stopped")
    broken = measure_price(driver([], lambda how: 0.01, "aborted"), Experiment(), "a", 1, "ids", lambda: False)
    assert (broken.cost_ratio, broken.reason) == (None, "it broke")


def test_its_cells_are_short_and_never_longer_than_those_of_the_plan() -> None:
    window = short_cells(Experiment(), 128).window
    assert (window.min_s, window.max_s, window.warmup_requests, window.min_requests) == (3.0, 10.0, 1.0, 256)
    quick = override(Experiment(), "window", min_s=1.0, max_s=1.0, warmup_requests=0.5)
    window = short_cells(quick, 4).window
    assert (window.min_s, window.max_s, window.warmup_requests) == (1.0, 1.0, 0.5)


def test_a_smoke_run_does_not_measure_it() -> None:
    options = Options(scenario=CHAT, server="http://a:1")
    assert prepare(options, {}).experiment.servers.token_counts == "auto"
    smoke = replace(options, smoke=True)
    assert prepare(smoke, {}).experiment.servers.token_counts == "all"
    asked = replace(smoke, assignments=("servers.token_counts=measure",))
    assert prepare(asked, {}).experiment.servers.token_counts == "measure"


def test_it_is_announced_where_it_may_be_measured() -> None:
    def said(**given: Any) -> list[str]:
        prepared = prepare(Options(scenario=CHAT, **given), {})
        return [sentence for sentence in announcement(prepared, prepared.cells()) if "token counts" in sentence]

    (sentence,) = said(server="http://a:1", levels="4,32")
    assert sentence.startswith("Before them 8 short cells at 32 users take what asking for token counts costs: at most")
    assert said(simulated=True) == []
    assert said(server="http://a:1", assignments=("servers.token_counts=sample",)) == []
    assert len(said(simulated=True, assignments=("servers.token_counts=measure",))) == 1


def test_a_sample_asks_alike_in_both_arms_and_leaves_the_figures_as_they_are() -> None:
    experiment = prepare(Options(scenario=CHAT, world="default", levels="16", blocks=2), {}).experiment
    sampled = override(experiment, "servers", token_counts="sample")
    pair = world("default")
    arms = {"baseline": pair.baseline, "speculative": pair.speculative}
    pool = ShapePool(TemplateSource("chat"), size=100)
    runs = [run_virtual(e, arms, pool) for e in (experiment, sampled)]
    asked: dict[tuple[object, ...], set[str]] = {}
    rows = runs[1].requests().to_pylist()
    for row in rows:
        asked.setdefault((row["level"], row["block"], row["session"], row["turn"]), set()).add(row["asked"])
        assert bool(row["chunk_tokens"]) == (row["asked"] == "continuous")
    assert all(len(found) == 1 for found in asked.values())
    share = sum(row["asked"] == "continuous" for row in rows) / len(rows)
    assert 0.05 < share < 0.15
    whole, part = (judge_data(run.header, run.cells, run.scrapes, run.requests()) for run in runs)
    for before, after in zip(whole.arm_levels, part.arm_levels, strict=True):
        for name in ("ttft", "e2e", "chunk_gap", "error_ratio", "requests_per_s"):
            assert after.means[name] == before.means[name]
        for name, near in (("output_tokens_per_s", 0.02), ("token_gap", 0.2), ("tpot", 0.2)):
            assert after.means[name].value == pytest.approx(before.means[name].value, rel=near)
        assert 0 < after.tails["token_gap"].p50.n < before.tails["token_gap"].p50.n / 5
    assert not any("asked" in note for note in whole.notes)
    assert any(note.startswith("10 % of the requests asked, the same in both arms") for note in part.notes)
