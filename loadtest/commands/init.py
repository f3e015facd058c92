"""`loadtest init`."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from loadtest.commands.options import PATH
from loadtest.errors import UsageError
from loadtest.packaged import packaged

FOLDERS = ("scenarios", "servers")
FILES = ("docker-compose.yml", "compose.*.yml", ".env")


@click.command()
@click.argument("folder", type=PATH, default=Path(), metavar="[DIR]")
def init(folder: Path) -> None:
    """Write the scenarios, servers files and compose files into DIR (default: here), to be run and changed.

    Nothing is ever overwritten: where one of the files is there already, none is written.
    """
    source = packaged()
    names = starter(source)
    there = [name for name in (*FOLDERS, *names) if (folder / name).is_symlink() or (folder / name).is_file()]
    if there:
        raise UsageError(f"{folder / there[0]} is there already, and nothing is overwritten; nothing was written."
                         " Give another folder: loadtest init DIR.")  # fmt: skip
    try:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("xb") as out, (source / name).open("rb") as given:
                shutil.copyfileobj(given, out)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}. Give a folder of yours.") from error
    click.echo(f"Wrote {len(names)} files to {folder}: scenarios/, servers/ and the compose files.")
    click.echo(f"Next: {'' if folder == Path() else f'cd {folder} && '}loadtest run scenarios/chat.py")


def starter(source: Path) -> list[str]:
    """Return the files to be written, by their paths from `source`."""
    found = [path for name in FOLDERS for path in (source / name).rglob("*") if path.is_file()]
    found += [path for pattern in FILES for path in source.glob(pattern)]
    names = [path.relative_to(source) for path in found if path.suffix != ".pyc"]
    return sorted(name.as_posix() for name in names)
