"""Is a cell to be trusted? One entry per rule: what it reads, its limit, and what breaking it does.

A mark that invalidates takes the cell out of every estimate; the others are shown beside it. A rule that lacks what it
reads says so: nothing passes for want of data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from loadtest.analyse.client_validity import (
    COALESCED_RATIO,
    CPU_RATIO,
    CPU_RATIO_INVALID,
    ERROR_RATIO,
    FAR_BEYOND,
    HUB_LAG_INVALID_S,
    HUB_LAG_S,
    LATENESS_RATIO,
    LATENESS_S,
    LOAD_REACHED,
    STOOD_STILL_S,
    chunks_coalesced,
    client_busy,
    client_failed,
    clock_set,
    hub_lagging,
    load_not_reached,
    sends_late,
    stood_still,
)
from loadtest.analyse.open_validity import RATE_RATIO, arrivals_exceed, rate_not_reached
from loadtest.analyse.rules import CellFacts, Effect, Level, Mark, Rule, Unknown
from loadtest.analyse.server_validity import RATE_LIMITED_RATIO, rate_limited, restarted
from loadtest.analyse.worker_validity import CLOCK_RATIO, LATE_S, clocks_apart, word_late, worker_lost
from loadtest.backlog import BACKLOG_RATIO
from loadtest.record import NOT_CARRIED

__all__ = ["CELL_RULES", "LOAD_REACHED", "CellFacts", "Mark", "cell_marks", "cell_unknowns"]

FEW_REQUESTS = 10
FOREIGN_RATIO = 0.02  # of the client's own requests: below it the batch is hardly another one
# A repeated prompt may skip its prefill and be drafted from memory: at one request in twenty its gain stays below the
# least one that is claimed by default (3 %) even where half of a request's time is saved.
REPEATS_RATIO = 0.05
FIRST_TURN_CACHED = 0.50  # a shared system prompt of half the text is met in practice; beyond it, prompts recur


def _damaged(facts: CellFacts) -> Mark | Unknown | None:
    if not facts.measured.sent:
        return Unknown(missing="requests of the cell")
    return Mark(sentence=" ".join(facts.measured.damage), invalid=True) if facts.measured.damage else None


def _not_complete(facts: CellFacts) -> Mark | None:
    record = facts.record
    if record.state != "complete":
        why = f": {record.reason}" if record.reason else ""
        if record.state == NOT_CARRIED:
            return Mark(sentence=f"The server did not carry the load, and the cell was given up{why}.", invalid=True)
        return Mark(sentence=f"The cell was {record.state}{why}.", invalid=True)
    if record.window_open_s is None or record.window_close_s is None:
        return Mark(sentence="The window never opened and closed.", invalid=True)
    if not facts.measured.requests:
        return Mark(sentence="No request fell due in the window: lengthen it.", invalid=True)
    return None


def _errors(facts: CellFacts) -> Mark | Unknown | None:
    failed, requests = facts.measured.failed, facts.measured.requests
    if not requests:
        return Unknown(missing="requests due in the window")
    if failed <= ERROR_RATIO * requests:
        return None
    return Mark(
        sentence=f"{failed} of {requests} requests failed (limit {100 * ERROR_RATIO:.0f} %);"
        " the outcomes say how, the server's log may say why."
    )


def _preemptions(facts: CellFacts) -> Mark | Unknown | None:
    count = facts.window.get("preemptions") if facts.window else math.nan
    if math.isnan(count):
        return Unknown(missing="the server's count of preemptions")
    if not count:
        return None
    return Mark(
        sentence=f"The server preempted {count:.0f} requests in the window (limit 0): its KV cache is full at this"
        " load."
    )


def _few_requests(facts: CellFacts) -> Mark | None:
    number = facts.measured.requests
    if number >= FEW_REQUESTS:
        return None
    said = f"Only {number} request" if number else "No request"
    many = "s" if number > 1 else ""
    return Mark(sentence=f"{said}{many} fell due in the window (limit {FEW_REQUESTS}): lengthen it.")


def _too_short(facts: CellFacts) -> Mark | Unknown | None:
    """A window shorter than a request sees each user's work in part: its token rate is that of a stretch of answers."""
    rows = facts.rows
    if rows is None or not (rows.measured & rows.ok).any() or not math.isfinite(rows.window_s):
        return Unknown(missing="the length of a request")
    length = float(np.median(rows.column("e2e_s")[rows.measured & rows.ok]))
    if not math.isfinite(length):
        return Unknown(missing="the length of a request")
    if rows.window_s >= length:
        return None
    return Mark(
        sentence=f"The window of {rows.window_s:.1f} s is shorter than a median request ({length:.1f} s): lengthen it."
    )


