"""The first requests to a server: do they work, how does it count tokens, and how long does a request take?"""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.drive.client import Client, Clock, Endpoint
from loadtest.drive.openai import CHAT_PATH, COUNTS, chat_body
from loadtest.errors import UsageError
from loadtest.record import Outcome, Request
from loadtest.servers.control import Arm
from loadtest.settings import Generation

MESSAGES = [{"role": "user", "content": "Count from one to ten, then say which numbers are even."}]
TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the first requests showed."""

    count: str  # how tokens per chunk are to be asked for: continuous · ids · timings · none
    tokens_source: str
    stamp_source: str
    ttft_s: float  # of the very first request
    token_s: float  # seconds per output token of a request alone on a warm server


def probe(arm: Arm, endpoint: Endpoint, clock: Clock, generation: Generation, salt: str | None, warm: int) -> Probe:
    """Send a few requests, one after the other; `warm` of them only warm the server up.

    Raises UsageError when the first one fails.
    """
    asked = min(TOKENS, generation.max_tokens)

    def send(count: str) -> Request:
        request = Request(arm=arm.name, due_s=clock.now_s())
        client = Client(endpoint, clock)
        client.stream(CHAT_PATH, chat_body(arm.model, MESSAGES, generation, asked, salt, count), request)
        client.close()
        return request

    for count in arm.counts or COUNTS:
        first = send(count)
        if first.outcome == Outcome.OK and (first.tokens_source != "none" or count == "none"):
            break
        if first.outcome != Outcome.OK and first.http_status != 400:
            break
    if first.outcome != Outcome.OK:
        raise UsageError(f"T{arm.where[1:]} did not answer a first chat request:"
                         f" {first.outcome} ({first.error}).")  # fmt: skip
    for _ in range(warm):
        send(count)
    again = send(count)  # the first request after a start is slow
    timed = again if again.outcome == Outcome.OK else first
    return Probe(
        count=count, tokens_source=first.tokens_source, stamp_source=first.stamp_source,
        ttft_s=first.chunk_s[0] - first.sent_s,
        token_s=(timed.end_s - timed.sent_s) / max(1, timed.output_tokens),
    )  # fmt: skip
