import dataclasses
import math

import pytest
import report_example as example

from loadtest.analyse.estimates import Estimate
from loadtest.report import charts_acceptance, words
from loadtest.report.charts import CHARTS
from loadtest.report.figures import BLUE, PARTS, VERMILLION

BY_NAME = {draw.__name__: draw for draw in CHARTS}


@pytest.mark.parametrize("draw", CHARTS, ids=lambda draw: draw.__name__)
def test_a_chart_states_its_finding_and_names_its_axes_with_units(draw):
    chart = draw(example.run(), example.full())
    assert any(character.isdigit() for character in chart.title)
    assert chart.figure.layout.title.text.replace("<br>", " ") == chart.title
    x, y = chart.figure.layout.xaxis.title.text, chart.figure.layout.yaxis.title.text
    above = chart.figure.layout.annotations  # of tracks one above the other
    y = y or above[0].text
    units = ("users", "requests", "tokens", "min", "ratio", "ms", ", s", "%", "category", "class")
    assert any(unit in x for unit in units), x
    assert any(unit in y for unit in units), y
    assert chart.part in PARTS
    assert chart.alt.startswith(("Line", "Two lines", "Acceptance", "Scatter", "Bars", "Stacked", "Box", "Speed-up by"))
    assert chart.note
    assert chart.figure.data


@pytest.mark.parametrize("draw", CHARTS, ids=lambda draw: draw.__name__)
def test_no_words_lie_within_a_plot_but_those_at_its_points(draw):
    chart = draw(example.run(), example.full())
    within = [note.text for note in chart.figure.layout.annotations if not clear_of_tracks(note, chart.figure.layout)]
    assert within == []
    lines = [shape.name for shape in chart.figure.layout.shapes if shape.showlegend]
    if draw.__name__ in ("speedup", "metrics", "pairs"):
        assert lines == ["no change", "least gain 3 %"][: len(lines)] != []


def clear_of_tracks(note, layout):
    """Say whether a note stands above its track and below the one before."""
    tops = [axis.domain[1] for axis in (layout.yaxis, layout.yaxis2, layout.yaxis3, layout.yaxis4) if axis.domain]
    return (note.xref, note.yref, note.yanchor) == ("paper", "paper", "bottom") and note.y in tops


def test_the_tracks_of_the_timeline_leave_room_for_their_names():
    chart = BY_NAME["over_time"](example.run(), example.full())
    layout = chart.figure.layout
    tracks = [axis.domain for axis in (layout.yaxis, layout.yaxis2, layout.yaxis3, layout.yaxis4)]
    assert [note.text for note in layout.annotations] == [
        "in flight, requests", "waiting, requests", "KV use, %", "acceptance ratio, %",
    ]  # fmt: skip
    above = [1.0, *(low for low, _ in tracks)]
    assert all(room - top >= 0.07 for (_, top), room in zip(tracks, above, strict=False))


def test_a_time_of_0_is_drawn_which_a_logarithmic_axis_cannot():
    full = example.full()
    rows = tuple(
        dataclasses.replace(
            a, tails={**a.tails, "token_gap": dataclasses.replace(a.tails["token_gap"], p50=Estimate(value=0.0))}
        )
        for a in full.arm_levels
    )
    chart = BY_NAME["token_gap"](example.run(), dataclasses.replace(full, arm_levels=rows))
    (line,) = [trace for trace in chart.figure.data if trace.name == "baseline, p50"]
    assert list(line.y) == [0.0] * 7
    assert chart.figure.layout.yaxis.type != "log"
    assert chart.figure.layout.yaxis.range[0] == 0
    assert BY_NAME["token_gap"](example.run(), full).figure.layout.yaxis.type == "log"


