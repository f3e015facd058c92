"""One HTTP/1.1 response, read piece by piece through llhttp (httptools)."""

from __future__ import annotations

from typing import Any

import httptools

from loadtest.drive.failure import Failure
from loadtest.record import Outcome

HEAD_LIMIT = 64 * 1024  # bytes of the status line and the headers together

_KEPT_HEADERS = frozenset(
    (b"content-type", b"content-encoding", b"content-length", b"transfer-encoding", b"location", b"retry-after",
     b"retry-after-ms", b"x-ratelimit-limit-requests", b"x-ratelimit-limit-tokens", b"ratelimit-limit",
     b"ratelimit-policy", b"anthropic-ratelimit-requests-limit", b"anthropic-ratelimit-tokens-limit")
)  # fmt: skip


class Reply:
    """The response to one request: status, the headers that matter, and its body in pieces.

    `pieces` collects the body; the reader takes and clears it after each `feed`. Interim responses (1xx) are passed
    over.
    """

    __slots__ = (
        "_feed", "_head_bytes", "_header_bytes", "_parser", "_spoilt",
        "complete", "headers", "keep_alive", "on_body", "pieces", "ready", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        self.ready = False  # the final head has been read
        self.complete = False  # the body has ended as its framing says
        self.keep_alive = False  # the connection may carry another request
        self.on_body = self.pieces.append
        self._spoilt = False  # bytes came after the end of the response
        self._head_bytes = 0  # received before the head was complete
        self._header_bytes = 0  # as lines
        self._parser: Any = httptools.HttpResponseParser(self)
        self._feed: Any = self._parser.feed_data

    def feed(self, data: bytes | memoryview) -> Failure | None:
        """Read the next bytes of the connection; a Failure comes back when they are not HTTP/1.1.

        What came before the fault is kept in `pieces` all the same.
        """
        broken = None
        if not self.ready:
            self._head_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade:  # 101: a whole response, and no HTTP after it
            self._spoilt = True
        except httptools.HttpParserError as error:
            if self.complete:
                self._spoilt = True
            else:
                broken = Failure(Outcome.PROTOCOL_ERROR, self._complaint(data, error))
        if self._spoilt:
            self.keep_alive = False
        if (self._header_bytes > HEAD_LIMIT or not self.ready) and self._oversized():
            return Failure(Outcome.PROTOCOL_ERROR, f"the response headers are larger than {HEAD_LIMIT // 1024} KiB")
        return broken

    def close(self) -> None:
        """Let go of the parser, which refers back to this reply: nothing is left for the garbage collector."""
        self._parser = self._feed = None

    def _oversized(self) -> bool:
        return self._header_bytes > HEAD_LIMIT or (not self.ready and self._head_bytes > HEAD_LIMIT)

    def _complaint(self, data: bytes | memoryview, error: httptools.HttpParserError) -> str:
        if self._oversized():
            return f"the response headers are larger than {HEAD_LIMIT // 1024} KiB"
        if self.ready:
            return f"the framing of the response body is broken ({error})"
        if bytes(data[:2]) in (b"\x15\x03", b"\x16\x03"):
            return "the server answered plain HTTP with TLS: is its URL https://?"
        return f"the server's answer is not HTTP/1.1 ({error})"

    @property
    def framed(self) -> bool:
        """Whether the body says where it ends; if not, the end of the connection ends it."""
        return b"content-length" in self.headers or b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()

    def on_message_begin(self) -> None:
        """Called by llhttp at the first byte of a response."""
        if self.complete:
            self._spoilt = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by llhttp for each header, and for trailers."""
        self._header_bytes += len(name) + len(value) + 4  # the colon, a blank, CR LF
        if self.ready:
            return
        name = name.lower()
        if name in _KEPT_HEADERS:
            self.headers[name] = value

    def on_headers_complete(self) -> None:
        """Called by llhttp at the end of a head."""
        if self.complete:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self.headers.clear()
            return
        self.status = status
        self.ready = True

    def on_message_complete(self) -> None:
        """Called by llhttp where the framing ends the response."""
        if self.ready and not self.complete:
            self.complete = True
            self.keep_alive = bool(self._parser.should_keep_alive())
