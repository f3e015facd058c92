"""One fact, one number: where two estimators exist beside each other each says which it is, or one is left out."""

import dataclasses

import pytest
import report_example as example
from parsed import Parsed

from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.findings import Law, Line, LineCrossing
from loadtest.analyse.gate_results import Capacity, Gate, GateOutcome
from loadtest.analyse.results import Answer, Speedup
from loadtest.report import answer, limits, next_steps, tables
from loadtest.report.charts import CHARTS
from loadtest.report.charts_classes import by_class
from loadtest.report.markdown import summary
from loadtest.report.page import page
from loadtest.report.view import View, span_s

DRAW = {draw.__name__: draw for draw in CHARTS}
THROUGHPUT = "output_tokens_per_s"


def with_throughput(base, cand, ratio):
    """Return the run with these plain means and this mean of the blocks' ratios at its 64 users."""
    full = example.full()
    plain = {"baseline": base, "speculative": cand}
    rows = tuple(
        dataclasses.replace(row, means=row.means | {THROUGHPUT: Estimate(value=plain[row.arm])})
        if row.level == 64.0 else row for row in full.arm_levels
    )  # fmt: skip
    given = Speedup(metric=THROUGHPUT, level=64.0, ratio=Estimate(value=ratio, low=0.7, high=1.4, n=6))
    kept = tuple(s for s in full.speedups if (s.metric, s.level) != (THROUGHPUT, 64.0))
    return dataclasses.replace(full, arm_levels=rows, speedups=(*kept, given))


@pytest.mark.parametrize(
    ("base", "cand", "ratio", "title"),
    [
        (80.0, 82.0, 0.985, "block by block −1.5 %, against which the plain means lean"),
        (80.0, 78.0, 0.985, "block by block −1.5 %"),
        (80.0, 78.8, 0.985, "−1.5 %"),
    ],
)
def test_the_chart_and_the_tile_of_throughput_say_the_same_change(base, cand, ratio, title):
    found = with_throughput(base, cand, ratio)
    tile = next(t for t in answer.tiles(View(run={}, judgement=found)) if t.label == "Throughput at 64 users")
    drawn = DRAW["throughput"](example.run(), found).title
    assert tile.value == "−1.5 %"
    assert drawn.endswith(title)
    assert "+2.5 %" not in tile.detail + drawn  # the ratio of the plain means, which nothing judges


@pytest.mark.parametrize(
    ("crossing", "at", "said"),
    [
        (LineCrossing.NOT_SHOWN, Estimate(), "are not shown to cross: their slopes, 10.0 ms and 12.0 ms a request,"),
        (LineCrossing.PAYS_BELOW, Estimate(value=-3.0, low=-9.0, high=-1.0), "do not cross at any load: each further"),
        (LineCrossing.PAYS_BELOW, Estimate(value=39.0, low=35.0, high=44.0), "cross at 39 [35, 44]"),
    ],
)  # fmt: skip
def test_lines_that_are_drawn_across_each_other_are_not_said_never_to_cross(crossing, at, said):
    lines = tuple(
        Line(arm=arm, c1_s=Estimate(value=c1), c2_s=Estimate(value=c2), points=((1.0, 1.0), (64.0, 2.0)))
        for arm, c1, c2 in (("baseline", 0.5, 0.010), ("speculative", 0.4, 0.012))
    )
    full = example.full()
    findings = dataclasses.replace(full.findings, law=Law(lines=lines, crossing=crossing, at=at))
    drawn = DRAW["law"](example.run(), dataclasses.replace(full, findings=findings))
    assert said in drawn.title


def test_classes_without_a_pair_at_the_telling_load_are_counted_beside_those_with_one():
    full = example.full()
    gone = tuple(one for one in full.detail.classes if (one.level, one.name) != (32.0, "rag"))
    found = dataclasses.replace(full, detail=dataclasses.replace(full.detail, classes=gone))
    said = "At 32 users 1 of 2 classes is faster by its own interval (1 more has no pair of cells there)"
    assert said in by_class(View(run={}, judgement=found))


