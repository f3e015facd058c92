"""`loadtest run`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from loadtest.commands.options import PATH, experiment_options, prepared_from
from loadtest.commands.reporting import Shown, output_options, report_of_run, screen_for, shown_from
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
@click.option("--keep-text", is_flag=True, help="Keep prompts and answers of the slowest requests; shown on the page.")
@click.option("--workers", type=int, metavar="N", help="Make the load in N processes of this machine.")
@click.option(
    "--expect-workers", type=int, metavar="N", help="Make the load on N workers elsewhere: `loadtest worker`."
)
@click.option("--wait", metavar="TIME", help="With --expect-workers: longest wait for them.  [default: 5m]")
@click.option("--bind", metavar="HOST:PORT", help="With --expect-workers: where they join.  [default: 127.0.0.1:5557]")
@click.option("--yes", is_flag=True, help="Load servers on the public internet: they are yours, and it is paid for.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Serve the live figures to Prometheus; 0: any port.",
)
@output_options
def run(resume: Path | None, metrics_port: int | None, quiet: bool, as_json: bool, **given: Any) -> None:
    """Drive both servers with the same traffic and say whether, and up to what load, speculation pays."""
    shown = shown_from(quiet, as_json)
    if resume is not None:
        _resume(resume, given, metrics_port, shown)
    from loadtest.drive.forecast import announcement
    from loadtest.drive.interrupts import stopping_on_interrupt
    from loadtest.drive.public_targets import refuse_unconfirmed
    from loadtest.drive.run import measure

    given["waive"] = tuple(given["waive"])
    yes = given.pop("yes")
    prepared = prepared_from(**given)
    screen = screen_for(shown)
    for sentence in announcement(prepared, prepared.cells()):
        screen.print(sentence, markup=False)
    refuse_unconfirmed(prepared, yes=yes)
    with stopping_on_interrupt():
        with _told(screen, metrics_port) as tell:
            folder = measure(prepared, tell, _looks(prepared))
        code = report_of_run(folder, screen, shown)
    sys.exit(code)


@contextmanager
def _told(screen: Any, metrics_port: int | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield what takes the driver's events: the live view, and the figures for Prometheus where a port is given."""
    from loadtest.report.progress import Progress

    with ExitStack() as stack:
        takers = []
        if metrics_port is not None:
            from loadtest.report.live_metrics import HOST, LiveMetrics

            live = stack.enter_context(LiveMetrics(metrics_port))
            screen.print(f"Live figures for Prometheus: http://{HOST}:{live.port}/metrics", markup=False)
            takers.append(live.handle)
        takers.append(stack.enter_context(Progress(screen)).handle)

        def tell(event: Mapping[str, Any]) -> None:
            for take in takers:
                take(event)

        yield tell


def _looks(prepared: Any) -> Any:
    """Return when a run is looked at on its way, since an objective may have failed for certain; None without any."""
    from loadtest.analyse.early import look, look_blocks
    from loadtest.drive.early_end import Looks

    options, experiment = prepared.options, prepared.experiment
    if not experiment.slo.rules or options.smoke or options.measure_only or prepared.choice.aa:
        return None
    return Looks(judge=look, after=look_blocks(experiment.plan.blocks))


def _resume(folder: Path, given: dict[str, Any], metrics_port: int | None, shown: Shown) -> None:
    from loadtest.drive.interrupts import stopping_on_interrupt
    from loadtest.drive.resume import from_where_it_began, open_again
    from loadtest.drive.run import go_on

    context = click.get_current_context()
    fixed = [name for name in given if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if other := [name for name in fixed if name != "budget"]:
        raise UsageError(f"--resume goes on with a run as it was planned; leave out {_named(other[0])}."
                         " Only --budget may stand beside it.")  # fmt: skip
    folder = from_where_it_began(folder)
    resumed = open_again(folder, given["budget"])
    screen = screen_for(shown)
    for sentence in resumed.announcement():
        screen.print(sentence, markup=False)
    with stopping_on_interrupt():
        with _told(screen, metrics_port) as tell:
            go_on(resumed, tell)
        code = report_of_run(folder, screen, shown)
    sys.exit(code)


def _named(parameter: str) -> str:
    """Return how a parameter of the command line is written."""
    names = {"scenario": "the scenario", "assignments": "--set"}
    return names.get(parameter, f"--{parameter.replace('_', '-')}")
