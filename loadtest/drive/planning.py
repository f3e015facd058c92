"""The plan of a run under way: what was planned, what comes next, on disk and in the header before it is begun."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from loadtest.drive.budget import START_UP_S
from loadtest.drive.figures import cell_figures
from loadtest.drive.plan import Cell, plan_lines
from loadtest.drive.stages import Course, Time, look_words
from loadtest.errors import LoadtestError, RunError
from loadtest.run_folder import read_cells, read_requests, read_scrapes

FINISH_S = 5.0  # completing the records at the end of a budget


class Planning:
    """Grows a plan as results come in. `header` is the run's, which `keep_header` writes to disk."""

    def __init__(self, folder: Path, course: Course, header: dict[str, Any], keep_header: Callable[[], None],
                 planned: Sequence[Cell] = ()) -> None:  # fmt: skip
        """Go on from what was planned; nothing is written yet."""
        self._folder, self.course, self._header, self._keep_header = folder, course, header, keep_header
        self.planned = list(planned)
        self._ends_s: float | None = None  # on time.perf_counter()
        self._cell_s = self._start_s = 0.0
        self._starts_s: list[float] = []

    def limit(self, budget_s: float, began_s: float, cell_s: float) -> None:
        """Plan no block that would end later than `budget_s` after `began_s`, a time of `time.perf_counter`."""
        self._ends_s, self._cell_s = began_s + budget_s - FINISH_S, cell_s

    def start_took(self, seconds: float) -> None:
        """Note how long a start of an arm took, from the end of the arm before."""
        self._starts_s.append(seconds)

    def append(self, cells: Sequence[Cell]) -> None:
        """Write cells to plan.jsonl, then their number and the file's hash to the header, before any is begun."""
        self.planned += cells
        lines = plan_lines(self.planned)
        part = self._folder / "plan.jsonl.part"
        with part.open("w", encoding="utf-8", newline="") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._folder / "plan.jsonl")
        self._header["plan_cells"] = len(self.planned)
        self._header["plan_sha256"] = hashlib.sha256(lines.encode()).hexdigest()
        self._keep_header()

    def answer(self) -> dict[str, Any]:
        """Choose the cells that follow, all before having ended, and return the answer for the driver."""
        try:
            cells = self._choose()
        except LoadtestError as error:
            return {"refused": str(error), "kind": "run" if isinstance(error, RunError) else "usage"}
        return {"cells": [asdict(cell) for cell in cells], "total": self.course.expected(self.planned)}

    def _choose(self) -> tuple[Cell, ...]:
        course, folder = self.course, self._folder
        choosing = course.staged and not course.judged(self.planned)
        requests = read_requests(folder) if choosing else None
        scrapes = read_scrapes(folder) if choosing else ()
        figures = cell_figures(read_cells(folder), requests, scrapes, course.experiment.decision.metric,
                               course.experiment.load, self._header.get("habits"))  # fmt: skip
        following = course.more(self.planned, figures, self._time())
        if choosing:
            self._header["coarse"] = course.showed(figures)
        if following.said:
            self._header["notes"].append(following.said)
        if following.cells:
            self.append(following.cells)
        else:
            self._keep_header()
        return following.cells

    def _time(self) -> Time | None:
        if self._ends_s is None:
            return None
        start_s = sum(self._starts_s) / len(self._starts_s) if self._starts_s else START_UP_S
        return Time(left_s=self._ends_s - time.perf_counter(), cell_s=self._cell_s, start_s=start_s)

    def conclude(self, state: str) -> None:
        """Say in the header which blocks are judged, now that the run has ended in this state."""
        looked, course = self._header.get("look"), self.course
        done = len(course.judged(self.planned))
        if looked and (state != "complete" or done < course.wanted):
            more = done - looked["blocks"]
            self._header["notes"].append(
                f"Of the {course.wanted - looked['blocks']} blocks to the next look {max(0, more)} were planned so far:"
                f" the run is judged by its first {looked['blocks']} until then. Go on with --resume."
            )
            return
        found = course.looked(self.planned)
        if state != "complete":  # it is not judged, and goes on to the same look
            self._header["judged_blocks"] = found["judged_blocks"]
            return
        self._header |= found
        if course.looks > 1:
            self._header["notes"].append(look_words(course.looks, course.experiment.plan.blocks))
        if course.restarts:
            self._header["starts"] = done


def next_look(course: Course, look: int) -> Course:
    """Return the course to the look after this one."""
    return replace(course, looks=look + 1)
