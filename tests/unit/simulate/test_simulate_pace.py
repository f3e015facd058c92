"""A speed that wanders: as much and as slowly as it is told to, whether steps are run one by one or ahead."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from loadtest.simulate.draws import mix
from loadtest.simulate.engine import Engine
from loadtest.simulate.jobs import Ask, Job
from loadtest.simulate.models import ArmModel
from loadtest.simulate.pace import Wander
from loadtest.simulate.worlds import H100, drafting

RESTLESS = replace(drafting(H100, (0.6, 0.6)), wander_sd=0.2, wander_s=0.4)


def test_it_wanders_as_much_and_as_slowly_as_it_is_told_to() -> None:
    wander = Wander(7, 0.05, 2.0)
    at_s = np.arange(0, 40_000, 0.5)
    levels = np.log([wander.factor(t)[0] for t in at_s])
    assert np.std(levels) == pytest.approx(0.05, rel=0.05)
    assert np.mean(levels) == pytest.approx(0.0, abs=0.003)
    for lag in (2, 4, 8):  # 1, 2 and 4 s
        together = np.corrcoef(levels[:-lag], levels[lag:])[0, 1]
        assert together == pytest.approx(math.exp(-0.5 * lag / 2.0), abs=0.03)


def test_it_begins_in_equilibrium_and_each_seed_has_a_way_of_its_own() -> None:
    firsts = np.log([Wander(seed, 0.05, 2.0).factor(0.0)[0] for seed in range(2000)])
    assert np.std(firsts) == pytest.approx(0.05, rel=0.06)
    assert Wander(1, 0.05, 2.0).factor(3.0) == Wander(1, 0.05, 2.0).factor(3.0) != Wander(2, 0.05, 2.0).factor(3.0)


def test_a_factor_holds_until_the_time_it_says() -> None:
    wander = Wander(3, 0.05, 2.0)
    factor, until_s = wander.factor(10.1)
    assert until_s == pytest.approx(10.5)
    assert wander.factor(10.49)[0] == factor
    assert wander.factor(10.5)[0] != factor


def _served(arm: ArmModel, *, ahead: bool) -> list[Job]:
    engine = Engine(arm, 5, 30.0)
    jobs = [engine.submit(30 + 0.05 * n, Ask(key=mix(n), prompt_tokens=60, output_tokens=80)) for n in range(60)]
    while not engine.idle:
        assert engine.advance() if ahead else engine.step(0.0)
    return jobs


def test_running_ahead_and_step_by_step_wander_alike() -> None:
    ahead, stepped = _served(RESTLESS, ahead=True), _served(RESTLESS, ahead=False)
    for one, other in zip(ahead, stepped, strict=True):
        assert one.chunk_tokens == other.chunk_tokens
        assert one.chunk_times_s == pytest.approx(other.chunk_times_s, rel=1e-12)


def test_every_step_takes_the_formulas_time_at_the_speed_of_its_start() -> None:
    engine, wander = Engine(RESTLESS, 5, 30.0), Wander(5, 0.2, 0.4)
    steady = Engine(replace(RESTLESS, wander_sd=0.0), 5, 30.0)
    for one in (engine, steady):
        one.submit(30.0, Ask(key=1, prompt_tokens=60, output_tokens=300))
    factors = set()
    while not engine.idle:
        step, plain = engine.step(0.0), steady.step(0.0)
        factor, _ = wander.factor(step.start_s - 30.0)
        assert step.end_s - step.start_s == pytest.approx((plain.end_s - plain.start_s) * factor, rel=1e-9)
        factors.add(factor)
    assert len(factors) > 8


@pytest.mark.parametrize("changes", [{"wander_sd": -0.1}, {"wander_s": 0.0}])
def test_a_speed_that_cannot_wander_so_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="wander"):
        replace(H100, **changes)


def test_acceptance_drifts_from_a_servers_own_start() -> None:
    arm = drafting(H100, (0.6, 0.6), spread=0.0)
    assert arm.acceptance is not None
    drifting = replace(arm, acceptance=replace(arm.acceptance, drift_per_s=-0.01))

    def accepted(born_s: float, at_s: float) -> list[int]:
        engine = Engine(drifting, 1, born_s)
        job = engine.submit(at_s, Ask(key=9, prompt_tokens=50, output_tokens=200))
        engine.advance()
        return job.chunk_tokens

    assert accepted(0.0, 0.0) == accepted(500.0, 500.0)
    assert len(accepted(0.0, 500.0)) > 1.3 * len(accepted(500.0, 500.0))  # less is accepted: more steps
