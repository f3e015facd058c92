"""The plan: which cells, in which order; a pure function of the experiment, equal byte for byte for equal seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from loadtest.drive.balance import in_order, in_order_of_start
from loadtest.experiment import override
from loadtest.settings import Experiment, Window
from loadtest.workload.seeds import rng

COARSE_WINDOW = 0.5  # of a judged cell's window: where to measure needs less than what is found there
HOLD_AND_DRAIN = 2  # requests' time from the end of a window to that of its cell
BETWEEN_CELLS_S = 1.0  # idle wait, scrapes and start-up of a cell, as seen on loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm at one level in one block."""

    cell: int
    block: int
    level: float
    arm: str

    @property
    def users(self) -> int:
        """Users of a closed load."""
        return int(self.level)


def make_plan(experiment: Experiment, arms: Sequence[str]) -> list[Cell]:
    """Return the cells in running order.

    Within a block the levels come in a seeded order and the arms of a level follow each other; their order changes from
    block to block (of two arms it alternates) and is balanced over the levels of a block, so that drift cancels.
    """
    cells: list[Cell] = []
    for block in range(experiment.plan.blocks):
        cells += block_cells(experiment.load.levels, experiment.plan.seed, block, arms, len(cells))
    return cells


def block_cells(levels: Sequence[float], seed: int, block: int, arms: Sequence[str], number: int) -> list[Cell]:
    """Return the cells of one block of `make_plan`, the first of which has this number."""
    cells: list[Cell] = []
    first = {level: position for position, level in enumerate(_shuffled(levels, seed, "first"))}
    for level in _shuffled(levels, seed, block):
        for arm in in_order(arms, first[level] + block):
            cells.append(Cell(cell=number + len(cells), block=block, level=level, arm=arm))
    return cells


def make_start_plan(experiment: Experiment, arms: Sequence[str]) -> list[Cell]:
    """Return the cells in running order for arms of which only one can run at a time.

    A block is one start of each arm, one right after the other; each start walks the whole ladder, in an order that is
    the same for all arms of the block; the order of the arms is that of `in_order_of_start`.
    """
    cells: list[Cell] = []
    for block in range(experiment.plan.blocks):
        cells += start_cells(experiment.load.levels, experiment.plan.seed, block, arms, len(cells))
    return cells


def start_cells(levels: Sequence[float], seed: int, block: int, arms: Sequence[str], number: int) -> list[Cell]:
    """Return the cells of one block of `make_start_plan`, the first of which has this number."""
    cells: list[Cell] = []
    ladder = _shuffled(levels, seed, block)
    for arm in in_order_of_start(arms, block):
        cells += [
            Cell(cell=number + len(cells) + i, block=block, level=level, arm=arm) for i, level in enumerate(ladder)
        ]
    return cells


def _shuffled(levels: Sequence[float], seed: int, purpose: object) -> list[float]:
    shuffled = list(levels)
    rng("order", seed, purpose).shuffle(shuffled)
    return shuffled


def plan_lines(cells: Sequence[Cell]) -> str:
    """Return plan.jsonl."""
    return "".join(json.dumps(asdict(cell), separators=(",", ":")) + "\n" for cell in cells)


def cell_duration_s(window: Window, request_s: float) -> tuple[float, float]:
    """Return the shortest and longest time a cell may take when a request takes `request_s`."""
    around = BETWEEN_CELLS_S + request_s * (1 + window.warmup_requests + HOLD_AND_DRAIN)  # stagger, warm-up
    return window.min_s + around, window.max_s + around


def coarse(experiment: Experiment) -> Experiment:
    """Return the experiment with the windows of the first stage."""
    window = experiment.window
    return override(
        experiment, "window", min_s=COARSE_WINDOW * window.min_s, max_s=COARSE_WINDOW * window.max_s,
        min_requests=max(1, round(COARSE_WINDOW * window.min_requests)),
    )  # fmt: skip
