"""A batch of identical copies gives the speed-ups that the published simulator gives for the same constants.

Constants and traces: arXiv 2601.11580. Mean lengths, conditional acceptance by slot (steps without a limit on the
draft) and realised tokens per step at k = 3 are derived from its traces, as are the speed-ups.
"""

from __future__ import annotations

import itertools
import math
import operator
import statistics
from dataclasses import replace

import pytest

from loadtest.simulate.draws import mix
from loadtest.simulate.jobs import Ask
from loadtest.simulate.models import ArmModel
from loadtest.simulate.virtual import static_batch_s
from loadtest.simulate.worlds import H100, drafting

BATCHES = (1, 8, 16, 32, 64)
KEYS = 40
# conditional acceptance by slot, realised τ at k = 3, prompt and output tokens
GSM8K = ((0.66, 0.65, 0.63, 0.65, 0.62), 2.40, 94, 166)
CNN = ((0.63, 0.62, 0.64, 0.66, 0.68), 2.33, 838, 323)
SHAREGPT = ((0.59, 0.58, 0.63, 0.68, 0.72), 2.28, 355, 728)


def eagle(conditional: tuple[float, ...], tau: float, k: int) -> ArmModel:
    """A limit on the draft lets steps begin in easy text more often: acceptance is moved up until τ at k = 3 is right.

    The effect fades as k grows: half of the move is taken at k = 5.
    """

    def moved(by: float) -> tuple[float, ...]:
        return tuple(1 / (1 + math.exp(-(math.log(rate / (1 - rate)) + by))) for rate in conditional)

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        reached = 1 + sum(itertools.accumulate(moved(middle)[:3], operator.mul))
        low, high = (middle, high) if reached < tau else (low, middle)
    arm = drafting(H100, moved(low if k == 3 else low / 2)[:k], spread=0.0)
    assert arm.acceptance is not None
    return replace(arm, acceptance=replace(arm.acceptance, by_category=()))


@pytest.mark.parametrize(
    ("dataset", "k", "published"),
    [
        pytest.param(GSM8K, 3, (1.81, 1.73, 1.65, 1.52, 1.36), id="gsm8k-3"),
        pytest.param(GSM8K, 5, (2.01, 1.86, 1.73, 1.53, 1.29), id="gsm8k-5"),
        pytest.param(CNN, 3, (1.76, 1.65, 1.56, 1.44, 1.31), id="cnn-3"),
        pytest.param(CNN, 5, (1.94, 1.76, 1.62, 1.45, 1.28), id="cnn-5"),
        pytest.param(SHAREGPT, 3, (1.73, 1.66, 1.59, 1.49, 1.36), id="sharegpt-3"),
        pytest.param(SHAREGPT, 5, (1.92, 1.79, 1.67, 1.50, 1.31), id="sharegpt-5"),
    ],
)
def test_speed_up_of_a_static_batch(
    dataset: tuple[tuple[float, ...], float, int, int], k: int, published: tuple[float, ...]
) -> None:
    conditional, tau, prompt, output = dataset
    arm = eagle(conditional, tau, k)
    asks = [Ask(key=mix(number), prompt_tokens=prompt, output_tokens=output) for number in range(KEYS)]
    speedups = []
    for copies in BATCHES:
        base_s = static_batch_s(H100, 1, asks[0], copies)
        speedups.append(statistics.fmean(base_s / static_batch_s(arm, 1, ask, copies) for ask in asks))
    assert speedups == pytest.approx(published, abs=0.05)
