"""The command line: one function per command; the only place that prints and exits.

Libraries that take long to import are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import loadtest
from loadtest.errors import ExitCode, LoadtestError, RunError, UsageError

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


REPLACED = {  # Locust's options, and what stands in their place
    "users": "the loads are [load] levels, or --levels 1,8,32",
    "spawn_rate": "users start over about the time of one request",
    "run_time": "a cell lasts as long as [window] says, or --window 60s",
    "tags": "choose tasks with --set 'load.tags=[\"a\"]'",
    "exclude_tags": "leave tasks out with --set 'load.exclude_tags=[\"a\"]'",
}


def _say_what_replaces(_: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise UsageError(f"{', '.join(parameter.opts)} is an option of Locust, which has no place in a comparison:"
                         f" {REPLACED[str(parameter.name)]}.")  # fmt: skip


def _experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    replaced = [("-u", "--users"), ("-r", "--spawn-rate"), ("-t", "--run-time"), ("-T", "--tags"),
                ("-E", "--exclude-tags")]  # fmt: skip
    options = [
        *(click.option(*names, hidden=True, expose_value=False, callback=_say_what_replaces) for names in replaced),
        click.argument("scenario", type=PATH, required=False),
        click.option("--baseline", metavar="URL", help="Server without speculation."),
        click.option("--speculative", metavar="URL", help="Server with speculation."),
        click.option("--server", metavar="URL", help="One server alone: curves and tails, nothing is compared."),
        click.option(
            "--servers", type=PATH, metavar="FILE", help="Arms as tables (TOML); can start and stop the servers."
        ),
        click.option(
            "--arms", metavar="NAME,NAME", help="Which arms to compare; the same twice (A/A) measures the noise."
        ),
        click.option("--insecure", is_flag=True, help="Do not verify TLS certificates; said on every page."),
        click.option("--simulated", is_flag=True, help="Use the built-in simulated pair."),
        click.option("--world", metavar="NAME", help="World of the simulated pair (see `loadtest simulate --list`)."),
        click.option("--prompts", type=PATH, metavar="FILE", help="Prompts in Spec-Bench or MT-Bench form (JSONL)."),
        click.option("--levels", metavar="N,N,…", help="Users of each level."),
        click.option("--window", metavar="TIME", help="Length of every window, such as 30s or 2m."),
        click.option("--blocks", type=int, metavar="N", help="Visits to every arm at every level."),
        click.option("--budget", metavar="TIME", help="Fit all into this time, such as 20m; says what is left out."),
        click.option(
            "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting of the .toml."
        ),
        click.option("--slo", type=PATH, metavar="FILE", help="Objectives (TOML: [[slo]], [traffic], [gate])."),
        click.option(
            "--smoke", is_flag=True, help="Two levels, 10 s each, never judged: is everything ready to measure?"
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _prepared(**given: Any) -> Any:
    from loadtest.drive.prepare import Options, prepare

    if given["scenario"] is None:
        raise UsageError("Give a scenario, such as scenarios/chat.py (or --resume RUN to go on with a run).")
    given["assignments"] = tuple(given["assignments"])
    if given.pop("insecure", False):
        given["assignments"] += ("servers.insecure=true",)
    return prepare(Options(command=shlex.join(["loadtest", *sys.argv[1:]]), **given))


@main.command()
@_experiment_options
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
    prepared = _prepared(**given)
    screen = Screen(highlight=False)
    for sentence in announcement(prepared, prepared.cells()):
        screen.print(sentence, markup=False)
    with stopping_on_interrupt():
        with Progress(screen) as progress:
            folder = measure(prepared, progress.handle, _looks(prepared))
        code = _report_of_run(folder, screen)
    sys.exit(code)


def _report_of_run(folder: Path, screen: Any) -> int:
    """Report a run that has just ended; what could not be written is no fault of the options, and must not pass."""
    try:
        return _report(folder, screen)
    except UsageError as error:
        raise RunError(str(error)) from error


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
        code = _report_of_run(folder, screen)
    sys.exit(code)


def _named(parameter: str) -> str:
    """Return how a parameter of the command line is written."""
    names = {"scenario": "the scenario", "assignments": "--set"}
    return names.get(parameter, f"--{parameter.replace('_', '-')}")


@main.command("compare-outputs")
@click.argument("scenario", type=PATH, required=False)
@click.option("--baseline", metavar="URL", help="Server without speculation.")
@click.option("--speculative", metavar="URL", help="Server with speculation.")
@click.option("--servers", type=PATH, metavar="FILE", help="Arms as tables (TOML); can start and stop the servers.")
@click.option("--arms", metavar="NAME,NAME", help="Which arms to compare.")
@click.option("--simulated", is_flag=True, help="Use the built-in simulated pair.")
@click.option("--world", metavar="NAME", help="World of the simulated pair (see `loadtest simulate --list`).")
@click.option("--prompts", type=PATH, metavar="FILE", help="Prompts in Spec-Bench or MT-Bench form (JSONL).")
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting of the .toml.")
@click.option("--waive", multiple=True, metavar="ITEM", help="Accept this difference between the servers.")
@click.option("--keep-text", is_flag=True, help="Keep the answers; else only hashes and counts.")
@click.option("--out", type=PATH, default=Path("reports"), show_default=True, help="Folder that receives the folder.")
def compare_outputs(scenario: Path | None, keep_text: bool, **given: Any) -> None:
    """Ask both servers the same prompts, one by one, and say whether they answer alike.

    The baseline is asked twice: how far its answers differ from each other is the yardstick. Exit codes: 0 as like as
    the baseline to itself, 3 different beyond that, 4 cannot tell, 5 invalid. No word on speed.
    """
    from loadtest.drive.output_run import compare
    from loadtest.drive.run import stopping_on_interrupt
    from loadtest.report.progress import Progress
    from loadtest.report.screen import Screen

    if keep_text:
        given["assignments"] = (*given["assignments"], "outputs.keep_text=true")
    given["waive"] = tuple(given["waive"])
    prepared = _prepared(scenario=scenario or Path(loadtest.__file__).with_name("dialogues.py"), **given)
    screen = Screen(highlight=False)
    screen.print(prepared.found, markup=False)
    with stopping_on_interrupt():
        with Progress(screen) as progress:
            folder = compare(prepared, progress.handle)
        code = _report_outputs(folder, screen)
    sys.exit(code)


def _report_outputs(folder: Path, console: Any) -> int:
    from loadtest.analyse.outputs import FILE, judge_outputs
    from loadtest.analyse.verdict import outputs_as_json
    from loadtest.record import read_run, write_json
    from loadtest.report.outputs import summary
    from loadtest.report.writing import write_whole

    found = judge_outputs(folder, read_run(folder))
    if found is None:
        raise RunError(f"{folder} holds no {FILE}: the answers were not compared to the end.")
    write_json(folder / "verdict.json", outputs_as_json(found))
    console.print(summary(found), markup=False)
    console.print(f"Folder: {write_whole(folder / 'summary.md', summary(found)).parent}", markup=False, soft_wrap=True)
    return found.exit_code


def _report(folder: Path, console: Any, judgement: Any = None) -> int:
    from loadtest.analyse.judge import judge
    from loadtest.analyse.verdict import as_json
    from loadtest.record import read_run, write_json
    from loadtest.report import github
    from loadtest.report.junit import write_junit
    from loadtest.report.markdown import write_summary
    from loadtest.report.page import write_page
    from loadtest.report.terminal import print_summary

    header, judgement = read_run(folder), judgement or judge(folder)
    try:
        write_json(folder / "verdict.json", as_json(judgement))
    except OSError as error:
        raise UsageError(f"{folder / 'verdict.json'} cannot be written: {error.strerror}.") from error
    summary = write_summary(folder, header, judgement).read_text(encoding="utf-8")
    write_junit(folder, header, judgement)
    page = write_page(folder, header, judgement)
    in_actions = github.in_actions(os.environ)
    before, after = github.quiet_commands() if in_actions else ("", "")
    console.print(before, markup=False, end="\n" if before else "")
    print_summary(console, header, judgement, page)
    console.print(after, markup=False, end="\n" if after else "")
    if unwritten := github.add_summary(os.environ, summary):
        click.echo(f"loadtest: {_printable(unwritten)}", err=True)
    for line in github.annotated(judgement) if in_actions else ():
        click.echo(line)
    sittings = header.get("sittings") or [{}]
    interrupted = "interrupted" in (header["status"], sittings[-1].get("state"))
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
@click.option("--slo", type=PATH, metavar="FILE", help="Objectives to judge by, in place of the run's own.")
def report(folder: Path, slo: Path | None) -> None:
    """Judge a run's records again and draw its page again; no server is needed."""
    from loadtest.analyse.judge import judge
    from loadtest.record import read_run
    from loadtest.report.screen import Screen

    screen = Screen(highlight=False)
    if read_run(folder).get("outputs_only"):
        sys.exit(_report_outputs(folder, screen))
    sys.exit(_report(folder, screen, judge(folder, slo_file=slo)))


