"""The driver asks the operating system to be served first: a late client is one thing that it can prevent."""

from __future__ import annotations

import contextlib
import os

NICE = -10


def ask_for_priority() -> int:
    """Lower this process's nice value where that is permitted; return the value that holds."""
    with contextlib.suppress(PermissionError):
        os.nice(NICE - os.nice(0))
    return os.nice(0)
