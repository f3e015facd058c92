"""The console of a run: it goes on in silence when nobody reads it any more."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from rich.console import Console

from loadtest.errors import printable


class Screen(Console):
    """A console that a closed pipe or terminal does not end: the run's records matter more than its words.

    What a server said of itself does not act on the terminal: escape sequences and control characters are left out.
    """

    def print(self, *objects: Any, **how: Any) -> None:
        """Print as Rich does; texts without what would act on the terminal."""
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **how)

    def _check_buffer(self) -> None:
        """Write what was printed; Rich itself expects a closed pipe, but no closed terminal (EIO) and no full disk."""
        try:
            super()._check_buffer()
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on, where Rich would end the program."""
        self.quiet = True
        _write_to_nowhere()


def echo(line: str) -> None:
    """Write a line to the standard output, or to nowhere where it is closed or full: the exit code says the result."""
    try:
        click.echo(line)
    except OSError:
        _write_to_nowhere()


def _write_to_nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
