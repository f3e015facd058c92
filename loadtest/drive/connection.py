"""One TCP or TLS connection, non-blocking, whose reads carry the kernel's time of arrival.

Opening waits in the calling greenlet; reading and writing never wait, so that they can run in callbacks of the hub.
TLS works on memory buffers above the same `recvmsg`, and so keeps the kernel's stamps.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable

from gevent import monkey
from gevent.hub import get_hub
from gevent.socket import wait_read, wait_write

from loadtest.drive.alarms import Alarm
from loadtest.drive.clock import KERNEL_STAMPS, STAMP_SPACE, Clock
from loadtest.drive.disorder import out_of_order
from loadtest.drive.endpoint import Endpoint
from loadtest.drive.failure import Failure, printable
from loadtest.drive.gather import Gatherer, busy_since_ns, gatherer_of, reader
from loadtest.drive.opening import connected, late, reason_of
from loadtest.drive.tunnel import open_tunnel
from loadtest.record import Outcome

READ_SIZE = 64 * 1024
LONG_NS = 2_000_000  # from a stamp to the read: the packets may have waited for a lost one
_WRITABLE, _POLLIN = 2, 1


class Connection:
    """An open connection to an endpoint. `arrived_ns`, `kernel` and `lag_ns` describe the latest read."""

    __slots__ = (
        "_ahead", "_alarm", "_alarm_s", "_disorder", "_endpoint", "_incoming", "_outgoing", "_poll", "_socket", "_tls",
        "_unsent", "alarms", "arrived_ns", "clock", "idle_since_s", "kernel", "lag_ns", "loop", "on_alarm", "reader",
        "recvmsg", "used", "writer",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        """Connect, TLS included, within the endpoint's connect limit. Raises Failure."""
        self.clock = clock
        self._endpoint = endpoint
        self.used = False  # it has carried a whole exchange
        self.idle_since_s = 0.0
        self.arrived_ns = 0  # of the latest read, on perf_counter_ns
        self.kernel = False  # whether that was the kernel's stamp
        self.lag_ns = 0  # from the stamp to the read
        self._ahead: deque[tuple[bytes | OSError, int]] | None = None  # what was read before its turn, and when
        self._disorder = 0  # packets that had come out of order when that was last asked
        self.alarms = endpoint.alarms
        self.on_alarm: Callable[[], None] | None = None  # whom an alarm concerns at the moment
        self._alarm: Alarm | None = None
        self._alarm_s = 0.0  # when it rings, on time.monotonic
        self._unsent = memoryview(b"")
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        deadline_s = time.monotonic() + endpoint.limits.connect_s
        self._socket = connected(endpoint, deadline_s, stamped=KERNEL_STAMPS)
        self.recvmsg = self._socket.recvmsg
        self._poll = monkey.get_original("select", "poll")()
        self._poll.register(self._socket.fileno(), _POLLIN)
        try:
            if endpoint.proxy is not None and endpoint.tls is not None:
                open_tunnel(self._socket, endpoint, deadline_s)
            if endpoint.tls is not None:
                self._start_tls(endpoint.tls, deadline_s)
            self.loop = get_hub().loop
            self.reader = reader(self._socket.fileno(), self._read_ahead, stamped=KERNEL_STAMPS)
            self.writer = self.loop.io(self._socket.fileno(), _WRITABLE)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the connection; closing twice is allowed."""
        if self._alarm is not None:
            self.alarms.call_off(self._alarm)
        for watcher in (self.reader, self.writer):
            watcher.stop()
            watcher.close()
        self._socket.close()

    def alarm_within(self, delay_s: float) -> None:
        """See to it that `on_alarm` is called within `delay_s`; an alarm that is set already may call it earlier."""
        at_s = time.monotonic() + delay_s
        if self._alarm is not None:
            if self._alarm_s <= at_s:
                return
            self.alarms.call_off(self._alarm)
        self._alarm, self._alarm_s = self.alarms.after(delay_s, self._ring), at_s

    def _ring(self) -> None:
        self._alarm = None
        if self.on_alarm is not None:
            self.on_alarm()

    def send(self, data: bytes) -> bool:
        """Hand `data` to the kernel as far as it takes it; False: call `send_more` when writable. Raises OSError."""
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return True
        self._unsent = memoryview(data)[sent:]
        return self.send_more()

    def send_more(self) -> bool:
        """Send what `send` left over; True when nothing is left. Raises OSError."""
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
        return True

    @property
    def gatherer(self) -> Gatherer | None:
        """What reads this connection together with others, where a read gives the stream's own bytes and a stamp."""
        return gatherer_of(self.reader) if KERNEL_STAMPS and self._tls is None else None

    @property
    def all_sent(self) -> bool:
        """Whether the kernel has taken everything that was to be sent."""
        return not self._unsent

    def receive(self) -> bytes | None:
        """Return the bytes that have arrived, b"" at the end, None for a part of a TLS record.

        Raises BlockingIOError when nothing is there, OSError when the connection broke.
        """
        if self._ahead is not None:
            return self._kept(self._ahead)
        data, stamps, _, _ = self.recvmsg(READ_SIZE, STAMP_SPACE)
        return self.received(data, stamps, time.perf_counter_ns())

    def received(self, data: bytes, stamps: list[tuple[int, int, bytes]], now_ns: int) -> bytes | None:
        """Return the bytes that a read with `recvmsg` at `now_ns` brought, as `receive` does."""
        arrived_ns = self.clock.arrival_ns(stamps[0][2], now_ns) if stamps else -1
        self.kernel = arrived_ns >= 0 and not (now_ns - arrived_ns > LONG_NS and self._waited_for_another(arrived_ns))
        # What came before a lost packet's second sending could not be read until that had come: no stamp goes back.
        if not self.kernel:
            self.arrived_ns = now_ns
        elif arrived_ns > self.arrived_ns:  # max() costs a call
            self.arrived_ns = arrived_ns
        self.lag_ns = now_ns - self.arrived_ns
        return data if self._tls is None else self._decrypted(data)

    def _read_ahead(self) -> None:
        """Read what has arrived, and keep it with the time for `receive`: only where the kernel gives no stamp."""
        data: bytes | OSError
        try:
            data = self._socket.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            data = error
        if self._ahead is None:
            self._ahead = deque()
        self._ahead.append((data, time.perf_counter_ns()))

    def _kept(self, ahead: deque[tuple[bytes | OSError, int]]) -> bytes | None:
        data, self.arrived_ns = ahead.popleft()
        if not ahead:
            self._ahead = None
        self.kernel, self.lag_ns = False, 0
        if isinstance(data, OSError):
            raise data
        return data if self._tls is None else self._decrypted(data)

    def _waited_for_another(self, arrived_ns: int) -> bool:
        """Return whether packets have come out of order, where it was not the client that was late."""
        if arrived_ns > busy_since_ns(self.reader):
            return False
        before, self._disorder = self._disorder, out_of_order(self._socket)
        return self._disorder != before

    def _decrypted(self, data: bytes) -> bytes | None:
        assert self._tls is not None
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        parts = []
        try:
            while part := self._tls.read(READ_SIZE):
                parts.append(part)
            ended = True
        except ssl.SSLWantReadError:
            ended = False
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            ended = True
        if self._outgoing.pending and not self._unsent:  # an answer of the TLS layer itself, such as a key update
            self._unsent = memoryview(self._outgoing.read())
            self.send_more()
        if parts:
            return b"".join(parts)
        return b"" if ended or not data else None

    def fresh(self) -> bool:
        """Return whether an idle connection is as it was left: neither closed by the server nor holding stray bytes."""
        return self._ahead is None and not self._poll.poll(0)

    def _start_tls(self, context: ssl.SSLContext, deadline_s: float) -> None:
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._endpoint.host)
        try:
            while not self._handshake_step():
                self._flush(deadline_s)
                wait_read(self._socket.fileno(), max(deadline_s - time.monotonic(), 0.001), TimeoutError())
                data = self._socket.recv(READ_SIZE)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            self._flush(deadline_s)
        except TimeoutError:
            raise late(self._endpoint, "TLS was not established") from None
        except ssl.SSLError as error:
            raise Failure(Outcome.TLS_ERROR, _tls_reason(error, self._endpoint)) from None
        except OSError as error:
            reason = (
                f"the connection to {self._endpoint.authority} broke while TLS was being set up: {reason_of(error)}"
            )
            raise Failure(Outcome.TLS_ERROR, reason) from None

    def _handshake_step(self) -> bool:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _flush(self, deadline_s: float) -> None:
        self._unsent = memoryview(self._outgoing.read())
        while not self.send_more():
            wait_write(self._socket.fileno(), max(deadline_s - time.monotonic(), 0.001), TimeoutError())


def _tls_reason(error: ssl.SSLError, endpoint: Endpoint) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {endpoint.authority} was refused: {printable(error.verify_message)}"
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return f"{endpoint.authority} does not speak TLS: is its URL http://?"
    if isinstance(error, ssl.SSLEOFError):
        return f"{endpoint.authority} closed the connection while TLS was being set up"
    return f"TLS with {endpoint.authority} failed: {printable(error.reason or str(error))}"
