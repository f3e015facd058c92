"""What each cell, and each arm at a level over its blocks, measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.analyse.damage import cell_damage
from loadtest.analyse.estimates import Estimate, within
from loadtest.analyse.explain import ByCell, window_gauge
from loadtest.analyse.metrics import METRICS, Kind, Metric
from loadtest.analyse.percentiles import QUANTILES, percentiles
from loadtest.analyse.results import ArmLevel, Tail
from loadtest.analyse.stats import Sample, mean_estimate, merged
from loadtest.analyse.table import CellRows, Requests
from loadtest.record import CellRecord, Outcome

GUARD_TAILS = ("p50", "p90", "p95")
FAILURES: dict[str, str] = {
    Outcome.HTTP_ERROR: "HTTP {status}",
    Outcome.RATE_LIMITED: "HTTP {status}, too many requests",
    Outcome.STREAM_ERROR: "an error reported in the stream",
    Outcome.TRUNCATED: "an answer that broke off",
    Outcome.STALLED: "tokens that stopped coming",
    Outcome.TIMEOUT: "no answer in time",
    Outcome.CONNECT_ERROR: "no connection",
    Outcome.TLS_ERROR: "no trusted TLS connection",
    Outcome.PROTOCOL_ERROR: "an answer that could not be read",
    Outcome.EMPTY: "an answer without a token",
    Outcome.CANCELLED: "a request that the client gave up",
    Outcome.CLIENT_ERROR: "an error in the client",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One cell's figures: every metric by name, the percentiles of ttft by `ttft_p50` …, and its counts."""

    record: CellRecord
    figures: dict[str, float]
    requests: int  # due in the window
    failed: int
    outcomes: dict[str, int]
    finish_reasons: dict[str, int]
    output_tokens_mean: float  # of the requests due in the window that ended well
    tokens_client: int  # of the whole cell, idle to idle
    requests_client: int  # that ended well in the whole cell
    exact: bool  # every request of the cell ended well and said how many tokens it had
    sent: int  # of the whole cell
    failures: dict[str, int]  # of the whole cell, by what went wrong
    damage: tuple[str, ...] = ()  # sentences on records that cannot be true


def measure(requests: Requests, cells: Sequence[CellRecord]) -> dict[int, Measured]:
    """Reduce every cell to its figures, by cell number."""
    return {record.cell: _measure(record, requests.cell(record)) for record in cells}


def _measure(record: CellRecord, rows: CellRows) -> Measured:
    figures = {metric.name: metric.figure(rows) for metric in METRICS}
    ttft = next(m for m in METRICS if m.name == "ttft")
    assert ttft.values is not None
    sample = ttft.values(rows)
    figures.update({f"ttft_{name}": sample.quantile(QUANTILES[name]) for name in GUARD_TAILS})
    measured, said = rows.measured, rows.column("output_tokens")
    ended_well = measured & rows.ok & (said >= 0)
    return Measured(
        record=record,
        figures=figures,
        requests=int(measured.sum()),
        failed=int((measured & ~rows.ok).sum()),
        outcomes=rows.counts("outcome", measured),
        finish_reasons=rows.counts("finish_reason", measured & rows.ok),
        output_tokens_mean=float(said[ended_well].mean()) if ended_well.any() else math.nan,
        tokens_client=int(said[said >= 0].sum()),
        requests_client=int(rows.ok.sum()),
        exact=bool(len(said) and rows.ok.all() and (said >= 0).all()),
        sent=rows.stop - rows.start,
        failures=_failures(rows),
        damage=cell_damage(record, rows),
    )


def _failures(rows: CellRows) -> dict[str, int]:
    """Count the requests of a cell that failed by what went wrong, in words."""
    found: dict[str, int] = {}
    for outcome in rows.counts("outcome", ~rows.ok):
        code = rows.words["outcome"].index(outcome)
        status, count = np.unique(rows.column("http_status")[rows.column("outcome") == code], return_counts=True)
        for one, n in zip(status.tolist(), count.tolist(), strict=True):
            words = FAILURES.get(outcome, outcome).format(status=one)
            found[words] = found.get(words, 0) + n
    return found


def arm_levels(
    requests: Requests, valid: Sequence[CellRecord], measured: Mapping[int, Measured], scrapes: ByCell,
    arms: Sequence[str], levels: Sequence[float], *, varying: bool = False, restarted: bool = False,
) -> tuple[ArmLevel, ...]:  # fmt: skip
    """Summarise every arm at every level over its valid cells.

    `varying`: blocks differ more at some levels than at others, as in an open load. `restarted`: each block was a start
    of the servers of its own.
    """
    rows: list[ArmLevel] = []
    for arm in arms:
        by_level = {level: [c for c in valid if c.arm == arm and c.level == level] for level in levels}
        tails = {
            m.name: _tails(requests, by_level, measured, m, varying=varying, restarted=restarted)
            for m in METRICS
            if m.values is not None
        }
        for level, cells in by_level.items():
            own = [measured[c.cell] for c in cells]
            rows.append(
                ArmLevel(
                    arm=arm,
                    level=level,
                    requests=sum(m.requests for m in own),
                    failed=sum(m.failed for m in own),
                    means={m.name: _mean([cell.figures[m.name] for cell in own], m) for m in METRICS},
                    tails={name: tail[level] for name, tail in tails.items()},
                    in_flight=mean_estimate([_number(c.in_flight_mean) for c in cells]).value,
                    running=window_gauge(cells, scrapes, "running"),
                    waiting=window_gauge(cells, scrapes, "waiting"),
                    kv_use=window_gauge(cells, scrapes, "kv_use"),
                    outcomes=_added([m.outcomes for m in own]),
                    finish_reasons=_added([m.finish_reasons for m in own]),
                )
            )
    return tuple(rows)


def _mean(values: Sequence[float], metric: Metric) -> Estimate:
    """Return the mean over blocks; no interval goes below 0, and that of a share ends at 1 as well."""
    return within(mean_estimate(values), 0.0, 1.0 if metric.kind is Kind.SHARE else math.inf)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _added(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    names = sorted({name for count in counts for name in count})
    return {name: sum(count.get(name, 0) for count in counts) for name in names}


def _tails(
    requests: Requests, by_level: Mapping[float, Sequence[CellRecord]], measured: Mapping[int, Measured],
    metric: Metric, *, varying: bool, restarted: bool,
) -> dict[float, Tail]:  # fmt: skip
    """Return the percentiles by level."""
    assert metric.values is not None
    blocks: dict[float, list[Sample]] = {
        level: [metric.values(requests.cell(c)) for c in cells] for level, cells in by_level.items()
    }
    pooled = {level: merged(samples) for level, samples in blocks.items()}
    several = metric.kind is Kind.POOLED
    counts = {x: sum(measured[c.cell].requests for c in cells) for x, cells in by_level.items()} if several else None
    told = {
        name: percentiles(blocks, q, pooled=pooled, requests=counts, varying=varying, restarted=restarted)
        for name, q in QUANTILES.items()
    }
    tails: dict[float, Tail] = {}
    for level in pooled:
        shown = {name: own[level].estimate for name, own in told.items()}
        deepest = [name for name, estimate in shown.items() if estimate.high is not None]
        tails[level] = Tail(metric=metric.name, **shown, deepest=deepest[-1] if deepest else "",
                            design_effect={name: own[level].design_effect for name, own in told.items()})  # fmt: skip
    return tails
