"""`loadtest worker`."""

from __future__ import annotations

from pathlib import Path

import click

from loadtest.commands.options import PATH


@click.command()
@click.option("--master", required=True, metavar="HOST:PORT", help="Where `loadtest run --expect-workers` listens.")
@click.option("--name", metavar="NAME", help="What the run calls it.  [default: the name of this machine]")
@click.option(
    "--spool", type=PATH, default=Path("loadtest-spool"), show_default=True,
    help="Folder that holds what it measured until the master has it.",
)  # fmt: skip
@click.option("--wait", metavar="TIME", help="Longest wait for the master, also when it has gone.  [default: 5m]")
def worker(master: str, name: str | None, spool: Path, wait: str | None) -> None:
    """Make a share of the load of a run on another machine: a scenario from there is run here."""
    from loadtest.drive.interrupts import stopping_on_interrupt
    from loadtest.drive.workers.elsewhere import work

    with stopping_on_interrupt():
        work(master, name, spool, wait, click.echo)
