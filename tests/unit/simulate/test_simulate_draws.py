"""Draws: reproducible, and with the distribution that the model states."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.simulate.draws import accepted_tokens, gauss, latent, mix, slot_logits, survival, uniform, uniforms
from loadtest.simulate.models import Acceptance


def test_hashes_are_the_same_on_every_machine() -> None:
    assert mix(1) == 10451216379200822465  # SplitMix64's published first output for seed 1
    assert mix(1, 2) != mix(2, 1)
    assert 0 < uniform(7) < 1
    assert uniform(7) == uniform(7)


def test_uniforms_are_one_stream() -> None:
    whole = uniforms(99, 10_000)
    assert np.array_equal(uniforms(99, 50, skip=9_000), whole[9_000:9_050])
    assert whole.min() >= 0
    assert whole.max() < 1
    assert whole.mean() == pytest.approx(0.5, abs=0.01)
    assert not np.array_equal(uniforms(98, 10), whole[:10])


def test_the_latent_is_standard_normal() -> None:
    drawn = np.array([latent(mix(key)) for key in range(4000)])
    assert drawn.mean() == pytest.approx(0, abs=0.06)
    assert drawn.std() == pytest.approx(1, abs=0.05)
    assert gauss(3, 4) == gauss(3, 4)


@pytest.mark.parametrize("spread", [0.0, 0.35, 1.0])
def test_the_mean_over_requests_is_the_stated_survival_curve(spread: float) -> None:
    stated = (0.66, 0.43, 0.27)
    logits = slot_logits(Acceptance(survival=stated, spread=spread))
    curves = np.array([survival(logits, spread * latent(mix(key))) for key in range(4000)])
    assert curves.mean(axis=0) == pytest.approx(stated, abs=0.02)
    assert (curves.std(axis=0).min() > 1e-3) == (spread > 0)


def test_accepted_tokens_follow_the_curve() -> None:
    accepted = accepted_tokens(5, 6, [0.6, 0.4, 0.1], 40_000)
    shares = [(accepted >= slot).mean() for slot in (1, 2, 3)]
    assert shares == pytest.approx([0.6, 0.4, 0.1], abs=0.01)
    assert accepted.max() == 3
    assert accepted.mean() == pytest.approx(1.1, abs=0.02)  # the survival curve's sum: τ − 1


def test_accepted_tokens_depend_on_seed_and_key_alone() -> None:
    first = accepted_tokens(5, 6, [0.6, 0.4], 100)
    assert np.array_equal(first, accepted_tokens(5, 6, [0.6, 0.4], 100))
    assert np.array_equal(first[40:], accepted_tokens(5, 6, [0.6, 0.4], 60, skip=40))
    assert not np.array_equal(first, accepted_tokens(5, 7, [0.6, 0.4], 100))
    assert not np.array_equal(first, accepted_tokens(4, 6, [0.6, 0.4], 100))
