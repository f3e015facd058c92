"""The driver asks the operating system to be served first: a late client is one thing that it can prevent."""

from __future__ import annotations

import contextlib
import os

NICE = -10


def ask_for_priority() -> str:
    """Ask for the lowest real-time class, else for a lower nice value; return which holds, in words.

    The real-time class is what helps where Linux groups processes by session (autogroup): there a nice value counts
    only within the driver's own session. The driver sleeps nearly all of the time, and the kernel keeps a share of
    every core for others in any case.
    """
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(PermissionError, OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
            return "real-time (round robin)"
    with contextlib.suppress(PermissionError):
        os.nice(NICE - os.nice(0))
    return f"nice {os.nice(0)}"
