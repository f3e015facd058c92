"""What an objective's metric was, level by level: the estimate that the gate holds against the limit.

Failed requests never leave a figure better than it was: they are +inf in percentiles, bad in shares, and enter a mean
as the limit that cuts a request off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from loadtest.analyse.carried import Uncarried
from loadtest.analyse.compare import Curve, fit_curve
from loadtest.analyse.counters import tokens_per_step
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.explain import ByCell, window_growth
from loadtest.analyse.held_back import ABSENT
from loadtest.analyse.metrics import BY_NAME, Kind
from loadtest.analyse.percentiles import QUANTILES, percentiles
from loadtest.analyse.shares import share_estimates
from loadtest.analyse.stats import CONFIDENCE, mean_estimate
from loadtest.analyse.table import CellRows, Requests
from loadtest.record import CellRecord
from loadtest.settings import Limits
from loadtest.slo import COUNTED, GOODPUT, Slo, Unit

COLUMNS = {"ttft": "ttft_s", "ttft_visible": "ttft_visible_s", "e2e": "e2e_s", "tpot": "tpot_s",
           "worst_stall": "worst_stall_s"}  # fmt: skip
WITHIN_STREAM = ("tpot", "worst_stall")  # what an answer of one chunk does not have
SAME = 1e-9  # relative: clocks and their rounding differ by more


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What objectives are judged on: the valid cells of a run and what they hold."""

    requests: Requests
    cells: Sequence[CellRecord]  # the valid ones
    scrapes: ByCell
    levels: tuple[float, ...]
    limits: Limits
    restarted: bool = False  # whether each block was a start of the servers of its own
    varying: bool = False  # whether blocks differ more at some levels than at others: an open load
    confidence: float = CONFIDENCE  # of every interval; more at a later look at a run that goes on
    uncarried: Uncarried = field(default_factory=dict)

    def fit(self, samples: Mapping[float, Sequence[float]]) -> Curve:
        """Return means with intervals over the levels, in the run's own confidence."""
        return fit_curve(samples, restarted=self.restarted, confidence=self.confidence)

    def of(self, arm: str, level: float) -> list[CellRecord]:
        """Return the valid cells of an arm at a level, by block."""
        return sorted((c for c in self.cells if c.arm == arm and c.level == level), key=lambda c: c.block)

    def narrowed(self, category: str) -> Measurements:
        """Return the measurements of one category of requests alone; empty is all of them."""
        return self if not category else replace(self, requests=of_category(self.requests, category))


def of_category(requests: Requests, category: str) -> Requests:
    """Return the requests with only those of one category measured."""
    words = requests.words["category"]
    code = words.index(category) if category in words else -2
    inside = requests.columns["in_window"] & (requests.columns["category"] == code)
    return replace(requests, columns={**requests.columns, "in_window": inside})


def failed_as(metric: str, limits: Limits) -> float:
    """Return what a failed request counts as in a mean, in seconds: the limit that would have cut it off."""
    return {"ttft": limits.first_token_s, "ttft_visible": limits.first_token_s, "e2e": limits.total_s}.get(
        metric, limits.stall_s
    )


def cell_figure(slo: Slo, rows: CellRows, limits: Limits, *, survivors: bool = False) -> float:
    """Return a cell's figure of an objective's metric; NaN where it has none.

    `survivors`: leave failed requests out of a mean, which is right for the arm that must not gain by them.
    """
    metric = BY_NAME.get(slo.metric)
    if slo.metric in GOODPUT:
        good, due = good_and_due(slo, rows)
        if slo.metric == "goodput":
            return good / due if due else math.nan
        # Where only some requests say whether they were good, the others are taken to be as good as they.
        return good * (int(rows.measured.sum()) / due) / rows.window_s if due and rows.window_s > 0 else math.nan
    if metric is None:
        return math.nan
    if slo.statistic in QUANTILES and metric.values is not None:
        return metric.values(rows).quantile(QUANTILES[slo.statistic])
    figure = metric.figure(rows)
    failed = int(np.sum(rows.measured & ~rows.ok))
    if slo.measure.unit is not Unit.SECONDS or survivors or not failed:
        return figure
    survived = _weight(slo, rows)
    worst = failed_as(slo.metric, limits)
    return worst if math.isnan(figure) else (figure * survived + worst * failed) / (survived + failed)


def _weight(slo: Slo, rows: CellRows) -> int:
    """Return how many values the mean of the requests that ended well is made of."""
    metric = BY_NAME[slo.metric]
    if metric.kind is not Kind.POOLED:
        return int(np.sum(~np.isnan(rows.column(COLUMNS[slo.metric])[rows.measured & rows.ok])))
    assert metric.values is not None
    return metric.values(rows).size - int(np.sum(rows.measured & ~rows.ok))


