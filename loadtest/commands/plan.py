"""`loadtest plan`."""

from __future__ import annotations

from typing import Any

import click

from loadtest.commands.options import experiment_options, prepared_from


@click.command()
@experiment_options
def plan(**given: Any) -> None:
    """Say what a run would do, how long it takes and which claims are in reach; sends nothing."""
    from loadtest.drive.forecast import announcement

    prepared = prepared_from(**given)
    cells = prepared.cells()
    for sentence in announcement(prepared, cells):
        click.echo(sentence)
    click.echo("\n cell  block  users  arm")
    for cell in cells:
        click.echo(f"{cell.cell:5d}  {cell.block:5d}  {cell.level:5g}  {cell.arm}")
