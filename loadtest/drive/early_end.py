"""Looks at a run that goes on, at points set beforehand: one that has certainly failed is ended early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.drive.plan import Cell
from loadtest.errors import LoadtestError

Judge = Callable[[Path, int], str]  # folder, blocks that have ended → why it is not worth going on, or nothing


@dataclass(slots=True, kw_only=True)
class Looks:
    """Follows a run's cells; `after` says after how many whole blocks it is judged."""

    judge: Judge
    after: Collection[int]
    open: Counter[int] = field(default_factory=Counter)  # block → cells that have not ended
    reason: str = ""  # why the run is given up

    def plan(self, cells: Collection[Cell]) -> None:
        """Take note of the planned cells."""
        self.open = Counter(cell.block for cell in cells)

    def ended(self, folder: Path, event: dict[str, Any]) -> bool:
        """Note a cell that has ended; return whether the run is to be given up now."""
        self.open[event["block"]] -= 1
        if self.reason or self.open[event["block"]] > 0:
            return False
        done = sum(1 for left in self.open.values() if left <= 0)
        if done not in self.after:
            return False
        try:
            self.reason = self.judge(folder, done)
        except LoadtestError:  # what cannot be read yet is no reason to stop
            return False
        return bool(self.reason)
