"""Acceptance by slot, load, time, request, category and position, from counters and requests that are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_run import SPEC, cell, request, table_of
from scipy import stats

from loadtest.analyse.acceptance import BOUND, RATIO, acceptance
from loadtest.analyse.counters import Deltas
from loadtest.analyse.stats import ratio_of_sums
from loadtest.analyse.table import derive
from loadtest.analyse.trends import Counted, trends
from loadtest.record import CellRecord, Request, Scrape


def scrapes(number: int, drafts: float, slots: list[float], drafted: float | None = None) -> list[Scrape]:
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    grown = (drafts, 3 * drafts if drafted is None else drafted, sum(slots))
    made = []
    for moment, share in (("window_open", 0.0), ("window_close", 1.0)):
        values = {f"vllm:spec_decode_{name}_total": share * v for name, v in zip(names, grown, strict=True)}
        made.append(Scrape(t_s=share, arm=SPEC, cell=number, moment=moment, values=values,
                           per_position=[share * s for s in slots]))  # fmt: skip
    return made


def analysed(cells: list[CellRecord], rows: list[Request], counters: dict[int, list[Scrape]], **more: Any) -> Any:
    return acceptance(cells, counters, derive(table_of(rows), cells), **more)


def spec_cell(number: int, **values: Any) -> CellRecord:
    return cell(number, arm=SPEC, **values)


def test_ratio_of_sums_against_scipys_bootstrap_and_by_hand() -> None:
    found = ratio_of_sums([6.0, 9.0, 3.0], [10.0, 20.0, 10.0])
    # 18 ÷ 40; left over −, 6 − 4.5, 9 − 9, 3 − 4.5: √(3/2 · 4.5) ÷ 40; t with 2 degrees of freedom
    half = 4.302653 * math.sqrt(1.5 * 4.5) / 40
    assert (found.value, found.low, found.high) == pytest.approx((0.45, 0.45 - half, 0.45 + half))
    assert found.n == 3
    assert ratio_of_sums([1.0, math.nan], [4.0, 1.0]).value == 0.25
    assert ratio_of_sums([1.0], [4.0]).low is None
    assert ratio_of_sums([0.0], [0.0]).value is None
    rng = np.random.default_rng(1)
    below = rng.gamma(9, 10, 80)
    above = 0.4 * below + rng.normal(0, 3, 80)
    boot = stats.bootstrap((above, below), lambda a, b, axis: a.sum(axis) / b.sum(axis), paired=True, rng=rng,
                           method="basic").confidence_interval  # fmt: skip
    large = ratio_of_sums(above, below)
    assert (large.low, large.high) == pytest.approx((boot.low, boot.high), rel=0.01)


def test_slots_and_levels_are_ratios_of_sums_over_cells() -> None:
    cells = [spec_cell(0, block=0), spec_cell(1, block=1), spec_cell(2, block=0, level=8.0)]
    counters = {0: scrapes(0, 100, [60, 30, 6]), 1: scrapes(1, 300, [210, 120, 24]), 2: scrapes(2, 100, [50, 10, 0])}
    found = analysed(cells, [request(arm=SPEC)], counters)
    assert found.ratio.value == pytest.approx(510 / 1500)
    assert [slot.slot for slot in found.slots] == [1, 2, 3]
    assert [s.survival.value for s in found.slots] == pytest.approx([320 / 500, 160 / 500, 30 / 500])
    assert [s.conditional.value for s in found.slots] == pytest.approx([320 / 500, 160 / 320, 30 / 160])
    assert [g.value.value for g in found.levels] == pytest.approx([450 / 1200, 60 / 300])
    assert [(g.value.n, g.low) for g in found.levels] == [(2, 1.0), (1, 8.0)]
    assert found.slots[0].survival.n == 3
    by_start = analysed(cells, [request(arm=SPEC)], counters, restarted=True)
    assert by_start.slots[0].survival.n == 2  # a start is the unit: cells 0 and 2 belong to one
    assert by_start.slots[0].survival.value == found.slots[0].survival.value


def test_few_cells_leave_an_interval_within_what_a_share_and_a_chunk_can_be() -> None:
    cells = [spec_cell(0, block=0), spec_cell(1, block=1)]
    counters = {0: scrapes(0, 100, [99, 2, 0]), 1: scrapes(1, 100, [80, 30, 0])}
    rows = [request(arm=SPEC, cell=number, block=number, session=number, chunk_tokens=[1, *[tokens] * 3],
                    output_tokens=1 + 3 * tokens, category="a") for number, tokens in ((0, 1), (1, 3))]  # fmt: skip
    found = analysed(cells, rows, counters)
    ends = [(s.low, s.high) for slot in found.slots for s in (slot.survival, slot.conditional) if s.low is not None]
    assert ends
    assert all(0 <= low <= high <= 1 for low, high in ends)
    assert (1.0 in {high for _, high in ends}, 0.0 in {low for low, _ in ends}) == (True, True)
    assert found.of_requests == BOUND
    assert [group.value.low for group in found.categories] == [1.0]


def counted(ratio: Any, *, starts: bool = False, noise: float = 0.002) -> list[Counted]:
    """Six blocks of five levels in mixed order, a cell every 100 s, 10 000 drafted tokens each."""
    rng = np.random.default_rng(5)
    made = []
    for block in range(6):
        levels = rng.permutation([2.0, 4.0, 8.0, 16.0, 32.0])
        for i, level in enumerate(levels.tolist()):
            t = 100.0 * (5 * block + i)
            up = 100.0 * i if starts else t
            value = ratio(level, up, block) + noise * rng.standard_normal()
            record = spec_cell(len(made), level=level, block=block, window_open_s=t - 30, window_close_s=t + 30)
            made.append(Counted(cell=record, deltas=Deltas(counters={"drafted": 1e4, "accepted": 1e4 * value})))
    return made


def test_a_flat_ratio_has_no_trend() -> None:
    flat, drift = trends(counted(lambda level, t, block: 0.4))
    assert flat is not None
    assert drift is not None
    assert (flat.sentence, drift.sentence) == ("", "")
    assert (flat.p_value or 0) > 0.01
    assert (drift.p_value or 0) > 0.01


def test_load_and_time_are_told_apart() -> None:
    flat, drift = trends(counted(lambda level, t, block: 0.5 - 0.02 * math.log2(level) - 0.1 * t / 3600))
    assert flat is not None
    assert drift is not None
    assert (flat.per, drift.per) == ("doubling of the load", "hour")
    for trend, truth in ((flat, -0.02), (drift, -0.1)):
        assert trend.slope.low is not None
        assert trend.slope.high is not None
        assert trend.slope.low < truth < trend.slope.high
        assert trend.slope.high < 0
    assert flat.sentence == "The acceptance ratio falls by 20 % from the lowest to the highest load: it should be flat."
    assert drift.sentence.startswith("The acceptance ratio falls by 2")
    assert drift.sentence.endswith("over the run: it drifts while the server runs.")
    rises, _ = trends(counted(lambda level, t, block: 0.3 + 0.02 * math.log2(level)))
    assert rises is not None
    assert "rises by 22 %" in rises.sentence


def test_the_luck_of_a_start_is_no_trend_and_its_uptime_is() -> None:
    luck = [0.5, 0.42, 0.46, 0.38, 0.36, 0.30]
    made = counted(lambda level, up, block: luck[block], starts=True)
    assert trends(made)[1].sentence  # type: ignore[union-attr]  # taken for one life of a server it drifts
    _, drift = trends(made, restarted=True)
    assert drift is not None
    assert drift.sentence == ""
    aging = counted(lambda level, up, block: luck[block] - 0.6 * up / 3600, starts=True)
    _, drift = trends(aging, restarted=True)
    assert drift is not None
    assert drift.slope.value == pytest.approx(-0.6, abs=0.06)
    assert drift.sentence.endswith("over the life of a server: it drifts while the server runs.")


def test_few_cells_have_no_trend() -> None:
    assert trends(counted(lambda level, t, block: 0.4)[:3]) == (None, None)
    one_level = [c for c in counted(lambda level, t, block: 0.4) if c.cell.level == 8.0]
    flat, drift = trends(one_level)
    assert flat is None
    assert drift is not None


def test_requests_and_categories_from_the_servers_own_figures() -> None:
    rows = [
        request(arm=SPEC, session=i, category="code" if i % 2 else "chat", spec_drafted=100,
                spec_accepted=60 if i % 2 else 20, spec_drafts=25)
        for i in range(40)
    ]  # fmt: skip
    rows += [request(arm=SPEC, session=99, spec_drafted=10, spec_accepted=10, outcome="timeout")]
    found = analysed([spec_cell(0)], rows, {})
    assert found.of_requests == RATIO
    assert [(g.name, g.value.value, g.count) for g in found.categories] == [("chat", 0.2, 20), ("code", 0.6, 20)]
    assert [found.requests[q].value for q in ("p5", "p25", "p50", "p75", "p95")] == [0.2, 0.2, 0.2, 0.6, 0.6]
    assert found.requests_sd == pytest.approx(0.2, rel=0.02)
    assert found.slots == ()
    assert found.ratio.value is None


def test_the_session_is_the_unit_of_a_category() -> None:
    """Four turns that are alike say no more than one."""
    rows = [request(arm=SPEC, session=s, turn=t, category="chat", spec_drafted=10, spec_accepted=accepted)
            for s, accepted in enumerate((2, 4, 6)) for t in range(4)]  # fmt: skip
    group = analysed([spec_cell(0)], rows, {}).categories[0]
    assert (group.value.n, group.count) == (3, 12)
    assert group.value.high == pytest.approx(0.4 + 4.302653 * 0.2 / math.sqrt(3))


def test_without_them_chunks_bound_it() -> None:
    found = analysed([spec_cell(0)], [request(arm=SPEC, session=i, category="chat") for i in range(5)], {})
    assert found.of_requests == BOUND
    assert found.requests["p50"].value == pytest.approx(2.0)  # chunks of 1, 3, 2 and 1: six tokens in three chunks
    assert found.categories[0].value.value == pytest.approx(2.0)


def test_positions_count_the_tokens_that_were_already_out() -> None:
    early = request(arm=SPEC, chunk_tokens=[1, 3, 12, 4], output_tokens=20)  # at 1, 4 and 16 tokens out
    late = request(arm=SPEC, session=1, chunk_tokens=[31, 1, 5, 100], output_tokens=137)  # at 31, 32 and 37
    other = spec_cell(1, block=1)
    found = analysed([spec_cell(0), other], [early, late, request(cell=1, arm=SPEC, block=1)], {}).positions
    assert [(g.name, g.value.value, g.count) for g in found] == [
        ("0 to 15", (3 + 12 + 3 + 2 + 1) / 5, 5), ("16 to 31", (4 + 1) / 2, 2), ("32 to 63", (5 + 100) / 2, 2),
    ]  # fmt: skip


def test_events_that_hold_a_token_each_bound_no_acceptance() -> None:
    each = request(arm=SPEC, tokens_source="timings", chunk_tokens=[1] * 4, output_tokens=4)
    assert analysed([spec_cell(0)], [each], {}) is None
    told = request(arm=SPEC, tokens_source="timings", chunk_tokens=[1] * 4, output_tokens=4, spec_drafted=4,
                   spec_accepted=3)  # fmt: skip
    found = analysed([spec_cell(0)], [told], {})
    assert (found.of_requests, found.requests["p50"].value, found.positions) == ("acceptance ratio", 0.75, ())


def test_nothing_known_is_nothing_said() -> None:
    assert analysed([], [request()], {}) is None
    uncounted = request(arm=SPEC, chunk_tokens=[], tokens_source="none")
    assert analysed([spec_cell(0)], [uncounted], {}) is None
