"""Taking up a run again: what is missing of a broken one, or more blocks of a finished one, in the same folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtest.drive.budget import parse_budget
from loadtest.drive.failure import counted
from loadtest.drive.folder import rewrite_lines
from loadtest.drive.header import boot_id, sha256_of
from loadtest.drive.options import Options
from loadtest.drive.pair import differences
from loadtest.drive.plan import Cell
from loadtest.drive.planning import next_look
from loadtest.drive.prepare import Prepared, prepare
from loadtest.drive.stages import LOOKS, Course
from loadtest.errors import UsageError, server_named
from loadtest.experiment import from_document
from loadtest.record import NOT_CARRIED, TEXTS, CellRecord
from loadtest.run_folder import finish_requests, read_cells, read_plan, read_run
from loadtest.servers.identity import Identity

ENDED = ("complete", NOT_CARRIED, "aborted")  # states of a cell that is not measured again


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A run's folder, ready to be gone on with."""

    folder: Path
    header: dict[str, Any]
    prepared: Prepared
    course: Course
    planned: tuple[Cell, ...]
    whole: frozenset[int]  # cells that stay as they are
    sitting: int  # how often it has been begun or taken up again, this time included

    @property
    def missing(self) -> list[Cell]:
        """The planned cells that are still to be measured, in their order."""
        return [cell for cell in self.planned if cell.cell not in self.whole]

    def origin_ns(self) -> int:
        """Return the origin of the run's clock on this boot's monotonic clock; later than every recorded time is now.

        The clock goes on where it was; after a boot, by as much as the wall clock says has passed.
        """
        clock, now_ns = self.header["clock"], time.perf_counter_ns()
        boot = boot_id()
        if boot is not None and clock.get("boot") == boot:
            return int(clock["origin_monotonic_ns"])
        passed = datetime.now(UTC) - datetime.fromisoformat(self.header["started"])
        last_s = max((cell.drained_s or cell.started_s for cell in read_cells(self.folder)), default=0.0)
        return now_ns - int(max(passed.total_seconds(), last_s + 1.0) * 1e9)

    @property
    def extends(self) -> bool:
        """Whether the run was judged before, and goes on to its next look."""
        return self.course.looks > 1

    def announcement(self) -> list[str]:
        """Return what is printed before it goes on."""
        done, cells = len(self.whole), self.missing
        said = [f"Going on with {self.folder}: {done} of {len(self.planned)} planned cells are there."]
        if self.extends:
            wanted, had = self.course.wanted, len(self.course.judged(self.planned))
            said.append(f"Look {self.course.looks} of {LOOKS} comes after {wanted} blocks: {wanted - had} are to be"
                        " planned. Until then the answer stays that of the look before.")  # fmt: skip
        elif cells:
            are = "is" if len(cells) == 1 else "are"
            said.append(f"{counted(len(cells), 'cell')} {are} missing;"
                        " a pair of which only one half was measured is done again.")  # fmt: skip
        return said


@contextmanager
def holding(folder: Path) -> Iterator[int]:
    """Hold a run's folder against a second run: yields the descriptor that holds it, to be handed to the driver.

    The kernel lets go of it when the last process that has it is gone, however it went. Raises UsageError.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{folder} is being measured by another process; wait for its end, or end it.") from None
        yield descriptor
    finally:
        os.close(descriptor)


def refuse_stale(run: Resumed) -> None:
    """Raise UsageError when another process went on with a run between its being read and its being held."""
    if read_run(run.folder) != run.header:
        raise UsageError(f"{run.folder} was gone on with by another process a moment ago: look at it, and start again.")


def from_where_it_began(folder: Path) -> Path:
    """Go to the working folder that a run was begun in, where relative paths name what they named then.

    Return the run's folder as seen from there. Raises UsageError where it is none.
    """
    cwd = (read_run(folder).get("options") or {}).get("cwd")
    if not isinstance(cwd, str) or not Path(cwd).is_dir() or Path(cwd) == Path.cwd():
        return folder
    folder = folder.resolve()
    os.chdir(cwd)
    return folder


def open_again(folder: Path, budget: str | None, environment: Mapping[str, str] = os.environ) -> Resumed:
    """Check whether and how a run can be gone on with; nothing is written. Raises UsageError."""
    header = read_run(folder)
    options = header.get("options")
    if not isinstance(options, dict):
        raise UsageError(f"{folder} was measured by a version of loadtest that did not note how to go on; run it anew.")
    if header.get("smoke"):
        raise UsageError(f"{folder} is a smoke run; there is nothing to go on with.")
    prepared = _prepared(folder, header, options, budget, environment)
    plan, records = read_plan(folder, header), read_cells(folder)
    planned = tuple(Cell(cell=p.cell, block=p.block, level=p.level, arm=p.arm) for p in plan or ())
    course = replace(prepared.course, by_block=budget is not None)
    look = header.get("look")
    if look:
        if look["number"] >= LOOKS:
            raise UsageError(f"{folder} has been judged at look {LOOKS} of {LOOKS}: a further look would make its"
                             " intervals untrue. Measure anew with more blocks: --blocks"
                             f" {course.experiment.plan.blocks * LOOKS}.")  # fmt: skip
        course = next_look(course, look["number"])
    whole = whole_cells(planned, records, restarts=course.restarts)
    if budget is not None:  # blocks that were not begun are planned anew, as time allows
        begun = max((cell.block for cell in planned if cell.cell in whole), default=0)
        planned = tuple(cell for cell in planned if cell.block <= begun)
    return Resumed(folder=folder, header=header, prepared=prepared, course=course, planned=planned, whole=whole,
                   sitting=len(header.get("sittings") or ()) + 1)  # fmt: skip


def _prepared(folder: Path, header: Mapping[str, Any], options: Mapping[str, Any], budget: str | None,
              environment: Mapping[str, str]) -> Prepared:  # fmt: skip
    """Return the run's own experiment and arms, the files that they came from being what they were."""
    scenario = header["scenario"]
    for kind, path, told in (
        ("scenario", scenario["path"], scenario["sha256"]),
        ("prompt file", scenario.get("prompts"), scenario.get("prompts_sha256")),
        ("trace", scenario.get("trace"), scenario.get("trace_sha256")),
        ("servers file", options.get("servers"), (header.get("servers_file") or {}).get("sha256")),
    ):
        if path is not None:
            _refuse_changed(folder, kind, Path(path), told)
    known = {f.name for f in fields(Options)}
    given = {name: value for name, value in options.items() if name in known and value is not None}
    for name in ("scenario", "prompts", "servers"):
        if name in given:
            given[name] = Path(given[name])
    given["waive"] = tuple(given.get("waive", ()))
    if isinstance(given.get("speculative"), list):
        given["speculative"] = tuple(given["speculative"])
    prepared = prepare(Options(**given, out=folder.parent, command=str(header.get("command", ""))), environment)
    names = [arm["name"] for arm in header["arms"]]
    if names and names != [arm.name for arm in prepared.arms]:
        raise UsageError(f"{folder} was measured with the arms {', '.join(names)}; now they are"
                         f" {', '.join(arm.name for arm in prepared.arms)}.")  # fmt: skip
    experiment = from_document(header["experiment"])
    return replace(prepared, experiment=experiment, budget_s=parse_budget(budget) if budget else None)


