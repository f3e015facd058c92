"""What a reader who has the page alone takes from it: each figure beside what it is, and what to do next."""

import dataclasses
import io
import math

import pytest
import report_cases as cases
import report_example as example
from parsed import Parsed
from rich.console import Console

from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.findings import TailRatio
from loadtest.analyse.gate_results import Gate, GateOutcome
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.results import Answer, BreakEven, Finding
from loadtest.report import answer, header, next_steps, rules, sure, tables, tables_detail, vocabulary, why_words
from loadtest.report.charts import CHARTS
from loadtest.report.markdown import summary
from loadtest.report.page import page
from loadtest.report.terminal import print_summary
from loadtest.report.view import View


def on_terminal(judgement):
    out = io.StringIO()
    print_summary(Console(file=out, width=80), header_of(), judgement)
    return out.getvalue()


LOSING = "this is of the mean: proven worse is E2E p90 +9.4 % at 8 users"
AGAIN = "a user sends again when the last request is done"
DRAW = {draw.__name__: draw for draw in CHARTS}
DECIDED = {"min_gain": 0.03, "ttft_margin": 0.1, "on_time_margin": 0.01, "ttft_ignore_below_s": 0.1}


def header_of(**experiment):
    return example.run(experiment={"decision": DECIDED, **experiment})


def view(judgement=None, run=None):
    return View(run=header_of() if run is None else run, judgement=judgement or example.full())


def decided(judgement=None, **changes):
    full = judgement or example.full()
    return dataclasses.replace(full, decision=dataclasses.replace(full.decision, **changes))


@pytest.fixture(scope="module")
def shown():
    """Return the page of a run in which everything that may be said beside the answer has to be."""
    found = with_tails(losing(8.0, "p90", WORSE))
    cut = tuple(dataclasses.replace(a, finish_reasons={"length": 9, "stop": 1}) for a in found.arm_levels)
    run = header_of(load={"kind": "closed", "think_time": 0.0}, generation={"max_tokens": 64})
    return Parsed(page(run, dataclasses.replace(found, arm_levels=cut)))


def test_the_top_of_the_page_answers_what_is_asked_first(shown):
    top = shown.text("answer")
    for said in (
        f"Recommendation: on up to 32 users (the lower end of the limit's interval; {LOSING})",
        f"closed loop, no think time ({AGAIN})",
        "estimated at 37 [32, 42] users, between the tested 32 and 64",
        "Next Start each server several times",
        "Answers cut at max tokens (64): 90 % (baseline), 90 % (speculative).",
        "Decoding stops gaining at ≈ 38 users",
        "7 loads, 6 blocks (a visit to every server at a load, close in time)",
    ):
        assert said in top.replace("\u00a0", " "), said


def first_token_tile(pooled: float, **changes):
    """Return the tile of a run whose worst guard is 1.75× at 32 users, the candidate's pooled p95 being given."""
    full = example.full()
    worst = dataclasses.replace(full.decision.guards[5], finding=Finding.HOLDS, statistic="p95",
                                ratio=Estimate(value=1.752, low=1.551, high=1.98), **changes)  # fmt: skip
    p95 = {"baseline": 0.028, "speculative": pooled}
    rows = tuple(
        dataclasses.replace(row, tails=row.tails | {"ttft": dataclasses.replace(
            row.tails["ttft"], p95=Estimate(value=p95[row.arm], low=0.02, high=0.06))})
        for row in full.arm_levels
    )  # fmt: skip
    found = dataclasses.replace(decided(full, guards=(worst,)), arm_levels=rows)
    return next(tile for tile in answer.tiles(view(found)) if tile.label == "Time to first token, p95")


