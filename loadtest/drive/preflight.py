"""Which optional fields of a request a server takes, tried one small request each; and what both arms take.

Servers of a known kind need no trial unless they refuse a first request: what they take is written down in
`servers/kinds.py`. Behind a gateway it is unknown, and a field that one arm takes and the other does not would make
them two different experiments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from loadtest.drive.alone import Answered, send
from loadtest.errors import UsageError
from loadtest.servers.arm import Arm
from loadtest.servers.control import Control
from loadtest.servers.identity import PROBE_DIALOGUE, Identity
from loadtest.servers.kinds import KINDS
from loadtest.servers.limit_headers import lowest
from loadtest.settings import Generation

TOKENS = 2  # of each small answer
REFUSALS = (400, 404, 405, 415, 422, 501)
SALT, STREAM_OPTIONS = "cache_salt", "stream_options"
# Way to count → the field that it needs.
WAYS = {"continuous": "continuous_usage_stats", "ids": "return_token_ids", "timings": "timings_per_token"}


UNSALTED = (
    "No cache_salt is taken by {}, so that none is sent: requests find in the prefix caches what earlier cells asked,"
    " as with servers.cache=keep. nonce begins every prompt with a number of its cell's own instead, reset has the"
    " caches emptied."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the small requests showed."""

    refused: tuple[str, ...]
    requests: int
    rate_limits: dict[str, float] = field(default_factory=dict)


def optional_fields(generation: Generation, counts: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, what it adds to a bare request) for each optional field that the run may send.

    `counts` are the ways to have the tokens of each chunk told that its kind of server may know.
    """
    usage = {"stream_options": {"include_usage": True}}
    yield STREAM_OPTIONS, usage
    asking = {"continuous": {"stream_options": {"include_usage": True, WAYS["continuous"]: True}}}
    for way in counts:
        if way in WAYS:
            yield WAYS[way], asking.get(way) or usage | {WAYS[way]: True}
    yield SALT, usage | {SALT: "loadtest-preflight"}
    yield from ((name, usage | {name: value}) for name, value in asked_for(generation).items())


def asked_for(generation: Generation) -> dict[str, Any]:
    """Return the optional fields that belong to the experiment, as [generation] sets them."""
    fields = {
        "top_p": generation.top_p, "top_k": generation.top_k, "stop": list(generation.stop) or None,
        "seed": generation.seed, "ignore_eos": generation.ignore_eos or None,
        "chat_template_kwargs": generation.template or None,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def attempt(control: Control, model: str, generation: Generation, counts: Sequence[str]) -> Trial:
    """Send a bare request, then one for each optional field. Raises UsageError where the bare one is not answered."""
    bare = {"model": model, "messages": list(PROBE_DIALOGUE), "max_tokens": TOKENS,
            "temperature": generation.temperature, "stream": True}  # fmt: skip
    first = send(control, orjson.dumps(bare))
    refuse_unanswered(control, first)
    answers, refused = [first], []
    for name, more in optional_fields(generation, counts):
        answer = send(control, orjson.dumps(bare | more))
        answers.append(answer)
        if answer.status in REFUSALS or (name in WAYS.values() and answer.uncounted):  # refused, or passed over
            refused.append(name)
        elif answer.status != 200:
            raise UsageError(f"T{control.arm.where[1:]} answered HTTP {answer.status} while the field {name} was"
                             f" tried ({answer.said}); nothing was measured.")  # fmt: skip
    if STREAM_OPTIONS in refused:
        raise UsageError(f"T{control.arm.where[1:]} does not take stream_options, so that no answer says how many"
                         " tokens it has; without token counts nothing can be measured.")  # fmt: skip
    return Trial(
        refused=tuple(refused), requests=len(answers), rate_limits=lowest(*(answer.rate_limits for answer in answers))
    )


def refuse_unanswered(control: Control, answer: Answered) -> None:
    """Raise UsageError, in the server's words, where a first chat request was not answered."""
    if not answer.ok:
        said = answer.said if answer.status == 200 else f"HTTP {answer.status} ({answer.said})"
        raise UsageError(f"T{control.arm.where[1:]} did not answer a first chat request: {said}.")


def accepted_counts(identity: Identity) -> tuple[str, ...]:
    """Return the ways to have the tokens of each chunk told that a server takes, the best first."""
    ways = KINDS[identity.kind].counts
    return tuple(way for way in ways if WAYS.get(way) not in identity.refused)


def takes_salt(identity: Identity) -> bool:
    """Return whether a server takes a cache_salt: its kind does, or it was tried, and it was not refused."""
    heeds = KINDS[identity.kind].salts
    return (bool(identity.tried) if heeds is None else heeds) and SALT not in identity.refused


def salted(identities: Mapping[str, Identity]) -> dict[str, bool]:
    """Return which arms are sent a cache_salt: all, or none where one of them does not take it."""
    every = all(map(takes_salt, identities.values()))
    return dict.fromkeys(identities, every)


def agreed(arms: Sequence[Arm], identities: Mapping[str, Identity], generation: Generation) -> dict[str, Arm]:
    """Return the arms with the ways to count tokens that all of them take, so that all are asked the same.

    Raises UsageError for a field of [generation] that one of them refuses: leaving it out would be another experiment.
    """
    for arm in arms:
        refused = [name for name in asked_for(generation) if name in identities[arm.name].refused]
        if refused:
            raise UsageError(f"T{arm.where[1:]} refuses the field {refused[0]}, which [generation] asks for."
                             " Take it out of [generation], so that both servers are asked the same.")  # fmt: skip
    ways = [accepted_counts(identities[arm.name]) for arm in arms]
    shared = tuple(way for way in ways[0] if all(way in other for other in ways)) if ways else ()
    return {arm.name: replace(arm, counts=shared) for arm in arms}


def trial_notes(identities: Mapping[str, Identity], cache: str) -> list[str]:
    """Return a sentence on each server whose optional fields were tried: what it cost, and what is not asked for.

    One more says where `cache`, the policy of servers.cache, wants a salt that is not taken.
    """
    unsalted = [name for name, identity in identities.items() if not takes_salt(identity)]
    found = [UNSALTED.format(" and ".join(unsalted))] if unsalted and cache == "salt" else []
    for name, identity in identities.items():
        if identity.tried:
            refused = f"not taken: {', '.join(identity.refused)}; asked of no arm" if identity.refused else "all taken"
            found.append(f"{identity.tried} requests of at most {TOKENS} output tokens tried which optional fields"
                         f" {name} takes ({refused}).")  # fmt: skip
    return found
