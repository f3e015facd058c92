"""Server-sent events on bytes (WHATWG HTML, section 9.2): split, never decoded.

Lines end with LF, CR LF or CR and nothing else, wherever the reads cut them. Time and memory are linear in the bytes.
"""

from __future__ import annotations

from loadtest.drive.failure import Failure
from loadtest.record import Outcome

EVENT_LIMIT = 4 * 2**20  # bytes of one event, or of a line that does not end

Event = tuple[bytes, bytes]  # its name (b"" for none) and its data lines, joined by LF


class EventSplitter:
    """Turns the pieces of a body into events; each event comes out with the piece that completes it."""

    __slots__ = ("_begun", "_pending", "_plain", "_scanned", "_skip_lf")

    def __init__(self) -> None:
        self._pending = bytearray()
        self._scanned = 0  # the pending bytes before this hold no end of an event
        self._skip_lf = False  # the last piece ended with a CR, whose LF may be the first byte of the next
        self._begun = False
        self._plain = True  # nothing is pending from earlier pieces

    def feed(self, piece: bytes) -> list[Event]:
        """Return the events that `piece` completes. Raises Failure for an event larger than EVENT_LIMIT."""
        # Nearly every piece is one whole event of one line; the JSON in it holds no bare CR or LF.
        if (
            self._plain
            and piece[:6] == b"data: "
            and piece[-2:] == b"\n\n"
            and piece.find(b"\n") == len(piece) - 2
            and piece.find(b"\r") < 0  # half the time of `in`
        ):
            self._begun = True
            return [(b"", piece[6:-2])]
        return self._feed_any(piece)

    def _feed_any(self, piece: bytes) -> list[Event]:
        if not piece:
            return []
        if self._skip_lf and piece.startswith(b"\n"):
            piece = piece[1:]
        self._skip_lf = False
        if b"\r" in piece:
            self._skip_lf = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pending = self._pending
        pending += piece
        events: list[Event] = []
        start, scan = 0, self._scanned
        while (end := pending.find(b"\n\n", scan)) >= 0:
            if end - start > EVENT_LIMIT:
                raise _too_large()
            event = _parse(self._first(bytes(pending[start:end])))
            if event is not None:
                events.append(event)
            start = scan = end + 2
        del pending[:start]
        if len(pending) > EVENT_LIMIT:
            raise _too_large()
        self._scanned = max(len(pending) - 1, 0)
        self._plain = not pending and not self._skip_lf
        return events

    def _first(self, block: bytes) -> bytes:
        if self._begun:
            return block
        self._begun = True
        return block.removeprefix(b"\xef\xbb\xbf")


def _too_large() -> Failure:
    return Failure(Outcome.PROTOCOL_ERROR, f"an event of the stream is larger than {EVENT_LIMIT // 2**20} MiB")


def _parse(block: bytes) -> Event | None:
    """Return the event that the lines of a block form; None for comments and blank lines."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return b"", block[6:]
    name, data = b"", []
    for line in block.split(b"\n"):
        word, _, value = line.partition(b":")
        if word == b"data":
            data.append(value.removeprefix(b" "))
        elif word == b"event":
            name = value.removeprefix(b" ")
    # The standard drops an event without data; an `event: error` is a failure all the same.
    return (name, b"\n".join(data)) if data or name == b"error" else None
