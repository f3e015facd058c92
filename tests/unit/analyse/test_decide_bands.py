"""Which tested loads a band names: neighbours that pay are one range, and each range is named once."""

from __future__ import annotations

import math

import pytest

from loadtest.analyse.breakeven import Translation, _straight_edges
from loadtest.analyse.compare import fit_curve
from loadtest.analyse.decide import Evidence, decide
from loadtest.analyse.estimates import Crossing
from loadtest.analyse.results import Answer
from loadtest.settings import Decision

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0)
RATIOS = {"+": 1.5, "-": 0.8, "?": 1.105}  # proven to pay, proven not to, too near to 1.1
NOISE = (-0.01, 0.01, -0.01, 0.01)


def answered(states: str) -> tuple[Answer, Crossing, tuple[tuple[float, float], ...], str]:
    levels = LEVELS[: len(states)]
    samples = {x: [math.log(RATIOS[s]) + e for e in NOISE] for x, s in zip(levels, states, strict=True)}
    found = decide(Evidence(
        levels=levels, rules=Decision(min_gain=0.1), curves={"e2e": fit_curve(samples)}, guards=(), rows={},
        baseline="b", candidate="c", in_flight=Translation(by_level={}), running=Translation(by_level={}),
    ))  # fmt: skip
    return found.answer, found.limit.form, found.limit.regions, found.recommendation


@pytest.mark.parametrize(
    ("states", "regions", "on"),
    [
        ("-+++-", ((2.0, 8.0),), "on from 2 to 8 users"),
        ("-+-+-", ((2.0, 2.0), (8.0, 8.0)), "on at 2 users and at 8 users"),
        ("++-++", ((1.0, 2.0), (8.0, 16.0)), "on from 1 to 2 users and from 8 to 16 users"),
        ("-++?+", ((2.0, 4.0), (16.0, 16.0)), "on from 2 to 4 users and at 16 users"),
        ("?+", ((2.0, 2.0),), "on at 2 users"),
    ],
)
def test_a_band_names_each_range_that_pays(states: str, regions: tuple[tuple[float, float], ...], on: str) -> None:
    assert answered(states) == (Answer.PAYS_IN_BAND, Crossing.BAND, regions, on)


@pytest.mark.parametrize(
    ("bounds", "edges"),
    [
        ((0.3, -0.3, 0.1, 0.1), [1 / 3, 2 / 3]),  # 0.2 → −0.4 passes 0 after a third, 0.4 → −0.2 after two
        ((0.3, -0.1, 0.1, 0.2), [0.4]),  # 0.2 → −0.3; the upper one, 0.4 → 0.1, does not pass 0
        ((-0.3, 0.1, 0.2, 0.1), [1 / 3]),  # −0.5 → 0 meets it at its end, which is no edge; −0.1 → 0.2
        ((0.1, 0.3, 0.1, 0.1), []),  # 0 → 0.2 begins at it
        ((0.3, 0.2, 0.1, 0.1), []),  # passes 0 only beyond the second level
        ((0.2, 0.2, 0.1, 0.1), []),  # parallel to it
    ],
)
def test_where_straight_bounds_pass_zero(bounds: tuple[float, float, float, float], edges: list[float]) -> None:
    assert _straight_edges(*bounds) == pytest.approx(edges)
