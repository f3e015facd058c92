"""`loadtest check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from loadtest.commands.options import PATH, prepared_from
from loadtest.packaged import packaged


@click.command()
@click.argument("scenario", type=PATH, required=False)
@click.option("--baseline", metavar="URL", help="Server without speculation.")
@click.option("--speculative", multiple=True, metavar="[NAME=]URL", help="Server with speculation; repeats.")
@click.option("--server", metavar="URL", help="One server alone: what it is; nothing is compared.")
@click.option("--servers", type=PATH, metavar="FILE", help="Arms as tables (TOML); can start and stop the servers.")
@click.option("--arms", metavar="NAME,NAME,…", help="Which arms to compare, baseline first.")
@click.option("--insecure", is_flag=True, help="Do not verify TLS certificates.")
@click.option("--simulated", is_flag=True, help="Use the built-in simulated pair.")
@click.option("--world", metavar="NAME", help="World of the simulated pair (see `loadtest simulate --list`).")
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting of the .toml.")
@click.option("--waive", multiple=True, metavar="ITEM", help="Accept this difference between the servers.")
@click.option("--all", "every", is_flag=True, help="Show equal items and every setting of speculation, too.")
def check(scenario: Path | None, every: bool, **given: Any) -> None:
    """Are these two servers comparable, and does the candidate alone speculate? Sends a handful of requests.

    Exit codes: 0 comparable, 4 open whether the candidate alone speculates, 5 not comparable.
    """
    from loadtest.drive.check import check as check_pair
    from loadtest.drive.interrupts import stopping_on_interrupt
    from loadtest.report.comparability import comparison_lines
    from loadtest.report.progress import Progress
    from loadtest.report.screen import Screen

    given["waive"] = tuple(given["waive"])
    prepared = prepared_from(scenario=scenario or packaged() / "scenarios" / "chat.py", measure_only=True, **given)
    screen = Screen(highlight=False)
    screen.print(prepared.found, markup=False, soft_wrap=True)
    with stopping_on_interrupt(), Progress(screen) as progress:
        found = check_pair(prepared, progress.handle)
    lines = comparison_lines(found.rows, every=every) if found.rows else []
    for line in (*found.servers, *lines):
        screen.print(line, markup=False, soft_wrap=True)
    sys.exit(found.exit_code)
