"""The command line: one function per command; the only place that prints and exits.

Libraries that take long to import are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import loadtest
from loadtest.errors import ExitCode, LoadtestError, UsageError

PATH = click.Path(path_type=Path)


class Commands(click.Group):
    """Turns the program's own errors into a sentence and their exit code; the only such place."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except LoadtestError as error:
            click.echo(f"loadtest: {_printable(str(error))}", err=True)
            ctx.exit(int(error.exit_code))
        except KeyboardInterrupt:
            click.echo("loadtest: stopped.", err=True)
            ctx.exit(int(ExitCode.INTERRUPTED))


def _printable(text: str) -> str:
    """Return text without control characters: a server's words reach a terminal here."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(loadtest.__version__, message="loadtest %(version)s")
def main() -> None:
    """Should speculative decoding be rolled out on this traffic, and up to what load?

    Exit codes: 0 pass, 2 usage, 3 failed (never pays), 4 inconclusive, 5 invalid run, 130 interrupted.
    """


def _experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.argument("scenario", type=PATH),
        click.option("--baseline", metavar="URL", help="Server without speculation."),
        click.option("--speculative", metavar="URL", help="Server with speculation."),
        click.option("--server", metavar="URL", help="One server alone: curves and tails, nothing is compared."),
        click.option(
            "--servers", type=PATH, metavar="FILE", help="Arms as tables (TOML); can start and stop the servers."
        ),
        click.option(
            "--arms", metavar="NAME,NAME", help="Which arms to compare; the same twice (A/A) measures the noise."
        ),
        click.option("--simulated", is_flag=True, help="Use the built-in simulated pair."),
        click.option("--world", metavar="NAME", help="World of the simulated pair (see `loadtest simulate --list`)."),
        click.option("--prompts", type=PATH, metavar="FILE", help="Prompts in Spec-Bench or MT-Bench form (JSONL)."),
        click.option("--levels", metavar="N,N,…", help="Users of each level."),
        click.option("--window", metavar="TIME", help="Length of every window, such as 30s or 2m."),
        click.option("--blocks", type=int, metavar="N", help="Visits to every arm at every level."),
        click.option(
            "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting of the .toml."
        ),
        click.option(
            "--smoke", is_flag=True, help="Two levels, 10 s each, never judged: is everything ready to measure?"
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _prepared(**given: Any) -> Any:
    from loadtest.drive.prepare import Options, prepare

    given["assignments"] = tuple(given["assignments"])
    return prepare(Options(command=shlex.join(["loadtest", *sys.argv[1:]]), **given))


@main.command()
@_experiment_options
@click.option(
    "--out", type=PATH, default=Path("reports"), show_default=True, help="Folder that receives the run's folder."
)
@click.option("--measure-only", is_flag=True, help="Measure and show; judge nothing, exit 0 for a valid run.")
@click.option(
    "--waive", multiple=True, metavar="ITEM", help="Accept this difference between the servers; shown on the page."
)
def run(**given: Any) -> None:
    """Drive both servers with the same traffic and say whether, and up to what load, speculation pays."""
    from loadtest.drive.forecast import announcement
    from loadtest.drive.run import measure, stopping_on_interrupt
    from loadtest.report.progress import Progress
    from loadtest.report.screen import Screen

    given["waive"] = tuple(given["waive"])
    prepared = _prepared(**given)
    screen = Screen(highlight=False)
    for sentence in announcement(prepared, prepared.cells()):
        screen.print(sentence, markup=False)
    with stopping_on_interrupt():
        with Progress(screen) as progress:
            folder = measure(prepared, progress.handle)
        code = _report(folder, screen)
    sys.exit(code)


def _report(folder: Path, console: Any) -> int:
    from loadtest.analyse.judge import judge
    from loadtest.analyse.verdict import as_json
    from loadtest.record import read_run, write_json
    from loadtest.report.markdown import write_summary
    from loadtest.report.page import write_page
    from loadtest.report.terminal import print_summary

    header, judgement = read_run(folder), judge(folder)
    try:
        write_json(folder / "verdict.json", as_json(judgement))
    except OSError as error:
        raise UsageError(f"{folder / 'verdict.json'} cannot be written: {error.strerror}.") from error
    write_summary(folder, header, judgement)
    page = write_page(folder, header, judgement)
    print_summary(console, header, judgement, page)
    interrupted = header["status"] == "interrupted"
    return int(ExitCode.INTERRUPTED) if interrupted else judgement.decision.exit_code


@main.command()
@_experiment_options
def plan(**given: Any) -> None:
    """Say what a run would do, how long it takes and which claims are in reach; sends nothing."""
    from loadtest.drive.forecast import announcement

    prepared = _prepared(**given)
    cells = prepared.cells()
    for sentence in announcement(prepared, cells):
        click.echo(sentence)
    click.echo("\n cell  block  users  arm")
    for cell in cells:
        click.echo(f"{cell.cell:5d}  {cell.block:5d}  {cell.level:5g}  {cell.arm}")


@main.command()
@click.argument("folder", type=PATH)
def report(folder: Path) -> None:
    """Judge a run's records again and draw its page again; no server is needed."""
    from loadtest.report.screen import Screen

    sys.exit(_report(folder, Screen(highlight=False)))


@main.command()
@click.option("--world", default="default", show_default=True, help="World to simulate.")
@click.option("--arm", type=click.Choice(["baseline", "speculative", "both"]), default="both", show_default=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; the pair takes two."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--list", "list_worlds", is_flag=True, help="List the worlds and end.")
def simulate(world: str, arm: str, port: int, seed: int, list_worlds: bool) -> None:
    """Run the built-in simulated servers alone, until Ctrl-C."""
    from loadtest.servers.process import serve_simulated
    from loadtest.simulate.worlds import WORLDS

    if list_worlds:
        for name, described in WORLDS.items():
            click.echo(f"{name:18s} {described.description}")
        return
    arms = ["baseline", "speculative"] if arm == "both" else [arm]
    serve_simulated(world, {name: port + offset if port else 0 for offset, name in enumerate(arms)}, seed, click.echo)


if __name__ == "__main__":
    main()
