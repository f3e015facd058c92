"""`loadtest report`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loadtest.commands.options import PATH
from loadtest.commands.reporting import report_outputs, report_run


@click.command()
@click.argument("folder", type=PATH)
@click.option("--slo", type=PATH, metavar="FILE", help="Objectives to judge by, in place of the run's own.")
def report(folder: Path, slo: Path | None) -> None:
    """Judge a run's records again and draw its page again; no server is needed."""
    from loadtest.analyse.judge import judge
    from loadtest.report.screen import Screen
    from loadtest.run_folder import read_run

    screen = Screen(highlight=False)
    if read_run(folder).get("outputs_only"):
        sys.exit(report_outputs(folder, screen))
    sys.exit(report_run(folder, screen, judge(folder, slo_file=slo)))
