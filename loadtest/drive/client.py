"""The stopwatch: sends a request and writes down when each chunk of its answer arrived.

One client per user, with one kept connection. Nothing that a server or a network does is raised: the record's outcome
says it. The client uses gevent's hub directly and does not need monkey patching.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from loadtest.drive.clock import Clock
from loadtest.drive.connection import Connection
from loadtest.drive.endpoint import Endpoint
from loadtest.drive.exchange import Exchange
from loadtest.drive.failure import Failure
from loadtest.record import Outcome, Request

__all__ = ["Client", "Clock", "Endpoint"]

IDLE_LIMIT_S = 4.0  # a connection idle for longer is opened anew: uvicorn closes at 5 s


class Client:
    """Streams requests to one endpoint, one at a time."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._connection: Connection | None = None
        self._busy = False
        self.over_s = -math.inf  # when the body of the last answer had ended, which may follow its [DONE]

    def stream(
        self,
        path: str,
        body: bytes,
        record: Request,
        on_first: Callable[[], object] | None = None,
        hear: Callable[[bytes], None] | None = None,
    ) -> None:
        """POST `body` to `path` and fill `record` from sending to the end of the answer; returns when it is over.

        `on_first` is called once when the first chunk has come, and `hear` with the data of each event, in the hub:
        they must not wait. A kill or a timeout of the greenlet closes the connection, marks the record cancelled and is
        raised again.
        """
        if self._busy:
            raise RuntimeError("a client runs one request at a time")
        self._busy = True
        try:
            self._stream(self._endpoint.request(path, body), record, on_first, hear)
        except Failure as failure:
            record.outcome, record.error = failure.outcome.value, failure.text
            record.end_s = self._clock.now_s()
        except BaseException as reason:
            self.close()
            if not isinstance(reason, Exception) and not record.end_s >= 0:
                record.outcome, record.error = Outcome.CANCELLED.value, "the request was cancelled"
                record.end_s = self._clock.now_s()
            raise
        finally:
            self._busy = False
            if self._endpoint.has_secrets:  # the server's own words may repeat them
                for words in ("error", "response_id", "finish_reason"):
                    setattr(record, words, self._endpoint.without_secrets(getattr(record, words)))

    def close(self) -> None:
        """Close the connection, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _stream(self, request: bytes, record: Request, on_first: Callable[[], object] | None,
                hear: Callable[[bytes], None] | None) -> None:  # fmt: skip
        connection = self._pooled() or self._opened(record)
        if self._exchange(connection, request, record, on_first, hear):
            record.reconnected = True
            record.end_s = float("nan")
            self._exchange(self._opened(record), request, record, on_first, hear)

    def _exchange(self, connection: Connection, request: bytes, record: Request, on_first: Callable[[], object] | None,
                  hear: Callable[[bytes], None] | None) -> bool:  # fmt: skip
        """Run the request on `connection`; True when a reused connection ended before any byte of an answer."""
        exchange = Exchange(connection, record, self._clock, self._endpoint.limits, on_first, hear)
        exchange.run(request)
        self.over_s = exchange.over_s
        self._endpoint.note_answer(exchange.model, exchange.oddities)
        lost = exchange.lost and connection.used
        if exchange.reusable:
            connection.used = True
            connection.idle_since_s = self._clock.now_s()
        else:
            self.close()
        return lost

    def _pooled(self) -> Connection | None:
        """Return the kept connection if it is still good."""
        connection = self._connection
        if connection is None:
            return None
        if self._clock.now_s() - connection.idle_since_s <= IDLE_LIMIT_S and connection.fresh():
            return connection
        self.close()
        return None

    def _opened(self, record: Request) -> Connection:
        self.close()
        began_s = self._clock.now_s()
        self._connection = Connection(self._endpoint, self._clock)
        record.connect_s = self._clock.now_s() - began_s
        return self._connection
