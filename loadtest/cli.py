"""The command line: what every command shares; each has a module of its own in loadtest/commands."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import click

import loadtest
from loadtest.commands.check import check
from loadtest.commands.compare_outputs import compare_outputs
from loadtest.commands.examples import epilog
from loadtest.commands.gate import gate
from loadtest.commands.import_log import import_log
from loadtest.commands.init import init
from loadtest.commands.plan import plan
from loadtest.commands.report import report
from loadtest.commands.run import run
from loadtest.commands.simulate import simulate
from loadtest.commands.worker import worker
from loadtest.errors import ExitCode, LoadtestError, printable


class Commands(click.Group):
    """Turns the program's own errors into a sentence and their exit code; the only such place."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except LoadtestError as error:
            click.echo(f"loadtest: {printable(str(error))}", err=True)
            ctx.exit(int(error.exit_code))
        except KeyboardInterrupt:
            click.echo("loadtest: stopped.", err=True)
            ctx.exit(int(ExitCode.INTERRUPTED))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(loadtest.__version__, message="loadtest %(version)s")
def main() -> None:
    """Should speculative decoding be rolled out on this traffic, and up to what load?

    Exit codes: 0 pass, 2 usage, 3 failed (never pays), 4 inconclusive, 5 invalid run, 130 interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without the sign × must not end a gate
            stream.reconfigure(errors="replace")


for command in (init, run, plan, check, report, gate, compare_outputs, import_log, simulate, worker):
    command.epilog = epilog(str(command.name))
    main.add_command(command)


if __name__ == "__main__":
    main()