def test_a_ratio_over_blocks_and_pooled_percentiles_are_told_apart_in_one_tile():
    tile = first_token_tile(0.0515)
    assert tile.value == "+75 %"
    assert tile.detail == (
        "[+55 %, +98 %] at 32 users, the only load of 7 with enough requests, mean of the blocks' ratios; pooled"
        " 51.5 ms against 28.0 ms; guard holds: within 100 ms"
    )
    assert "pooled" not in first_token_tile(0.0490).detail  # 49.0 ÷ 28.0 is +75 % as well
    assert "49.0 ms against 28.0 ms" in first_token_tile(0.0490).detail
    assert " against " not in first_token_tile(0.0270).detail  # of few requests it may lean the other way


def test_a_guard_stands_beside_what_it_allows_and_both_tails():
    full = example.full()
    excused = dataclasses.replace(full.decision.guards[5], finding=Finding.HOLDS, statistic="p95",
                                  ratio=Estimate(value=1.75, low=1.55, high=1.98))  # fmt: skip
    others = tuple(dataclasses.replace(excused, name=name, ratio=Estimate(value=0.0, low=0.0, high=0.0), statistic="")
                   for name in ("on_time", "error_ratio"))  # fmt: skip
    found = view(decided(guards=(excused, *others)))
    table = rules.guards(found)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["allowed"] == "1.10×, or within 100 ms"
    assert (row["baseline's"], row["candidate's"]) == ("200 ms", "225 ms")
    assert [line[table.columns.index("allowed")] for line in table.rows[1:]] == ["1 point lower", "no more"]
    assert rules.excused(found, excused)
    within = dataclasses.replace(excused, ratio=Estimate(value=1.02, low=0.98, high=1.06))
    assert not rules.excused(found, within)
    assert not rules.excused(View(run=example.run(), judgement=found.judgement), excused)  # it has no absolute rule
    bare = View(run={}, judgement=found.judgement)
    assert rules.allowed(bare, excused) == "–"


def losing(level: float, statistic: str, speedup: Estimate, metric: str = "e2e") -> TailRatio:
    return TailRatio(
        metric=metric, level=level, statistic=statistic, speedup=speedup, requests=265, requests_needed=132
    )


WORSE = Estimate(value=0.914, low=0.888, high=0.961)
OPEN = Estimate(value=0.95, low=0.90, high=1.01)


def with_tails(*tails: TailRatio):
    full = decided(guards=tuple(dataclasses.replace(g, finding=Finding.HOLDS) for g in example.full().decision.guards))
    return dataclasses.replace(full, findings=dataclasses.replace(full.findings, tails=tails))


