"""By class of request, single slow requests, paired requests and the run over time, from runs of known figures."""

from dataclasses import replace

import pytest
from gate_facts import PLAIN, facts_of, plain
from made_run import BASE, SPEC, Made, cell, request, table_of

from loadtest.analyse.classes import classes
from loadtest.analyse.detail import detail, spreads
from loadtest.analyse.explain import scrapes_by_cell
from loadtest.analyse.judge import judge_data
from loadtest.analyse.over_time import instants
from loadtest.analyse.slowest import slowest
from loadtest.analyse.table import derive
from loadtest.analyse.traffic import expected_day, expected_gain
from loadtest.record import Scrape
from loadtest.settings import Traffic
from loadtest.slo import Ask, Slo

E2E = Slo(metric="e2e", statistic="mean", ask=Ask.BENEFIT, limit=0.03)


def two_classes(row):
    """Code gains a third more than the run's 1.5, chat nothing: its candidate runs at the baseline's pace."""
    if row.session % 2:
        return replace(row, category="code")
    if row.arm == SPEC:
        start = row.chunk_s[0]
        row = replace(
            row, chunk_s=[start + 1.5 * (t - start) for t in row.chunk_s], end_s=start + 1.5 * (row.end_s - start)
        )
    return replace(row, category="chat")


@pytest.fixture(scope="module")
def made():
    _, cells, scrapes, table = Made(levels=(4.0, 16.0), blocks=6, noise=0.005, edit_request=two_classes).build()
    return derive(table, cells, 15.0), cells, scrapes


def test_a_class_has_a_speed_up_of_its_own(made):
    requests, cells, _ = made
    found = {(one.name, one.level): one for one in classes(requests, cells, BASE, SPEC, confidence=0.95)}
    assert set(found) == {(name, level) for name in ("chat", "code") for level in (4.0, 16.0)}
    for level in (4.0, 16.0):
        chat, code = found["chat", level].speedups, found["code", level].speedups
        assert chat["e2e"].value == pytest.approx(1.0, abs=0.01)
        assert chat["e2e"].low < 1 < chat["e2e"].high
        assert code["tpot"].value == pytest.approx(1.5, rel=0.01)
        assert code["e2e"].low > 1.3
        assert code["e2e"].n == 6
    assert found["code", 4.0].requests_baseline == found["code", 4.0].requests_candidate == 180
    assert found["code", 4.0].means_baseline["e2e"] == pytest.approx(0.05 + 19 * 0.02 * 1.08, rel=0.01)


def test_one_class_alone_is_the_run_itself_and_is_left_out():
    table = Made(levels=(4.0, 16.0), blocks=2, edit_request=lambda row: replace(row, category="chat")).build()
    assert classes(derive(table[3], table[1], 15.0), table[1], BASE, SPEC, confidence=0.95) == ()


def test_requests_that_failed_or_fell_due_outside_the_window_are_in_no_class():
    rows = [at(USUAL, session=n, category="chat") for n in range(4)]
    rows += [at(USUAL, session=n, category="code") for n in range(4, 6)]
    rows += [at((0.1, 9.0), session=7, category="chat", outcome="timeout")]
    rows += [replace(at((0.1, 9.0), session=8, category="chat"), due_s=98.0)]
    cells = [cell(0), cell(1, arm=SPEC)]
    twins = [replace(row, cell=1, arm=SPEC) for row in rows]
    chat, code = classes(derive(table_of([*rows, *twins]), cells, 15.0), cells, BASE, SPEC, confidence=0.95)
    assert (chat.requests_baseline, chat.requests_candidate, code.requests_baseline) == (4, 4, 2)
    assert chat.means_baseline["e2e"] == pytest.approx(0.4)


def test_a_class_with_one_block_has_no_interval():
    _, cells, _, table = Made(levels=(4.0,), blocks=1, edit_request=two_classes).build()
    found = classes(derive(table, cells, 15.0), cells, BASE, SPEC, confidence=0.95)
    assert [(one.speedups["e2e"].low, one.speedups["e2e"].high) for one in found] == [(None, None)] * 2
    assert found[1].speedups["e2e"].value > 1.3


def at(seconds, **values):
    """Return a request due at 100 whose chunks come at these seconds after it."""
    times = [100.0 + second for second in seconds]
    return request(chunk_s=times, chunk_tokens=[2] * len(times), end_s=times[-1], **values)


USUAL = (0.1, 0.2, 0.3, 0.4)
ROWS = [
    *(at(USUAL, session=n) for n in range(8)),
    at((1.1, 1.2, 1.3, 1.4), session=20),
    at((0.1, 0.2, 2.3, 2.4), session=21, category="code"),
    at((0.1, *(0.1 + 0.1 * i for i in range(1, 40))), session=22),
    at((0.1, 0.8, 1.5, 2.2), session=23),
    at((0.1, 0.2), session=24, outcome="timeout"),
]


def test_the_slowest_requests_come_with_what_made_them_late():
    cells = [cell(0), cell(1, arm=SPEC)]
    twins = [replace(row, cell=1, arm=SPEC, outcome="ok") for row in ROWS[:10]]
    found = slowest(derive(table_of([*ROWS, *twins]), cells, 15.0).frame, [0, 1], (BASE, SPEC))
    base = [one for one in found if one.arm == BASE]
    assert [(one.session, one.cause) for one in base] == [(24, "failed"), (22, "long answer"), (21, "one stall")]
    assert base[0].e2e_s is None
    assert base[0].outcome == "timeout"
    assert base[2].twin_s == pytest.approx(2.4)
    assert (base[2].category, base[2].tokens, base[2].prompt_tokens) == ("code", 8, 20)
    assert base[2].worst_stall_s == pytest.approx(2.1)
    assert base[1].twin_s is None


