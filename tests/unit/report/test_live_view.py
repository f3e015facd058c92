"""The view of a run under way: both arms side by side on a terminal, nothing of which is left; else plain lines."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from loadtest.report.progress import Progress

BASE = {"event": "cell_start", "arm": "baseline", "level": 16.0, "block": 1, "index": 2, "total": 4}
SPEC = BASE | {"arm": "speculative", "index": 3}
TICK = {"event": "tick", "phase": "window", "tokens_per_s": 1234.5, "ttft_p50_s": 0.0412, "in_flight": 15, "errors": 1}
END = {"event": "cell_end", "state": "complete", "reason": "", "block": 1, "level": 16.0}
CONTROL = re.compile(r"\x1b\[(\??)(\d*)([A-Za-z])")


class Screen:
    """As much of a terminal as the live view uses: lines, a cursor, going up, erasing a line. It refuses the rest."""

    def __init__(self) -> None:
        self.lines, self.row, self.column = [""], 0, 0

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = CONTROL.match(text, at)
                assert found, text[at : at + 10]
                at = found.end()
                self._control(*found.groups())
                continue
            self._put(text[at])
            at += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row, self.column = self.row + 1, 0
            self.lines += [""] * (self.row + 1 - len(self.lines))
        else:
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _control(self, private: str, number: str, kind: str) -> None:
        if private:
            assert (number, kind) in (("25", "l"), ("25", "h")), "hides and shows the cursor, and nothing else"
        elif kind == "A":
            self.row -= int(number or 1)
        elif kind == "K":
            assert number == "2"
            self.lines[self.row] = ""
        else:
            raise AssertionError(f"not known: {number}{kind}")

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n")


@contextmanager
def terminal(**options: object) -> Iterator[tuple[Console, list[bytes]]]:
    """Yield a console on a terminal of its own, and what is written there, complete when the block has ended."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    written: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                return
            if not piece:
                return
            written.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(slave, "w", encoding="utf-8") as file:
        yield Console(file=file, width=80, color_system=None, **options), written  # type: ignore[arg-type]
    reader.join(10)
    os.close(master)


def shown(progress: Progress) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    with console.capture() as captured:
        console.print(progress.view())
    return [line.rstrip() for line in captured.get().splitlines()][1:]  # without the bar


def test_both_arms_stand_side_by_side_the_baseline_at_the_left():
    progress = Progress(Console(file=io.StringIO(), width=80), now=lambda: 0.0)
    for event in (SPEC, TICK | {"tokens_per_s": 1610.0}, END, BASE | {"index": 3}, TICK | {"ttft_p50_s": None}):
        progress.handle(event)
    assert shown(progress) == [
        "cell 4 of 4, baseline, 16 users, block 2, window, about 0 s left",
        "           baseline  speculative",
        "load       16 users     16 users",
        "block        2, now            2",
        "tokens/s      1,234        1,610",
        "TTFT p50          –      41.2 ms",
        "in flight        15           15",
        "errors            1            1",
    ]


def test_four_arms_fit_a_line_of_80_columns():
    progress = Progress(Console(file=io.StringIO(), width=80), now=lambda: 0.0)
    for arm in ("baseline", "eagle3-k3", "eagle3-k5", "ngram-k4"):
        for event in (BASE | {"arm": arm, "level": 12.5, "unit": "requests/s"}, TICK, END):
            progress.handle(event)
    assert shown(progress)[1:3] == [
        "                  baseline        eagle3-k3        eagle3-k5         ngram-k4",
        "load       12.5 requests/s  12.5 requests/s  12.5 requests/s  12.5 requests/s",
    ]


def test_a_cell_that_is_over_keeps_the_figures_of_its_window_and_all_of_its_errors():
    out = io.StringIO()
    progress = Progress(Console(file=out, width=80), now=lambda: 0.0)
    ebb = {"event": "tick", "phase": "drain", "tokens_per_s": 9.0, "ttft_p50_s": None, "in_flight": 0, "errors": 3}
    for event in (BASE, TICK | {"phase": "warm-up", "in_flight": 2}, TICK, ebb, END):
        progress.handle(event)
    assert "block 2: 1,234 tokens/s, TTFT p50 41.2 ms, 15 in flight, 3 errors" in out.getvalue()


def test_a_terminal_shows_the_view_and_nothing_of_it_is_left():
    with terminal() as (console, written):
        console.print("Servers from the command line.")
        with Progress(console, now=lambda: 0.0) as progress:
            for event in (BASE, TICK, END, SPEC, TICK, {"event": "note", "text": "one prompt was left out"}, END):
                progress.handle(event)
            progress._live.refresh()
        console.print("Speculation pays.")
    text = b"".join(written).decode()
    assert "speculative" in text
    assert "tokens/s" in text
    screen = Screen()
    screen.feed(text.replace("\n", "\r\n"))
    assert screen.text == "Servers from the command line.\nnote: one prompt was left out\nSpeculation pays."


def test_nothing_of_it_is_left_where_the_run_is_interrupted():
    def interrupted(console: Console) -> None:
        with Progress(console, now=lambda: 0.0) as progress:
            progress.handle(BASE)
            progress.handle(TICK)
            raise KeyboardInterrupt

    with terminal() as (console, written), pytest.raises(KeyboardInterrupt):
        interrupted(console)
    screen = Screen()
    screen.feed(b"".join(written).decode().replace("\n", "\r\n"))
    assert screen.text == ""


@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1", "TERM": "xterm"}, {"TTY_COMPATIBLE": "1"}])
def test_a_pipe_gets_plain_lines_alone_whatever_the_environment_says(variables):
    out = io.StringIO()
    with Progress(Console(file=out, width=80, _environ=variables), now=lambda: 0.0) as progress:
        for event in (BASE, TICK, END, SPEC, TICK, END):
            progress.handle(event)
    assert out.getvalue().count("\n") == 2
    assert "\x1b" not in out.getvalue()


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines():
    with terminal(_environ={"TERM": "dumb"}) as (console, written), Progress(console, now=lambda: 0.0) as progress:
        for event in (BASE, TICK, END):
            progress.handle(event)
    assert b"".join(written).decode().startswith("cell 3 of 4, baseline, 16 users, block 2: 1,234 tokens/s")
    assert b"\x1b" not in b"".join(written)