def test_a_load_that_pays_shows_the_tail_that_is_proven_worse_in_every_form():
    found = with_tails(losing(8.0, "p50", OPEN), losing(8.0, "p90", WORSE), losing(8.0, "p95", OPEN),
                       losing(8.0, "p95", Estimate(value=0.7, low=0.6, high=0.8), "ttft"))  # fmt: skip
    assert sure.losing_tails(view(found)) == LOSING
    table = tables.levels(view(found))
    rows = {row[:2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["8 users", "speculative"]["verdict"] == "pays"
    assert rows["8 users", "speculative"]["percentiles proven worse"] == "E2E p90 +9.4 %, TTFT p95 +43 %"
    assert rows["4 users", "speculative"]["percentiles proven worse"] == "–"
    assert rows["8 users", "baseline"]["percentiles proven worse"] == ""
    for text in (summary(header_of(), found), on_terminal(found), Parsed(page(header_of(), found)).text("answer")):
        assert f"Recommendation: on up to 32 users (the lower end of the limit's interval; {LOSING})" in " ".join(
            text.replace("\u00a0", " ").replace("**", "").split()
        )
    chart = DRAW["speedup"](header_of(), found)
    assert {row[0]: row[2:4] for row in chart.rows}["8 users"] == ("pays", "E2E p90 +9.4 %, TTFT p95 +43 %")


@pytest.mark.parametrize("tails", [(), (losing(8.0, "p90", OPEN),), (losing(64.0, "p90", WORSE),)])
def test_no_word_on_tails_that_are_not_proven_worse_where_it_pays(tails):
    assert sure.losing_tails(view(with_tails(*tails))) == ""


@pytest.mark.parametrize(
    ("kind", "at", "reason"),
    [
        (Answer.PAYS_UP_TO, Estimate(value=25.4, low=23.1, high=27.6), "the lower end of the limit's interval"),
        (
            Answer.PAYS_UP_TO,
            Estimate(value=3.6, low=1.6, high=4.0),
            "the lower end of the limit's interval, 1.6, in whole users",
        ),
        (Answer.PAYS_UP_TO, Estimate(value=16.0, low=16.0, high=32.0), "the highest tested load proven"),
        (Answer.PAYS_UP_TO, Estimate(value=25.4, high=27.6), ""),
        (Answer.PAYS_EVERYWHERE, Estimate(), "tested from 1 to 64 users; beyond, nothing is said"),
        (Answer.PAYS_IN_BAND, Estimate(), "the tested loads at which it is proven"),
        (Answer.NEVER_PAYS, Estimate(), ""),
        (Answer.CANNOT_TELL, Estimate(), ""),
    ],
)
def test_the_recommendation_says_why_it_ends_there(kind, at, reason):
    limit = BreakEven(metric="e2e", threshold=1.03, form=Crossing.PAYS_UP_TO, at=at)
    found = decided(answer=kind, limit=limit, recommendation="on up to 23 users")
    assert sure.recommendation_reason(view(found)).partition("; this is of the mean")[0] == reason
    shown = f"Recommendation: on up to 23 users ({reason}" if reason else "Recommendation: on up to 23 users"
    assert shown.replace("Recommendation:", "**Recommendation:**") in summary(header_of(), found)


@pytest.mark.parametrize("outcome", GateOutcome)
@pytest.mark.parametrize("kind", [Answer.PAYS_EVERYWHERE, Answer.NEVER_PAYS])
def test_what_speed_alone_recommends_is_said_to_be_that_where_the_gate_does_not_pass(kind, outcome):
    gated = Gate(outcome=outcome, exit_code=0, headline="")
    found = dataclasses.replace(decided(answer=kind, recommendation="on"), gate=gated)
    warned = outcome is not GateOutcome.PASS and kind is Answer.PAYS_EVERYWHERE
    said = f"(by speed alone; the gate says {vocabulary.OUTCOMES[outcome]}"
    for text in (on_terminal(found), summary(header_of(), found), Parsed(page(header_of(), found)).text()):
        assert (said in " ".join(text.split())) == warned


STARTS = {"starts": 4}
SIMULATED = {"simulated": {"world": "default"}}
REAL = {"simulated": None}
KINDS = [
    ("pays up to", SIMULATED, "Measure your own servers, at their addresses", "Start each server several times"),
    ("pays up to", REAL, "Start each server several times", "Measure your own servers"),
    ("pays up to", REAL | STARTS, "Test loads between 4 and 16 users: the limit", "Start each server several times"),
    ("no crossing", REAL | STARTS, "Test above 64 users: the limit lies beyond", "Test loads between"),
    ("one block", REAL | STARTS, "At least 3 blocks", "Test loads between"),
    ("one arm", REAL, "Hold it against objectives (slo.toml: a file of yours)", "Start each server"),
    ("A/A", REAL, "Measure the pair held against this run", "Start each server"),
    ("invalid", SIMULATED, "Mend what makes this run invalid", "Measure your own servers"),
    ("never", REAL | STARTS | {"status": "interrupted"}, "Measure the cells that are missing", "Test loads"),
    ("never", REAL | STARTS, "Try another method, or fewer draft tokens: decoding alone never gains (at", "Test"),
    ("band", REAL | STARTS, "Test loads between 1 and 4 users, and 16 and 64 users: the band has its ends there",
     "Test above"),
]  # fmt: skip


def test_a_step_that_would_measure_the_simulated_servers_again_says_so():
    run, judgement = cases.case("pays up to")
    real, model = (next_steps.next_steps(View(run=run | STARTS | changes, judgement=judgement))
                   for changes in (REAL, SIMULATED))  # fmt: skip
    again = "With the simulated servers again: "
    measuring = [step for step in model[1:] if step.command.startswith("loadtest run ")]
    assert measuring
    assert all(step.text.startswith(again) for step in measuring)
    told = {step.text.removeprefix(again).lower() for step in measuring}
    assert told <= {step.text.lower() for step in real}
    assert not [step for step in (*real, model[0]) if step.text.startswith(again)]


@pytest.mark.parametrize(("name", "changes", "first", "absent"), KINDS)
def test_what_is_next_follows_from_the_run_and_its_verdict(name, changes, first, absent):
    run, judgement = cases.case(name)
    steps = next_steps.next_steps(View(run=run | changes, judgement=judgement))
    assert steps[0].text.startswith(first)
    assert len(steps) <= next_steps.MOST
    assert not [step for step in steps if step.text.startswith(absent)]
    shown = summary(run | changes, judgement).replace("\\", "").replace("`", "")
    assert all(str(step) in shown for step in steps)
    below = shown.partition("**Next:**\n\n")[2].partition("\n\n")[0]
    assert below.count("\n") == len(steps) - 1  # no other list runs on from this one


def test_what_would_settle_it_stands_under_next_with_the_option_that_does_it():
    found = decided(
        would_settle="About 4 more blocks would settle 32 users if the noise stays the same.", more_blocks=4
    )
    run = header_of(plan={"blocks": 6}) | {"folder": "20261129T210000Z-chat", "command": "loadtest run chat.py"}
    (step,) = [one for one in next_steps.of_answer(view(found, run)) if one.text.startswith("About 4 more blocks")]
    # 84 cells, one every 75 s, of which the last ends after 60 s of window: 6 blocks in 6285 s, and a tenth to spare
    said = "(a block of all loads and servers took 17 min 28 s, so 1 h 9 min in all;"
    said += " a run that goes on is judged again after 6 more)."
    assert step.text.endswith(said)
    assert step.command == "loadtest run --resume reports/20261129T210000Z-chat --budget +116m"
    last = view(found, run | {"look": {"number": 3, "of": 3}})
    (step,) = [one for one in next_steps.of_answer(last) if "4 more" in one.text]
    assert step.command == "loadtest run chat.py --blocks 18"


@pytest.mark.parametrize(
    ("cells", "changes", "window"),
    [
        (42, {"requests": 4}, "150s"),  # 60 s hold 4, so that 150 hold 10
        (42, {"requests": 0}, "600s"),
        (42, {"e2e_mean_s": 71.0}, "80s"),  # a request that lasts longer than the window
        (41, {"requests": 4}, ""),  # of 84 cells: fewer than half are a matter of their own marks
        (84, {"requests": 10}, ""),
    ],
)
def test_next_asks_for_longer_windows_where_most_cells_hold_hardly_a_request(cells, changes, window):
    full = example.full()
    short = tuple(dataclasses.replace(cell, **changes) if i < cells else cell for i, cell in enumerate(full.cells))
    found = view(dataclasses.replace(full, cells=short))
    steps = [step for step in next_steps.next_steps(found) if step.text.startswith("Longer windows before all")]
    assert len(full.cells) == 84
    assert [step.command.rpartition(" --window ")[2] for step in steps] == ([window] if window else [])
    assert not [s for s in next_steps.next_steps(view(found.judgement, {**found.run, "smoke": True})) if s in steps]


def test_a_load_that_only_a_guard_without_data_leaves_open_is_named_with_what_it_lacks():
    full = decided(answer=Answer.CANNOT_TELL)
    lacking = [dataclasses.replace(g, finding=Finding.NO_DATA, sentence="its median needs 14 in each arm")
               for g in full.decision.guards if g.level in (2.0, 64.0)]  # fmt: skip
    steps = tuple(map(str, next_steps.of_answer(view(decided(full, guards=tuple(lacking))))))
    said = "At 2 users only data are missing (longer windows): its median needs 14 in each arm: loadtest run "
    assert steps[0].startswith(said)
    assert steps[0].endswith(" --window 120s")  # twice the minute that they had
    assert not [step for step in steps if step.startswith("At 64 users")]  # slower: no data would help it
    assert not [step for step in steps if "Should you need" in step]  # nothing is proven that a greater gain would end


def test_a_load_pays_only_where_the_decision_claims_it():
    full = example.full()
    assert view(full).verdict(8.0) == "pays"
    assert view(decided(answer=Answer.CANNOT_TELL)).verdict(8.0) == "cannot tell"
    band = dataclasses.replace(full.decision.limit, regions=((1.0, 2.0), (8.0, 16.0)))
    found = view(decided(answer=Answer.PAYS_IN_BAND, limit=band))
    assert [found.verdict(level) for level in (1.0, 2.0, 4.0, 8.0)] == ["pays", "pays", "cannot tell", "pays"]
    assert view(decided(answer=Answer.PAYS_EVERYWHERE)).verdict(8.0) == "pays"


def test_next_names_the_greater_gain_that_fewer_loads_prove_and_a_slot_that_is_hardly_accepted():
    steps = [step.text for step in next_steps.of_answer(view())]
    assert "Should you need 10 % instead of 3 %, it is proven at 1, 2, 4, 8 and 16 users alone." not in steps
    assert "Should you need 20 % instead of 3 %, it is proven at 1, 2, 4 and 8 users alone." in steps
    rare = "Try fewer draft tokens: of 5 the last is accepted in 1.3 % of drafts, and is drafted and verified in all."
    assert rare in steps
    full = example.full()
    short = dataclasses.replace(full.findings.acceptance, slots=full.findings.acceptance.slots[:2])
    kept = dataclasses.replace(full, findings=dataclasses.replace(full.findings, acceptance=short))
    assert not [step for step in next_steps.of_answer(view(kept)) if "fewer draft tokens" in step.text]


def test_next_names_the_requests_that_bound_the_tail_where_it_pays():
    few = TailRatio(metric="e2e", level=8.0, statistic="p95", requests=265, requests_needed=373)
    said = "Longer windows bound the tail where it pays: the p95 of E2E at 8 users needs 373 requests and has 265."
    (step,) = [step for step in next_steps.of_answer(view(with_tails(few))) if step.text == said]
    assert step.command.endswith(" --window 90s")  # 60 s × 373 ÷ 265 are 84.5 s
    enough = (dataclasses.replace(few, requests=400), dataclasses.replace(few, level=64.0))
    assert not [step for step in next_steps.of_answer(view(with_tails(*enough))) if "bound the tail" in step.text]


def test_how_sure_explains_its_words_where_they_are_first_used(shown):
    said = sure.certainty(view())
    assert said.startswith("With 95 % confidence the limit lies between 32 and 42 users. 7 loads, 6 blocks (a visit to")
    assert sum(bool(cell.marks) for cell in view().judgement.cells) == 4  # of which one cell is the invalid one
    assert "83 of 84 cells (one server at one load, once) valid (3 of them with a quality mark), " in said
    text = shown.text("definitions")
    for word in ("arm one server under test", "cell one arm at one level", "block one visit to every arm"):
        assert word in text


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Answer.PAYS_EVERYWHERE, "The lowest end of a 95 % interval of the speed-up is 0.87×, at 64 users. 7 loads"),
        (Answer.NEVER_PAYS, "The highest end of a 95 % interval of the speed-up is 1.48×, at 1 user. 7 loads"),
        (Answer.CANNOT_TELL, "7 loads"),
        (Answer.PAYS_IN_BAND, "7 loads"),
    ],
)
def test_how_sure_begins_with_the_bound_that_the_answer_rests_on(kind, said):
    assert sure.certainty(view(decided(answer=kind))).startswith(said)


