"""A server that anyone may own is sent load only by somebody who has seen how much it will be."""

from __future__ import annotations

from loadtest.drive.prepare import Prepared
from loadtest.errors import UsageError
from loadtest.servers.address import is_public


def cost_of(prepared: Prepared) -> str:
    """Return what a plan sends, in a clause: requests, output tokens, and how many are in flight at most."""
    experiment = prepared.experiment
    cells = len(prepared.cells())
    requests = cells * experiment.window.min_requests
    tokens = requests * experiment.generation.max_tokens
    top = max(experiment.load.levels)
    peak = f"up to {top:g} at a time" if experiment.load.kind == "closed" else f"up to {top:g} begun per second"
    each, longest = experiment.window.min_requests, experiment.generation.max_tokens
    sent = f"{cells} cells of at least {each} requests each, so at least {requests:,} requests of up to {longest}"
    return f"{sent} output tokens (up to {tokens:,}), {peak}"


def refuse_unconfirmed(prepared: Prepared, *, yes: bool) -> None:
    """Raise UsageError when a server may be on the public internet and this was not confirmed; it says what is sent."""
    ways = [url for arm in prepared.arms for url in (arm.url, arm.proxy) if url]
    public = [url for url in dict.fromkeys(ways) if is_public(url)]
    if not public or yes:
        return
    said = f"{' and '.join(public)} may be on the public internet. This plan sends {cost_of(prepared)}."
    raise UsageError(f"{said} If these servers are yours to load, and this is to be paid, add --yes.")
