"""The machine of a measurement: its cores, its scheduling, and who else had them."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path

SUSPECT_RATIO = 0.03  # share of the time that a process waited for its core, or that the host took away
CLASSES = {"SCHED_OTHER": "normal", "SCHED_BATCH": "batch", "SCHED_IDLE": "idle", "SCHED_FIFO": "real-time (FIFO)",
           "SCHED_RR": "real-time (round robin)"}  # fmt: skip


def scheduling(pid: int = 0) -> str:
    """Return the scheduling class of a process, with its priority or nice value."""
    policy = os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK
    name = next((words for known, words in CLASSES.items() if getattr(os, known, None) == policy), f"class {policy}")
    if name.startswith("real-time"):
        return f"{name}, priority {os.sched_getparam(pid).sched_priority}"
    return f"{name}, nice {os.getpriority(os.PRIO_PROCESS, pid)}"


def waited_s(pid: int | str = "self") -> float:
    """Return how long the threads of a process have waited, ready to run, for a core."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text().split()[1])
    return total / 1e9


def peak_memory_mb() -> float:
    """Return the largest resident memory of this process so far, in MB (10^6 bytes)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def memory_mb() -> float:
    """Return the resident memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def stolen_s(core: int) -> float:
    """Return the time that the host has taken from a core of a virtual machine."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            return int(line.split()[8]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def cores(asked: str | None) -> tuple[int, int]:
    """Return the server's core and the client's. Raises ValueError."""
    allowed = sorted(os.sched_getaffinity(0))
    if asked is None:
        return allowed[0], allowed[min(1, len(allowed) - 1)]
    try:
        server, client = (int(word) for word in asked.split(","))
    except ValueError:
        raise ValueError(f"--cores is {asked!r}, not two numbers such as 0,1") from None
    if not {server, client} <= set(allowed):
        raise ValueError(f"--cores is {asked!r}; this process may use {', '.join(map(str, allowed))}")
    return server, client


def described(server_core: int, client_core: int, priority: str) -> dict[str, str]:
    """Return what a reader must know of the machine."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())  # fmt: skip
    return {
        "processor": f"{model}, {os.cpu_count()} cores", "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cores": f"server on {server_core}, client on {client_core}", "priority": priority,
        "load average": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What others took from a run: seconds that client and server waited for their cores, and that the host stole."""

    wall_s: float
    client_s: float
    server_s: float
    stolen_s: float

    @property
    def shares(self) -> dict[str, float]:
        """What was taken, as shares of the time."""
        taken = {"the client waited for its core": self.client_s, "the server waited for its core": self.server_s,
                 "the host took the cores": self.stolen_s}  # fmt: skip
        return {name: seconds / self.wall_s for name, seconds in taken.items()}

    @property
    def reasons(self) -> list[str]:
        """Why the run is suspect; none: it is not."""
        return [f"{name} {share:.0%} of the time" for name, share in self.shares.items() if share > SUSPECT_RATIO]
