"""Every kind of objective: met, not met, undecided, without data, invalid, and exactly at its limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from gate_facts import PLAIN, alone, facts_of, few_survivors, judged, one_block, plain, with_failures
from made_run import BASE, SPEC

from loadtest.analyse import settle
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.gate import GRAVEST
from loadtest.analyse.gate_results import IDENTICAL, GateOutcome, SloAt
from loadtest.analyse.slo_levels import held
from loadtest.settings import Experiment, Traffic
from loadtest.slo import MEASURES, Ask
from loadtest.slo_tables import objectives

PASS, FAIL, OPEN, NO_DATA, INVALID = (
    GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.INCONCLUSIVE, GateOutcome.NO_DATA, GateOutcome.INVALID,
)  # fmt: skip

# The made run at 16 users: TTFT 50 ms (candidate × 1.03), gaps 26.4 ms (÷ 1.5), 12 tokens, 70 requests a cell.
KINDS: dict[str, tuple[dict[str, Any], str, str, str]] = {  # table, and a limit that is met, missed, undecided
    "tail": ({"metric": "ttft", "statistic": "p90", "at": "16 users"}, "80 ms", "40 ms", "55 ms"),
    "mean": ({"metric": "tpot", "statistic": "mean", "at": "16 users"}, "18.5 ms", "17 ms", "17.6 ms"),
    "goodput": (
        {"metric": "goodput", "at": "16 users", "within": {"ttft": "51.5 ms"}}, "30 %", "70 %", "41 %",
    ),
    "goodput per second": (
        {"metric": "goodput_per_s", "at": "16 users", "within": {"ttft": "1 s"}}, "40 requests/s", "90 requests/s", "-",
    ),
    "throughput": ({"metric": "output_tokens_per_s", "at": "16 users"}, "500 tokens/s", "2000 tokens/s", "-"),
    "error ratio": ({"metric": "error_ratio", "at": "16 users"}, "1 %", "-", "0.5 %"),
    "acceptance floor": ({"metric": "acceptance_ratio", "at": "16 users"}, "30 %", "40 %", "-"),
    "tokens per step": ({"metric": "tokens_per_step", "at": "16 users"}, "1.5 tokens", "2.5 tokens", "-"),
    "relative mean": ({"metric": "ttft", "statistic": "mean", "at": "16 users"}, "8 %", "0.1 %", "4.5 %"),
    "relative tail": ({"metric": "ttft", "statistic": "p90", "at": "16 users"}, "20 %", "0.1 %", "4.5 %"),
    "relative share": ({"metric": "error_ratio", "at": "16 users"}, "3 points", "-", "0.1 points"),
    "benefit mean": ({"metric": "tpot", "statistic": "mean", "at": "16 users"}, "40 %", "60 %", "50 %"),
    "benefit over traffic": ({"metric": "tpot", "statistic": "mean", "at": "traffic"}, "45 %", "55 %", "50 %"),
}  # fmt: skip


def key_of(kind: str) -> str:
    metric = KINDS[kind][0]["metric"]
    if kind.startswith("relative"):
        return "not_worse_by"
    if kind.startswith("benefit"):
        return "better_by"
    return "max" if MEASURES[metric].better == "lower" else "min"


@pytest.mark.parametrize("kind", KINDS)
def test_met_missed_and_undecided(kind: str) -> None:
    table, met, missed, undecided = KINDS[kind]
    for limit, outcome in ((met, PASS), (missed, FAIL), (undecided, OPEN)):
        if limit != "-":
            result = judged(plain(), **table, **{key_of(kind): limit})
            assert result.outcome is outcome, (limit, result)
            assert result.at is not None
            assert result.at.observed.low is not None
            assert bool(result.would_settle) == (outcome is OPEN)


# Where 10 % of the candidate's requests fail.
@pytest.mark.parametrize(
    ("table", "outcome"),
    [
        ({"metric": "error_ratio", "max": "5 %", "at": "16 users"}, FAIL),
        ({"metric": "error_ratio", "max": "10 %", "at": "16 users"}, OPEN),
        ({"metric": "error_ratio", "max": "20 %", "at": "16 users"}, PASS),
        ({"metric": "error_ratio", "not_worse_by": "3 points", "at": "16 users"}, FAIL),
        ({"metric": "error_ratio", "not_worse_by": "20 points", "at": "16 users"}, PASS),
        ({"metric": "ttft", "statistic": "p95", "max": "10 s", "at": "16 users"}, FAIL),
        ({"metric": "ttft", "statistic": "p50", "max": "80 ms", "at": "16 users"}, PASS),
        ({"metric": "e2e", "statistic": "mean", "max": "5 s", "at": "16 users"}, FAIL),  # 600 s for each of 10 %
        ({"metric": "e2e", "statistic": "mean", "better_by": "10 %", "at": "16 users"}, FAIL),
        ({"metric": "ttft", "statistic": "p95", "not_worse_by": "50 %", "at": "16 users"}, FAIL),
        ({"metric": "goodput", "min": "95 %", "within": {"e2e": "60 s"}, "at": "16 users"}, FAIL),
        ({"metric": "goodput", "min": "80 %", "within": {"e2e": "60 s"}, "at": "16 users"}, PASS),
    ],
)
def test_failed_requests_count(table: dict[str, Any], outcome: GateOutcome) -> None:
    assert judged(with_failures(), **table).outcome is outcome


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_passes_on_a_few_survivors(kind: str) -> None:
    table, met, _, _ = KINDS[kind]
    if table["metric"] in ("acceptance_ratio", "tokens_per_step", "output_tokens_per_s"):
        return  # counted by the server, or carried although users got nothing; the error ratio stands beside them
    assert judged(few_survivors(), **table, **{key_of(kind): met}).outcome is not PASS


def test_a_failing_baseline_is_no_gain() -> None:
    from gate_facts import failing

    facts = facts_of(PLAIN.having(edit_request=lambda row: failing(row, 10, BASE)))
    gain = judged(facts, metric="e2e", statistic="mean", better_by="10 %", at="16 users")
    assert gain.at is not None
    assert gain.at.observed.value is not None
    assert gain.at.observed.value < 1.6  # 600 s for each failure would make it over 100
    assert judged(facts, metric="ttft", statistic="p95", better_by="10 %", at="16 users").outcome is NO_DATA


@pytest.mark.parametrize("kind", KINDS)
def test_without_data_nothing_passes(kind: str) -> None:
    table, met, _, _ = KINDS[kind]
    if kind in ("tail", "goodput", "error ratio", "relative share"):
        return  # counts have an interval from one block; their own want of data is below
    result = judged(one_block(), **table, **{key_of(kind): met})
    assert result.outcome is NO_DATA
    assert result.says


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"metric": "ttft", "statistic": "p99", "max": "9 s", "at": "16 users"}, "70 requests do not bound a p99"),
        ({"metric": "ttft", "statistic": "p90", "max": "9 s", "at": "16 users", "category": "code"}, "no ttft p90"),
        ({"metric": "goodput", "min": "1 %", "within": {"e2e": "9 s"}, "category": "code"}, "no goodput"),
        ({"metric": "error_ratio", "max": "99 %", "category": "code"}, "no error_ratio of code"),
        ({"metric": "ttft", "statistic": "p90", "max": "9 s", "at": "64 users"}, "only 4 to 16 users were tested"),
        ({"metric": "ttft", "statistic": "p90", "max": "9 s", "at": "4 requests/s"}, "this run's levels are users"),
        ({"metric": "ttft", "statistic": "p99", "not_worse_by": "50 %", "at": "16 users"}, "100 have"),
    ],
)
def test_what_has_no_data_says_so(table: dict[str, Any], says: str) -> None:
    result = judged(one_block(), **table)
    assert result.outcome is NO_DATA
    assert says in result.says


def test_blocks_that_differ_are_worth_fewer_requests() -> None:
    # Within a made cell every gap is the same, so that 4,620 gaps of 6 blocks say no more than 6 values.
    result = judged(plain(), metric="chunk_gap", statistic="p50", max="20 ms", at="16 users")
    assert result.outcome is NO_DATA
    assert result.would_settle.startswith("More blocks: they differ so much that 4,620 values")


def test_a_tail_without_bound_says_how_many_requests_give_one() -> None:
    result = judged(one_block(), metric="ttft", statistic="p99", max="9 s", at="16 users")
    assert result.would_settle == (
        "A p99 needs at least 500 requests in each block, more where blocks differ; there are 70 in all."
    )


def test_more_blocks_settle_what_blocks_leave_open() -> None:
    """More requests of the same blocks would not: the interval is as wide as the blocks differ."""
    observed = Estimate(value=1.0, low=0.8, high=1.2, n=600)
    at = SloAt(level=16.0, outcome=OPEN, observed=observed)
    for metric, statistic in (("ttft", "p90"), ("chunk_gap", "p50"), ("e2e", "mean"), ("error_ratio", "")):
        table = {"metric": metric, "max": "2 %" if metric == "error_ratio" else "2 s", "at": "16 users"}
        (slo,) = objectives(({**table, "statistic": statistic} if statistic else table,))
        assert settle.sentence(slo, at, 1.1, lower=True, blocks=3).startswith("About 9 more blocks would settle it")
    untested = settle.sentence(slo, at, 1.1, lower=True)
    assert untested.startswith("About 1,800 more requests would settle it")


def test_blocks_that_are_alike_to_the_last_digit_are_not_told_to_differ() -> None:
    at = SloAt(level=16.0, outcome=NO_DATA, observed=Estimate(value=1.0, n=600), says=IDENTICAL)
    (slo,) = objectives(({"metric": "ttft", "statistic": "p90", "max": "1 s", "at": "16 users"},))
    assert settle.sentence(slo, at, 1.0, lower=True, blocks=3) == ""
    assert settle.sentence(slo, replace(at, says=""), 1.0, lower=True).startswith("More blocks: they differ so much")


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_run_is_not_judged(kind: str) -> None:
    table, met, _, _ = KINDS[kind]
    result = judged(replace(plain(), refused="The run was interrupted."), **table, **{key_of(kind): met})
    assert (result.outcome, result.says, result.at) == (INVALID, "The run was interrupted.", None)


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_at_the_limit_is_met_and_a_hair_below_is_not(kind: str) -> None:
    table, met, _, _ = KINDS[kind]
    first = judged(plain(), **table, **{key_of(kind): met})
    assert first.at is not None
    worst = first.at.observed.high if first.lower else first.at.observed.low
    assert worst is not None
    hair = 1e-6 * (1 if first.lower else -1) * max(abs(worst), 1e-3)
    assert held(first.at.observed, worst, lower=first.lower) is PASS
    assert held(first.at.observed, worst - hair, lower=first.lower) is not PASS


def test_a_limit_written_as_the_bound_is_met() -> None:
    table = {"metric": "tpot", "statistic": "mean", "at": "16 users"}
    at = judged(plain(), **table, max="1 s").at
    assert at is not None
    assert at.observed.high is not None
    assert judged(plain(), **table, max=f"{1000 * at.observed.high:.15g} ms").outcome is PASS
    assert judged(plain(), **table, max=f"{1000 * at.observed.high - 1e-6:.15g} ms").outcome is OPEN


@pytest.mark.parametrize(
    ("estimate", "lower", "outcome"),
    [
        (Estimate(value=1.0, low=0.9, high=1.0), True, PASS),
        (Estimate(value=1.05, low=1.0, high=1.1), True, OPEN),  # the limit itself meets it, so that low = limit is open
        (Estimate(value=1.2, low=1.01, high=1.3), True, FAIL),
        (Estimate(value=0.5, low=0.4, high=None), True, NO_DATA),
        (Estimate(value=1.5, low=1.1, high=None), True, FAIL),  # what the lower bound shows needs no upper one
        (Estimate(value=math.inf, low=math.inf, high=math.inf), True, FAIL),
        (Estimate(value=math.nan, low=None, high=None), True, NO_DATA),
        (Estimate(), True, NO_DATA),
        (Estimate(value=1.2, low=1.0, high=1.3), False, PASS),
        (Estimate(value=0.95, low=0.9, high=1.0), False, OPEN),
        (Estimate(value=0.8, low=0.7, high=0.99), False, FAIL),
        (Estimate(value=0.8, low=None, high=0.99), False, FAIL),
        (Estimate(value=1.5, low=None, high=2.0), False, NO_DATA),
    ],
)
def test_an_interval_against_a_limit_of_one(estimate: Estimate, lower: bool, outcome: GateOutcome) -> None:
    assert held(estimate, 1.0, lower=lower) is outcome


def test_what_was_not_shown_to_speculate_passes_nothing_but_the_baseline_is_judged() -> None:
    facts = replace(plain(), unproven="speculation was not shown")
    for kind, (table, met, _, _) in KINDS.items():
        assert judged(facts, **table, **{key_of(kind): met}).outcome is NO_DATA
    assert judged(facts, metric="ttft", statistic="p90", max="80 ms", at="16 users", arm="baseline").outcome is PASS


def test_one_server_alone_has_absolute_objectives_only() -> None:
    assert judged(alone(), metric="ttft", statistic="p90", max="80 ms", at="16 users").outcome is PASS
    for key, value in (("not_worse_by", "5 %"), ("better_by", "5 %")):
        result = judged(alone(), metric="e2e", statistic="mean", **{key: value})
        assert result.outcome is NO_DATA
        assert "no baseline" in result.says


def test_identical_blocks_are_no_measurement() -> None:
    facts = facts_of(PLAIN.having(blocks=3, edit_request=_without_noise))
    for table in (
        {"metric": "ttft", "statistic": "p50", "max": "9 s"},
        {"metric": "e2e", "statistic": "mean", "max": "9 s"},
        {"metric": "e2e", "statistic": "mean", "better_by": "1 %"},
    ):
        result = judged(facts, **table)
        assert (result.outcome, result.says) == (NO_DATA, IDENTICAL)


def _without_noise(row: Any) -> Any:
    row.due_s = row.sent_s = round(row.due_s * 1024) / 1024  # exact in binary, so that every difference is
    row.chunk_s = [row.due_s + 0.0625 + (1 / 64 if row.arm == SPEC else 1 / 32) * i for i in range(len(row.chunk_s))]
    return row


@pytest.mark.parametrize(
    ("load", "outcome"),
    [
        ({"at": "4 users"}, PASS),
        ({"at": "16 users"}, FAIL),
        ({"at": "8 users"}, OPEN),  # between a level that meets it and one that does not
        ({"up_to": "4 users"}, PASS),
        ({"up_to": "8 users"}, OPEN),  # 16 users would have to meet it as well
        ({"up_to": "16 users"}, FAIL),
        ({"up_to": "20 users"}, FAIL),  # 16 of the 20 fail, whatever lies beyond
        ({"at": "20 users"}, NO_DATA),
        ({"at": "2 users"}, NO_DATA),
        ({"at": "3.6 in flight"}, PASS),  # 4 users are 3.6 in flight
        ({"at": "14.2 in flight"}, FAIL),  # within 5 % of 16 users
        ({"up_to": "3.6 in flight"}, PASS),
        ({"at": "40 in flight"}, NO_DATA),
        ({"at": "traffic"}, FAIL),
        ({}, FAIL),
    ],
)
def test_where_an_objective_holds(load: dict[str, str], outcome: GateOutcome) -> None:
    # decode gaps: 14.4 ms at 4 users, 17.6 ms at 16
    result = judged(plain(), metric="tpot", statistic="mean", max="16 ms", **load)
    assert result.outcome is outcome
    assert result.outcome is PASS or result.says or result.outcome is FAIL


def test_a_load_between_two_levels_shows_the_graver_one_as_open_and_says_why() -> None:
    found = judged(plain(), metric="tpot", statistic="mean", max="16 ms", at="8 users")
    assert found.says == "8 was not tested, and 4 and 16 do not agree"
    assert found.at is not None
    assert (found.at.level, found.at.outcome) == (16.0, OPEN)  # 16 users miss it, 4 meet it
    assert [(at.level, at.outcome) for at in found.levels] == [(4.0, PASS), (16.0, FAIL)]
    assert found.would_settle == "Test the load that it names."


def test_up_to_a_load_below_a_level_that_misses_says_to_test_that_load_not_to_wait_for_more_blocks() -> None:
    found = judged(plain(), metric="tpot", statistic="mean", max="16 ms", up_to="8 users")
    assert found.says == "16 does not hold, and the load asked for was not tested itself"
    assert found.at is not None
    assert (found.outcome, found.at.outcome, found.at.level) == (OPEN, OPEN, 16.0)
    assert found.would_settle == "Test the load that it names."


@pytest.mark.parametrize(("limit", "outcome", "level"), [("20 ms", PASS, 16.0), ("14 ms", FAIL, 4.0)])
def test_a_load_between_two_levels_that_agree_is_known(limit: str, outcome: GateOutcome, level: float) -> None:
    found = judged(plain(), metric="tpot", statistic="mean", max=limit, at="8 users")
    assert found.at is not None
    assert (found.outcome, found.at.outcome, found.at.level) == (outcome, outcome, level)


def test_a_load_between_two_levels_of_which_one_has_no_data_has_none() -> None:
    gone = facts_of(PLAIN.having(edit_request=lambda row: replace(row, chunk_tokens=[]) if row.level == 16 else row))
    found = judged(gone, metric="tpot", statistic="mean", max="20 ms", at="8 users")
    assert found.at is not None
    assert (found.outcome, found.at.level) == (NO_DATA, 16.0)
    assert found.says == found.at.says != ""


def test_over_the_traffic_a_share_and_a_tail_are_judged_level_by_level_and_a_mean_as_one_gain() -> None:
    mean = judged(plain(), metric="tpot", statistic="mean", better_by="45 %", at="traffic")
    assert mean.at is not None
    assert mean.at.level is None
    share = judged(plain(), metric="error_ratio", not_worse_by="20 points", at="traffic")
    tail = judged(plain(), metric="ttft", statistic="p50", not_worse_by="20 %", at="traffic")
    for found in (share, tail):
        assert found.at is not None
        assert (found.outcome, found.at.level) == (PASS, 16.0)


@pytest.mark.parametrize(("limit", "outcome"), [("1 %", FAIL), ("4 %", OPEN), ("10 %", PASS)])
def test_a_loss_over_the_traffic_is_held_against_its_margin(limit: str, outcome: GateOutcome) -> None:
    # TTFT is 3 % later at every load; the interval ends above that
    found = judged(plain(), metric="ttft", statistic="mean", not_worse_by=limit, at="traffic")
    assert found.at is not None
    assert found.outcome is found.at.outcome is outcome, found
    assert found.says == found.at.says
    assert bool(found.says) == (outcome is OPEN)


def test_up_to_a_load_between_levels_passes_when_the_next_one_does() -> None:
    assert judged(plain(), metric="tpot", statistic="mean", max="20 ms", up_to="8 users").outcome is PASS
    assert judged(plain(), metric="tpot", statistic="mean", max="20 ms", at="8 users").outcome is PASS


def test_up_to_more_than_was_tested_has_no_data() -> None:
    result = judged(plain(), metric="tpot", statistic="mean", max="20 ms", up_to="20 users")
    assert result.outcome is NO_DATA
    assert "only 4 to 16 users were tested, and 20 is asked for" in result.says


def test_traffic_outside_the_levels_has_no_data() -> None:
    experiment = Experiment(traffic=Traffic(loads=(4.0, 32.0), hours=(20.0, 4.0)))
    for table in ({"better_by": "1 %"}, {"max": "9 s"}):
        result = judged(replace(plain(), experiment=experiment), metric="e2e", statistic="mean", at="traffic", **table)
        assert result.outcome is NO_DATA
        assert "the traffic goes from 4 to 32 users, and 4 to 16 users were tested" in result.says
    nothing = judged(replace(plain(), experiment=Experiment()), metric="e2e", statistic="mean", at="traffic", max="9 s")
    assert nothing.outcome is NO_DATA


def test_a_category_is_judged_by_its_own_requests() -> None:
    def slower_code(row: Any) -> Any:
        row.category = "code" if row.session % 3 == 0 else "chat"
        if row.category == "code":
            row.chunk_s = [c + 0.2 for c in row.chunk_s]
        return row

    facts = facts_of(PLAIN.having(edit_request=slower_code))
    table = {"metric": "ttft", "statistic": "p90", "max": "120 ms", "at": "16 users"}
    assert judged(facts, **table, category="chat").outcome is PASS
    assert judged(facts, **table, category="code").outcome is FAIL
    assert judged(facts, **table).outcome is FAIL
    good = {"metric": "goodput", "within": {"ttft": "120 ms"}, "at": "16 users"}
    assert judged(facts, **good, min="90 %", category="chat").outcome is PASS
    share = judged(facts, **good, min="90 %").at
    assert share is not None
    assert share.observed.value == pytest.approx(2 / 3, abs=0.02)


def test_goodput_needs_token_counts_only_where_a_limit_does() -> None:
    def uncounted(row: Any) -> Any:
        row.chunk_tokens = []
        return row

    facts = facts_of(PLAIN.having(edit_request=uncounted))
    assert judged(facts, metric="goodput", min="90 %", within={"ttft": "1 s"}).outcome is PASS
    assert judged(facts, metric="goodput", min="90 %", within={"ttft": "1 s", "tpot": "1 s"}).outcome is NO_DATA


def test_blocks_that_are_starts_widen_the_interval() -> None:
    usual = judged(plain(), metric="e2e", statistic="mean", better_by="10 %", at="traffic").at
    found = replace(plain().found, restarted=True)
    starts = judged(replace(plain(), found=found), metric="e2e", statistic="mean", better_by="10 %", at="traffic").at
    assert usual is not None
    assert starts is not None
    assert starts.observed.value == usual.observed.value
    assert starts.observed.low is not None
    assert usual.observed.low is not None
    assert starts.observed.low < usual.observed.low


def test_the_gravest_outcome_comes_first() -> None:
    assert GRAVEST == (INVALID, FAIL, NO_DATA, OPEN, PASS)
    assert set(GRAVEST) == set(GateOutcome)


def test_every_ask_is_covered_here() -> None:
    covered = {objectives([{**table, key_of(kind): met}])[0].ask for kind, (table, met, _, _) in KINDS.items()}
    assert covered == set(Ask)