@pytest.mark.parametrize(
    ("load", "unit", "said", "carried"),
    [
        ({"kind": "closed", "think_time": 0.0}, "users", f"closed loop, no think time ({AGAIN})", "No user pauses"),
        ({"kind": "closed", "think_time": 1.0}, "users",
         f"closed loop, think times × 1 ({AGAIN} and its think time over)", "With think time"),
        ({"kind": "open", "arrivals": "poisson", "shape": "steady", "think_time": 0.0}, "requests/s",
         "open load, poisson arrivals, no think time", "In open load"),
    ],
)  # fmt: skip
def test_the_load_is_explained_and_throughput_speaks_of_this_load(load, unit, said, carried):
    judgement = dataclasses.replace(example.full(), unit=unit)
    run = header_of(load=load)
    assert dict(header.conditions(View(run=run, judgement=judgement)))["load"] == said
    assert DRAW["throughput"](run, judgement).note.startswith(carried)


def test_where_every_user_is_in_flight_nobody_pauses_whatever_the_factor_is():
    full = example.full()
    busy = tuple(dataclasses.replace(item, in_flight=0.999 * item.level) for item in full.arm_levels)
    run = header_of(load={"kind": "closed", "think_time": 1.0})
    assert View(run=run, judgement=full).pauses  # 0.94 of the users are in flight
    assert not View(run=run, judgement=dataclasses.replace(full, arm_levels=busy)).pauses


