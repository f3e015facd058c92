"""The arms introduce themselves: which model, which kind of server, and whether the two can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadtest.errors import NotComparable
from loadtest.servers.control import Arm, Control, resolve_model
from loadtest.servers.comparison import SPECULATION, compare
from loadtest.servers.identity import Identity, identify


def introduce(arm: Arm) -> tuple[Arm, Identity]:
    """Ask a server what it is and settle the model. Raises UsageError when it does not answer."""
    control = Control(arm)
    try:
        control.reach()
        model = resolve_model(control, arm.model)
        return replace(arm, model=model), identify(control, model)
    finally:
        control.close()


def takes_salt(identity: Identity) -> bool:
    """Return whether a server takes a cache_salt."""
    return identity.kind in ("vllm", "simulated")


def comparability(
    arms: Sequence[Arm], identities: Mapping[str, Identity], waived: Sequence[str], *, aa: bool
) -> list[dict[str, Any]]:
    """Return the comparability table of two arms, with waived violations marked."""
    rows = compare(identities[arms[0].name], identities[arms[1].name])
    rows = [_speculation(row, arms, aa=aa) if row["item"] == SPECULATION else row for row in rows]
    for row in rows:
        if row["kind"] == "violation" and row["item"] in waived:
            row["waived"] = True
    return rows


def refuse_violations(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise NotComparable when the table holds a violation that is not waived."""
    broken = [row for row in rows if row["kind"] == "violation" and not row.get("waived")]
    if broken:
        lines = "\n".join(
            f"  {row['item']}: baseline {row['baseline']}, candidate {row['candidate']}" for row in broken
        )
        raise NotComparable(
            f"The servers differ in more than speculation, so that no difference could be laid to it:\n{lines}\n"
            "Start both alike but for the speculative configuration, or waive an item by name: --waive ITEM."
        )


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
        return row | {"kind": "equal" if row["baseline"] == row["candidate"] else "violation"}
    baseline, candidate = arms
    if row["kind"] != "unknown" or not candidate.method or baseline.method:
        return row
    k = f", k = {candidate.k}" if candidate.k else ""
    told = {"baseline": "off", "candidate": f"on ({candidate.method}{k})"}
    return row | told | {"source": "declared", "kind": "expected"}
