"""`loadtest report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from loadtest.commands.options import PATH
from loadtest.commands.reporting import Shown, output_options, report_outputs, report_run, screen_for, shown_from
from loadtest.errors import UsageError


@click.command()
@click.argument("folders", type=PATH, nargs=-1, required=True, metavar="RUN…")
@click.option("--slo", type=PATH, metavar="FILE", help="Objectives to judge by, in place of the run's own.")
@click.option("--out", type=PATH, metavar="FILE", help="Page of several runs.  [default: comparison.html beside them]")
@output_options
def report(folders: tuple[Path, ...], slo: Path | None, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Judge a run's records again and draw its page again; of several runs, draw one page. No server is needed.

    The exit code is the run's; of several runs, the greatest.
    """
    from loadtest.analyse.judge import judge
    from loadtest.run_folder import read_run

    shown = shown_from(quiet, as_json)
    screen = screen_for(shown)
    if len(folders) > 1:
        sys.exit(_several(folders, slo, out, screen, shown))
    if out is not None:
        raise UsageError("--out names the page of several runs; of one run it is report.html in the run's folder.")
    if read_run(folders[0]).get("outputs_only"):
        sys.exit(report_outputs(folders[0], screen, shown))
    sys.exit(report_run(folders[0], screen, judge(folders[0], slo_file=slo), shown))


def _several(folders: tuple[Path, ...], slo: Path | None, out: Path | None, screen: Any, shown: Shown) -> int:
    """Write the page of several runs, say what it says and return the greatest exit code."""
    from loadtest import loads
    from loadtest.analyse.judge import judge
    from loadtest.commands.reporting import exit_code_of
    from loadtest.report.comparison import NAME, write_comparison
    from loadtest.report.runs import entries, unit_of
    from loadtest.run_folder import read_run

    distinct = list(dict.fromkeys(folder.resolve() for folder in folders))
    if len(distinct) < len(folders):
        raise UsageError("A run is named twice; give each run once.")
    runs, of, codes = [], [], []
    for folder in folders:
        header = read_run(folder)
        if header.get("outputs_only"):
            raise UsageError(f"{folder} holds compared answers alone, and no load: leave it out.")
        judgement = judge(folder, slo_file=slo)
        codes.append(exit_code_of(header, judgement))
        for own in judgement.pairs or (judgement,):  # each of several candidates stands beside the other runs
            runs.append((folder.resolve().name, header, own))
            of.append(folder)
    page = write_comparison(out or folders[0].resolve().parent / NAME, runs)
    with loads.spoken(unit_of(runs)):
        _say(entries(runs), tuple(of), page, screen, shown)
    return max(codes)


def _say(found: Any, folders: tuple[Path, ...], page: Path, screen: Any, shown: Shown) -> None:
    from loadtest.analyse.verdict import as_json
    from loadtest.commands.reporting import print_json
    from loadtest.report.runs import headline
    from loadtest.report.terminal import print_comparison

    if shown is Shown.JSON:
        print_json({"runs": [{"name": entry.name, "folder": str(folder), "verdict": as_json(entry.view.judgement)}
                             for entry, folder in zip(found, folders, strict=True)]})  # fmt: skip
    elif shown is Shown.QUIET:
        click.echo(headline(found))
    else:
        print_comparison(screen, found, page)
