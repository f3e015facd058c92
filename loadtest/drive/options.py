"""What the command line said of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said."""

    scenario: Path
    baseline: str | None = None
    speculative: str | None = None
    server: str | None = None
    servers: Path | None = None
    arms: str | None = None
    prompts: Path | None = None
    levels: str | None = None
    rates: str | None = None
    arrivals: str | None = None
    window: str | None = None
    blocks: int | None = None
    budget: str | None = None
    assignments: tuple[str, ...] = ()
    simulated: bool = False
    world: str | None = None
    slo: Path | None = None
    smoke: bool = False
    measure_only: bool = False
    waive: tuple[str, ...] = ()
    aa: Path | None = None
    out: Path = Path("reports")
    command: str = ""


def setting(assignment: str) -> str:
    """Return the setting that a `--set` names: section.key."""
    return assignment.partition("=")[0].strip()


def section(assignment: str) -> str:
    """Return the section of the setting that a `--set` names."""
    return setting(assignment).partition(".")[0].strip()


def is_set(options: Options, name: str) -> bool:
    """Return whether a `--set` names this setting."""
    return any(setting(a) == name for a in options.assignments)