def test_a_load_that_a_chart_leaves_out_is_named_beside_it_with_the_reason():
    full = example.full()
    note = BY_NAME["survival"](example.run(), full).note
    said = "Four loads are drawn, so that lines can be told apart; the table below holds 2, 8 and 32 users too."
    assert note.endswith(said)
    less = dataclasses.replace(
        full,
        arm_levels=tuple(a for a in full.arm_levels if (a.arm, a.level) != ("speculative", 32.0)),
        speedups=tuple(s for s in full.speedups if s.level != 32.0),
        why=tuple(w for w in full.why if w.level != 32.0),
    )
    why = "at 32 users: not measured, or in invalid cells alone."
    for name, what in (("throughput", "speculative"), ("ttft", "speculative"), ("tradeoff", "speculative"),
                       ("speedup", "pair of valid cells"), ("metrics", "E2E, TTFT, TPOT, tokens/s"),
                       ("steps", "tokens per step, ratio of step times"), ("survival", "drafts"),
                       ("tokens_per_chunk", "speculative")):  # fmt: skip
        assert BY_NAME[name](example.run(), full).note.count("not measured") == 0, name
        assert f"No {what} {why}" in BY_NAME[name](example.run(), less).note, name


def test_an_interval_many_times_as_wide_as_the_values_differ_does_not_flatten_them_and_is_named():
    full = example.full()

    def widened(one):
        ratio = dataclasses.replace(one.ratio, low=0.01, high=277.8)
        return dataclasses.replace(one, ratio=ratio) if one.level == 2 else one

    wide = dataclasses.replace(full, speedups=tuple(map(widened, full.speedups)))
    for name in ("speedup", "metrics"):
        chart = BY_NAME[name](example.run(), wide)
        low, high = chart.figure.layout.yaxis.range
        assert 0 <= low < 0.9, name
        assert 1.5 < high < 3, name
        assert "An interval runs out of the picture at 2 users: the table below has it." in chart.note, name
        assert "277.80" in str(chart.rows), name
        before = BY_NAME[name](example.run(), full)
        assert (before.figure.layout.yaxis.range, "out of the picture" in before.note) == (None, False), name


def test_what_cannot_be_below_0_is_not_drawn_there():
    full = example.full()
    carried = {"output_tokens_per_s": Estimate(value=100.0, low=-20.0, high=220.0)}
    rows = tuple(dataclasses.replace(a, means={**a.means, **carried}) for a in full.arm_levels)
    chart = BY_NAME["throughput"](example.run(), dataclasses.replace(full, arm_levels=rows))
    assert chart.figure.layout.yaxis.range[0] == 0
    assert "out of the picture at 1, 2, 4, 8, 16, 32 and 64 users" in chart.note


def test_a_time_whose_bound_lies_decades_away_does_not_stretch_the_axis():
    full = example.full()

    def widened(a):
        tail = a.tails["e2e"]
        tail = dataclasses.replace(tail, p95=dataclasses.replace(tail.p95, low=1e-6))
        return dataclasses.replace(a, tails={**a.tails, "e2e": tail})

    wide = dataclasses.replace(full, arm_levels=tuple(map(widened, full.arm_levels)))
    chart, plain = (BY_NAME["e2e"](example.run(), judgement) for judgement in (wide, full))
    assert chart.figure.layout.yaxis.range[0] == pytest.approx(plain.figure.layout.yaxis.range[0], abs=0.05)
    assert "out of the picture" in chart.note
    assert "out of the picture" not in plain.note


def test_the_three_scales_of_acceptance_are_told_as_one_fact():
    full = example.full()
    rates = (0.5, 0.2, 0.1, 0.0, 0.0)
    slots = tuple(
        dataclasses.replace(slot, survival=Estimate(value=value))
        for slot, value in zip(full.findings.acceptance.slots, rates, strict=True)
    )
    acceptance = dataclasses.replace(full.findings.acceptance, slots=slots)
    findings = dataclasses.replace(full.findings, acceptance=acceptance)

    def told(ratio):
        why = tuple(dataclasses.replace(w, acceptance_ratio=ratio) for w in full.why)
        return charts_acceptance.scales(dataclasses.replace(full, findings=findings, why=why))

    said = "Here the rates of the 5 slots add up to 0.80 accepted tokens a draft: with the bonus token an acceptance"
    said += " length of 1.80 where a step drafts"
    assert told(0.16) == f"{said}, and an acceptance ratio of 16 %."
    assert told(0.3) == f"{said}."  # drafts were shorter than five tokens: the ratio is of fewer
    assert charts_acceptance.scales(example.bare()) == ""


