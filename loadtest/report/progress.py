"""What `run` shows while it measures: a live view on a terminal, one plain line per cell elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadtest.report import words
from loadtest.report.comparability import comparison_lines

WAIT_LINES_S = 20.0  # between two lines on a server that is awaited, where there is no live view


@dataclass(slots=True, kw_only=True)
class Reading:
    """The last figures of an arm in its latest cell: those of its window, once there is one, as load ebbs after it."""

    level: str = ""
    block: int = 1
    over: bool = False
    in_window: bool = False
    tokens_per_s: float | None = None
    ttft_p50_s: float | None = None
    in_flight: int = 0
    errors: int = 0

    def take(self, tick: Mapping[str, Any]) -> None:
        """Take the figures of a tick of its cell."""
        now_in_window = tick.get("phase") == "window"
        self.errors = int(tick.get("errors") or 0)
        if self.in_window and not now_in_window:
            return
        self.in_window = now_in_window
        self.tokens_per_s, self.ttft_p50_s = tick.get("tokens_per_s"), tick.get("ttft_p50_s")
        self.in_flight = int(tick.get("in_flight") or 0)

    @property
    def text(self) -> str:
        """One line of figures."""
        return (
            f"{words.whole(self.tokens_per_s)} tokens/s, TTFT p50 {words.time(self.ttft_p50_s)},"
            f" {self.in_flight} in flight, {self.errors} error{'' if self.errors == 1 else 's'}"
        )

    @property
    def column(self) -> tuple[str, ...]:
        """The same by ROWS."""
        return (
            self.level,
            f"{self.block}{'' if self.over else ', now'}",
            words.whole(self.tokens_per_s),
            words.time(self.ttft_p50_s),
            str(self.in_flight),
            str(self.errors),
        )


ROWS = ("load", "block", "tokens/s", "TTFT p50", "in flight", "errors")


class Progress:
    """Shows the driver's events; a context manager, fed through `handle`. Events it does not know are ignored."""

    def __init__(self, console: Console, *, now: Callable[[], float] = time.monotonic) -> None:
        """Show on `console`; `now` is a clock in seconds."""
        self._console, self._now = console, now
        self._readings: dict[str, Reading] = {}
        self._cell: Mapping[str, Any] = {}
        self._phase = ""
        self._waiting, self._waited_s = "", 0.0  # for a server's health: what is said of it, and when it last was
        self._done = 0
        self._began_s: float | None = None
        # Rich takes a pipe for a terminal where FORCE_COLOR is set; a view that moves the cursor belongs on neither.
        live = console.is_interactive and console.file.isatty()
        self._live = Live(console=console, get_renderable=self.view, transient=True) if live else None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def handle(self, event: Mapping[str, Any]) -> None:
        """Take one event of the driver."""
        show = {
            "cell_start": self._on_start,
            "tick": self._on_tick,
            "cell_end": self._on_end,
            "calibration_start": self._on_calibration,
            "asking_start": self._on_asking,
            "workers_awaited": self._on_workers_awaited,
            "workers": self._on_workers,
            "note": self._on_note,
            "compared": self._on_compared,
            "outputs_start": self._on_outputs,
            "server_start": self._on_server_start,
            "server_wait": self._on_server_wait,
            "server_ready": self._on_server_ready,
            "server_stop": self._on_server_stop,
        }.get(str(event.get("event")))
        if show is not None:
            show(event)

    def _on_calibration(self, event: Mapping[str, Any]) -> None:
        self._say(f"calibrating the client against the built-in null server, {words.calibrated(event)}")

    def _on_asking(self, event: Mapping[str, Any]) -> None:
        arm = words.plain(event.get("arm", ""), 40)
        self._say(f"measuring what asking for token counts costs, on {arm} at {words.level_of(event)}")

    def _on_workers_awaited(self, event: Mapping[str, Any]) -> None:
        number, port = int(event.get("count") or 0), int(event.get("port") or 0)
        count = "1 worker" if number == 1 else f"{number} workers"
        if event.get("local"):
            self._say(f"starting {count}")
            return
        host = words.plain(event.get("host", ""), 80)
        self._say(f"waiting {words.minutes(float(event.get('wait_s') or 0.0))} at most for {count} at"
                  f" {host}:{port}: loadtest worker --master HOST:{port}")  # fmt: skip

    def _on_workers(self, event: Mapping[str, Any]) -> None:
        for worker in event.get("crew") or ():
            name, host = words.plain(worker.get("name", ""), 60), words.plain(worker.get("host", ""), 60)
            offset_s, bound_s = worker.get("offset_s"), worker.get("bound_s")
            apart = f"{1000 * offset_s:+.3f} ± {1000 * bound_s:.3f} ms" if offset_s is not None else "unknown"
            self._say(f"{name} on {host} is ready; the master's clock − its own: {apart}")

    def _on_outputs(self, event: Mapping[str, Any]) -> None:
        arm, count = words.plain(event.get("arm", ""), 40), int(event.get("prompts") or 0)
        times = "twice" if event.get("passes") == 2 else "once"
        self._say(f"asking {arm} {count} prompts {times}, to compare answers")

    def _on_server_start(self, event: Mapping[str, Any]) -> None:
        arm, url = words.plain(event.get("arm", ""), 40), words.plain(event.get("url", ""), 200)
        number, total = int(event.get("start") or 1), int(event.get("starts") or 1)
        self._waiting = f"starting {arm} at {url}" + (f", start {number} of {total}" if total > 1 else "")
        self._waited_s = 0.0
        self._say(self._waiting)

    def _on_server_wait(self, event: Mapping[str, Any]) -> None:
        arm, line = words.plain(event.get("arm", ""), 40), words.plain(event.get("line", ""), 160)
        waited_s = float(event.get("waited_s") or 0.0)
        left = words.minutes(float(event.get("ready_s") or 0.0))
        self._waiting = f"waiting for {arm} to be healthy, {waited_s:.0f} s of at most {left}: {line or 'no log yet'}"
        if self._live is None and waited_s - self._waited_s >= WAIT_LINES_S:
            self._waited_s = waited_s
            self._say(self._waiting)

    def _on_server_ready(self, event: Mapping[str, Any]) -> None:
        self._waiting = ""
        self._say(f"{words.plain(event.get('arm', ''), 40)} is healthy after {float(event.get('took_s') or 0.0):.1f} s")

    def _on_server_stop(self, event: Mapping[str, Any]) -> None:
        self._waiting = f"ending {words.plain(event.get('arm', ''), 40)}"
        self._say(self._waiting)

    def _on_compared(self, event: Mapping[str, Any]) -> None:
        for line in comparison_lines(event.get("rows") or ()):
            self._say(line)

    def _on_note(self, event: Mapping[str, Any]) -> None:
        self._say(f"note: {words.plain(event.get('text', ''), 400)}")

    def _on_start(self, event: Mapping[str, Any]) -> None:
        self._cell, self._phase = event, ""
        if self._began_s is None:
            self._began_s = self._now()
        self._readings[self._arm] = Reading(level=words.level_of(event), block=int(event.get("block") or 0) + 1)

    def _on_tick(self, event: Mapping[str, Any]) -> None:
        self._phase = str(event.get("phase", ""))
        if not self._cell:
            return  # the calibration ticks as well
        self._readings.setdefault(self._arm, Reading()).take(event)

    def _on_end(self, event: Mapping[str, Any]) -> None:
        self._done += 1
        self._readings.setdefault(self._arm, Reading()).over = True
        state, reason = str(event.get("state", "complete")), words.plain(event.get("reason", ""), 300)
        if self._live is None or state != "complete":
            figures = self._readings[self._arm].text
            said = figures if state == "complete" else f"{words.plain(state)}: {reason}"
            self._say("; ".join(part for part in (f"{self._where}: {said}", self.left) if part))

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True, highlight=False)

    @property
    def _arm(self) -> str:
        return words.plain(self._cell.get("arm", ""), 64)

    @property
    def _total(self) -> int:
        return int(self._cell.get("total") or 0)

    @property
    def _where(self) -> str:
        cell = self._cell
        position = f"cell {int(cell.get('index') or 0) + 1} of {self._total}"
        level = words.level_of(cell)
        return f"{position}, {self._arm}, {level}, block {int(cell.get('block') or 0) + 1}"

    @property
    def left(self) -> str:
        """The time left as the cells so far took on average, or the empty string while none has ended."""
        if not self._done or self._began_s is None or self._done >= self._total:
            return ""
        return f"about {words.minutes((self._now() - self._began_s) / self._done * (self._total - self._done))} left"

    def view(self) -> RenderableType:
        """Return what the live display shows now."""
        if self._waiting:
            return Text(self._waiting)
        if not self._cell:
            return Text("starting …")
        head = ", ".join(part for part in (self._where, self._phase, self.left) if part)
        bar = ProgressBar(total=max(1, self._total), completed=self._done, width=60)  # by itself it ends no line
        return Group(Padding(bar, 0), Text(head), self._arms())

    def _arms(self) -> Table:
        """Return the arms side by side, the baseline at the left: each in its latest cell."""
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("", no_wrap=True)
        for arm in (arms := sorted(self._readings, key=lambda name: name != "baseline")):
            table.add_column(Text(words.plain(arm, 14)), justify="right", no_wrap=True)
        for row in zip(ROWS, *(self._readings[arm].column for arm in arms), strict=True):
            table.add_row(*map(Text, row))
        return table
