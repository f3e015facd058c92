"""First half against second, and MSER-5 beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_run import BASE, SPEC, Made
from test_validity_rules import DRIFTING, STEADY, a_run

from loadtest.analyse.rules import Mark, Unknown
from loadtest.analyse.stationarity import mser5, not_steady, shifts
from loadtest.analyse.table import derive


def test_mser5_cuts_where_the_beginning_differs() -> None:
    rng = np.random.default_rng(3)
    steady = rng.normal(10, 1, size=200)
    assert mser5(np.r_[rng.normal(30, 1, size=50), steady]) == pytest.approx(0.2)
    ramp = np.r_[np.linspace(40, 10, 100), np.full(100, 10.0)]
    assert mser5(ramp) == pytest.approx(0.5, abs=0.03)
    assert mser5(np.full(100, 10.0)) == 0.0
    assert mser5(steady[:49]) is None


def test_mser5_is_the_least_squared_spread_over_what_is_left() -> None:
    series = np.random.default_rng(8).gamma(2.0, size=120)
    means = series.reshape(24, 5).mean(axis=1)
    known = [np.sum((means[d:] - means[d:].mean()) ** 2) / (24 - d) ** 2 for d in range(20)]
    assert mser5(series) == pytest.approx(int(np.argmin(known)) / 24)


def test_a_drift_within_windows_is_told_with_its_size() -> None:
    facts = a_run(DRIFTING, blocks=3)
    found = not_steady(facts)
    assert isinstance(found, Mark)
    assert not found.invalid
    assert found.sentence.startswith(
        "Time per token of speculative rose by 99 % from the first half of the windows to the second at 1 user"
        " (limit 5 %): not steady (MSER-5 "
    )
    own = {(s.arm, s.column): float(s.blocks.mean()) for s in shifts(facts)}
    assert own[SPEC, "tpot_s"] == pytest.approx(np.log(0.201 / 0.101), abs=0.01)
    assert own[BASE, "tpot_s"] == pytest.approx(0.0, abs=1e-6)


def test_steady_windows_and_too_few_blocks() -> None:
    assert not_steady(a_run(STEADY, blocks=3)) is None
    assert not_steady(a_run(STEADY[:120], blocks=1)) == Unknown(
        missing="two blocks with five requests in each half of a window"
    )


def test_noise_between_blocks_is_not_taken_for_a_drift() -> None:
    told = 0
    for seed in range(12):
        made = Made(levels=(1.0, 4.0), blocks=3, noise=0.05, seed=seed, chunks=4, counters=False)
        _, cells, _, table = made.build()
        told += isinstance(not_steady(replace(a_run([], cells=cells), requests=derive(table, cells))), Mark)
    assert told == 0
