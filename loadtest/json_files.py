"""Writing JSON: documents that are whole or not there, and files of one object a line that a kill leaves readable."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

PRIVATE = 0o600  # mode of files that hold people's words


def finite(value: Any) -> Any:
    """Return JSON data with every NaN and infinity replaced by None: JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


class LineWriter:
    """Append JSON objects to a file, one per line, each flushed to the operating system at once."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        """Open `path` for appending; a new file gets `mode`, less what the umask takes."""
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode), "a", encoding="utf-8")

    def write(self, row: Any) -> None:
        """Write one dataclass instance or mapping."""
        data = row if isinstance(row, Mapping) else asdict(row)
        self._file.write(json.dumps(finite(data), separators=(",", ":"), allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def beside(path: Path) -> Path:
    """Return where this process writes a file before it takes its place: two that judge one run share no such file."""
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON document whole or not at all."""
    part = beside(path)
    text = json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        part.write_bytes(text.encode("utf-8", "backslashreplace"))  # a lone surrogate becomes JSON's own escape
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
