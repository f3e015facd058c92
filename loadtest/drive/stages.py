"""Which cells come next: all at once, or a coarse ladder first and then blocks at the levels that it chose.

What comes next is a pure function of the experiment, of what was planned, of the first stage's figures and, under a
budget, of the time that is left. The real driver and the virtual one ask the same questions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loadtest import loads
from loadtest.drive.figures import CellFigure
from loadtest.drive.ladder import Chosen, Rung, choose_levels, ladder_ends, rungs, told
from loadtest.drive.plan import BETWEEN_CELLS_S, COARSE_WINDOW, Cell, block_cells, coarse, start_cells
from loadtest.settings import Experiment

RESERVED_BLOCKS = 2  # of the second stage, whose time the first does not take
RESERVED_LEVELS = 3
LOOKS = 3  # after 1, 2 and 3 times plan.blocks
LATER_CONFIDENCE = 0.985  # of an interval at the second and third look; the first look's is 0.95
MISSES = 0.065  # share of experiments in which an interval misses at some look


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """What is left of a budget, and what things take, in seconds."""

    left_s: float
    cell_s: float  # a cell, before one was measured
    start_s: float = 0.0  # one start of one arm, where each block is a start of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The cells that come next, none when the plan is at its end, and what is to be said of them."""

    cells: tuple[Cell, ...] = ()
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the cells of a run come about. `looks` is at which look, counted from 1, the run is to end."""

    experiment: Experiment
    arms: tuple[str, ...]  # baseline first
    restarts: bool = False  # a block is one start of each arm
    by_block: bool = False  # blocks are planned one by one, as time allows
    looks: int = 1

    @property
    def staged(self) -> bool:
        """Whether a coarse ladder comes first."""
        return self.experiment.plan.stages == "two" and len(self.arms) == 2

    @property
    def opened(self) -> bool:
        """Whether the first cells are not yet all."""
        return self.staged or self.by_block or self.looks > 1

    @property
    def coarse_blocks(self) -> int:
        """Blocks of the first stage, whose numbers come before those of the second."""
        if not self.staged:
            return 0
        return 1 if self.restarts else self.experiment.plan.coarse_blocks

    @property
    def wanted(self) -> int:
        """Judged blocks when the run is at its end."""
        return self.experiment.plan.blocks * self.looks

    def first(self) -> list[Cell]:
        """Return the cells that are known before the first request."""
        ladder = self.experiment.load.levels
        if self.staged:
            return self._coarse(ladder if self.restarts else ladder[:1], 0)
        return self._blocks(ladder, [], 0, 1 if self.by_block else self.wanted)

    def climb(self) -> list[Cell]:
        """Return the cells of a first stage that climbs to the highest level."""
        ladder, cells = self.experiment.load.levels, list[Cell]()
        for levels in [ladder] if self.restarts else [(level,) for level in ladder]:
            cells += self._coarse(levels, len(cells))
        return cells

    def more(self, planned: Sequence[Cell], figures: Sequence[CellFigure], time: Time | None = None) -> Next:
        """Return the cells that follow those planned, all of which have ended with these figures."""
        with loads.spoken(loads.unit_of(self.experiment.load)):
            return self._more(planned, figures, time)

    def _more(self, planned: Sequence[Cell], figures: Sequence[CellFigure], time: Time | None) -> Next:
        judged = [cell for cell in planned if cell.block >= self.coarse_blocks]
        if self.staged and not judged:
            return self._after_coarse(planned, figures, time)
        levels = sorted({cell.level for cell in judged})
        return self._block_or_end(levels, planned, figures, time)

    def _after_coarse(self, planned: Sequence[Cell], figures: Sequence[CellFigure], time: Time | None) -> Next:
        ladder, found = self.experiment.load.levels, self._rungs(figures)
        climbed = {cell.level for cell in planned}
        above = [level for level in ladder if level not in climbed]
        ends = (
            ladder_ends(found, self._least_gain) if above else f"the highest level is {loads.said(f'{ladder[-1]:g}')}"
        )
        if not ends and time is not None and not self._fits(above[:1], self.coarse_blocks, figures, time, kept=True):
            ends = "the time that is left is that of the second stage"
        if not ends:
            return Next(cells=tuple(self._coarse(above[:1], len(planned))))
        chosen = choose_levels(found, ladder, self._least_gain)
        levels = list(chosen.levels)
        if time is not None and not self._fits(levels, 1, figures, time):
            levels = [levels[0], levels[-1]] if len(levels) < 4 else levels[-2:]
        block = self._block_or_end(levels, planned, figures, time)
        return Next(cells=block.cells, said=_sentence(ends, Chosen(levels=tuple(levels), why=chosen.why)))

    def _block_or_end(self, levels: Sequence[float], planned: Sequence[Cell], figures: Sequence[CellFigure],
                      time: Time | None) -> Next:  # fmt: skip
        done = len({cell.block for cell in planned if cell.block >= self.coarse_blocks})
        if done >= self.wanted:
            return Next()
        if time is None:
            return Next(cells=tuple(self._blocks(levels, planned, done, self.wanted - done)))
        if not self._fits(levels, 1, figures, time):
            return Next(said=f"The budget ends after {done} of {self.wanted} blocks.")
        return Next(cells=tuple(self._blocks(levels, planned, done, 1)))

    def _coarse(self, levels: Sequence[float], number: int) -> list[Cell]:
        seed, cells = self.experiment.plan.seed, list[Cell]()
        make = start_cells if self.restarts else block_cells
        for block in range(self.coarse_blocks):
            cells += make(levels, seed, block, self.arms, number + len(cells))
        return cells

    def _blocks(self, levels: Sequence[float], planned: Sequence[Cell], done: int, count: int) -> list[Cell]:
        seed, cells = self.experiment.plan.seed, list[Cell]()
        make = start_cells if self.restarts else block_cells
        for block in range(self.coarse_blocks + done, self.coarse_blocks + done + count):
            cells += make(levels, seed, block, self.arms, len(planned) + len(cells))
        return cells

    def _rungs(self, figures: Sequence[CellFigure]) -> list[Rung]:
        coarse = [one for one in figures if one.block < self.coarse_blocks]
        higher = self.experiment.decision.metric == "output_tokens_per_s"
        return rungs(coarse, self.arms[0], self.arms[1], higher_is_better=higher)

    @property
    def _least_gain(self) -> float:
        return math.log(1 + self.experiment.decision.min_gain)

    def _fits(self, levels: Sequence[float], blocks: int, figures: Sequence[CellFigure], time: Time, *,
              kept: bool = False) -> bool:  # fmt: skip
        """Say whether so many blocks at these levels end in time; `kept` leaves some for the second stage."""
        cells_s = [self._cell_s(level, figures, time, coarse=kept) for level in levels]
        starts_s = len(self.arms) * time.start_s if self.restarts else 0.0
        needed_s = blocks * (len(self.arms) * sum(cells_s) + starts_s)
        if kept:
            longest = max(self._cell_s(level, figures, time, coarse=False) for level in levels)
            needed_s += RESERVED_BLOCKS * (len(self.arms) * RESERVED_LEVELS * longest + starts_s)
        return needed_s <= time.left_s

    def _cell_s(self, level: float, figures: Sequence[CellFigure], time: Time, *, coarse: bool) -> float:
        """Return what a cell takes: as long as those of the nearest level did, windows of the first stage stretched."""
        took = [one for one in figures if one.took_s > 0]
        if not took:
            return time.cell_s
        nearest = min(abs(math.log(one.level / level)) for one in took)
        near_s = [
            one.took_s + (0.0 if coarse or one.block >= self.coarse_blocks else one.window_s * (1 / COARSE_WINDOW - 1))
            for one in took
            if abs(math.log(one.level / level)) <= nearest
        ]
        return statistics.fmean(near_s) + BETWEEN_CELLS_S

    def experiment_of(self, cell: Cell) -> Experiment:
        """Return the experiment that a cell is run with."""
        return coarse(self.experiment) if cell.block < self.coarse_blocks else self.experiment

    def judged(self, planned: Sequence[Cell]) -> list[int]:
        """Return the blocks of the second stage, or all where there is one stage, in ascending order."""
        return sorted({cell.block for cell in planned if cell.block >= self.coarse_blocks})

    def expected(self, planned: Sequence[Cell]) -> int:
        """Return how many cells there will be in all, as far as it can be told."""
        arms, judged = len(self.arms), self.judged(planned)
        if judged:
            levels = len({cell.level for cell in planned if cell.block in judged})
            return len(planned) + arms * levels * max(0, self.wanted - len(judged))
        coarse = arms * len(self.experiment.load.levels) * self.coarse_blocks
        return coarse + arms * RESERVED_LEVELS * self.wanted

    def showed(self, figures: Sequence[CellFigure]) -> dict[str, float]:
        """Return level → speed-up that the first stage showed, for the protocol."""
        return dict(told(self._rungs(figures))) if self.staged else {}

    def looked(self, planned: Sequence[Cell]) -> dict[str, Any]:
        """Return what run.json says of the blocks that are judged when all that was planned has ended.

        Without a block of the second stage the first is judged: nothing was chosen by it.
        """
        blocks = self.judged(planned)
        if not blocks:
            return {"judged_blocks": None}
        look = {"number": self.looks, "of": LOOKS, "blocks": len(blocks), "confidence": look_confidence(self.looks)}
        return {"judged_blocks": [blocks[0], blocks[-1] + 1], "look": look}


def _sentence(ends: str, chosen: Chosen) -> str:
    levels = ", ".join(f"{level:g}" for level in chosen.levels)
    return f"First stage: {ends}; {chosen.why}. Judged at {loads.said(levels)}; the first stage itself is not judged."


def look_confidence(look: int) -> float:
    """Return the confidence of an interval at a look, counted from 1: 0.95, and more later.

    The interval at each look takes in all blocks so far (repeated confidence intervals: Jennison and Turnbull, Group
    Sequential Methods, 1999, chapter 9). MISSES follows for normal means at 1, 2 and 3 times the first look's blocks.
    """
    return 0.95 if look <= 1 else LATER_CONFIDENCE


def look_words(look: int, blocks: int) -> str:
    """Say which look a run is at, and what its intervals are worth; `blocks` are those of the first look."""
    planned = ", ".join(str(blocks * number) for number in range(1, LOOKS + 1))
    return (
        f"Look {look} of {LOOKS} (set after {planned} blocks): more blocks were measured after the run had been judged."
        f" Its intervals hold at {100 * look_confidence(look):g} %, those of the first look at 95 %: over all looks"
        f" about {100 * MISSES:g} % of experiments have an interval that misses."
    )
