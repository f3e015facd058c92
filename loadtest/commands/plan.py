"""`loadtest plan`."""

from __future__ import annotations

from typing import Any

import click

from loadtest.commands.options import experiment_options, prepared_from
from loadtest.loads import unit_of


@click.command()
@experiment_options
def plan(**given: Any) -> None:
    """Say what a run would do, how long it takes and which claims are in reach; sends nothing."""
    from loadtest.drive.forecast import announcement

    prepared = prepared_from(**given)
    cells = prepared.cells()
    for sentence in (*announcement(prepared, cells), *prepared.notes):
        click.echo(sentence)
    unit = unit_of(prepared.experiment.load)
    click.echo(f"\n cell  block  {unit:>5}  arm")
    for cell in cells:
        click.echo(f"{cell.cell:5d}  {cell.block:5d}  {cell.level:{max(5, len(unit))}g}  {cell.arm}")
