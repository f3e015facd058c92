"""Interrupts of the program that the user started: one path stops everything, and none breaks into its last writing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping_on_interrupt() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that one path stops everything; nohup's choice stays.

    What is held when it ends stays held: the program's exit code follows.
    """

    def raise_interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    heard = [n for n in INTERRUPTS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, raise_interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


def hold_interrupts() -> None:
    """Ignore interrupts from now on: the run has ended, its records are being completed, and its answer is given."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
