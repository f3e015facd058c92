"""A request or two to an idle server, off the measured path: what they count, and whether they look like speculation.

Nothing merges chunks of a lone request but drafting: a server that never puts more than one token into a chunk does not
speculate, or accepts nothing. The answers are read to their last event; no time is taken of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from loadtest.drive.deltas import Deltas
from loadtest.drive.failure import Failure, printable
from loadtest.drive.openai import CHAT_PATH, chat_body
from loadtest.drive.sse import EventSplitter
from loadtest.errors import UsageError
from loadtest.record import Outcome, Request
from loadtest.servers.control import Control
from loadtest.servers.identity import PROBE_DIALOGUE
from loadtest.servers.limit_headers import rate_limits
from loadtest.settings import Generation

TOKENS = 64
LIMIT_S = 120.0  # of one answer
# Text that repeats is drafted well by every method, so that a working drafter shows.
REPEATING = {"role": "user", "content": "Write this list three times: " + ", ".join(map(str, range(1, 21))) + "."}
MANY = 1.05  # tokens per chunk above this: drafts are accepted
ONE = 1.01  # at most this, over ENOUGH chunks: none is
ENOUGH = 24  # chunks after the first
TELLING_S = 0.1  # a whole answer that took less may come in one piece from a quick server


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer as it came; figures that the server does not give are None."""

    status: int
    said: str = ""  # what went wrong, in the server's words
    prompt_tokens: int | None = None
    chunks: int = 0
    chunk_tokens: tuple[int, ...] = ()  # empty where nobody counts
    drafted: int | None = None
    accepted: int | None = None
    at_once: bool = False  # several chunks came in one piece at the end: something holds the stream back
    rate_limits: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it was answered."""
        return self.status == 200 and not self.said

    @property
    def uncounted(self) -> bool:
        """Whether chunks came, and nobody said how many tokens they have."""
        return self.ok and self.chunks > 0 and not self.chunk_tokens

    @property
    def tokens_per_chunk(self) -> float | None:
        """Tokens per chunk after the first; None where nobody counts."""
        return statistics.fmean(self.chunk_tokens[1:]) if len(self.chunk_tokens) > 1 else None

    @property
    def speculates(self) -> bool | None:
        """Whether it looks like speculation; None where it does not tell."""
        if self.drafted is not None and self.drafted > 0:
            return True
        each = self.tokens_per_chunk
        if each is None or self.at_once:
            return None
        if each > MANY:
            return True
        return False if each <= ONE and len(self.chunk_tokens) > ENOUGH else None


def ask(control: Control, model: str, generation: Generation, *, tokens: int = TOKENS, count: str = "continuous",
        salt: str | None = None, repeating: bool = False) -> Answered:  # fmt: skip
    """Send one streamed chat request and return what came. Raises UsageError where no connection could be made."""
    messages = [REPEATING] if repeating else list(PROBE_DIALOGUE)
    body = chat_body(model, messages, generation, tokens, salt, count)
    return send(control, body)


def send(control: Control, body: bytes) -> Answered:
    """Send the body of a streamed chat request and return what came. Raises UsageError where nothing could be sent."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    record, began_s = Request(), time.perf_counter()
    try:
        with control.client.stream("POST", CHAT_PATH, content=body, headers=headers, timeout=LIMIT_S) as response:
            limits = rate_limits(response.headers)
            if response.status_code != 200:
                words = response.read()[:400].decode("utf-8", "replace") or "no text"
                if 300 <= response.status_code < 400:
                    place = printable(response.headers.get("location", "") or "?", 120)
                    words = f"it redirects to {place}; redirects are not followed, give the final URL"
                return Answered(status=response.status_code, said=control.without_secrets(words),
                                rate_limits=limits)  # fmt: skip
            kind = response.headers.get("content-type", "")
            if kind and not kind.lower().startswith("text/event-stream"):
                said = f"it answered with {printable(kind, 60)}, not with an event stream"
                return Answered(status=200, said=control.without_secrets(said), rate_limits=limits)
            said = _read(response, record, began_s)
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise UsageError(f"T{control.arm.where[1:]} did not answer a chat request"
                         f" ({control.without_secrets(str(error) or type(error).__name__)}).") from error  # fmt: skip
    return Answered(
        status=200, said=control.without_secrets(said), rate_limits=limits,
        prompt_tokens=record.prompt_tokens if record.prompt_tokens >= 0 else None,
        chunks=len(record.chunk_s), chunk_tokens=tuple(record.chunk_tokens), at_once=_at_once(record.chunk_s),
        drafted=_told(record.spec_drafted), accepted=_told(record.spec_accepted),
    )  # fmt: skip


def _read(response: httpx.Response, record: Request, began_s: float) -> str:
    """Read a stream to its [DONE] or its end into the record; return what went wrong."""
    splitter, deltas = EventSplitter(), Deltas(record)
    try:
        for piece in response.iter_raw():
            at_s = time.perf_counter() - began_s
            if at_s > LIMIT_S:
                return f"no whole answer within {LIMIT_S:g} s"
            for name, data in splitter.feed(piece):
                deltas.take(name, data, at_s)
                if deltas.done:  # the end of the body need not follow
                    break
            if deltas.done:
                break
        failure = deltas.verdict()
    except Failure as error:
        failure = error
    return "" if failure is None or failure.outcome == Outcome.EMPTY else str(failure)


def _at_once(chunk_s: Sequence[float]) -> bool:
    """Return whether many chunks came within one piece: a stream that is passed on whole is none."""
    return len(chunk_s) >= 8 and chunk_s[-1] > TELLING_S and chunk_s[-1] - chunk_s[0] < 0.01 * chunk_s[-1]


def _told(value: int) -> int | None:
    return value if value >= 0 else None
