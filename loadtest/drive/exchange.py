"""One request and its answer on one connection, from the first byte sent to the end of the stream.

Everything here runs in callbacks of the hub, without a switch of greenlets per read; the user's greenlet wakes once, at
the end. A connection has one alarm for deadlines, which outlives its requests: it is set anew only when it rings early.
It is one object of one state, whose steps call each other on the hot path; hence the length of this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gevent.hub import Waiter

from loadtest.drive.alarms import Alarm
from loadtest.drive.alike import CHUNK_END
from loadtest.drive.clock import Clock
from loadtest.drive.connection import Connection
from loadtest.drive.deltas import Deltas
from loadtest.drive.ends import broke, missed, so_far
from loadtest.drive.failure import Failure
from loadtest.drive.refusal import is_stream, refusal
from loadtest.drive.repeats import Repeats, Stamps
from loadtest.drive.sse import EventSplitter
from loadtest.drive.wire import Reply
from loadtest.record import Outcome, Request
from loadtest.settings import Limits

BODY_LIMIT = 64 * 1024  # bytes of an answer that is no event stream
STREAM_LIMIT = 256 * 2**20  # bytes of an answer that is an event stream, but for those that are read the quick way
CHUNKS_LIMIT = 2**20  # chunks of an answer; looked at with the deadlines
TAIL_S = 0.01  # how long the end of the body may follow [DONE]; later, the connection is given up
_OK = Outcome.OK.value  # an enumeration finds its values slowly
_DRAIN_READS = 256  # reads made before a deadline is judged: 16 MiB, more than a receive buffer holds


class Exchange:
    """Runs one request over a connection and fills its record; `lost` tells that not one byte of an answer came."""

    __slots__ = (
        "_answered", "_clock", "_connection", "_deltas", "_headed", "_hear", "_lag_ns", "_left", "_limits", "_on_first",
        "_origin_ns", "_over", "_quick", "_record", "_repeats", "_reply", "_sent_s", "_settled", "_splitter",
        "_stamped", "_tail", "_text", "_total_until_s", "_unstamped", "_waiter", "crash", "lost", "over_s",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        record: Request,
        clock: Clock,
        limits: Limits,
        on_first: Callable[[], object] | None,
        hear: Callable[[bytes], None] | None = None,
    ) -> None:
        self._connection = connection
        self._record = record
        self._clock = clock
        self._origin_ns = clock.origin_ns
        self._limits = limits
        self._on_first = on_first
        self._hear = hear
        self._reply = Reply()
        self._splitter = EventSplitter()
        self._deltas = Deltas(record)
        self._text: bytearray | None = None  # the body, where it is no event stream
        self._left = STREAM_LIMIT  # bytes that may still come
        self._repeats = False  # the next read is the next event, and may be told by its bytes
        self._quick: Repeats | None = None  # makes such reads, where the kernel stamps them
        self._answered = False  # a byte has come
        self._headed = False  # the head has come
        self._stamped = False  # some read bore the kernel's stamp
        self._unstamped = False  # some did not
        self._lag_ns = 0
        self._sent_s = 0.0
        self._total_until_s = 0.0
        self._tail: Alarm | None = None  # by when the end of the body must have followed [DONE]
        self._waiter: Any = None  # the user's greenlet, once it waits
        self._over = False
        self._settled = False
        self.over_s = -math.inf  # when the end of the body came, or nobody waited for it any longer
        self.crash: Exception | None = None
        self.lost = False

    def run(self, request: bytes) -> None:
        """Send the request and wait until the exchange is over; the record then holds the outcome."""
        record, connection = self._record, self._connection
        connection.reader.start(self._on_readable)
        try:
            self._sent_s = self._clock.now_s()
            if not record.sent_s >= 0:  # else this is the second attempt, and the first one counts
                record.sent_s = self._sent_s
            self._guarded(self._send, request)
            self._total_until_s = record.sent_s + self._limits.total_s
            if not self._over:
                connection.on_alarm = self._check_deadlines
                self._arm(self._sent_s + self._limits.first_token_s)
                self._waiter = Waiter()
                self._waiter.get()
        finally:
            self._release()
            self._reply.close()
            self._deltas.close()
            if self._stamped:
                record.stamp_source = "mixed" if self._unstamped else "kernel"
            record.lag_max_s = max(self._lag_ns, self._quick.lag_ns if self._quick is not None else 0) * 1e-9
            self._quick = None  # they refer to each other, and a driver does not look for cycles
        if self.crash is not None:
            raise self.crash

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self._reply.complete and self._reply.keep_alive and self._connection.all_sent

    @property
    def model(self) -> str | None:
        """The model that the server says it answered with."""
        return self._deltas.model

    @property
    def oddities(self) -> tuple[str, ...]:
        """What was unusual about a stream without making it fail: `no_done`, `not_utf8`."""
        no_done = self._record.outcome == _OK and not self._deltas.done
        return ("no_done",) * no_done + ("not_utf8",) * self._deltas.mended

    # ---- sending

    def _send(self, request: bytes) -> None:
        try:
            if not self._connection.send(request):
                self._connection.writer.start(self._guarded, self._send_more)
        except OSError as error:
            self._send_failed(error)

    def _send_more(self) -> None:
        try:
            if self._connection.send_more():
                self._connection.writer.stop()
        except OSError as error:
            self._send_failed(error)

    def _send_failed(self, error: OSError) -> None:
        """A server may refuse a request before it has read it all: what it said is still to be read."""
        self._connection.writer.stop()
        self._drain()
        self._broken(error)

    # ---- reading

    def _on_readable(self) -> None:
        try:
            self._read()
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:  # noqa: BLE001  # sorted out in one place
            self._failed(error)

    def _guarded(self, step: Callable[..., None], *given: Any) -> None:
        """Run one step of the exchange; nothing may reach the hub."""
        try:
            step(*given)
        except Exception as error:  # noqa: BLE001  # sorted out in one place
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, BlockingIOError | InterruptedError):
            return
        if isinstance(error, Failure):
            self._finish(error)
        elif isinstance(error, OSError):
            self._broken(error)
        else:  # our own mistake: it is raised again in the user's greenlet
            self.crash = error
            self._finish(Failure(Outcome.CLIENT_ERROR, f"loadtest failed: {error!r}"))

    def _drain(self) -> None:
        """Read what has already arrived."""
        for _ in range(_DRAIN_READS):
            if self._over:
                return
            try:
                self._read()
            except BlockingIOError:
                return

    def _read(self) -> None:
        self._take(self._connection.receive())

    def _take_other(self, data: bytes, stamps: Stamps, now_ns: int) -> None:
        """Take a read of the quick way that is none of its."""
        self._guarded(lambda: self._take(self._connection.received(data, stamps, now_ns)))

    def _take(self, data: bytes | None) -> None:
        connection = self._connection
        if data is None:
            return
        if not data:
            self._closed()
            return
        at_s = (connection.arrived_ns - self._origin_ns) * 1e-9
        if self._quick is not None and at_s < self._record.chunk_s[-1]:
            at_s = self._record.chunk_s[-1]  # no stamp goes back
        if not self._answered:
            self._record.headers_s = at_s
            self._answered = True
        if connection.kernel:
            self._stamped = True
            if connection.lag_ns > self._lag_ns:  # max() costs a call
                self._lag_ns = connection.lag_ns
        else:
            self._unstamped = True
        self._left -= len(data)
        deltas = self._deltas
        told = self._repeats and self._left >= 0 and (deltas.take_chunk(data, at_s) or deltas.take_chunks(data, at_s))
        if not told:
            if self._repeats:
                self._repeats = False
                connection.reader.start(self._on_readable)
            self._parse(data, at_s)

    def _parse(self, data: bytes, at_s: float) -> None:
        reply = self._reply
        broken = reply.feed(data)
        if reply.ready and not self._headed:
            self._take_head()
        if reply.pieces:
            self._take_body(reply.pieces, at_s, data)
        if reply.complete:
            self._whole(at_s)
        elif broken is not None:
            raise broken

    def _take_head(self) -> None:
        self._headed = True
        self._record.http_status = self._reply.status
        if not is_stream(self._reply):
            self._text = bytearray()

    def _take_body(self, pieces: list[bytes], at_s: float, data: bytes) -> None:
        if self._text is not None or self._settled:
            self._take_text(at_s)
            return
        chunks, deltas, feed, hear = self._record.chunk_s, self._deltas, self._splitter.feed, self._hear
        before = len(chunks)
        try:
            for piece in pieces:
                for name, event in feed(piece):
                    deltas.take(name, event, at_s)
                    if hear is not None:
                        hear(event)
                    if deltas.done:  # what follows is not read
                        self._take_done(at_s)
                        return
            if self._left < 0:
                raise Failure(Outcome.PROTOCOL_ERROR, f"the stream is larger than {STREAM_LIMIT // 2**20} MiB")
            if hear is None and deltas.repeats:
                # Where both hold, no part of another chunk has come, nor of an event, but for a blank line.
                self._repeats = data.endswith(CHUNK_END) and piece.endswith(b"\n\n")
                self._choose_way()
        finally:
            pieces.clear()
            came = len(chunks) - before
            if came > 1:
                self._record.coalesced += came - 1
            if came and not before and self._on_first is not None:
                self._on_first()

    def _choose_way(self) -> None:
        """Let what repeats be read the quick way, until something else comes."""
        if self._repeats and self._connection.gatherer is not None:
            if self._quick is None:
                self._quick = Repeats(self._connection, self._deltas, self._take_other, self._failed)
            self._connection.reader.start(self._quick.read)

    def _take_text(self, at_s: float) -> None:
        """Keep the body of an answer that is no event stream, up to a limit; what follows [DONE] is let go."""
        if self._text is not None:
            self._text += b"".join(self._reply.pieces)
            if len(self._text) > BODY_LIMIT:
                del self._text[BODY_LIMIT:]
                self._whole(at_s)
        self._reply.pieces.clear()

    def _take_done(self, at_s: float) -> None:
        self._settle(self._deltas.verdict(), at_s)
        if not self._reply.complete:  # else the end of the body came with it
            self._tail = self._connection.alarms.after(TAIL_S, self._end_tail)

    def _end_tail(self) -> None:
        """The end of the body has not followed [DONE]: nobody waits for it any longer."""
        if self._over:
            return
        self._guarded(self._drain)
        if not self._over:
            self.over_s = self._clock.now_s()
            self._release()

    # ---- ends

    def _whole(self, at_s: float) -> None:
        """The body ended: where its framing says, with the connection where it says nothing, or at the limit."""
        if not self._settled:
            wrong = self._deltas.verdict() if self._text is None else refusal(self._reply, self._text)
            self._settle(wrong, at_s)
        self.over_s = at_s
        self._release()

    def _closed(self) -> None:
        """The server closed the connection."""
        if (self._headed and not self._reply.framed) or self._settled or self._text is not None:
            self._whole(self._clock.now_s())
        else:
            self._cut("the server closed the connection")

    def _broken(self, error: OSError) -> None:
        """The connection broke."""
        if self._settled or self._text:
            self._whole(self._clock.now_s())
        else:
            self._cut(broke(error))

    def _cut(self, what: str) -> None:
        if not self._answered:
            self.lost = True
            what += " without an answer"
        elif not self._headed:
            what += " within the response headers"
        self._finish(Failure(Outcome.TRUNCATED, what))

    def _finish(self, failure: Failure) -> None:
        at_s = self._clock.now_s()
        self._settle(failure, at_s)
        self.over_s = at_s
        self._release()

    def _settle(self, failure: Failure | None, at_s: float) -> None:
        """Write the outcome, once."""
        if self._settled:
            return
        self._settled = True
        record = self._record
        record.end_s = at_s
        if failure is None:
            record.outcome, record.error = _OK, ""
        else:
            record.outcome = failure.outcome.value
            record.error = failure.text + so_far(failure, record)

    def _release(self) -> None:
        """Let go of the connection and wake the user's greenlet, once what else has arrived is read."""
        if self._over:
            return
        self._over = True
        connection = self._connection
        connection.reader.stop()
        connection.writer.stop()
        connection.on_alarm = None
        if self._tail is not None:
            connection.alarms.call_off(self._tail)
        if self._waiter is not None:
            connection.loop.run_callback(self._waiter.switch, None)

    # ---- deadlines

    def _arm(self, deadline_s: float) -> None:
        """See to an alarm by the next deadline, and by a stall after a token that comes from now on."""
        now_s = self._clock.now_s()
        until_s = min(deadline_s, self._total_until_s, now_s + self._limits.stall_s)
        self._connection.alarm_within(until_s - now_s)

    def _check_deadlines(self) -> None:
        self._guarded(self._drain)  # a busy client may be late: what lies in the socket arrived in time
        if self._over:
            return
        if len(self._record.chunk_s) > CHUNKS_LIMIT:
            self._finish(Failure(Outcome.PROTOCOL_ERROR, f"the stream has more than {CHUNKS_LIMIT:,} chunks"))
            return
        deadline_s = self._deadline_s()
        now_s = self._clock.now_s()
        if now_s < deadline_s:
            self._arm(deadline_s)
        elif self._text is not None:
            self._guarded(self._whole, now_s)
        else:
            self._finish(missed(self._record, self._limits, total=deadline_s == self._total_until_s))

    def _deadline_s(self) -> float:
        """Return the next deadline. Only events with tokens move it, comments do not."""
        chunks = self._record.chunk_s
        next_s = chunks[-1] + self._limits.stall_s if chunks else self._sent_s + self._limits.first_token_s
        return min(next_s, self._total_until_s)
