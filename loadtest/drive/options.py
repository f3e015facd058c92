"""What the command line said of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loadtest.checks import shown
from loadtest.errors import UsageError
from loadtest.servers.arm import ARM_NAME

SPECULATIVE = "speculative"  # the candidate that was given no name
TAKEN = ("baseline", "server", "null")  # of the other arms, and of the server that calibrates the client


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said."""

    scenario: Path
    baseline: str | None = None
    speculative: str | tuple[str, ...] | None = None  # URL, or NAME=URL of each of several candidates
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
    workers: int | None = None
    expect_workers: int | None = None
    wait: str | None = None
    bind: str | None = None
    command: str = ""

    @property
    def speculative_words(self) -> tuple[str, ...]:
        """Every `--speculative` that was given."""
        given = self.speculative
        return () if given is None else (given,) if isinstance(given, str) else tuple(given)

    def candidates(self) -> dict[str, str]:
        """Return candidate → URL of every `--speculative`; one that has no name is called `speculative`.

        Raises UsageError for a name that is none, is taken, or is missing where there are several.
        """
        found: dict[str, str] = {}
        for word in self.speculative_words:
            name, url = _named(word)
            if not name and len(self.speculative_words) > 1:
                raise UsageError(f"--speculative {shown(word)} has no name, and there are several: write NAME=URL, such"
                                 " as --speculative eagle3=http://127.0.0.1:8001.")  # fmt: skip
            name = name or SPECULATIVE
            if name in TAKEN:
                raise UsageError(f"--speculative {name}=…: the name {name!r} is taken; choose another for this"
                                 " candidate, such as its method.")  # fmt: skip
            if name in found:
                raise UsageError(f"--speculative names {name!r} twice; each candidate needs a name of its own.")
            found[name] = url
        return found


def _named(word: str) -> tuple[str, str]:
    """Return (name, URL) of `NAME=URL`; of a bare URL the name is empty."""
    name, equals, url = word.partition("=")
    if not equals or "/" in name or ":" in name:
        return "", word
    if not ARM_NAME.fullmatch(name):
        raise UsageError(f"--speculative {shown(word)}: {name!r} is no name for a candidate; use letters, digits and"
                         " . _ - only, at most 64.")  # fmt: skip
    return name, url


def setting(assignment: str) -> str:
    """Return the setting that a `--set` names: section.key."""
    return assignment.partition("=")[0].strip()


def section(assignment: str) -> str:
    """Return the section of the setting that a `--set` names."""
    return setting(assignment).partition(".")[0].strip()


def is_set(options: Options, name: str) -> bool:
    """Return whether a `--set` names this setting."""
    return any(setting(a) == name for a in options.assignments)