def _several_models(facts: CellFacts) -> Mark | Unknown | None:
    models = facts.record.models
    if not models:
        return Unknown(missing="the model that each answer names")
    if len(models) == 1:
        return None
    return Mark(
        sentence=f"The answers came from {len(models)} models ({', '.join(models)}; limit 1): what stands behind the"
        " URL is not one server.",
        invalid=True,
    )


def _repeated_prompts(facts: CellFacts) -> Mark | Unknown | None:
    if facts.rows is None or not (facts.rows.column("body") >= 0).any():
        return Unknown(missing="hashes of the prompts")
    body = facts.rows.column("body")
    order = np.lexsort((facts.rows.column("due_s"), body))
    again = np.zeros(len(body), dtype=bool)
    again[order[1:]] = body[order][1:] == body[order][:-1]
    judged = facts.rows.measured & (body >= 0)
    count, repeats = int(judged.sum()), int((again & judged).sum())
    if not count:
        return Unknown(missing="hashes of the prompts")
    if repeats <= REPEATS_RATIO * count:
        return None
    return Mark(
        sentence=f"{repeats} of {count} requests repeated an earlier one of the cell (limit {100 * REPEATS_RATIO:.0f}"
        " %): caches and drafts from memory gain by it; give more prompts."
    )


def _cache_hits(facts: CellFacts) -> Mark | Unknown | None:
    """Later turns find their own history; a first turn finds only what others sent before."""
    if facts.rows is None:
        return Unknown(missing="what each request says of its cached tokens,")
    cached, prompt = facts.rows.column("cached_tokens"), facts.rows.column("prompt_tokens")
    first = facts.rows.measured & (facts.rows.column("turn") == 0) & (cached >= 0) & (prompt > 0)
    if not first.any():
        return Unknown(missing="what each request says of its cached tokens,")
    share = float(cached[first].sum() / prompt[first].sum())
    if share <= FIRST_TURN_CACHED:
        return None
    return Mark(
        sentence=f"First turns found {100 * share:.0f} % of their prompts in the prefix cache (limit"
        f" {100 * FIRST_TURN_CACHED:.0f} %): set servers.cache to salt, or give more prompts."
    )


def _foreign_traffic(facts: CellFacts) -> Mark | Unknown | None:
    """From idle to idle, a server can have ended no more requests than the client sent it."""
    served = facts.whole.get("requests") if facts.whole else math.nan
    if math.isnan(served):
        return Unknown(missing="the server's count of requests")
    sent = facts.measured.sent
    if round(served) <= sent:
        return None
    return Mark(
        sentence=f"The server ended {served:.0f} requests and the client sent {sent} (limit of others"
        f" {100 * FOREIGN_RATIO:.0f} %): it had other traffic; measure it alone.",
        invalid=served > (1 + FOREIGN_RATIO) * sent,
    )


def _counts_differ(facts: CellFacts) -> Mark | Unknown | None:
    """Client and server must count the same; only exact when nothing failed."""
    if not facts.measured.exact:
        return None if facts.measured.failures else Unknown(missing="token counts of the answers")
    pairs = [
        ("tokens", facts.measured.tokens_client, facts.whole.get("generation_tokens") if facts.whole else math.nan),
        ("requests", facts.measured.requests_client, facts.whole.get("requests") if facts.whole else math.nan),
    ]
    known = [pair for pair in pairs if not math.isnan(pair[2])]
    if not known:
        return Unknown(missing="the server's counts of requests and tokens")
    parts = [
        f"{server:.0f} {what} where the client counted {client}"
        for what, client, server in known
        if round(server) != client
    ]
    if not parts:
        return None
    return Mark(
        sentence=f"The server counted {' and '.join(parts)} (limit: none apart): other traffic, lost answers, or"
        " replicas whose metrics were not read."
    )


def _rule(name: str, check: Callable[[CellFacts], Mark | Unknown | None], effect: Effect, reads: str, limit: str) -> (
    Rule[CellFacts]
):  # fmt: skip
    return Rule(name=name, reads=reads, level=Level.CELL, effect=effect, limit=limit, check=check)