@main.command()
@click.argument("folder", type=PATH)
@click.option("--slo", type=PATH, metavar="FILE", help="Objectives to judge by, in place of the run's own.")
@click.option("--against", type=PATH, metavar="RUN", help="Another run that this one must not be worse than.")
@click.option("--changed", default="", metavar="NAME,…", help="What differs from that run on purpose, such as model.")
@click.option("--allow-simulated", is_flag=True, help="Judge a run on simulated servers; else it is invalid.")
def gate(folder: Path, slo: Path | None, against: Path | None, changed: str, allow_simulated: bool) -> None:
    """Judge a run's records and say so by the exit code: only 0 lets a rollout go on. No server is needed."""
    from loadtest.analyse.gating import Asked
    from loadtest.analyse.judge import judge
    from loadtest.report.screen import Screen

    if changed and against is None:
        raise UsageError("--changed says what differs from the run of --against RUN; give that run as well.")
    asked = Asked(gate=True, allow_simulated=allow_simulated)
    judgement = judge(folder, asked, slo)
    if against is not None:
        judgement = _against(folder, judgement, against, changed, asked, slo)
    sys.exit(_report(folder, Screen(highlight=False), judgement))


def _against(folder: Path, judgement: Any, against: Path, changed: str, asked: Any, slo: Path | None) -> Any:
    """Return the judgement with what the comparison with another run says."""
    from loadtest.analyse.judge import judge
    from loadtest.analyse.regression import refuse_unnamed, with_regressions
    from loadtest.experiment import from_document, with_slo_file
    from loadtest.record import read_run
    from loadtest.servers.identity import IGNORED

    run, other = read_run(folder), read_run(against)
    there = judge(against, asked)
    names = [name.strip() for name in changed.split(",") if name.strip()]
    notes = refuse_unnamed(run, other, names, IGNORED)
    experiment = from_document(run["experiment"])
    experiment = experiment if slo is None else with_slo_file(experiment, slo)
    return with_regressions(judgement, there, experiment.decision.metric, experiment.gate.regression_margin, notes)


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
