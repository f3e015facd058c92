"""What a page says of figures that prove nothing: the words follow the data, and none states noise as a fact."""

import dataclasses
import math

import pytest
import report_example as example

from loadtest.analyse.estimates import Estimate
from loadtest.report import answer, sure, why_words
from loadtest.report.charts import CHARTS
from loadtest.report.view import View


def with_why(**by_level):
    """The example with one term of its explanation set anew, from the lowest load to the highest."""
    full = example.full()
    ((name, values),) = by_level.items()
    why = [dataclasses.replace(one, **{name: value}) for one, value in zip(full.why, values, strict=False)]
    return View(run=example.run(), judgement=dataclasses.replace(full, why=(*why, *full.why[len(why) :])))


def unproven(full):
    """A judgement of whose speed-ups none is proven: each interval from a tenth to ten times its value."""
    wide = [dataclasses.replace(s, ratio=Estimate(value=s.ratio.value, low=s.ratio.value / 10, high=s.ratio.value * 10))
            if s.ratio.value is not None else s for s in full.speedups]  # fmt: skip
    return dataclasses.replace(full, speedups=tuple(wide))


def title(key, judgement):
    drawn = (draw(example.run(), judgement) for draw in CHARTS)
    return next(chart.title for chart in drawn if chart is not None and chart.key == key)


def test_acceptance_is_said_to_stay_only_where_tokens_a_step_do():
    same = [one.tau_all for one in example.full().why]
    assert any("not the acceptance of drafts" in said for said in why_words.why_sentences(with_why(tau_all=same)))
    moved = with_why(tau_all=[1.8, 1.8 * 1.12, *([1.8] * (len(same) - 2))])
    said = " ".join(why_words.why_sentences(moved))
    assert "not the acceptance" not in said
    assert "What changes most with load is the cost of a step; tokens per step differ too, by up to 12 %." in said


def test_counters_and_clients_that_disagree_are_both_quoted():
    full = example.full()
    level = full.why[-1].level
    seen = View(run={}, judgement=full).speedup("tpot", level).ratio.value
    agrees, apart = (
        why_words.why_sentences(with_why(decode_speedup=[1.0] * (len(full.why) - 1) + [seen * factor]))[-1]
        for factor in (math.exp(0.09), math.exp(0.11))
    )
    assert "by the clients' time" not in agrees
    assert f"by the clients' time per output token at {seen:.2f}×: too far apart to rest on either." in apart


def test_a_title_and_a_tile_say_where_nothing_is_proven():
    full = example.full()
    assert title("speedup", full).startswith("Speculation is 1.")
    none = unproven(full)
    assert title("speedup", none).startswith("At no load is speculation proven faster or slower: 1.")
    tiles = {True: answer.tiles(View(run={}, judgement=none)), False: answer.tiles(View(run={}, judgement=full))}
    for nothing, found in tiles.items():
        (tile,) = [one for one in found if one.label.startswith("Speed-up by")]
        assert tile.detail.endswith("; at no load proven above or below 1") == nothing


def test_loads_that_rest_on_fewer_blocks_are_named():
    full = example.full()
    assert "Fewer blocks" not in sure.certainty(View(run=example.run(), judgement=full))
    name = View(run=example.run(), judgement=full).decision_metric
    fewer = [dataclasses.replace(s, blocks=s.blocks[:4]) if (s.metric, s.level) in ((name, 1.0), (name, 8.0)) else s
             for s in full.speedups]  # fmt: skip
    found = View(run=example.run(), judgement=dataclasses.replace(full, speedups=tuple(fewer)))
    assert " Fewer blocks have valid cells of both servers: 4 at 1 and 8 users. " in sure.certainty(found)


@pytest.mark.parametrize(
    ("status", "stages", "said"),
    [
        ("interrupted", "one", ", 28 more planned and never begun, "),
        ("given_up", "one", ", 28 more planned and never begun, "),
        ("complete", "one", ""),
        ("interrupted", "two", ""),  # the first stage was to choose the loads of the second
    ],
)
def test_a_run_that_ended_early_says_how_many_cells_it_left_out(status, stages, said):
    full, run = example.full(), example.run(status=status)  # 84 cells: 7 loads, 6 blocks, 2 servers
    plan, asked = {"blocks": 8, "stages": stages}, {"levels": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]}
    run["experiment"] = run["experiment"] | {"plan": plan, "load": asked}
    found = sure.certainty(View(run=run, judgement=full))
    assert "never begun" in found if said else "never begun" not in found
    assert said in found


@pytest.mark.parametrize(("pairs", "said"), [(59, False), (60, True)])
def test_a_twentieth_of_few_pairs_is_not_spoken_of(pairs, said):
    full = example.full()
    spreads = tuple(dataclasses.replace(spread, pairs=pairs) for spread in full.detail.spreads)
    found = title("pairs", dataclasses.replace(full, detail=dataclasses.replace(full.detail, spreads=spreads)))
    assert f"of {pairs} pairs of the same request" in found
    assert ("one in twenty below" in found) == said


def test_classes_of_which_none_is_proven_are_not_ranked():
    full = example.full()
    classes = tuple(
        dataclasses.replace(
            one, speedups={n: Estimate(value=r.value, low=0.5, high=2.0) for n, r in one.speedups.items()}
        )
        for one in full.detail.classes
    )
    found = title("classes", dataclasses.replace(full, detail=dataclasses.replace(full.detail, classes=classes)))
    assert "none of " in found
    assert "most " not in found
