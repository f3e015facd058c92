"""Rules on what stands behind a URL: gateways that limit or hold back, servers that restart, drafters that remember."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from loadtest.analyse.counters import growth, tokens_per_step
from loadtest.analyse.rules import CellFacts, Mark, Unknown
from loadtest.analyse.run_facts import RunFacts
from loadtest.record import FAKED, LOSSY, Outcome

RATE_LIMITED_RATIO = 0.01
TREND_P = 0.05
TREND_CELLS = 6  # of the candidate, at levels that were visited at least twice


def rate_limited(facts: CellFacts) -> Mark | Unknown | None:
    """A gateway that turns requests away sets the pace itself; that is no failure of the server."""
    requests = facts.measured.requests
    if not requests:
        return Unknown(missing="requests due in the window")
    count = facts.measured.outcomes.get(Outcome.RATE_LIMITED.value, 0)
    if count <= RATE_LIMITED_RATIO * requests:
        return None
    return Mark(
        sentence=f"{count} of {requests} requests were turned away by a rate limit (limit"
        f" {100 * RATE_LIMITED_RATIO:.0f} %): this is the gateway's limit, not the server's.",
        invalid=True,
    )


def restarted(facts: CellFacts) -> Mark | Unknown | None:
    """A server that was started again within a cell had cold caches, and counters from nought."""
    if facts.restarted is None:
        return Unknown(missing="two readings of the server's counters")
    if not facts.restarted:
        return None
    return Mark(
        sentence="The server was started again within the cell (limit: once): its counters fell, or its process is"
        " another one.",
        invalid=True,
    )


def held_back(facts: RunFacts) -> Mark | Unknown | None:
    """Streams that arrive in one piece have no time to first token, and no pace."""
    if facts.requests is None or not len(facts.requests.frame):
        return Unknown(missing="requests")
    frame = facts.requests.frame
    arms = sorted({str(arm) for arm in frame.loc[frame["at_once"], "arm"]})
    if not arms:
        return None
    return Mark(
        sentence=f"The streams of {' and '.join(arms)} came in one piece (limit: as they are made): something between"
        " holds them back. Times to first token and per token are absent; end-to-end times are as users have them."
    )


def unusual_acceptance(facts: RunFacts) -> Mark | Unknown | None:
    """Acceptance by chance shows what a draft of that quality would do; lossy acceptance changes the answers."""
    if facts.candidate is None:
        return None
    identity = identity_of(facts.run, facts.candidate)
    modes = modes_of(identity)
    if modes is None:
        return Unknown(missing="the candidate's speculative configuration")
    if FAKED in modes:
        return Mark(
            sentence=f"{facts.candidate} has faked acceptance (limit: none): drafts are accepted by chance, its answers"
            " are no answers, and its speed is what such an acceptance would bring."
        )
    if LOSSY in modes:
        return Mark(
            sentence=f"{facts.candidate} has lossy acceptance (limit: none): it accepts drafts that the model would not"
            " have made, so that its answers differ; see `loadtest compare-outputs`."
        )
    return None


def remembers(facts: RunFacts) -> Mark | Unknown | None:
    """A drafter that learns from earlier requests accepts more as a run goes on: its early cells are too slow."""
    if facts.candidate is None or not identity_of(facts.run, facts.candidate).get("remembers"):
        return None
    found = _acceptance(facts, facts.candidate)
    if found is None:
        return Unknown(missing=f"the acceptance of {TREND_CELLS} cells at levels that were visited twice")
    order, residual = found
    if np.ptp(residual) == 0:  # such as a drafter that accepts everything
        return None
    rank = stats.spearmanr(order, residual)
    if not rank.pvalue < TREND_P:
        return None
    way = "rose" if rank.statistic > 0 else "fell"
    return Mark(
        sentence=f"The drafter of {facts.candidate} learns from earlier requests, and its acceptance {way} as the run"
        f" went on (rank correlation {rank.statistic:.2f}, limit: none proven): what users see depends on how long it"
        " has run. Measure after a longer warm-up."
    )


def _acceptance(facts: RunFacts, arm: str) -> tuple[Sequence[int], Sequence[float]] | None:
    """Return (place in the run, acceptance less its level's mean) of the cells; None where they are too few.

    It is the acceptance ratio, or tokens per step of a server that counts no drafted tokens, as SGLang.
    """
    ratios: dict[float, list[tuple[int, float]]] = {}
    for cell in facts.valid:
        own = growth(facts.scrapes.get(cell.cell, ()), "window_open", "window_close") if cell.arm == arm else None
        share = own.over("accepted", "drafted") if own else None
        if share is None and own is not None and math.isnan(own.get("drafted")):
            share = tokens_per_step(own)
        if share is not None:
            ratios.setdefault(cell.level, []).append((cell.order, share))
    repeated = [level for level in ratios.values() if len(level) > 1]
    rows = [(order, share - float(np.mean([s for _, s in level]))) for level in repeated for order, share in level]
    return ([row[0] for row in rows], [row[1] for row in rows]) if len(rows) >= TREND_CELLS else None


def identity_of(run: Mapping[str, Any], arm: str) -> Mapping[str, Any]:
    """Return what an arm's server said of itself; empty where the header has nothing."""
    arms = [table for table in run.get("arms") or () if isinstance(table, Mapping) and table.get("name") == arm]
    identity = arms[0].get("identity") if arms else None
    return identity if isinstance(identity, Mapping) else {}


def modes_of(identity: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return what is unusual in a server's speculation; None where it does not tell its configuration."""
    config = identity.get("config")
    told = isinstance(config, Mapping) and any(str(key).startswith("specul") for key in config)
    modes = identity.get("modes")
    return tuple(map(str, modes)) if isinstance(modes, list | tuple) and (modes or told) else () if told else None


def is_faked(run: Mapping[str, Any]) -> bool:
    """Return whether some arm's acceptance is faked."""
    arms = [table for table in run.get("arms") or () if isinstance(table, Mapping)]
    return any(FAKED in (modes_of(identity_of(run, str(table.get("name")))) or ()) for table in arms)
