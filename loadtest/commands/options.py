"""The options that describe an experiment, shared by `run`, `plan` and the like."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from loadtest.errors import UsageError

PATH = click.Path(path_type=Path)


REPLACED = {  # Locust's options, and what stands in their place
    "users": "the loads are [load] levels, or --levels 1,8,32",
    "spawn_rate": "users start over about the time of one request",
    "run_time": "a cell lasts as long as [window] says, or --window 60s",
    "tags": "choose tasks with --set 'load.tags=[\"a\"]'",
    "exclude_tags": "leave tasks out with --set 'load.exclude_tags=[\"a\"]'",
}


FLAGS = {"insecure": "servers.insecure", "keep_text": "outputs.keep_text"}  # options that are settings


def _say_what_replaces(_: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise UsageError(f"{', '.join(parameter.opts)} is an option of Locust, which has no place in a comparison:"
                         f" {REPLACED[str(parameter.name)]}.")  # fmt: skip


def experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the scenario and every option that describes an experiment."""
    replaced = [("-u", "--users"), ("-r", "--spawn-rate"), ("-t", "--run-time"), ("-T", "--tags"),
                ("-E", "--exclude-tags")]  # fmt: skip
    options = [
        *(click.option(*names, hidden=True, expose_value=False, callback=_say_what_replaces) for names in replaced),
        click.argument("scenario", type=PATH, required=False),
        click.option("--baseline", metavar="URL", help="Server without speculation."),
        click.option(
            "--speculative",
            multiple=True,
            metavar="[NAME=]URL",
            help="Server with speculation; several: NAME=URL each.",
        ),
        click.option("--server", metavar="URL", help="One server alone: curves and tails, nothing is compared."),
        click.option(
            "--servers", type=PATH, metavar="FILE", help="Arms as tables (TOML); can start and stop the servers."
        ),
        click.option(
            "--arms",
            metavar="NAME,NAME,…",
            help="Which arms to compare, baseline first; the same twice (A/A): the noise.",
        ),
        click.option("--insecure", is_flag=True, help="Do not verify TLS certificates; said on every page."),
        click.option("--simulated", is_flag=True, help="Use the built-in simulated pair."),
        click.option("--world", metavar="NAME", help="World of the simulated pair (see `loadtest simulate --list`)."),
        click.option("--prompts", type=PATH, metavar="FILE", help="Prompts, as published sets have them."),
        click.option("--levels", metavar="N,N,…", help="Users of each level."),
        click.option("--rates", metavar="R,R,…", help="Requests/s of each level: an open load."),
        click.option("--arrivals", metavar="NAME", help="How sessions of an open load arrive: poisson, gamma, …"),
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


def prepared_from(**given: Any) -> Any:
    """Return what the options ask for, checked and ready to run (drive.prepare.Prepared)."""
    from loadtest.drive.options import Options
    from loadtest.drive.prepare import prepare

    if given["scenario"] is None:
        raise UsageError("Give a scenario, such as scenarios/chat.py (or --resume RUN to go on with a run).")
    given["assignments"] = tuple(given["assignments"])
    given["assignments"] += tuple(f"{setting}=true" for flag, setting in FLAGS.items() if given.pop(flag, False))
    return prepare(Options(command=shlex.join(["loadtest", *sys.argv[1:]]), **given))
