"""The table for vLLM's `num_speculative_tokens_per_batch_size`: how many tokens to draft at how many running requests.

vLLM takes rows [start, end, K] that begin at 1; K of 0 drafts nothing. Only the number of draft tokens that was run and
0 are compared here, so that the table switches between these two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from loadtest.analyse import wording
from loadtest.analyse.breakeven import Translation, crossings
from loadtest.analyse.compare import Curve
from loadtest.analyse.findings import BatchRow, BatchTable

WARNING = (
    "A server that drafts 0 tokens is not the server without speculation: in vLLM issue 49548 time per output token was"
    " 6.6 % higher at 2 and 21.6 % at 189 running requests with nothing drafted. vLLM drops the table silently with"
    " data parallelism, and on its V1 runner for some methods, and there gives up full CUDA graphs for it. Measure a"
    " server with the table before you roll it out; numbers of draft tokens other than these were not measured."
)


def batch_table(
    curve: Curve | None, running: Mapping[float, float], draft_tokens: int | None, label: str
) -> BatchTable:
    """Return the table by the curve of the speed-up (time per output token), keyed by the candidate's running requests.

    `running` is the mean number of running requests of the candidate by level. A row is settled when a tested load in
    it has its whole interval on that side of 1.
    """
    if not draft_tokens:
        return BatchTable(why_not="It is not known how many tokens the server drafts.")
    if curve is None or not len(curve.levels):
        return BatchTable(why_not=f"There is no speed-up by {label}.")
    missing = [float(level) for level in curve.levels if not running.get(float(level))]
    if missing:
        return BatchTable(why_not=f"The running requests are not known at {wording.listed(missing)}.")
    levels = [float(level) for level in curve.levels]
    here = [running[level] for level in levels]
    if any(b <= a for a, b in pairwise(here)):
        return BatchTable(why_not="The running requests do not rise with the load: a limit of the server binds.")
    translation = Translation(by_level=running)
    cuts = [translation.at(load) for load in crossings(curve, 1.0)]
    rows = _rows(curve, levels, here, [cut for cut in cuts if cut is not None], draft_tokens)
    if not any(row.settled for row in rows):
        return BatchTable(why_not=f"At no tested load is the speed-up by {label} told from 1.")
    setting = [[row.start, row.end, row.draft_tokens] for row in rows]
    return BatchTable(
        rows=rows, setting=json.dumps({"num_speculative_tokens_per_batch_size": setting}), warning=WARNING
    )


def _rows(
    curve: Curve, levels: Sequence[float], running: Sequence[float], cuts: Sequence[float], draft_tokens: int
) -> tuple[BatchRow, ...]:
    edges = [1, *sorted({max(2, math.floor(cut) + 1) for cut in cuts}), math.floor(max(1.0, running[-1])) + 1]
    found: list[BatchRow] = []
    for start, stop in pairwise(edges):
        if stop <= start:
            continue
        last = stop == edges[-1]
        inside = [i for i, r in enumerate(running) if (start <= r or start == 1) and (r < stop or last)]
        if not inside:
            continue
        ahead = sum(float(curve.mean[i]) for i in inside) > 0
        signs = [1 if curve.mean[i] > curve.half[i] else -1 if -curve.mean[i] > curve.half[i] else 0 for i in inside]
        found.append(
            BatchRow(
                start=found[-1].end + 1 if found else 1,
                end=stop - 1,
                draft_tokens=draft_tokens if ahead else 0,
                settled=(1 if ahead else -1) in signs,
                evidence="; ".join(_evidence(curve, levels[i], running[i]) for i in inside),
            )
        )
    return tuple(found)


def _evidence(curve: Curve, level: float, running: float) -> str:
    return f"{wording.ratio(curve.ratio(level))} at {wording.with_unit(level)} (≈ {wording.load(running)} running)"
