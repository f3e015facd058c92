"""Networks of a test's own: two namespaces, joined by one cable that can be made narrow, and pulled."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

NEAR, FAR = "10.77.0.1", "10.77.0.2"  # of no network but this one


def _held(words: list[str]) -> subprocess.Popen[bytes]:
    """Start a namespace and wait until it is another one than ours."""
    process = subprocess.Popen([*words, "sleep", "600"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        if command[0] == b"sleep":
            return process
        time.sleep(0.01)
    raise OSError(f"{' '.join(words)} made no namespace")


@dataclass
class Cable:
    """Two namespaces, `near` for the client and `far` for servers; OSError where the system allows none."""

    _holders: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self._holders.append(_held(["unshare", "--user", "--map-root-user", "--net"]))
            self._holders.append(_held([*self.near, "unshare", "--net"]))
            far = str(self._far_pid())
            self._do("near", f"ip link set lo up && ip link add v0 type veth peer name v1 netns {far}")
            self._do("near", f"ip addr add {NEAR}/24 dev v0 && ip link set v0 up")
            self._do("far", f"ip link set lo up && ip addr add {FAR}/24 dev v1 && ip link set v1 up")
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            raise OSError(f"no network namespaces here: {error}") from error

    @property
    def near(self) -> list[str]:
        """What stands before a command that runs at the client's end."""
        return _entering(self._holders[0].pid)

    @property
    def far(self) -> list[str]:
        """What stands before a command that runs at the servers' end."""
        return _entering(self._far_pid())

    def shape(self, kbit: int, queue_ms: int) -> None:
        """Let the servers' answers through at so many kbit/s; what waits longer than `queue_ms` is dropped."""
        self._do("far", f"tc qdisc add dev v1 root tbf rate {kbit}kbit burst 3kb latency {queue_ms}ms")

    def dropped(self) -> int:
        """Return how many packets the shaped end has dropped."""
        told = subprocess.run([*self.far, "tc", "-s", "qdisc", "show", "dev", "v1"], capture_output=True, text=True,
                              check=True)  # fmt: skip
        return int(told.stdout.partition("dropped ")[2].partition(",")[0])

    def pull(self) -> None:
        """Cut the cable: neither end is told."""
        self._do("near", "ip link set v0 down")

    def close(self) -> None:
        """End both; what runs in them must have ended."""
        for holder in reversed(self._holders):
            holder.kill()
            holder.wait()

    def _far_pid(self) -> int:
        return self._holders[1].pid  # nsenter and unshare replace themselves

    def _do(self, end: str, line: str) -> None:
        subprocess.run([*(self.near if end == "near" else self.far), "sh", "-c", line], check=True, capture_output=True)


def _entering(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--user", "--net", "--preserve-credentials", "--"]
