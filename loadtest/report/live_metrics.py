"""What a run measures while it goes on, for Prometheus: the same events that the live view shows, as gauges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from loadtest.errors import UsageError

HOST = "127.0.0.1"  # what is measured is nobody else's business; a scraper elsewhere comes through a tunnel
TICKS = {
    "tokens_per_s": ("loadtest_output_tokens_per_second", "Output tokens per second of the running cell."),
    "ttft_p50_s": ("loadtest_ttft_p50_seconds", "Median time to first token of the running cell."),
    "in_flight": ("loadtest_in_flight", "Requests sent and not ended."),
    "errors": ("loadtest_errors", "Requests of the running cell that failed."),
}


class LiveMetrics:
    """Serves the driver's last figures; a context manager, fed through `handle`. Unknown events are ignored.

    A figure that does not exist (before the first token, or of an arm that is not under load) is absent, never 0.
    """

    def __init__(self, port: int) -> None:
        """Listen on a port of the loopback interface, 0 for a free one. Raises UsageError when it is taken."""
        self._registry = CollectorRegistry()
        self._ticks = {key: Gauge(name, text, ["arm"], registry=self._registry) for key, (name, text) in TICKS.items()}
        self._level = Gauge("loadtest_level", "Load of the running cell.", ["arm", "unit"], registry=self._registry)
        self._done = Gauge("loadtest_cells_done", "Cells that have ended.", registry=self._registry)
        self._total = Gauge("loadtest_cells", "Cells of the plan.", registry=self._registry)
        self._arm = ""
        self._ended = 0
        try:
            self._server, self._thread = start_http_server(port, addr=HOST, registry=self._registry)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"Nothing can listen at {HOST}:{port} for --metrics-port: {error}. Give a free port."
            ) from error

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_port)

    def __enter__(self) -> LiveMetrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def handle(self, event: Mapping[str, Any]) -> None:
        """Take one event of the driver."""
        kinds: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "cell_start": self._on_start, "tick": self._on_tick, "cell_end": self._on_end,
        }  # fmt: skip
        take = kinds.get(str(event.get("event")))
        if take is not None:
            take(event)

    def _on_start(self, event: Mapping[str, Any]) -> None:
        self._clear()
        self._arm = str(event.get("arm", ""))
        self._total.set(float(event.get("total") or 0.0))
        self._level.labels(self._arm, str(event.get("unit") or "users")).set(float(event.get("level") or 0.0))

    def _on_tick(self, event: Mapping[str, Any]) -> None:
        if not self._arm:
            return  # the calibration ticks as well
        for key, gauge in self._ticks.items():
            value = event.get(key)
            if isinstance(value, int | float):
                gauge.labels(self._arm).set(value)

    def _on_end(self, event: Mapping[str, Any]) -> None:
        self._ended += 1
        self._done.set(self._ended)
        self._clear()
        self._arm = ""

    def _clear(self) -> None:
        for gauge in (*self._ticks.values(), self._level):
            gauge.clear()