def test_a_last_slot_that_survives_is_not_said_hardly_ever_to():
    full = example.full()
    assert "hardly ever survives" in DRAW["slots"](example.run(), full).note  # 0.52 · 0.4⁴ is 1.3 %
    slots = tuple(
        dataclasses.replace(slot, survival=Estimate(value=max(0.29, slot.survival.value)))
        for slot in full.findings.acceptance.slots
    )
    acceptance = dataclasses.replace(full.findings.acceptance, slots=slots)
    found = dataclasses.replace(full, findings=dataclasses.replace(full.findings, acceptance=acceptance))
    note = DRAW["slots"](example.run(), found).note
    assert note == "Of all loads. Even slot 5 survives in 29 % of drafts."


def test_a_run_has_one_length_in_every_chart():
    full = example.full()
    titles = {name: DRAW[name](example.run(), full).title for name in ("over_time", "drift")}
    lengths = {name: title.removeprefix("Over ").split(" cells")[0].split(" min")[0] for name, title in titles.items()}
    assert len(set(lengths.values())) == 1, titles
    assert span_s(full.cells) == pytest.approx(6285.0)


def test_candidates_of_one_run_share_its_blocks_and_their_length():
    full = example.full()
    early = tuple(cell for cell in full.cells if cell.cell < 40)
    pair = dataclasses.replace(full, cells=early)
    whole = dataclasses.replace(full, arms=("baseline", "a", "b"), pairs=(pair, full))
    first, second = (View(run=example.run(), judgement=own, whole=whole) for own in (pair, full))
    assert next_steps._block_s(first) == next_steps._block_s(second) == pytest.approx(6285.0 / 6)
    assert all(own.whole is whole for own in View(run=example.run(), judgement=whole).pairs.values())


def test_every_limit_of_the_page_says_what_it_is_for_and_one_of_them_decides():
    asked = Gate(
        outcome=GateOutcome.PASS, exit_code=0, headline="",
        capacities=(Capacity(arm="baseline", form=Crossing.PAYS_UP_TO, at=Estimate(value=41.0)),),
    )  # fmt: skip
    full = dataclasses.replace(example.full(), gate=asked)
    table = tables.break_evens(View(run=example.run(), judgement=full))
    uses = {row[0]: row[table.columns.index("what it is for")] for row in table.rows}
    assert uses["limit of the decision"] == "decides: the recommendation is its lower end"
    assert uses["end-to-end time"] == "where the whole gain of the metric that decides is gone; decides nothing"
    assert uses["time per output token"] == "where TPOT is as good on both servers; decides nothing"
    assert [name for name, use in uses.items() if use.startswith("decides")] == ["limit of the decision"]
    assert uses["decoding, by the servers' counters"].startswith("explains")
    assert uses["straight lines over requests in flight"].startswith("a check")
    assert uses["capacity of baseline"].startswith("up to where the objectives are met")
    found = dataclasses.replace(example.full().decision, answer=Answer.NEVER_PAYS)
    never = tables.break_evens(View(run={}, judgement=dataclasses.replace(example.full(), decision=found)))
    assert never.rows[0][table.columns.index("what it is for")] == "decides: there is none"


def test_the_break_even_says_how_it_stands_to_the_limit_that_decides():
    full = example.full()
    decides = "Beyond it nothing is gained; what decides is the limit, which asks for 3 %."
    said = limits.break_even(View(run=example.run(), judgement=full))
    assert said == f"{full.decision.break_even.sentence} {decides}"
    assert decides in summary(example.run(), full)
    assert decides in Parsed(page(example.run(), full)).text("answer").replace("\u00a0", " ")
    never = dataclasses.replace(full.decision, answer=Answer.NEVER_PAYS)
    assert decides not in limits.break_even(View(run={}, judgement=dataclasses.replace(full, decision=never)))