def test_a_percentile_without_bound_is_said_to_be_missing_and_why():
    full = example.full()

    def without(a):
        if a.level > 2 or a.arm != "baseline":
            return a
        tail = a.tails["e2e"]
        gone = Estimate(value=math.inf) if a.level == 2 else Estimate()
        return dataclasses.replace(a, tails={**a.tails, "e2e": dataclasses.replace(tail, p95=gone)})

    found = dataclasses.replace(full, arm_levels=tuple(without(a) for a in full.arm_levels))
    note = BY_NAME["e2e"](example.run(), found).note
    assert "No p95 of baseline at 1 user: too few requests to bound it." in note
    assert "No p95 of baseline at 2 users: so many requests failed." in note


@pytest.mark.parametrize("draw", CHARTS, ids=lambda draw: draw.__name__)
def test_a_chart_has_its_figures_as_a_table(draw):
    chart = draw(example.run(), example.full())
    assert chart.rows
    assert {len(row) for row in chart.rows} == {len(chart.columns)}


@pytest.mark.parametrize("draw", CHARTS, ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("judgement", [example.bare(), example.invalid()], ids=["bare", "invalid"])
def test_without_data_there_is_no_chart(draw, judgement):
    assert draw({}, judgement) is None


def at_one_level(full):
    def only(items):
        return tuple(item for item in items if item.level == 8)

    return dataclasses.replace(
        full,
        levels=(8.0,),
        arm_levels=only(full.arm_levels),
        speedups=only(full.speedups),
        why=only(full.why),
        findings=dataclasses.replace(full.findings, first_tokens=only(full.findings.first_tokens)),
        detail=dataclasses.replace(full.detail, classes=only(full.detail.classes), spreads=only(full.detail.spreads)),
    )


@pytest.mark.parametrize("draw", CHARTS, ids=lambda draw: draw.__name__)
def test_one_level_alone_can_be_drawn(draw):
    one = at_one_level(example.full())
    assert draw({}, one).figure.to_plotly_json()["data"]


def test_arms_keep_their_colour_in_every_chart():
    for name in ("throughput", "ttft", "e2e", "tpot", "token_gap", "chunk_gap", "drift"):
        for trace in BY_NAME[name](example.run(), example.judgement()).figure.data:
            assert trace.marker.color is None or trace.marker.color in (BLUE, VERMILLION)
            colour = trace.line.color or trace.marker.color
            assert colour == (BLUE if trace.name.startswith("baseline") else VERMILLION)


def test_the_load_axis_is_logarithmic_with_a_tick_at_every_tested_level():
    axis = BY_NAME["speedup"](example.run(), example.judgement()).figure.layout.xaxis
    assert axis.type == "log"
    assert axis.tickvals == (1, 2, 4, 8, 16, 32, 64)
    assert axis.ticktext == ("1", "2", "4", "8", "16", "32", "64")


def test_ticks_too_close_to_read_lose_their_label():
    full = example.judgement()
    levels = tuple(float(i) for i in range(1, 65))
    chart = BY_NAME["throughput"]({}, dataclasses.replace(full, levels=levels))
    shown = [text for text in chart.figure.layout.xaxis.ticktext if text]
    assert len(chart.figure.layout.xaxis.tickvals) == 64
    assert len(shown) <= 14


def test_the_speedup_chart_shades_the_limit_and_marks_both_crossings():
    chart = BY_NAME["speedup"](example.run(), example.judgement())
    assert (
        chart.title == "Speculation is 1.44× as fast at 1 user and 0.89× at 64 users; break-even at 41 [36, 47] users"
    )
    (shaded,) = [shape for shape in chart.figure.layout.shapes if shape.type == "rect"]
    assert (shaded.x0, shaded.x1) == pytest.approx((37 * 0.88, 37 * 1.13))
    assert {"limit 37 [32, 42]", "break-even 41 [36, 47]"} <= {trace.name for trace in chart.figure.data}


def test_a_limit_that_is_open_on_one_side_is_shaded_to_the_last_level():
    full = example.judgement()
    limit = dataclasses.replace(full.decision.limit, at=Estimate(value=50.0, low=40.0, high=None))
    decision = dataclasses.replace(full.decision, limit=limit)
    chart = BY_NAME["speedup"]({}, dataclasses.replace(full, decision=decision))
    (shaded,) = [shape for shape in chart.figure.layout.shapes if shape.type == "rect"]
    assert (shaded.x0, shaded.x1) == (40.0, 64.0)


def test_titles_follow_the_figures():
    titles = {name: draw(example.run(), example.full()).title for name, draw in BY_NAME.items()}
    assert (
        titles["metrics"] == "At 1 user better by E2E, TPOT, tokens/s; at 64 users worse by E2E, TTFT, TPOT, tokens/s"
    )
    assert titles["throughput"] == (
        "Throughput at 64 users: 3,414 tokens/s (speculative) against 3,818 tokens/s (baseline), −11 %"
    )
    assert (
        titles["ttft"] == "Time to first token, p95, at 64 users: 387 ms (speculative) against 337 ms (baseline), +15 %"
    )
    assert (
        titles["steps"]
        == "Decoding gains up to ≈ 38 users, where the lines cross: at 64 users a step brings 1.82 tokens and costs"
        " 2.03× the time"
    )
    assert titles["drift"] == "Over 1 h 44 min cells stay within ±2.4 % of the mean of their arm and level"


def test_infinite_tails_are_left_out_of_the_curve_and_kept_in_the_table():
    full = example.judgement()
    late = dataclasses.replace(
        full.arm_levels[-1].tails["ttft"], p95=Estimate(value=math.inf, low=0.4, high=math.inf), deepest="p95"
    )
    last = dataclasses.replace(full.arm_levels[-1], tails=full.arm_levels[-1].tails | {"ttft": late})
    chart = BY_NAME["ttft"]({}, dataclasses.replace(full, arm_levels=(*full.arm_levels[:-1], last)))
    drawn = {trace.name: trace for trace in chart.figure.data}
    assert len(drawn["speculative, p95"].x) == 6
    assert chart.rows[-1][2].startswith("∞")
    assert chart.title.endswith("∞ (speculative) against 337 ms (baseline)")


def test_labels_cannot_be_read_as_markup_by_plotly():
    full = example.judgement()
    name = '<a href="javascript:alert(1)">x</a>'
    renamed = dataclasses.replace(
        full,
        arms=("baseline", name),
        arm_levels=tuple(
            dataclasses.replace(a, arm=name if a.arm == "speculative" else a.arm) for a in full.arm_levels
        ),
    )
    figure = BY_NAME["throughput"]({}, renamed).figure
    assert figure.data[1].name == '&lt;a href="javascript:alert(1)"&gt;x&lt;/a&gt;'
    assert "<a" not in figure.layout.title.text


def test_an_open_load_is_named_on_every_axis_and_level_of_its_charts():
    judgement = dataclasses.replace(example.full(), unit="requests/s")
    drawn = words.in_its_unit(lambda judgement: [draw(example.run(), judgement) for draw in CHARTS])(judgement)
    charts = [chart for chart in drawn if chart is not None]
    axes = [chart.figure.layout.xaxis.title.text for chart in charts]
    assert not [text for text in axes if "user" in text]
    assert axes.count("load, requests/s, log scale") >= 5
    assert not [chart.rows for chart in charts if "user" in f"{chart.rows} {chart.note}"]
