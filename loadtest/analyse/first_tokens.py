"""Where the time to first token goes, per arm and level, and which term grew most under speculation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from loadtest.analyse import wording
from loadtest.analyse.counters import Deltas
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.explain import ByCell, window_growth
from loadtest.analyse.findings import FirstToken, FirstTokenChange
from loadtest.analyse.results import ArmLevel
from loadtest.analyse.stats import mean_estimate
from loadtest.record import CellRecord

TERMS = {
    "outside": "the way to the server and back",
    "front": "the server's front end",
    "queue": "the queue",
    "prefill": "prefill",
}
LEAST_CHANGE, LEAST_CHANGE_S = 0.05, 0.001  # smaller changes of the whole are not explained
CACHE_FELL = 0.01  # points of the hit ratio that are worth a word


def terms(client_s: float, counters: Deltas) -> dict[str, float]:
    """Return the terms of one cell's mean time to first token, in seconds; NaN where the server does not count one.

    vLLM counts first tokens when they are emitted and queue and prefill when a request ends, so that the requests at
    a window's two edges differ.
    """
    server = counters.over("first_token_seconds", "first_tokens")
    queue, prefill = counters.over("queue_seconds", "queued"), counters.over("prefill_seconds", "prefilled")
    known = [math.nan if value is None else value for value in (server, queue, prefill)]
    return {
        "outside": client_s - known[0],
        "front": known[0] - known[1] - known[2],
        "queue": known[1],
        "prefill": known[2],
    }


def by_cell(cells: Sequence[CellRecord], client_s: Mapping[int, float], scrapes: ByCell) -> dict[int, dict[str, float]]:
    """Return the terms of every cell, by cell number; `client_s` is its mean time to first token."""
    return {c.cell: terms(client_s[c.cell], window_growth([c], scrapes)) for c in cells}


def first_token(row: ArmLevel, cells: Sequence[CellRecord], found: Mapping[int, Mapping[str, float]],
                scrapes: ByCell) -> FirstToken:  # fmt: skip
    """Return the account of one arm at one level."""
    mean = {term: mean_estimate([found[c.cell][term] for c in cells]).value for term in TERMS}
    counters = window_growth(cells, scrapes)
    preempted = counters.get("preemptions")
    client = row.means.get("ttft", Estimate()).value
    return FirstToken(
        arm=row.arm,
        level=row.level,
        client_s=client,
        outside_s=mean["outside"],
        front_s=mean["front"],
        queue_s=mean["queue"],
        prefill_s=mean["prefill"],
        cache_hit_ratio=counters.over("prefix_hits", "prefix_queries"),
        kv_use=row.kv_use,
        preemptions=None if math.isnan(preempted) else round(preempted),
    )


def change(
    level: float, pairs: Sequence[tuple[int, int]], found: Mapping[int, Mapping[str, float]],
    client_s: Mapping[int, float], arms: tuple[FirstToken, FirstToken],
) -> FirstTokenChange:  # fmt: skip
    """Return how each term changed from baseline to candidate; `pairs` are cells of the same block."""
    total = mean_estimate([client_s[c] - client_s[b] for b, c in pairs])
    each = {term: mean_estimate([found[c][term] - found[b][term] for b, c in pairs]) for term in TERMS}
    grown = {term: estimate.value for term, estimate in each.items() if estimate.value is not None}
    base = arms[0].client_s
    matters = (
        total.value is not None and base and total.value > max(LEAST_CHANGE_S, LEAST_CHANGE * base) and bool(grown)
    )
    term = max(grown, key=lambda name: grown[name]) if matters else ""
    if not term:
        return FirstTokenChange(level=level, total_s=total, terms_s=each)
    unproven = "" if total.low is None or total.low > 0 else " (not proven)"
    said = (
        f"At {wording.with_unit(level)} first tokens come {_said(total.value)} later{unproven}; {TERMS[term]} grew most"
    )
    said += f" ({'+' if grown[term] >= 0 else '−'}{_said(abs(grown[term]))}{_less(grown, total.value)})"
    said += f"{_cache(arms)}{_preempted(arms)}."
    return FirstTokenChange(level=level, total_s=total, terms_s=each, term=term, sentence=said)


def _less(grown: Mapping[str, float], total: float | None) -> str:
    """Say that other terms shrank where one grew by more than the whole, as it may by noise at a window's edges."""
    return ", others shrank" if max(grown.values()) > (total or 0.0) else ""


def _said(seconds: float | None) -> str:
    value = seconds or 0.0
    return f"{1000 * value:.3g} ms" if abs(value) < 0.9995 else f"{value:.3g} s"


def _cache(arms: tuple[FirstToken, FirstToken]) -> str:
    base, cand = (arm.cache_hit_ratio for arm in arms)
    if base is None or cand is None or base - cand <= CACHE_FELL:
        return ""
    return f"; by the servers' counters prefix-cache hits fell from {100 * base:.0f} % to {100 * cand:.0f} %"


def _preempted(arms: tuple[FirstToken, FirstToken]) -> str:
    base, cand = (arm.preemptions for arm in arms)
    return f"; {cand} preemptions instead of {base}" if base is not None and cand and cand > base else ""
