"""`loadtest run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from loadtest.commands.options import PATH, experiment_options, prepared_from
from loadtest.commands.reporting import report_of_run
from loadtest.errors import UsageError


@click.command()
@experiment_options
@click.option(
    "--out", type=PATH, default=Path("reports"), show_default=True, help="Folder that receives the run's folder."
)
@click.option(
    "--resume", type=PATH, metavar="RUN", help="Go on with a run: missing cells, or further blocks (--budget +20m)."
)
@click.option("--measure-only", is_flag=True, help="Measure and show; judge nothing, exit 0 for a valid run.")
@click.option("--aa", type=PATH, metavar="RUN", help="An A/A run of this set-up: claims are held against its noise.")
@click.option(
    "--waive", multiple=True, metavar="ITEM", help="Accept this difference between the servers; shown on the page."
)
def run(resume: Path | None, **given: Any) -> None:
    """Drive both servers with the same traffic and say whether, and up to what load, speculation pays."""
    if resume is not None:
        _resume(resume, given)
    from loadtest.drive.forecast import announcement
    from loadtest.drive.run import measure, stopping_on_interrupt
    from loadtest.report.progress import Progress
    from loadtest.report.screen import Screen

    given["waive"] = tuple(given["waive"])
    prepared = prepared_from(**given)
    screen = Screen(highlight=False)
    for sentence in announcement(prepared, prepared.cells()):
        screen.print(sentence, markup=False)
    with stopping_on_interrupt():
        with Progress(screen) as progress:
            folder = measure(prepared, progress.handle, _looks(prepared))
        code = report_of_run(folder, screen)
    sys.exit(code)


def _looks(prepared: Any) -> Any:
    """Return when a run is looked at on its way, since an objective may have failed for certain; None without any."""
    from loadtest.analyse.early import look, look_blocks
    from loadtest.drive.early_end import Looks

    options, experiment = prepared.options, prepared.experiment
    if not experiment.slo.rules or options.smoke or options.measure_only or prepared.choice.aa:
        return None
    return Looks(judge=look, after=look_blocks(experiment.plan.blocks))


def _resume(folder: Path, given: dict[str, Any]) -> None:
    from loadtest.drive.resume import open_again
    from loadtest.drive.run import go_on, stopping_on_interrupt
    from loadtest.report.progress import Progress
    from loadtest.report.screen import Screen

    context = click.get_current_context()
    fixed = [name for name in given if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if other := [name for name in fixed if name != "budget"]:
        raise UsageError(f"--resume goes on with a run as it was planned; leave out {_named(other[0])}."
                         " Only --budget may stand beside it.")  # fmt: skip
    resumed = open_again(folder, given["budget"])
    screen = Screen(highlight=False)
    for sentence in resumed.announcement():
        screen.print(sentence, markup=False)
    with stopping_on_interrupt():
        with Progress(screen) as progress:
            go_on(resumed, progress.handle)
        code = report_of_run(folder, screen)
    sys.exit(code)


def _named(parameter: str) -> str:
    """Return how a parameter of the command line is written."""
    names = {"scenario": "the scenario", "assignments": "--set"}
    return names.get(parameter, f"--{parameter.replace('_', '-')}")
