"""The arms introduce themselves: which model, which kind of server, and whether the two can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadtest.drive.alone import Answered, ask
from loadtest.drive.preflight import accepted_counts, attempt, refuse_unanswered
from loadtest.drive.preflight import takes_salt as takes_salt
from loadtest.errors import NotComparable, nearest
from loadtest.servers.arm import NO_COUNTERS
from loadtest.servers.comparison import SPECULATION, compare
from loadtest.servers.control import Arm, Control, resolve_model
from loadtest.servers.counters import BEGAN
from loadtest.servers.identity import BY_ANSWERS, Identity, identify
from loadtest.servers.kinds import KINDS, SIMULATED
from loadtest.servers.limit_headers import lowest
from loadtest.settings import Generation

ALONE_SALT = "loadtest-introduction"
DECLARED = "declared and not shown: a gate takes it only where [gate] accept says so"
MOST = 30  # violations that a sentence names
READINGS = 4  # of /metrics: one of two processes behind it shows itself but for a chance of 1 in 8
SEVERAL = "several processes answer in turn: give the metrics URL of each replica"
PROMPT_TOKENS = 2  # of the answer that only counts its prompt


def introduce(arm: Arm, generation: Generation | None = None, *, answers: bool = False) -> tuple[Arm, Identity]:
    """Ask a server what it is and settle the model. Raises UsageError when it does not answer.

    With `generation` a few small requests tell what its endpoints do not: which optional fields it takes, and whether
    its answers look like speculation; with `answers` these are looked at in any case.
    """
    control = Control(arm)
    try:
        control.reach()
        known = replace(arm, model=resolve_model(control, arm.model))
        control.arm = known
        identity = identify(control, known.model)
        if generation is not None:
            identity = _asked(control, identity, generation, answers=answers)
            if _several_processes(known):
                identity, known = replace(identity, counters=SEVERAL), replace(known, metrics=(NO_COUNTERS,))
        return replace(known, kind=identity.kind, counts=accepted_counts(identity)), identity
    finally:
        control.close()


def _several_processes(arm: Arm) -> bool:
    """Return whether /metrics is answered by several processes in turn: then no two readings belong together.

    It shows by the times at which they began; where these are not told, by counters that fall from reading to reading.
    """
    if arm.metrics or arm.prometheus:
        return False
    began: set[float | None] = set()
    before: dict[str, float] = {}
    for _ in range(READINGS):  # each over a connection of its own, as an entrance spreads them
        control = Control(arm)
        try:
            values, _, _, error = control.scrape()
        finally:
            control.close()
        if error:
            return False
        began.add(values.get(BEGAN))
        if any(value < before.get(name, value) for name, value in values.items() if name.endswith("_total")):
            return True
        before = values
    return len(began) > 1


def _asked(control: Control, identity: Identity, generation: Generation, *, answers: bool) -> Identity:
    """Complete what a server told by what its answers show."""
    kind, plain = KINDS[identity.kind], Generation(temperature=0.0)
    identity = identity if kind.known_fields else _tried(control, identity, generation)
    enough = not answers and identity.speculates is not None and identity.template is not None
    if enough and (identity.tried or kind is SIMULATED):
        return identity
    first = _first(control, identity, plain if identity.tried else generation)
    if (not first.ok or first.uncounted) and not identity.tried:  # something before it may take less than its kind does
        identity = _tried(control, identity, generation)
        first = _first(control, identity, plain)
    refuse_unanswered(control, first)
    limits = lowest(identity.rate_limits, first.rate_limits)
    identity = replace(identity, prompt_tokens=first.prompt_tokens, rate_limits=limits)
    if enough:
        return identity
    way, salt = _way(identity)
    found = ask(control, identity.model, plain, count=way, salt=salt, repeating=True)
    identity = replace(identity, at_once=found.at_once, rate_limits=lowest(limits, found.rate_limits))
    if identity.speculates is None and found.speculates is not None:
        identity = replace(identity, speculates=found.speculates, shown_by=BY_ANSWERS)
    return identity


def _tried(control: Control, identity: Identity, generation: Generation) -> Identity:
    """Note which optional fields a server takes, and what its headers let through."""
    trial = attempt(control, identity.model, generation, KINDS[identity.kind].counts)
    return replace(identity, refused=trial.refused, tried=trial.requests, rate_limits=trial.rate_limits)


def _way(identity: Identity) -> tuple[str, str | None]:
    """Return (how the tokens of each chunk are asked for, the cache salt)."""
    return next(iter(accepted_counts(identity)), "none"), ALONE_SALT if takes_salt(identity) else None


def _first(control: Control, identity: Identity, generation: Generation) -> Answered:
    way, salt = _way(identity)
    return ask(control, identity.model, generation, tokens=PROMPT_TOKENS, count=way, salt=salt)


def comparability(
    arms: Sequence[Arm], identities: Mapping[str, Identity], waived: Sequence[str], *, aa: bool
) -> list[dict[str, Any]]:
    """Return the comparability table of two arms, with waived violations marked."""
    rows = compare(identities[arms[0].name], identities[arms[1].name], (arms[0], arms[1]))
    rows = [_speculation(row, arms, aa=aa) if row["item"] == SPECULATION else row for row in rows]
    for row in rows:
        if row["kind"] == "violation" and row["item"] in waived:
            row["waived"] = True
    return rows


def refuse_violations(rows: Sequence[Mapping[str, Any]], waived: Sequence[str] = ()) -> None:
    """Raise NotComparable when the table holds a violation that is not waived, with what `waived` names in vain."""
    broken = [row for row in rows if row["kind"] == "violation" and not row.get("waived")]
    if broken:
        lines = "\n".join(
            f"  {row['item']}: baseline {row['baseline']}, {row.get('arm', 'candidate')} {row['candidate']}"
            + (f" ({row['note']})" if row.get("note") else "")
            for row in broken[:MOST]
        )
        lines += f"\n  and {len(broken) - MOST:,} more" if len(broken) > MOST else ""
        raise NotComparable(
            f"The servers differ in more than speculation, so that no difference could be laid to it:\n{lines}\n"
            "Start both alike but for the speculative configuration, or waive an item by name: --waive ITEM."
            + "".join(f"\n{note}" for note in idle_waivers(rows, waived))
        )


def idle_waivers(rows: Sequence[Mapping[str, Any]], waived: Sequence[str]) -> list[str]:
    """Return a sentence on each waiver that names no item of the table."""
    items = list(dict.fromkeys(str(row["item"]) for row in rows))
    return [
        f"--waive {name!r} names no item that differs.{nearest(name, items)}" for name in waived if name not in items
    ]


def refuse_another(name: str, start: int, first: Identity, now: Identity) -> None:
    """Raise NotComparable when a later start of an arm is not the server that its first start was."""
    lines = differences(first, now)
    if lines:
        raise NotComparable(
            f"Start {start} of {name} is not the server that start 1 was:\n{lines}\n"
            "Something it reads (a file, an environment variable, a model) changed during the run."
        )


def differences(first: Identity, now: Identity) -> str:
    """Return a line for each item in which a server is not what it was; empty when it is the same.

    What a server chooses by itself (blocks of its cache, captured graphs) may vary from start to start.
    """
    if not (first.config and now.config):  # one did not tell its settings this time
        first, now = replace(first, config={}), replace(now, config={})
    rows = [row for row in compare(first, now) if row["kind"] in ("violation", "expected")]
    if first.speculates == now.speculates:
        rows = [row for row in rows if row["item"] != SPECULATION]
    return "\n".join(f"  {row['item']}: {row['baseline']} at first, now {row['candidate']}" for row in rows)


def _speculation(row: dict[str, Any], arms: Sequence[Arm], *, aa: bool) -> dict[str, Any]:
    """Take what was declared where a server does not tell; in an A/A both arms are to be the same."""
    if aa and row["kind"] != "unknown":
        same = row["baseline"] == row["candidate"]
        return row | {"kind": "equal" if same else "violation", "note": ""}
    baseline, candidate = arms
    if row["kind"] != "unknown" or not candidate.method or baseline.method:
        return row
    k = f", k = {candidate.k}" if candidate.k else ""
    told = {"baseline": "off", "candidate": f"on ({candidate.method}{k})"}
    return row | told | {"source": "declared", "kind": "expected", "note": DECLARED}