def test_answers_cut_at_the_most_tokens_are_told_by_arm():
    full = example.full()
    reasons = {"baseline": {"length": 90, "stop": 10}, "speculative": {"length": 89, "stop": 11}}
    cut = dataclasses.replace(full, arm_levels=tuple(
        dataclasses.replace(item, finish_reasons=reasons[item.arm]) for item in full.arm_levels))  # fmt: skip
    run = header_of(generation={"max_tokens": 64})
    said = "Answers cut at max tokens (64): 90 % (baseline), 89 % (speculative)."
    said += " With longer answers decoding would count for more than here, and first tokens for less."
    assert sure.cut_answers(View(run=run, judgement=cut)) == said
    assert said in summary(run, cut).replace("\\", "")
    assert sure.cut_answers(view()) == ""
    table = tables.outcomes(View(run=run, judgement=cut))
    assert {row[-1] for row in table.rows} == {"90 %", "89 %"}
    assert {row[-1] for row in tables.outcomes(view(example.bare())).rows} == {"–"}


def test_where_decoding_stops_is_not_read_out_of_noise_and_a_change_between_the_ends_is_seen():
    run, judgement = cases.case("A/A")
    assert not [said for said in why_words.why_sentences(View(run=run, judgement=judgement)) if "stops gaining" in said]
    run, judgement = cases.case("band")
    assert "What changes with load is the cost of a step, not the acceptance of drafts." in why_words.why_sentences(
        View(run=run, judgement=judgement)
    )