CELL_RULES: tuple[Rule[CellFacts], ...] = (
    _rule("damaged records", _damaged, Effect.INVALID, "the cell's record and requests", "none"),
    _rule("cell not complete", _not_complete, Effect.INVALID, "state and window of the cell", "complete, one request"),
    _rule("load not reached", load_not_reached, Effect.EITHER, "requests in flight, without think time",
          f"{LOAD_REACHED:.0%} of the users; failures make it a flag"),
    _rule("rate not reached", rate_not_reached, Effect.FLAG, "requests due in the window of an open load",
          f"{RATE_RATIO:.0%} of the level, and chance"),
    _rule("arrivals exceed completions", arrivals_exceed, Effect.FLAG,
          "requests in flight when the window of an open load opened and closed",
          f"growth of {BACKLOG_RATIO:.0%} of the requests due, and chance"),
    _rule("late sends", sends_late, Effect.EITHER, "p99 of sent − due",
          f"{1000 * LATENESS_S:g} ms or {LATENESS_RATIO:.0%} of the median TTFT; invalid beyond {FAR_BEYOND:g} times"),
    _rule("busy client", client_busy, Effect.EITHER, "processor seconds ÷ window",
          f"{CPU_RATIO:.0%}; invalid beyond {CPU_RATIO_INVALID:.0%}"),
    _rule("late timers", hub_lagging, Effect.EITHER, "p99 lateness of the client's timers",
          f"{1000 * HUB_LAG_S:g} ms; invalid beyond {1000 * HUB_LAG_INVALID_S:g} ms"),
    _rule("client stood still", stood_still, Effect.INVALID, "latest timer of the client, sleep of its machine",
          f"{STOOD_STILL_S:g} s"),
    _rule("worker lost", worker_lost, Effect.INVALID, "workers of the cell, where several make the load", "none"),
    _rule("clocks apart", clocks_apart, Effect.EITHER, "round trips between the workers and the master",
          f"{CLOCK_RATIO:.1%} of the window"),
    _rule("word late", word_late, Effect.EITHER, "when the master's word reached each worker",
          f"{1000 * LATE_S:.0f} ms; invalid beyond {STOOD_STILL_S:g} s"),
    _rule("wall clock set", clock_set, Effect.FLAG, "steps of the wall clock in the window", "none"),
    _rule("coalesced chunks", chunks_coalesced, Effect.EITHER, "chunks that shared a read, and how late reads were",
          f"{COALESCED_RATIO:.0%}; invalid where reads were later than a mean gap between chunks"),
    _rule("failures in the client", client_failed, Effect.INVALID, "outcomes of the requests due in the window",
          "none"),
    _rule("errors", _errors, Effect.FLAG, "outcomes of the requests due in the window", f"{ERROR_RATIO:.0%}"),
    _rule("several models", _several_models, Effect.INVALID, "models that the answers name", "one"),
    _rule("preemption", _preemptions, Effect.FLAG, "the server's preemptions in the window", "none"),
    _rule("few requests", _few_requests, Effect.FLAG, "requests due in the window", f"{FEW_REQUESTS}"),
    _rule("window too short", _too_short, Effect.FLAG, "window and median end-to-end time", "one median request"),
    _rule("repeated prompts", _repeated_prompts, Effect.FLAG, "hashes of the cell's bodies", f"{REPEATS_RATIO:.0%}"),
    _rule("caches carried over between cells", _cache_hits, Effect.FLAG, "cached tokens of first turns",
          f"{FIRST_TURN_CACHED:.0%} of their prompts"),
    _rule("foreign traffic", _foreign_traffic, Effect.EITHER, "the server's requests, idle to idle, and those sent",
          f"none; invalid beyond {FOREIGN_RATIO:.0%}"),
    _rule("counts apart", _counts_differ, Effect.FLAG, "requests and tokens of client and server, idle to idle",
          "equal where nothing failed"),
    _rule("rate limit", rate_limited, Effect.INVALID, "outcomes of the requests due in the window",
          f"{RATE_LIMITED_RATIO:.0%}"),
    _rule("server restarted", restarted, Effect.INVALID, "the server's counters, and when its process began", "never"),
)  # fmt: skip


def cell_marks(facts: CellFacts) -> tuple[Mark, ...]:
    """Return the marks of a cell, those that invalidate first."""
    found = [mark for rule in CELL_RULES if isinstance(mark := rule.check(facts), Mark)]
    return tuple(sorted(found, key=lambda mark: not mark.invalid))


def cell_unknowns(facts: CellFacts) -> dict[str, str]:
    """Return the rules that could not be checked on a cell, and what each lacked."""
    found = {rule.name: rule.check(facts) for rule in CELL_RULES}
    return {name: result.missing for name, result in found.items() if isinstance(result, Unknown)}
