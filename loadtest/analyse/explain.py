"""Why it pays or not: tokens per step against the price of a step, from the servers' own counters."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from loadtest.analyse.counters import Deltas, find, gauge_mean, growth, summed, tokens_per_step
from loadtest.analyse.results import Why
from loadtest.record import CellRecord, Scrape

ByCell = Mapping[int, Sequence[Scrape]]


def scrapes_by_cell(scrapes: Sequence[Scrape]) -> dict[int, list[Scrape]]:
    """Group scrapes by cell, in order of time."""
    grouped: dict[int, list[Scrape]] = {}
    for scrape in sorted(scrapes, key=lambda s: s.t_s):
        grouped.setdefault(scrape.cell, []).append(scrape)
    return grouped


def window_growth(cells: Sequence[CellRecord], scrapes: ByCell) -> Deltas:
    """Return the counters' growth inside the windows of some cells, added up."""
    parts = [growth(scrapes.get(c.cell, ()), "window_open", "window_close") for c in cells]
    return summed([part for part in parts if part is not None])


def window_gauge(cells: Sequence[CellRecord], scrapes: ByCell, meaning: str) -> float | None:
    """Return a gauge's mean over the windows of some cells, or None."""
    means = [gauge_mean(scrapes.get(c.cell, ()), meaning) for c in cells]
    present = [m for m in means if m is not None]
    return statistics.fmean(present) if present else None


def edge_error(cells: Sequence[CellRecord], scrapes: ByCell) -> float | None:
    """Return the largest share of a window by which its two scrapes may have missed its edges, or None."""
    shares = []
    for cell in cells:
        own = scrapes.get(cell.cell, ())
        first, last = find(own, "window_open"), find(own, "window_close")
        if first is None or last is None or cell.window_open_s is None or cell.window_close_s is None:
            continue
        missed = abs(first.t_s - cell.window_open_s) + first.took_s + abs(last.t_s - cell.window_close_s) + last.took_s
        shares.append(missed / (cell.window_close_s - cell.window_open_s))
    return max(shares, default=None)


def explain_level(
    level: float, baseline: Sequence[CellRecord], candidate: Sequence[CellRecord], scrapes: ByCell
) -> Why:
    """Return the accounting of one level: decode speed-up = τ_all ÷ step-time ratio, pooled over blocks.

    Times in seconds; whatever the servers do not count is None.
    """
    base, cand = window_growth(baseline, scrapes), window_growth(candidate, scrapes)
    step_base, step_cand = base.over("step_seconds", "steps"), cand.over("step_seconds", "steps")
    ratio = step_cand / step_base if step_base and step_cand else None
    tau = tokens_per_step(cand)
    extra = cand.over("accepted", "drafts")
    drafts = cand.get("drafts")
    return Why(
        level=level,
        tau_all_baseline=tokens_per_step(base),
        tau_all=tau,
        tau_drafting=None if extra is None else 1 + extra,
        step_baseline_s=step_base,
        step_candidate_s=step_cand,
        step_ratio=ratio,
        decode_speedup=tau / ratio if tau is not None and ratio else None,
        tau_needed=ratio,
        acceptance_ratio=cand.over("accepted", "drafted"),
        drafted_per_step=cand.over("drafted", "drafts"),
        survival=tuple(slot / drafts for slot in cand.per_position) if drafts > 0 else (),
        running_baseline=window_gauge(baseline, scrapes, "running"),
        running_candidate=window_gauge(candidate, scrapes, "running"),
        edge_error_ratio=edge_error([*baseline, *candidate], scrapes),
    )
