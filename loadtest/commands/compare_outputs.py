"""`loadtest compare-outputs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from loadtest.commands.options import PATH, prepared_from
from loadtest.commands.reporting import report_outputs
from loadtest.packaged import packaged


@click.command("compare-outputs")
@click.argument("scenario", type=PATH, required=False)
@click.option("--baseline", metavar="URL", help="Server without speculation.")
@click.option("--speculative", metavar="URL", help="Server with speculation.")
@click.option("--servers", type=PATH, metavar="FILE", help="Arms as tables (TOML); can start and stop the servers.")
@click.option("--arms", metavar="NAME,NAME", help="Which arms to compare.")
@click.option("--simulated", is_flag=True, help="Use the built-in simulated pair.")
@click.option("--world", metavar="NAME", help="World of the simulated pair (see `loadtest simulate --list`).")
@click.option("--prompts", type=PATH, metavar="FILE", help="Prompts, as published sets have them.")
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting of the .toml.")
@click.option("--waive", multiple=True, metavar="ITEM", help="Accept this difference between the servers.")
@click.option("--keep-text", is_flag=True, help="Keep the answers; else only hashes and counts.")
@click.option("--out", type=PATH, default=Path("reports"), show_default=True, help="Folder that receives the folder.")
def compare_outputs(scenario: Path | None, **given: Any) -> None:
    """Ask both servers the same prompts, one by one, and say whether they answer alike.

    The baseline is asked twice: how far its answers differ from each other is the yardstick. Exit codes: 0 as like as
    the baseline to itself, 3 different beyond that, 4 cannot tell, 5 invalid. No word on speed.
    """
    from loadtest.drive.interrupts import stopping_on_interrupt
    from loadtest.drive.output_run import compare
    from loadtest.report.progress import Progress
    from loadtest.report.screen import Screen

    given["waive"] = tuple(given["waive"])
    prepared = prepared_from(scenario=scenario or packaged() / "scenarios" / "chat.py", **given)
    screen = Screen(highlight=False)
    screen.print(prepared.found, markup=False)
    with stopping_on_interrupt():
        with Progress(screen) as progress:
            folder = compare(prepared, progress.handle)
        code = report_outputs(folder, screen)
    sys.exit(code)
