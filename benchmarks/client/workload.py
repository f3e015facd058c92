"""What one run sends: so many streams, or requests per second, of answers on a known schedule, read in a known way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

FIRST_S, GAP_S, CHUNKS = 0.2, 0.02, 100  # streams of 50 chunks/s


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One run. Closed load keeps `users` requests in flight; with `rate_per_s` requests fall due at even times."""

    users: int = 0
    rate_per_s: float = 0.0
    first_s: float = FIRST_S
    gap_s: float = GAP_S
    chunks: int = CHUNKS
    tokens: int = 1  # per chunk
    role: int = 1  # role-only event: 1 with the first chunk, 2 at once, 0 never
    step: bool = False  # all streams send on one tick; else each is put off by a part of a gap of its own
    split: bool = False  # each chunk comes in two TCP segments
    finish_last: bool = False  # the finish_reason stands in the last chunk
    usage: bool = False  # a running count in each chunk
    stamps: str = "kernel"  # kernel · user: the time right after the read, as where the kernel gives none
    tls: bool = False
    through: str = "client"  # client · cell: the driver's cells and Locust's users around it · c: the floor
    seconds: float = 6.0  # no request is sent later
    ramp_s: float = 1.0  # over which the users start
    requests: int = 0  # above 0: ends after so many instead, and is not compared with the log

    @property
    def model(self) -> str:
        """The model name that asks the ground-truth server for this schedule."""
        switches = [
            f"t{self.first_s * 1e3:g}", f"g{self.gap_s * 1e3:g}", f"n{self.chunks}", f"k{self.tokens}", f"r{self.role}",
            f"s{self.step:d}", f"p{not self.step:d}", f"x{self.split:d}", f"f{self.finish_last:d}",
        ]  # fmt: skip
        return "truth-" + "-".join(switches)

    @property
    def request_s(self) -> float:
        """The mean length of a request by the schedule, from its arrival to the last chunk."""
        return self.first_s + self.gap_s / 2 + self.gap_s * (self.chunks - 1)

    @property
    def offered_chunks_per_s(self) -> float:
        """The chunks per second of a client that asks again at once."""
        requests_per_s = self.rate_per_s or self.users / self.request_s
        return requests_per_s * self.chunks

    @property
    def words(self) -> str:
        """The workload in a few words."""
        parts = [f"{self.rate_per_s:g} requests/s" if self.rate_per_s else f"{self.users} streams"]
        parts += [f"{self.chunks} × {self.gap_s * 1e3:g} ms"] if self.chunks > 1 else ["1 chunk"]
        parts += [f"{self.tokens} tokens a chunk"] if self.tokens > 1 else []
        named = {"usage": self.usage, "user clock": self.stamps == "user", "one tick": self.step, "TLS": self.tls,
                 "split": self.split, "through a cell": self.through == "cell", "C": self.through == "c"}  # fmt: skip
        return ", ".join(parts + [name for name, holds in named.items() if holds])

    def as_json(self) -> str:
        """Return the workload for another process."""
        return json.dumps(asdict(self))
