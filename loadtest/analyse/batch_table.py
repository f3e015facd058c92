"""The table for vLLM's `num_speculative_tokens_per_batch_size`: how many tokens to draft at how many running requests.

vLLM takes rows [start, end, K] that begin at 1; K of 0 drafts nothing. Only the number of draft tokens that was run and
0 are compared here, so that the table switches between these two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    curve: Curve | None, running: Mapping[float, float], draft_tokens: int | None, label: str,
    recommended: Sequence[tuple[float, float]],
) -> BatchTable:  # fmt: skip
    """Return the table by the curve of the speed-up (time per output token), keyed by the candidate's running requests.

    `running` is the mean number of running requests of the candidate by level. A row is settled from one tested load to
    another, neighbours whose whole intervals lie on that side of 1; what lies below, between and beyond them is a row
    of its own, which is not. Nothing is drafted outside the `recommended` ranges of load, which lie within the tested
    ones: the table is never bolder than the answer. The setting joins rows of as many draft tokens.
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
    rows = _limited(rows, _spans(recommended, translation), curve, here)
    if not any(row.draft_tokens for row in rows):
        return BatchTable(why_not="At no load does the answer recommend speculation where tokens come faster with it.")
    setting = json.dumps({"num_speculative_tokens_per_batch_size": _joined(rows)})
    return BatchTable(rows=rows, setting=setting, warning=WARNING)


def _spans(recommended: Sequence[tuple[float, float]], translation: Translation) -> list[tuple[int, int]]:
    """Return ranges of load as whole numbers of running requests within them; one load alone is the nearest number."""
    found = []
    for low, high in recommended:
        first, last = translation.at(low), translation.at(high)
        if first is None or last is None:
            continue
        start, end = max(1, math.ceil(first)), math.floor(last)
        found.append((start, end) if start <= end else (max(1, round(first)), max(1, round(first))))
    return found


def _limited(
    rows: Sequence[BatchRow], spans: Sequence[tuple[int, int]], curve: Curve, running: Sequence[float]
) -> tuple[BatchRow, ...]:
    """Return the rows, cut where a recommended range begins or ends, that draft nothing outside of these."""
    found: list[BatchRow] = []
    for row in rows:
        if not row.draft_tokens:
            found.append(row)
            continue
        starts = {s for s, _ in spans} | {e + 1 for _, e in spans}
        edges = [row.start, *sorted(x for x in starts if row.start < x <= row.end), row.end + 1]
        for start, stop in pairwise(edges):
            kept = any(low <= start and stop - 1 <= high for low, high in spans)
            part = row if len(edges) == 2 else _part(row, start, stop - 1, curve, running)
            found.append(part if kept else replace(part, draft_tokens=0, settled=False, evidence=_off(part.evidence)))
    return tuple(found)


def _part(row: BatchRow, start: int, end: int, curve: Curve, running: Sequence[float]) -> BatchRow:
    """Return a part of a row with the tested loads that fall into it."""
    inside = [i for i, r in enumerate(running) if start - 0.5 <= r < end + 0.5]
    levels = [float(level) for level in curve.levels]
    said = "; ".join(_evidence(curve, levels[i], running[i]) for i in inside) or _untested(start, end, running)
    return replace(row, start=start, end=end, evidence=said)


def _off(evidence: str) -> str:
    unknown = evidence.startswith("not measured")
    return f"{evidence}; not drafted{' until it is' if unknown else ': the answer does not recommend it here'}"


def _joined(rows: Sequence[BatchRow]) -> list[list[int]]:
    """Return [start, end, K] of neighbours that draft as many tokens."""
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][2] == row.draft_tokens:
            found[-1][1] = row.end
        else:
            found.append([row.start, row.end, row.draft_tokens])
    return found


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
        side = 1 if sum(float(curve.mean[i]) for i in inside) > 0 else -1
        proven = [i for i in inside if side * curve.mean[i] > curve.half[i]]
        first = found[-1].end + 1 if found else 1
        for low, high, own, settled in _ranges(first, stop - 1, inside, proven, running):
            said = "; ".join(_evidence(curve, levels[i], running[i]) for i in own) or _untested(low, high, running)
            tokens = draft_tokens if side > 0 else 0
            found.append(BatchRow(start=low, end=high, draft_tokens=tokens, settled=settled, evidence=said))
    return tuple(found)


def _ranges(
    start: int, end: int, inside: Sequence[int], proven: Sequence[int], running: Sequence[float]
) -> list[tuple[int, int, list[int], bool]]:
    """Split a range of running requests at the tested loads that prove something: start, end, loads in it, proven.

    Between two neighbours that are proven the range is theirs; everywhere else it is of the tested loads that fall
    into it, if any.
    """
    found: list[tuple[int, int, list[int], bool]] = []
    rest, free = list(inside), start
    for run in _runs(inside, proven):
        low, high = math.ceil(running[run[0]]), math.floor(running[run[-1]])
        if low > high:  # one tested load, between two whole numbers
            low = high = min(round(running[run[0]]), end)
        low, high = max(low, free), min(high, end)
        if low > high:
            continue
        before = [i for i in rest if i < run[0]]
        if free < low:
            found.append((free, low - 1, before, False))
        found.append((low, high, run, True))
        rest, free = [i for i in rest if i > run[-1]], high + 1
    return [*found, (free, end, rest, False)] if free <= end else found


def _runs(inside: Sequence[int], proven: Sequence[int]) -> list[list[int]]:
    """Return the proven ones, neighbours joined."""
    found: list[list[int]] = []
    for place in inside:
        if place in proven:
            joined = found and found[-1][-1] == place - 1
            found[-1:] = [[*found[-1], place]] if joined else [*found[-1:], [place]]
    return found


def _evidence(curve: Curve, level: float, running: float) -> str:
    return f"{wording.ratio(curve.ratio(level))} at {wording.with_unit(level)} (≈ {wording.load(running)} running)"


def _untested(start: int, end: int, running: Sequence[float]) -> str:
    """Say why a range holds no tested load."""
    below, above = [r for r in running if r <= start], [r for r in running if r >= end]
    if not below:
        return f"not measured: the lowest tested load has ≈ {wording.load(running[0])} running"
    if not above:
        return f"not measured: the highest tested load has ≈ {wording.load(running[-1])} running"
    return (
        f"interpolated: nothing was measured between ≈ {wording.load(below[-1])} and {wording.load(above[0])} running"
    )