def test_words_and_chart_agree_on_where_decoding_stops_gaining():
    gains = {1.0: 1.4, 4.0: 1.2, 16.0: 1.05, 64.0: 0.9}
    load, low, high = why_words.meeting(gains)
    assert (low, high) == (16.0, 64.0)
    way = math.log(load / low) / math.log(high / low)
    assert (1 - way) * math.log(1.05) + way * math.log(0.9) == pytest.approx(0, abs=1e-12)  # on the line between
    assert why_words.meeting({1.0: 1.4, 4.0: 1.2}) is None
    assert why_words.meeting({1.0: 0.9, 4.0: 0.8}) is None
    chart = DRAW["steps"](header_of(), example.full())
    tau, cost = chart.figure.data
    over = [x for x, brings, costs in zip(tau.x, tau.y, cost.y, strict=True) if brings > costs]
    found = why_words.meeting({why.level: why.decode_speedup for why in example.full().why})
    assert max(over) < found[0] < 64
    assert f"≈ {found[0]:.0f} users, where the lines cross" in chart.title
    said = "Decoding stops gaining at ≈ 38 users (interpolated between 32 and 64)"
    assert why_words.why_sentences(view())[0].startswith(said)
    assert chart.note.endswith(
        "by time per output token speculation is proven faster at 1, 2, 4, 8, 16 and 32 users and slower at 64 users."
    )