@pytest.mark.parametrize(
    ("session", "cause"),
    [(20, "late first token"), (21, "one stall"), (22, "long answer"), (23, "slow throughout")],
)
def test_the_cause_is_where_the_time_beyond_the_usual_went(session, cause):
    rows = [*ROWS[:8], next(row for row in ROWS if row.session == session)]
    found = slowest(derive(table_of(rows), [cell(0)], 15.0).frame, [0], (BASE,))
    assert (found[0].session, found[0].cause) == (session, cause)


def test_a_first_token_as_late_as_every_other_is_no_cause():
    rows = [*(at((1.0, 1.1, 1.2, 1.3), session=n) for n in range(8)), at((1.0, 1.1, 2.1, 2.2), session=20)]
    found = slowest(derive(table_of(rows), [cell(0)], 15.0).frame, [0], (BASE,))
    assert (found[0].session, found[0].cause) == (20, "one stall")


def test_cells_that_do_not_count_give_no_slow_request():
    frame = derive(table_of(ROWS), [cell(0)], 15.0).frame
    assert slowest(frame, [7], (BASE,)) == ()
    assert slowest(frame, [], (BASE, SPEC)) == ()


def test_the_spread_of_pairs_by_level():
    base = [at((0.1, 1.0 + n / 10), session=n) for n in range(5)]
    cand = [at((0.1, 1.0), session=n, cell=1, arm=SPEC) for n in range(5)]
    cells = [cell(0), cell(1, arm=SPEC)]
    (found,) = spreads(derive(table_of([*base, *cand]), cells, 15.0).frame, [0, 1], BASE, SPEC)
    assert (found.level, found.pairs) == (1.0, 5)
    assert (found.p25, found.p50, found.p75) == pytest.approx((1.1, 1.2, 1.3))
    assert found.p5 == pytest.approx(1.02)


def test_requests_in_flight_are_those_sent_and_not_ended():
    unsent = request(session=2, sent_s=float("nan"), chunk_s=[], chunk_tokens=[], end_s=100.5, outcome="client_error")
    rows = [at((0.5, 1.5), session=0), replace(at((0.5, 4.5), session=1), sent_s=101.0), unsent]
    scrapes = [
        Scrape(t_s=t, arm=BASE, cell=0, moment="sample",
               values={"vllm:num_requests_running": 1.0, "vllm:num_requests_waiting": 2.0})
        for t in (100.0, 101.2, 103.0, 106.0)
    ]  # fmt: skip
    found = instants(derive(table_of(rows), [cell(0)], 15.0), [cell(0)], scrapes_by_cell(scrapes))
    assert [(one.t_s, one.in_flight) for one in found] == [(100.0, 0), (101.2, 2), (103.0, 1), (106.0, 0)]
    assert {(one.running, one.waiting, one.kv_use) for one in found} == {(1.0, 2.0, None)}


def test_without_counters_the_clients_own_view_stands_alone():
    found = instants(derive(table_of(ROWS), [cell(0)], 15.0), [cell(0)], {})
    assert len(found) == 6
    assert (found[0].t_s, found[-1].t_s) == (99.0, 109.0)
    assert found[0].running is None


def test_a_long_run_is_thinned_and_a_cell_without_a_window_left_out():
    cells = [cell(n, block=n) for n in range(300)] + [cell(300, window_open_s=None)]
    assert len(instants(derive(table_of(ROWS), cells, 15.0), cells, {})) <= 480


def test_the_detail_of_a_run_of_one_server_compares_nothing(made):
    requests, cells, scrapes = made
    own = [c for c in cells if c.arm == BASE]
    found = detail(requests, own, own, scrapes_by_cell(scrapes), (BASE,), restarted=False, confidence=0.95)
    assert (found.classes, found.spreads) == ((), ())
    assert {one.arm for one in found.slowest} == {BASE}
    assert len(found.slowest) == 6


def test_a_judgement_has_its_detail_only_where_it_is_asked_for():
    run, cells, scrapes, table = Made(levels=(4.0,), blocks=2, edit_request=two_classes).build()
    assert judge_data(run, cells, scrapes, table).detail is None
    found = judge_data(run, cells, scrapes, table, detailed=True).detail
    assert {one.name for one in found.classes} == {"chat", "code"}
    assert found.slowest
    assert found.instants


def test_the_day_by_its_loads():
    facts = facts_of(PLAIN.having(speedup=lambda level: 1.6 - 0.02 * level))
    traffic = Traffic(loads=(16.0, 4.0, 8.0, 11.0), hours=(4.0, 12.0, 6.0, 2.0))
    day = expected_day(E2E, BASE, SPEC, facts.found, facts.loads, traffic)
    assert [(one.level, one.hours) for one in day] == [(4.0, 12.0), (8.0, 6.0), (11.0, 2.0), (16.0, 4.0)]
    assert sum(one.weight for one in day) == pytest.approx(1.0)
    for one in day:  # a day at that load alone gains what the load does
        alone = Traffic(loads=(one.level,), hours=(24.0,))
        gain, _ = expected_gain(E2E, BASE, SPEC, facts.found, facts.loads, alone)
        assert one.speedup.value == pytest.approx(gain.value, rel=1e-9)
        assert one.speedup.low < one.speedup.value < one.speedup.high
    assert day[0].speedup.value > day[1].speedup.value > day[2].speedup.value > day[3].speedup.value


def test_a_day_beyond_the_tested_loads_has_no_loads():
    facts = plain()
    assert expected_day(E2E, BASE, SPEC, facts.found, facts.loads, Traffic(loads=(900.0,), hours=(24.0,))) == ()
