"""Counters to τ, step time, acceptance and survival; real transcripts where they exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_run import BASE, SPEC, Made, cell

from loadtest.analyse.counters import GAUGES, NAMES, gauge_mean, growth, summed, value
from loadtest.analyse.explain import edge_error, explain_level, scrapes_by_cell, window_gauge, window_growth
from loadtest.record import Scrape

RECORDED = Path(__file__).parents[2] / "data" / "metrics"


def scrape(moment: str, t_s: float = 0.0, **counters: float) -> Scrape:
    """A scrape with vLLM's names for the meanings given."""
    values = {{**NAMES, **GAUGES}[meaning][0]: v for meaning, v in counters.items()}
    return Scrape(t_s=t_s, arm=SPEC, cell=0, moment=moment, values=values)


def test_growth_between_two_moments() -> None:
    found = growth(
        [scrape("window_open", drafts=10, drafted=30, steps=4), scrape("window_close", drafts=25, drafted=75, steps=4)],
        "window_open", "window_close",
    )  # fmt: skip
    assert found is not None
    assert found.counters == {"drafts": 15, "drafted": 45, "steps": 0}
    assert found.over("drafted", "drafts") == 3.0
    assert found.over("drafted", "steps") is None
    assert found.over("accepted", "drafts") is None


def test_a_restart_or_a_missing_scrape_gives_no_growth() -> None:
    assert (
        growth([scrape("window_open", steps=5), scrape("window_close", steps=4)], "window_open", "window_close") is None
    )
    assert growth([scrape("window_open", steps=5)], "window_open", "window_close") is None
    failed = Scrape(t_s=1, arm=SPEC, cell=0, moment="window_close", values={}, error="refused")
    assert growth([scrape("window_open", steps=5), failed], "window_open", "window_close") is None


def test_older_names_are_understood() -> None:
    old = Scrape(t_s=0, arm=SPEC, cell=0, moment="sample", values={"vllm:time_per_output_token_seconds_count": 7.0})
    assert value(old, "steps") == 7.0
    assert value(old, "drafts") is None


def test_sums_leave_out_what_a_part_lacks() -> None:
    first = growth([scrape("a", steps=1, drafts=1), scrape("b", steps=3, drafts=2)], "a", "b")
    second = growth([scrape("a", steps=1), scrape("b", steps=11)], "a", "b")
    assert first is not None
    assert second is not None
    assert summed([first, second]).counters == {"steps": 12}
    assert summed([]).counters == {}


def test_gauges_are_averaged_inside_the_window_only() -> None:
    seen = [scrape("idle_before", running=0), scrape("window_open", running=10), scrape("sample", running=14),
            scrape("window_close", running=12), scrape("idle_after", running=0)]  # fmt: skip
    assert gauge_mean(seen, "running") == 12.0
    assert gauge_mean(seen, "kv_use") is None


def test_the_recorded_ngram_server() -> None:
    """1152 tokens of 18 requests in 570 decode steps, 585 of 1260 drafted tokens accepted over 327 drafts."""
    values: dict[str, float] = {}
    for line in (RECORDED / "vllm-0.32-ngram-after.txt").read_text().splitlines():
        if line.startswith("vllm:") and "_bucket" not in line:
            name, number = line.split("{")[0], line.rsplit(" ", 1)[1]
            values[name] = values.get(name, 0.0) + float(number)
    zero = Scrape(t_s=0, arm=SPEC, cell=0, moment="window_open", values=dict.fromkeys(values, 0.0))
    after = Scrape(t_s=1, arm=SPEC, cell=0, moment="window_close", values=values, per_position=[211, 178, 123, 73])
    why = explain_level(1.0, [], [cell(0, arm=SPEC, window_open_s=0.0, window_close_s=1.0)], {0: [zero, after]})
    assert why.tau_all == pytest.approx(1134 / 570)
    assert why.tau_drafting == pytest.approx(1 + 585 / 327)
    assert why.acceptance_ratio == pytest.approx(585 / 1260)
    assert why.drafted_per_step == pytest.approx(1260 / 327)
    assert why.survival == pytest.approx((211 / 327, 178 / 327, 123 / 327, 73 / 327))
    assert 1 + sum(why.survival) == pytest.approx(why.tau_drafting)
    assert why.step_candidate_s == pytest.approx(10.744897542997023 / 570)
    assert why.step_ratio is None
    assert why.decode_speedup is None
    assert why.tau_all_baseline is None


def test_decode_speedup_is_an_identity() -> None:
    run, cells, scrapes, _ = Made(levels=(1.0, 64.0), blocks=2, speedup=lambda level: 1.6 if level < 2 else 0.8).build()
    assert run["candidate"] == SPEC
    grouped = scrapes_by_cell(scrapes)
    for level, expected in ((1.0, 1.6), (64.0, 0.8)):
        base, cand = ([c for c in cells if c.arm == arm and c.level == level] for arm in (BASE, SPEC))
        why = explain_level(level, base, cand, grouped)
        assert why.tau_all_baseline == pytest.approx(1.0)
        assert why.tau_all == pytest.approx(2.0)
        assert why.tau_needed == why.step_ratio == pytest.approx(2 / expected)
        assert why.decode_speedup == pytest.approx(expected)
        assert why.survival == pytest.approx((0.6, 0.3, 0.1))
        assert why.running_candidate == level
        assert why.edge_error_ratio == 0.0


def test_edge_error_is_the_worst_share_of_a_window() -> None:
    record = cell(0, window_open_s=10.0, window_close_s=20.0)
    seen = [scrape("window_open", 10.2, steps=1), scrape("window_close", 20.3, steps=2)]
    assert edge_error([record], {0: seen}) == pytest.approx(0.05)
    assert edge_error([record], {}) is None


def test_without_scrapes_there_is_nothing_to_tell() -> None:
    why = explain_level(1.0, [cell()], [cell()], {})
    assert why.tau_all is None
    assert why.survival == ()
    assert why.running_baseline is None
    assert window_growth([cell()], {}).counters == {}
    assert window_gauge([cell()], {}, "running") is None
