"""The requests that make the tail: the latest of each arm at each level, and what made them late. Never their text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from loadtest.analyse.detail_results import SlowRequest

EACH, MOST = 3, 60  # requests of an arm at a level, and in all
SHARE = 0.5  # of the time beyond the median: what one cause must explain to be named


def slowest(frame: pd.DataFrame, cells: Collection[int], arms: Sequence[str]) -> tuple[SlowRequest, ...]:
    """Return the requests of valid cells that took longest, failed ones first; `frame` is that of Requests."""
    due = frame.loc[frame["in_window"] & frame["cell"].isin(list(cells))]
    levels = sorted({float(level) for level in due["level"].unique()})
    each = max(1, min(EACH, MOST // max(1, len(levels) * len(arms))))
    found: list[SlowRequest] = []
    for level in levels[-MOST:]:
        at_level = due[due["level"] == level]
        own = {arm: at_level[at_level["arm"] == arm] for arm in arms}
        for arm in arms:
            others = [other for other in arms if other != arm]
            found += _of(own[arm], own[others[0]] if others else None, each)
    return tuple(found)


def _of(rows: pd.DataFrame, other: pd.DataFrame | None, each: int) -> list[SlowRequest]:
    well = rows[rows["ok"]]
    typical = {name: float(well[name].median()) for name in ("ttft_s", "e2e_s", "tokens", "worst_stall_s")}
    late = rows["e2e_s"].where(rows["ok"], np.inf)
    order = np.lexsort((rows["due_s"], rows["cell"], -late.fillna(np.inf).to_numpy()))[:each]
    return [_one(row, other, typical) for row in rows.iloc[order].itertuples()]


def _one(row: Any, other: pd.DataFrame | None, typical: dict[str, float]) -> SlowRequest:
    def get(name: str) -> float:
        return float(getattr(row, name))

    ok = bool(row.ok)
    return SlowRequest(
        arm=str(row.arm),
        level=get("level"),
        block=int(get("block")),
        cell=int(get("cell")),
        category=_word(row.category),
        session=int(get("session")),
        turn=int(get("turn")),
        outcome=str(row.outcome),
        due_s=get("due_s"),
        sent_late_s=_present(get("sent_s") - get("due_s")),
        ttft_s=_present(get("ttft_s")),
        e2e_s=_present(get("e2e_s")) if ok else None,
        worst_stall_s=_present(get("worst_stall_s")),
        tokens=int(max(0, get("tokens"), get("output_tokens"))),
        prompt_tokens=int(get("prompt_tokens")) if get("prompt_tokens") >= 0 else None,
        twin_s=_twin(row, other),
        cause=_cause({name: get(name) for name in typical}, typical) if ok else "failed",
    )


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _present(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _twin(row: object, other: pd.DataFrame | None) -> float | None:
    """Return the end-to-end time of the same request in the other arm, where it ended well."""
    if other is None:
        return None
    same = other["ok"].to_numpy(dtype=bool)
    for name in ("block", "session", "turn"):
        same = same & (other[name] == getattr(row, name)).to_numpy(dtype=bool)
    times = other.loc[same, "e2e_s"]
    return _present(float(times.iloc[0])) if len(times) else None


def _cause(own: dict[str, float], typical: dict[str, float]) -> str:
    """Return what the time beyond the median request of the arm and level went to."""
    beyond = own["e2e_s"] - typical["e2e_s"]
    if not beyond > 0:
        return "slow throughout"
    if own["ttft_s"] - typical["ttft_s"] >= SHARE * beyond:
        return "late first token"
    if own["worst_stall_s"] - typical["worst_stall_s"] >= SHARE * beyond:
        return "one stall"
    decoding = typical["e2e_s"] - typical["ttft_s"]
    more = own["tokens"] - typical["tokens"]
    if typical["tokens"] > 0 and decoding * more / typical["tokens"] >= SHARE * beyond:
        return "long answer"
    return "slow throughout"