def good_and_due(slo: Slo, rows: CellRows) -> tuple[int, int]:
    """Return (requests that met every limit of `within`, requests due); failures are due and not good.

    Where a limit needs the tokens of chunks, only the requests that asked for them say whether it was met, and where
    it needs a time within the stream, only those whose stream was not held back.
    """
    due = rows.measured
    if any(name == "tpot" for name, _ in slo.within):
        due = due & rows.column("asked") & (rows.column("counted") | ~rows.ok)
    if any(COLUMNS[name] in ABSENT for name, _ in slo.within):
        due = due & ~(rows.column("at_once") & rows.ok)  # a stream that came in one piece shows no such time
    met: NDArray[np.bool_] = due & rows.ok
    for name, limit in slo.within:
        value = rows.column(COLUMNS[name])
        met = met & ~(value > limit)  # absent: a request of one token has no time per token to exceed
        if name not in WITHIN_STREAM:
            met = met & ~np.isnan(value)
    return int(np.sum(met)), int(np.sum(due))


def counted(slo: Slo, rows: CellRows) -> tuple[int, int]:
    """Return (requests that count for a share, requests due): the failed ones, or the good ones of goodput."""
    if slo.metric == "error_ratio":
        return int(np.sum(rows.measured & ~rows.ok)), int(np.sum(rows.measured))
    return good_and_due(slo, rows)


def estimates(slo: Slo, arm: str, found: Measurements) -> dict[float, Estimate]:
    """Return an arm's estimate at every level, in the metric's unit."""
    found = found.narrowed(slo.category)
    if slo.metric in COUNTED:
        return _levels(found.fit(counter_samples(slo, arm, found)), found.levels)
    if slo.metric in ("error_ratio", "goodput"):
        return _shares(slo, arm, found)
    if slo.statistic in QUANTILES:
        return _tails(slo, arm, found)
    samples = {
        level: [cell_figure(slo, found.requests.cell(c), found.limits) for c in found.of(arm, level) if _due(found, c)]
        for level in found.levels
    }
    if slo.measure.unit is Unit.SHARE:
        return _levels(found.fit(_present(samples)), found.levels)
    return _means(_present(samples), found)


def _due(found: Measurements, cell: CellRecord) -> bool:
    return bool(found.requests.cell(cell).measured.any())


def _present(samples: Mapping[float, Sequence[float]]) -> dict[float, list[float]]:
    return {level: [v for v in values if not math.isnan(v)] for level, values in samples.items()}


def _means(samples: Mapping[float, Sequence[float]], found: Measurements) -> dict[float, Estimate]:
    """Return means with intervals in logarithms, their variance pooled over levels; a figure of 0 has its own t."""
    positive = {level: [math.log(v) for v in values] for level, values in samples.items() if all(v > 0 for v in values)}
    curve = found.fit(positive)
    return {
        level: curve.ratio(level) if level in positive else mean_estimate(samples.get(level, ()))
        for level in found.levels
    }


def _levels(curve: Curve, levels: Sequence[float]) -> dict[float, Estimate]:
    return {level: curve.difference(level) for level in levels}


def counter_samples(slo: Slo, arm: str, found: Measurements) -> dict[float, list[float]]:
    """Return, by level, the figures of the cells whose counters tell one."""
    samples: dict[float, list[float]] = {}
    for level in found.levels:
        for cell in found.of(arm, level):
            grown = window_growth([cell], found.scrapes)
            value = tokens_per_step(grown) if slo.metric == "tokens_per_step" else grown.over("accepted", "drafted")
            if value is not None:
                samples.setdefault(level, []).append(value)
    return samples


def _shares(slo: Slo, arm: str, found: Measurements) -> dict[float, Estimate]:
    blocks = {level: [counted(slo, found.requests.cell(c)) for c in found.of(arm, level)] for level in found.levels}
    return share_estimates(blocks, found.confidence, restarted=found.restarted)


def _tails(slo: Slo, arm: str, found: Measurements) -> dict[float, Estimate]:
    """Return the percentiles of the pooled requests."""
    metric, q = BY_NAME[slo.metric], QUANTILES[slo.statistic]
    assert metric.values is not None
    cells = {level: [found.requests.cell(c) for c in found.of(arm, level)] for level in found.levels}
    blocks = {level: [metric.values(rows) for rows in own] for level, own in cells.items()}
    due = {level: sum(int(rows.measured.sum()) for rows in own) for level, own in cells.items()}
    told = percentiles(blocks, q, requests=due if metric.kind is Kind.POOLED else None, varying=found.varying,
                       restarted=found.restarted, confidence=found.confidence)  # fmt: skip
    return {level: one.estimate for level, one in told.items()}


def spread(slo: Slo, arm: str, found: Measurements) -> dict[float, bool]:
    """Return, by level, whether two or more blocks give one figure to the last digit; a whole share is a count."""
    found = found.narrowed(slo.category)
    alike: dict[float, bool] = {}
    for level in found.levels:
        cells = [found.requests.cell(c) for c in found.of(arm, level)]
        alike[level] = identical(slo, [cell_figure(slo, rows, found.limits) for rows in cells])
    return alike


def identical(slo: Slo, figures: Sequence[float]) -> bool:
    """Return whether two or more figures agree beyond what any clock resolves; whole shares are counts, and may."""
    if len(figures) < 2 or not all(math.isfinite(value) for value in figures):
        return False
    if slo.measure.unit is Unit.SHARE and set(figures) <= {0.0, 1.0}:
        return False
    return max(figures) - min(figures) <= SAME * abs(max(figures))
