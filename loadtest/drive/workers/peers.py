"""A worker as the master knows it: what it said of itself, when it was last heard, and what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.drive.workers.phases import Count
from loadtest.errors import printable

TOLD = 2000  # characters of a reason
SAID = 200  # characters of a text that a worker says of itself
LOST_S = 10.0  # silence after which a worker is taken as lost; a shorter cut heals


@dataclass(slots=True, kw_only=True)
class Peer:
    """One worker."""

    node: str  # what it is called on the line
    name: str  # what people call it; no two of a run alike
    said: dict[str, Any] = field(default_factory=dict)  # of itself: host, pid, cpus, python
    same_clock: bool = False  # it runs on the master's own boot of a kernel
    heard_s: float = 0.0  # time.monotonic() when it last said anything
    gone: str = ""  # why it is known to be lost
    ready: bool = False  # it has loaded what it needs
    trouble: str = ""  # why it cannot do its part, in a sentence
    usage: bool = True  # whether that is the user's to mend
    attempt: int = 0  # the cell that its counts are of
    counts: Count = field(default_factory=Count)
    rows: int = 0  # requests that came from it
    lacking: bool = False  # it has ended its cell, and not all of its requests have come
    record: dict[str, Any] | None = None  # what it found of its cell, once that has ended
    clock: dict[str, float | None] = field(default_factory=dict)  # offset_s and bound_s, at its latest beat

    def lost(self, now_s: float) -> str:
        """Return why it is lost, at this time of `time.monotonic`; nothing while it is there."""
        if self.gone:
            return self.gone
        silent_s = now_s - self.heard_s
        return f"nothing was heard of it for {silent_s:.0f} s" if silent_s > LOST_S else ""

    def ended(self, attempt: int) -> bool:
        """Return whether it has ended its part of a cell, and everything of it is here."""
        return self.attempt == attempt and self.record is not None and not self.lacking

    def protocol(self) -> dict[str, Any]:
        """Return what run.json holds of it."""
        return {"name": self.name, **self.said, **self.clock}


def said_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a worker says of itself, as far as it is of use."""
    kinds = {"host": str, "pid": int, "cpus": int, "python": str, "platform": str}
    found = {name: data[name] for name, kind in kinds.items() if type(data.get(name)) is kind}
    return {name: one_line(value, SAID) if isinstance(value, str) else value for name, value in found.items()}


def told(text: object) -> str:
    """Return a reason that came over the line as it may be shown."""
    return printable(str(text)[: 2 * TOLD])[:TOLD]


def one_line(text: str, longest: int) -> str:
    """Return a text that came over the line as it may be shown: without control characters, and not too long."""
    return printable(text[: 2 * longest]).replace("\n", " ").replace("\t", " ")[:longest]
