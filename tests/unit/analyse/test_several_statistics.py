"""Intervals of several candidates against known truth: together they hold as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.analyse.compare import curve_of
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.ranking import rank
from loadtest.analyse.stats import CONFIDENCE, shared

GAINS = {"a": 0.0, "b": 0.0, "c": 0.05, "d": 0.10}  # log speed-ups at every load
LEVELS = (4.0, 16.0, 64.0)
SEEDS = 250  # 3 levels each: the standard error of a coverage of 0.95 is 0.01
SD = 0.02


def figures_of(seed: int, blocks: int) -> dict[tuple[str, float, int], dict[str, float]]:
    """Return end-to-end times of cells that scatter by SD about the truth; a block's own luck is shared by all arms."""
    rng = np.random.default_rng(seed)
    found = {}
    for level in LEVELS:
        for block in range(blocks):
            luck = rng.normal(0, 5 * SD)
            for arm, gain in {"baseline": 0.0, **GAINS}.items():
                found[arm, level, block] = {"e2e": float(np.exp(luck - gain + rng.normal(0, SD)))}
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("blocks", [6, 8])  # Student's t, and the bootstrap
def test_the_intervals_of_four_candidates_hold_together(blocks):
    held, alone, pairs, wrong = 0, 0, 0, 0
    for seed in range(SEEDS):
        figures = figures_of(seed, blocks)

        def covered(confidence, figures=figures):
            curves = {
                name: curve_of(figures, "baseline", name, BY_NAME["e2e"], confidence=confidence) for name in GAINS
            }
            hits = [[abs(curve.at(level)[0] - GAINS[name]) <= curve.at(level)[1] for name, curve in curves.items()]
                    for level in LEVELS]  # fmt: skip
            return sum(map(all, hits))

        held += covered(shared(CONFIDENCE, len(GAINS)))
        alone += covered(CONFIDENCE)
        against = rank(figures, tuple(GAINS), LEVELS, "e2e", among=4).against
        truths = [np.exp(GAINS[one.first] - GAINS[one.second]) for one in against]
        pairs += all(one.speedup.low <= truth <= one.speedup.high for one, truth in zip(against, truths, strict=True))
        wrong += any((one.speedup.low > 1 and truth <= 1) or (one.speedup.high < 1 and truth >= 1)
                     for one, truth in zip(against, truths, strict=True))  # fmt: skip
    assert 0.93 <= held / (3 * SEEDS) <= 0.985
    assert alone / (3 * SEEDS) < 0.90  # what the family is for
    assert pairs / SEEDS >= 0.92
    assert wrong / SEEDS <= 0.065
