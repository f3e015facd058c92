"""The ground-truth server: built from our C source, started on a core of its own, and its log read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).parents[1] / "ground_truth"
TLS = Path(__file__).parents[2] / "tests" / "data" / "tls"  # certificates for 127.0.0.1
CA = TLS / "ca.pem"
SERVER, READER = ("server", "answers", "schedule", "turns", "tls"), ("reader",)
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra")
REALTIME = 2  # just above the client's class: they have a core each
STOP_S = 10.0
COMPILE_S = 120.0

RECORD = np.dtype([
    ("magic", "u8"), ("request", "u8"), ("arrived_ns", "i8"), ("read_ns", "i8"), ("due_ns", "i8"), ("gap_ns", "i8"),
    ("chunks", "i4"), ("planned", "i4"), ("tokens", "i4"), ("delayed", "i4"),
])  # fmt: skip  # LogRecord in truth.h
MAGIC = 0x4854555254544C31


class NoServer(Exception):
    """The ground-truth server could not be built or started; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One line of a log: what a request truly met. Times are CLOCK_MONOTONIC in nanoseconds."""

    arrived_ns: int  # when the server's kernel received it; in the C client's log, when it was sent
    due_ns: int
    gap_ns: int
    tokens: int
    delayed: int
    chunk_ns: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs built from benchmarks/ground_truth."""

    server: Path
    reader: Path
    tls: bool


def cache_folder() -> Path:
    """Return where built programs are kept: XDG_CACHE_HOME/loadtest, or ~/.cache/loadtest."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loadtest"


def build(folder: Path | None = None) -> Programs:
    """Compile the server and the C client, once per state of their source. Raises NoServer."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoServer(
            "There is no `cc` on this machine: install a C compiler (Debian: apt-get install gcc libc6-dev)."
        )
    sources = sorted([*SOURCE.glob("*.c"), *SOURCE.glob("*.h")])
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    place = (folder or cache_folder()) / f"ground-truth-{state}"
    place.mkdir(parents=True, exist_ok=True)
    with_tls, plain = place / "server-tls", place / "server"
    if not with_tls.exists():  # tried each time: the headers may have been installed since
        refused = _compile(compiler, SERVER, with_tls, "-DWITH_TLS", "-lssl", "-lcrypto")
        if refused and not plain.exists() and (error := _compile(compiler, SERVER, plain)):
            raise NoServer(f"The ground-truth server did not compile:\n{error}")
    reader = place / "reader"
    if not reader.exists() and (error := _compile(compiler, READER, reader)):
        raise NoServer(f"The C client did not compile:\n{error}")
    return Programs(server=with_tls if with_tls.exists() else plain, reader=reader, tls=with_tls.exists())


def _compile(compiler: str, names: tuple[str, ...], to: Path, *words: str) -> str:
    """Compile to a file that appears whole or not at all; return the compiler's complaint, "" for none."""
    with tempfile.NamedTemporaryFile(dir=to.parent, delete=False) as file:
        part = Path(file.name)
    switches, libraries = [w for w in words if w.startswith("-D")], [w for w in words if w.startswith("-l")]
    command = [compiler, *FLAGS, *switches, "-o", str(part), *(str(SOURCE / f"{name}.c") for name in names), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        part.unlink()
        return done.stderr or f"{compiler} ended with code {done.returncode}"
    part.replace(to)
    return ""


class Server:
    """A running ground-truth server; leaving the context ends it."""

    def __init__(
        self, programs: Programs, log: Path | None, *, core: int, realtime: bool, tls: bool, for_s: float,
        schedule: str = "",
    ) -> None:  # fmt: skip
        """Start it on a free port; `schedule` is that of requests whose model names none. Raises NoServer."""
        self._log = log
        self.counts: dict[str, Any] = {}  # its own, once it has ended
        command = [str(programs.server), "--port", "0", "--cpu", str(core), "--for", str(int(for_s))]
        command += ["--log", str(log)] if log else []
        command += ["--schedule", schedule] if schedule else []
        command += ["--realtime", str(REALTIME)] if realtime else []
        command += ["--tls", str(TLS / "localhost.pem"), str(TLS / "server.key")] if tls else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if not said.startswith("listening on "):
            _, error = self.process.communicate(timeout=STOP_S)
            raise NoServer(f"The ground-truth server did not start: {error.strip() or 'it said nothing'}.")
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{int(said.split()[-1])}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it and keep its counts; its log is then whole."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            said, _ = self.process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, _ = self.process.communicate()
        lines = said.splitlines()
        if not self.counts and lines:
            self.counts = json.loads(lines[-1])


def read_log(path: Path) -> dict[int, Answered]:
    """Return what a server, or the C client, wrote down: number of the request → what it met. Raises ValueError."""
    data, at = path.read_bytes(), 0
    answered: dict[int, Answered] = {}
    while at < len(data):
        if len(data) - at < RECORD.itemsize:
            raise ValueError(f"{path} ends within a record")
        record = np.frombuffer(data, RECORD, 1, at)[0]
        if record["magic"] != MAGIC:
            raise ValueError(f"{path} is no log of the ground-truth server, or of one built for another machine")
        at += RECORD.itemsize
        count = int(record["chunks"])
        chunk_ns = np.frombuffer(data, np.int64, count, at)
        at += 8 * count
        answered[int(record["request"])] = Answered(
            arrived_ns=int(record["arrived_ns"]), due_ns=int(record["due_ns"]), gap_ns=int(record["gap_ns"]),
            tokens=int(record["tokens"]), delayed=int(record["delayed"]), chunk_ns=chunk_ns,
        )  # fmt: skip
    return answered
