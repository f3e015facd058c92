"""The driver asks the operating system to be served first: a late client is one thing that it can prevent."""

from __future__ import annotations

import contextlib
import os
import resource

NICE = -10
SPIN_S = 20.0  # a real-time process that does not sleep for this long is ended by the kernel (SIGXCPU)


def ask_for_priority() -> str:
    """Ask for the lowest real-time class, else for a lower nice value; return which holds, in words.

    The real-time class is what helps where Linux groups processes by session (autogroup): there a nice value counts
    only within the driver's own session. The driver sleeps nearly all of the time; one that does not, because a
    scenario never gives way, is ended by the kernel even when nobody is left to watch it.
    """
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (int(SPIN_S * 1e6), int((SPIN_S + 5) * 1e6)))
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
            return "real-time (round robin)"
    with contextlib.suppress(PermissionError):
        os.nice(NICE - os.nice(0))
    return f"nice {os.nice(0)}"
