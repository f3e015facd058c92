"""Names an answer that is no event stream: an error status, a redirect, a JSON document."""

from __future__ import annotations

import orjson

from loadtest.drive.documents import error_message
from loadtest.drive.failure import Failure, printable
from loadtest.drive.wire import Reply
from loadtest.record import Outcome
from loadtest.servers.limit_headers import rate_limits


def is_stream(reply: Reply) -> bool:
    """Return whether a head announces an event stream. Raises Failure for a compressed body: none was asked for."""
    coding = reply.headers.get(b"content-encoding", b"").strip().lower()
    if coding not in (b"", b"identity"):
        named = printable(coding.decode("latin-1"), 40)
        raise Failure(Outcome.PROTOCOL_ERROR, f"the answer is compressed ({named}), although it was asked not to be")
    kind = reply.headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    return reply.status == 200 and kind == b"text/event-stream"


def refusal(reply: Reply, text: bytes | bytearray) -> Failure:
    """Return the failure that an answer with the body `text` amounts to."""
    try:
        said = orjson.loads(text)
    except orjson.JSONDecodeError:
        said = None
    message = printable(text.decode("utf-8", "replace")) if said is None else error_message(said)
    if reply.status == 200:
        if isinstance(said, dict) and said.get("error") is not None:
            return Failure(Outcome.STREAM_ERROR, f"the server answered with an error and status 200: {message}")
        kind = printable(reply.headers.get(b"content-type", b"no type").decode("latin-1"), 60)
        return Failure(Outcome.PROTOCOL_ERROR, f"the server answered with {kind}, not with an event stream")
    outcome = Outcome.RATE_LIMITED if reply.status == 429 else Outcome.HTTP_ERROR
    sentence = f"HTTP {reply.status}{_where_to(reply)}{_when_again(reply)}{_let_through(reply)}"
    return Failure(outcome, f"{sentence}: {message}" if message else sentence)


def _where_to(reply: Reply) -> str:
    target = reply.headers.get(b"location")
    if target is None or not 300 <= reply.status < 400:
        return ""
    return f" to {printable(target.decode('latin-1'))} (redirects are not followed)"


def _let_through(reply: Reply) -> str:
    """Quote the limits that turned a request away: a gateway may tell them only then, or lower them as it goes."""
    if reply.status != 429:
        return ""
    told = rate_limits({name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers.items()})
    return "".join(f", at most {limit:,.10g} {what} a minute" for what, limit in told.items())


def _when_again(reply: Reply) -> str:
    """Quote when the server wants to be asked again; nobody waits for it, since users wait by their own rules."""
    told = ((name, reply.headers.get(name.lower().encode())) for name in ("Retry-After", "Retry-After-Ms"))
    return "".join(f", {name} {printable(value.decode('latin-1'), 60)}" for name, value in told if value is not None)
