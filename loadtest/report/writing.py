"""A file of the report, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from loadtest.errors import UsageError
from loadtest.json_files import PRIVATE, beside


def write_whole(path: Path, text: str, *, private: bool = False) -> Path:
    """Write text beside a file, put it in its place, and return its path. Raises UsageError when that cannot be.

    A private file is readable by its owner alone, whatever the umask.
    """
    part = beside(path)
    try:
        if private:
            part.unlink(missing_ok=True)
            part.touch(PRIVATE)
        part.write_bytes(text.encode())
        part.replace(path)
    except OSError as error:
        if part.is_file():
            part.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    return path
