"""The folder of a run: made before anything is sent, gone again where nothing was measured; its lines rewritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError
from loadtest.json_files import LineWriter
from loadtest.reading import numbered_lines
from loadtest.run_folder import left_in_spool, read_requests, request_streams

FREE_BYTES = 100 * 2**20


def make_folder(out: Path, started: datetime, name: str) -> Path:
    """Make the folder of a run that starts now. Raises UsageError where there is no place for one."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a file, a link that leads nowhere, a place that is not ours
        raise UsageError(f"--out {out} cannot be written: {error.strerror}.") from error
    for attempt in range(100):
        folder = out / f"{started:%Y%m%dT%H%M%SZ}-{name}{f'-{attempt + 1}' if attempt else ''}"
        try:
            folder.mkdir(mode=0o700, parents=True)  # what a run writes is for its user, who may share it
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"--out {out} cannot be written: {error.strerror}.") from error
        free = shutil.disk_usage(folder).free
        if free < FREE_BYTES:
            folder.rmdir()
            raise UsageError(f"--out {out} has {free / 2**20:.0f} MiB free; a run needs at least 100 MiB.")
        return folder
    raise UsageError(f"--out {out} already holds 100 runs of this second.")


def remove_if_empty(folder: Path, keep: Collection[Path] = ()) -> bool:
    """Remove the folder of a run that measured nothing, all but the logs to keep; return whether it was one.

    A folder that holds requests stays, in whichever form they are.
    """
    if has_requests(folder):
        return False
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
        return True
    with suppress(FileNotFoundError):  # the whole folder was taken away meanwhile
        for path in folder.iterdir():
            if path.is_dir():  # records of workers whose driver was killed, empty like its own
                shutil.rmtree(path, ignore_errors=True)
            elif path not in keep:
                path.unlink(missing_ok=True)
    return True


def has_requests(folder: Path) -> bool:
    """Return whether a run's folder holds a request, in whichever form."""
    if not (folder / "requests.parquet").exists() and not any(request_streams(folder)):
        return False
    told = read_requests(folder)
    return bool(told.num_rows or left_in_spool(folder, told).num_rows)


def rewrite_lines(path: Path, change: Callable[[dict[str, Any]], Mapping[str, Any] | None]) -> None:
    """Put in place of each line of a file what `change` makes of it, and leave out those that become None.

    The file is the old one or the new one, whatever ends this process meanwhile.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    writer = LineWriter(part, path.stat().st_mode & 0o777)
    for _, row in numbered_lines(path):
        changed = change(row)
        if changed is not None:
            writer.write(changed)
    writer.close()
    part.replace(path)