def test_an_end_to_end_time_that_stops_gaining_before_decoding_does_is_explained_by_first_tokens():
    full = example.full()
    even = dataclasses.replace(full.decision.break_even, at=Estimate(value=31.3, low=28.8, high=33.7))
    said = why_words.why_sentences(view(decided(break_even=even)))[0]
    assert said == (
        "Decoding stops gaining at ≈ 38 users (interpolated between 32 and 64); end-to-end time does so at 31 already,"
        " since first tokens come later."
    )
    on_time = tuple(dataclasses.replace(s, ratio=Estimate(value=1.0, low=0.97, high=1.03)) if s.metric == "ttft" else s
                    for s in full.speedups)  # fmt: skip
    same = dataclasses.replace(decided(break_even=even), speedups=on_time)
    assert why_words.why_sentences(view(same))[0].endswith("(interpolated between 32 and 64).")


def test_the_scales_of_acceptance_have_names_of_their_own(shown):
    text = shown.text("acceptance")
    names = ("Acceptance ratio : accepted ÷ drafted", "Acceptance length τ: tokens", "Per-position acceptance rate")
    assert all(name in text for name in names)
    titles = {name: DRAW[name](header_of(), example.full()).title for name in
              ("slots", "survival", "categories", "requests", "acceptance_over_time")}  # fmt: skip
    assert titles["slots"].startswith("Per-position acceptance rate: 52 % at slot 1, 1.3 % at slot 5; 50 % of those")
    assert titles["survival"].startswith("Per-position acceptance rate at 64 users: 52.2 % at slot 1, 1.5 % at slot 5;")
    assert titles["categories"].startswith("Acceptance ratio by category: most in code (18.4 %), least in rag")
    assert titles["requests"].startswith("Acceptance ratio by request: half lie between 10 % and 22 %")
    assert titles["acceptance_over_time"].startswith("The acceptance ratio of single cells lies between 16 % and")


def test_loads_that_the_chart_of_classes_leaves_out_are_named():
    note = DRAW["classes"](header_of(), example.full()).note
    assert note.endswith("Not drawn: 2, 4, 8 and 16 users; their figures stand in the table below.")


def test_the_table_of_draft_tokens_says_which_metric_it_follows_and_where_the_answers_limit_lies(shown):
    said = tables_detail.batch_words(view())
    assert said == (
        "The rows follow time per output token; the answer follows end-to-end time. Nothing is drafted beyond what the"
        " answer recommends (on up to 32 users, here 36 running), nor where nothing was measured. Running requests are"
        " what the server works on at once; users may also wait."
    )
    assert said in shown.text("why").replace("\u00a0", " ")
    model = tables_detail.batch_words(view(run=header_of() | SIMULATED))
    assert model == f"{said} These figures are a model's: measure your own servers first."
    limit = dataclasses.replace(example.full().decision.limit, metric="tpot")
    same = tables_detail.batch_words(view(decided(limit=limit)))
    assert same.startswith("The rows follow time per output token, as the answer does. Nothing is drafted beyond")


def test_gaps_have_one_name_in_sentences_and_tables():
    for name in ("ttft", "ttft_visible", "e2e", "tpot", "token_gap", "chunk_gap", "worst_stall", "tokens_per_chunk"):
        assert vocabulary.metric(name).label == BY_NAME[name].label
