"""Files of a run by the SHA-256 of their contents: what a worker lacks it asks for in parts, and checks before use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.drive.header import sha256_of
from loadtest.drive.job import Job
from loadtest.errors import UsageError

PART = 1 << 18  # bytes of a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One file as the master names it."""

    path: str  # on the master
    sha256: str
    size: int


def files_of(job: Job) -> list[Path]:
    """Return the files that a worker needs: scenario, prompts, trace, certificates of authorities. Keys are in none."""
    named = [str(job.scenario), job.prompts, job.experiment.trace.file, *(arm.ca for arm in job.arms)]
    return list(dict.fromkeys(Path(path) for path in named if path))


class Offered:
    """The master's files, by the SHA-256 of their contents."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read what they hold now."""
        self.named: list[Named] = []
        self._paths: dict[str, Path] = {}
        self._sizes: dict[str, int] = {}
        for path in paths:
            self.add(path)

    def add(self, path: Path) -> Named:
        """Offer a file as it is now."""
        named = Named(path=str(path), sha256=sha256_of(path), size=path.stat().st_size)
        self.named = [other for other in self.named if other.path != named.path] + [named]
        self._paths[named.sha256], self._sizes[named.sha256] = path, named.size
        return named

    def part(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a part of a file that is offered, and of no other; None for what is not, or is not there any more."""
        sha256, start = str(wanted.get("sha256")), wanted.get("start")
        path = self._paths.get(sha256)
        if path is None or not isinstance(start, int) or not 0 <= start <= self._sizes[sha256]:
            return None
        try:
            with path.open("rb") as file:
                file.seek(start)
                return {"sha256": sha256, "start": start, "data": file.read(PART)}
        except OSError:
            return None


class Fetched:
    """A worker's files: those of the master's that are here already, by path and contents, and those that came."""

    def __init__(self, folder: Path) -> None:
        """Keep what comes in this folder."""
        self._folder = folder
        self._local: dict[str, Path] = {}  # path on the master → path here
        self._contents: dict[str, Path] = {}  # SHA-256 → path here
        self._coming: dict[str, bytearray] = {}

    def local(self, path: str) -> Path:
        """Return where a file of the master's is here."""
        return self._local[path]

    def of(self, sha256: str) -> Path:
        """Return where the file with these contents is here."""
        return self._contents[sha256]

    def as_master(self, text: str) -> str:
        """Return a sentence with the master's paths in place of those here."""
        for path, local in self._local.items():
            text = text.replace(str(local), path)
        return text

    def take(self, named: Named) -> dict[str, Any] | None:
        """Have a file here; what is still to be asked for, None once it is here.

        Raises UsageError when what came is not what was named.
        """
        there = Path(named.path)
        if _holds(there, named):
            self._local[named.path] = self._contents[named.sha256] = there
            return None
        path = self._folder / named.sha256[:16] / there.name
        if named.path in self._local and self._contents.get(named.sha256) == path:
            return None  # it came before
        came = self._coming.setdefault(named.sha256, bytearray())
        if len(came) < named.size:
            return {"sha256": named.sha256, "start": len(came)}
        if hashlib.sha256(came).hexdigest() != named.sha256:
            del self._coming[named.sha256]
            raise UsageError(
                f"{named.path} is not what it was when the run began, by its SHA-256: leave the run's files as they are"
                " until it has ended, and start it again."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(came)
        del self._coming[named.sha256]  # a trace may be large
        self._local[named.path] = self._contents[named.sha256] = path
        return None

    def came(self, part: Mapping[str, Any]) -> None:
        """Take a part that was asked for; any other is left out."""
        own, data = self._coming.get(str(part.get("sha256"))), part.get("data")
        if own is not None and isinstance(data, bytes) and part.get("start") == len(own):
            own += data


def _holds(path: Path, named: Named) -> bool:
    """Return whether a file of this machine is the one that is named; one that may not be read is none."""
    try:
        return path.is_file() and path.stat().st_size == named.size and sha256_of(path) == named.sha256
    except OSError:
        return False