def _refuse_changed(folder: Path, kind: str, path: Path, told: str | None) -> None:
    if not path.is_file():
        raise UsageError(f"{folder} was measured with the {kind} {path}, which is not there any more.")
    if told and sha256_of(path) != told:
        raise UsageError(f"The {kind} {path} is not what {folder} was measured with; put it back, or run anew.")


def whole_cells(planned: Sequence[Cell], records: Sequence[CellRecord], *, restarts: bool) -> frozenset[int]:
    """Return the cells that stay: those of pairs (of starts, where arms take turns) of which every cell has ended.

    The two halves of a pair belong close in time, so that a pair cut in two is measured again.
    """
    ended = {record.cell for record in records if record.state in ENDED}
    cut = {_unit(cell, restarts) for cell in planned if cell.cell not in ended}
    return frozenset(cell.cell for cell in planned if _unit(cell, restarts) not in cut)


def _unit(cell: Cell, restarts: bool) -> tuple[int, float]:
    return cell.block, 0.0 if restarts else cell.level


def clear_away(run: Resumed) -> int:
    """Take what was measured of unfinished pairs out of the records; return how many requests that were.

    A kill at any moment leaves the records readable: requests first, then the cells' lines, then the scrapes; what is
    left of a cell without a line is no cell.
    """
    folder, whole, taken = run.folder, run.whole, 0
    if any(folder.glob("requests*.arrows")) or (folder / "requests.parquet").exists():
        taken = finish_requests(folder, whole)
    for name in ("cells.jsonl", "server.jsonl", TEXTS):
        if (folder / name).exists():
            rewrite_lines(folder / name, lambda row: row if row.get("cell") in whole else None)
    return taken


def set_truth_aside(run: Resumed) -> None:
    """Keep what simulated servers wrote apart from what they are going to write: their next life counts anew."""
    folder = run.folder
    (folder / "truth-null.jsonl").unlink(missing_ok=True)  # of a calibration that a kill cut short
    for path in folder.glob("truth-*.jsonl"):
        if not path.stem.rpartition("-")[2].isdecimal():
            path.replace(path.with_name(f"{path.stem}-{run.sitting - 1}.jsonl"))


def refuse_others(run: Resumed, name: str, now: Identity) -> None:
    """Raise UsageError when a server is not the one that the run was measured with."""
    first = recorded_identities(run.header).get(name)
    lines = differences(first, now) if first else ""
    if lines:
        raise UsageError(f"T{server_named(name)[1:]} is not the one that {run.folder} was measured with:\n{lines}\n"
                         "Bring up what it was measured with, or measure anew.")  # fmt: skip


def recorded_identities(header: Mapping[str, Any]) -> dict[str, Identity]:
    """Return what the servers of a run said of themselves, by arm; an arm that was never met has none."""
    known = {f.name for f in fields(Identity)}
    return {
        arm["name"]: Identity(**{name: value for name, value in arm["identity"].items() if name in known})
        for arm in header["arms"]
        if arm.get("identity")
    }
