"""Pairing by block, and the curve of a speed-up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_run import BASE, SPEC, cell, request, table_of

from loadtest.analyse.compare import curve_of, curves, fit_curve, log_ratios, pair_requests, paired, speedups
from loadtest.analyse.metrics import BY_NAME, METRICS
from loadtest.analyse.table import derive


def figures(
    metric: str, base: list[float], cand: list[float], level: float = 8.0
) -> dict[tuple[str, float, int], dict[str, float]]:
    found = {(BASE, level, b): {metric: v} for b, v in enumerate(base)}
    return {**found, **{(SPEC, level, b): {metric: v} for b, v in enumerate(cand)}}


def test_lower_is_turned_so_that_above_one_is_better() -> None:
    curve = curve_of(figures("e2e", [2.0, 3.0], [1.0, 1.5]), BASE, SPEC, BY_NAME["e2e"])
    assert curve.ratio(8.0).value == pytest.approx(2.0)
    curve = curve_of(figures("output_tokens_per_s", [2.0, 3.0], [1.0, 1.5]), BASE, SPEC, BY_NAME["output_tokens_per_s"])
    assert curve.ratio(8.0).value == pytest.approx(0.5)


def test_interval_of_paired_log_ratios() -> None:
    ratios = [1.10, 1.20, 1.15]
    curve = curve_of(figures("e2e", ratios, [1.0] * 3), BASE, SPEC, BY_NAME["e2e"])
    logs = np.log(ratios)
    half = 4.302652729911275 * np.std(logs, ddof=1) / math.sqrt(3)  # t, 2 degrees of freedom
    found = curve.ratio(8.0)
    assert found.n == 3
    assert (found.low, found.high) == pytest.approx((math.exp(logs.mean() - half), math.exp(logs.mean() + half)))


def test_only_blocks_that_both_arms_have_are_paired() -> None:
    data = figures("e2e", [1.0, 2.0, 3.0], [1.0, math.nan])
    assert paired(data, BASE, SPEC, "e2e") == {8.0: [(1.0, 1.0)]}
    assert curve_of(data, BASE, SPEC, BY_NAME["e2e"]).ratio(8.0).low is None
    assert curve_of(data, BASE, SPEC, BY_NAME["e2e"]).ratio(4.0).value is None


def test_a_pair_without_a_ratio_is_left_out() -> None:
    assert log_ratios({1.0: [(0.0, 1.0), (1.0, math.inf), (1.0, math.e)]}, "higher") == {1.0: [1.0]}


def test_every_metric_with_a_direction_but_the_shares_has_a_curve() -> None:
    names = set(curves({}, BASE, SPEC))
    assert names == {m.name for m in METRICS if m.better} - {"on_time", "error_ratio"}


def test_speedups_name_their_blocks() -> None:
    found = speedups({"e2e": fit_curve({4.0: [0.0, math.log(2)], 2.0: [math.log(3)]})})
    assert [(s.level, s.metric) for s in found] == [(2.0, "e2e"), (4.0, "e2e")]
    assert found[1].blocks == pytest.approx((1.0, 2.0))
    assert found[1].ratio.value == pytest.approx(math.sqrt(2))


def test_paired_requests() -> None:
    def sent(arm: str, number: int, session: int, e2e: float, **values: object):  # type: ignore[no-untyped-def]
        return request(
            cell=number, arm=arm, session=session, chunk_s=[100.01, 100.0 + e2e], chunk_tokens=[1, 1], **values
        )

    rows = [
        *[sent(BASE, 0, i, 1.0) for i in range(5)],
        sent(SPEC, 1, 0, 0.5), sent(SPEC, 1, 1, 0.8), sent(SPEC, 1, 2, 1.05), sent(SPEC, 1, 3, 1.25, body_hash="other"),
        sent(SPEC, 1, 4, 9.0, outcome="timeout"), sent(SPEC, 1, 9, 9.0),
    ]  # fmt: skip
    frame = derive(table_of(rows), [cell(0), cell(1)]).frame
    found = pair_requests(frame, [0, 1], BASE, SPEC)
    assert found.count == 4
    assert found.median[1.0] == pytest.approx((1.25 + 1 / 1.05) / 2)
    assert found.slower[1.0] == 0.25
    assert found.bodies_differ == 1
    assert pair_requests(frame, [0], BASE, SPEC).count == 0
