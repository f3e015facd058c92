"""The tree of errors and the exit codes.

LoadtestError
├── UsageError          the user can mend it: an option, a file, a URL (exit 2)
├── RunError            the run is not to be trusted (exit 5)
│   └── NotComparable   the two servers differ in more than speculation (exit 5)
└── Interrupted         the user stopped the run (exit 130)

Our own mistakes are ordinary exceptions; Python turns them into exit 1, which is never chosen by us.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """What the process says to a pipeline; only PASS lets a rollout go on."""

    PASS = 0
    CRASH = 1
    USAGE = 2
    FAILED = 3
    INCONCLUSIVE = 4
    INVALID = 5
    INTERRUPTED = 130


class LoadtestError(Exception):
    """An error with a sentence for the user and an exit code."""

    exit_code = ExitCode.CRASH


class UsageError(LoadtestError):
    """Wrong input: says what happened, the value seen, what is allowed and what to do."""

    exit_code = ExitCode.USAGE


class RunError(LoadtestError):
    """The run took place, or began, and its figures are not to be trusted."""

    exit_code = ExitCode.INVALID


class NotComparable(RunError):
    """The servers differ in more than their speculative configuration."""


class Interrupted(LoadtestError):
    """The user stopped the run; what was measured is kept."""

    exit_code = ExitCode.INTERRUPTED


def unwritable(folder: Path, error: OSError) -> RunError:
    """Return what to say when a run's folder cannot be written any more."""
    kept = "What was written before is there" if folder.is_dir() else "The folder was moved or removed meanwhile"
    return RunError(f"{folder} cannot be written: {error.strerror or error}. {kept}.")


LONGEST_NAME = 200  # characters; comparing megabytes would take minutes


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean `x`?' for the known name closest to `word`, or the empty string."""
    if len(word) > LONGEST_NAME:
        return ""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean `{matches[0]}`?" if matches else ""


# Colours, cursor movements, titles and links of a terminal (ECMA-48): CSI …, OSC … up to its end, two characters.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]")


def printable(text: str) -> str:
    """Return text without escape sequences and control characters: a server's words reach a terminal."""
    text = _ESCAPES.sub("", text)
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def server_named(name: str) -> str:
    """Return how a sentence calls the server of an arm."""
    return "the server" if name == "server" else f"the {name} server"
