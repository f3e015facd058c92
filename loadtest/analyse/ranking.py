"""Candidates against each other: every pair at every load, with intervals that all hold at once (Bonferroni).

Bonferroni asks nothing of how the comparisons depend on each other. Dunnett's method (JASA 50, 1955) is shorter by a
few per cent, and assumes that all arms scatter alike and that every two comparisons are correlated by 1/2; speculation
changes how an arm scatters, and from 8 blocks on the intervals are a bootstrap's. Šidák's bound differs from
Bonferroni's in the fourth digit. (Y. Hochberg and A. Tamhane, Multiple Comparison Procedures, 1987, chapter 2.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from loadtest.analyse.compare import Curve, Figures, curve_of
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.ranking_results import Against, Ranking
from loadtest.analyse.stats import CONFIDENCE, shared


def rank(
    figures: Figures, candidates: Sequence[str], levels: Sequence[float], metric: str, *, among: int,
    restarted: bool = False, confidence: float = CONFIDENCE,
) -> Ranking:  # fmt: skip
    """Compare the candidates with each other by a metric; `among` is how many there are in the run, sound or not."""
    pairs = list(combinations(candidates, 2))
    each = shared(confidence, among * (among - 1) // 2 * max(1, len(levels)))
    curves = {
        (first, second): curve_of(figures, second, first, BY_NAME[metric], restarted=restarted, confidence=each)
        for first, second in pairs
    }
    against = tuple(
        Against(first=first, second=second, level=level, speedup=curve.ratio(level))
        for (first, second), curve in curves.items()
        for level in levels
    )
    return Ranking(
        metric=metric, confidence=confidence, of_candidate=shared(confidence, among), of_pair=each, against=against,
        best={x: name for x in levels if (name := _best(curves, candidates, x))},
        alike=tuple(pair for pair, curve in curves.items() if not any(_ahead(curve.ratio(x)) for x in levels)),
    )  # fmt: skip


def _ahead(speedup: Estimate) -> int:
    """Return 1 where the first is proven better, −1 where the second is, else 0."""
    if speedup.low is None or speedup.high is None:
        return 0
    return 1 if speedup.low > 1 else -1 if speedup.high < 1 else 0


def _best(curves: Mapping[tuple[str, str], Curve], candidates: Sequence[str], level: float) -> str:
    """Return the candidate that is proven better than every other at a load; empty where none is."""
    wins = dict.fromkeys(candidates, 0)
    for (first, second), curve in curves.items():
        ahead = _ahead(curve.ratio(level))
        wins[first] += ahead == 1
        wins[second] += ahead == -1
    return next((name for name, won in wins.items() if candidates and won == len(candidates) - 1 and won), "")
