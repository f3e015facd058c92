"""What a gateway's headers say it lets through, held against a plan before anything of it is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadtest.errors import UsageError
from loadtest.loads import unit_of
from loadtest.servers.arm import Arm
from loadtest.servers.identity import Identity
from loadtest.settings import Experiment, Load


def least_requests(load: Load) -> tuple[float, str]:
    """Return (requests that a plan's top level sends in a minute at least, that level in words).

    Each user sends at least once a minute, and each session that arrives at least one request.
    """
    top = max(load.levels)
    return (top, f"{top:g} users at once") if load.kind == "closed" else (60 * top, f"{top:g} {unit_of(load)}")


def refuse_above_limits(arms: Sequence[Arm], identities: Mapping[str, Identity], load: Load) -> None:
    """Raise UsageError where a gateway's rate limit is certain to cut the plan.

    What is sent beyond `least_requests` depends on the server's own pace; a cell that meets the limit is invalid then.
    """
    sent, planned = least_requests(load)
    for arm in arms:
        limit = identities[arm.name].rate_limits.get("requests")
        if limit is not None and sent > limit:
            raise UsageError(f"T{arm.where[1:]} allows {limit:,.10g} requests a minute (by its rate-limit headers), and"
                             f" the plan has {planned}: what would be measured is that limit. Choose lower levels, or"
                             " have it raised.")  # fmt: skip


def token_notes(arms: Sequence[Arm], identities: Mapping[str, Identity], experiment: Experiment) -> list[str]:
    """Return a sentence on each arm whose limit on tokens a plan is likely to meet.

    It is no more than likely, since answers may end before [generation] max_tokens; gateways that set tokens aside when
    a request comes in count max_tokens all the same. Prompts come on top.
    """
    sent, planned = least_requests(experiment.load)
    longest = experiment.generation.max_tokens
    notes = []
    for arm in arms:
        limit = identities[arm.name].rate_limits.get("tokens")
        if limit is not None and sent * longest > limit:
            notes.append(
                f"T{arm.where[1:]} allows {limit:,.0f} tokens a minute (by its rate-limit headers), and {planned} ask"
                f" for up to {sent * longest:,.0f} of output alone: cells that meet that limit are invalid. Choose"
                " lower levels or generation.max_tokens, or have it raised."
            )
    return notes
