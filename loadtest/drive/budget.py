"""A budget of time: which plan fits into it, what is left out in which order, and the least that works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.checks import positive_s, shown
from loadtest.drive.asking import PAIRS, short_cells
from loadtest.drive.plan import BETWEEN_CELLS_S, HOLD_AND_DRAIN, cell_duration_s, coarse
from loadtest.drive.stages import RESERVED_LEVELS
from loadtest.drive.timetable import Habits, timetable
from loadtest.errors import UsageError
from loadtest.experiment import override
from loadtest.loads import unit_of
from loadtest.settings import Experiment

START_UP_S = 60.0  # how long a start of a real server is taken to last, its stop and first requests included
CHECKS_S = 15.0  # introducing the servers, their first requests, calibrating the client, completing the records
FEW_BLOCKS = 3  # blocks are left out down to here before levels are
LEAST_COARSE = 4  # levels of a coarse ladder
SINGLE = Habits(turns=1.0, most_turns=1.0, pauses_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a plan's duration depends on besides the experiment; times in seconds."""

    arms: int
    request_s: float  # how long a request is taken to last
    restarts: bool = False  # a block is one start of each arm
    starts: int = 0  # servers that the run starts once, before everything
    priced: bool = False  # what asking for token counts costs is measured first
    habits: Habits | None = None  # of the sessions of an open load, where they are known


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A plan that fits, how long it takes at least, and what was left out for it."""

    experiment: Experiment
    seconds: float
    said: str


def parse_budget(word: str) -> float:
    """Return the seconds of a word such as "20m" or "+20m". Raises UsageError."""
    try:
        return positive_s(word.strip().removeprefix("+"))
    except ValueError as allowed:
        raise UsageError(f"--budget is {shown(word)}; it must be {allowed}.") from None


def level_s(experiment: Experiment, level: float, request_s: float, habits: Habits | None = None) -> float:
    """Return how long a cell takes at a level.

    Users bring a request after the other, and a window closes once enough were due in it. That of an open load opens
    and closes at times that follow from its sessions' `habits` (None: one request each).
    """
    window = experiment.window
    if experiment.load.kind == "open":
        times = timetable(experiment, level, habits or SINGLE, request_s)
        return BETWEEN_CELLS_S + times.closes_s + HOLD_AND_DRAIN * request_s
    around_s = cell_duration_s(window, request_s)[0] - window.min_s
    return around_s + min(window.max_s, max(window.min_s, window.min_requests * request_s / level))


def plan_s(experiment: Experiment, terms: Terms) -> float:
    """Return how long a plan takes, everything around its cells included."""
    ladder, request_s, habits = experiment.load.levels, terms.request_s, terms.habits
    starts_s = terms.arms * START_UP_S if terms.restarts else 0.0
    block_s = terms.arms * sum(level_s(experiment, level, request_s, habits) for level in ladder) + starts_s
    total_s = fixed_s(experiment, terms)
    if experiment.plan.stages != "two":
        return total_s + experiment.plan.blocks * block_s
    dearest_s = max(level_s(experiment, level, request_s, habits) for level in ladder)
    judged_s = terms.arms * min(RESERVED_LEVELS, len(ladder)) * dearest_s + starts_s
    short = coarse(experiment)
    coarse_s = terms.arms * sum(level_s(short, level, request_s, habits) for level in ladder) + starts_s
    times = 1 if terms.restarts else experiment.plan.coarse_blocks
    return total_s + times * coarse_s + experiment.plan.blocks * judged_s


def fixed_s(experiment: Experiment, terms: Terms) -> float:
    """Return how long a run takes besides its cells and the starts of its blocks."""
    price_s = 0.0
    if terms.priced:
        short = short_cells(experiment, experiment.load.levels[-1]).window
        price_s = 2 * PAIRS * cell_duration_s(short, terms.request_s)[1]
    return CHECKS_S + terms.starts * START_UP_S + price_s


def fit(experiment: Experiment, budget_s: float, terms: Terms) -> Fitted:
    """Return the first plan in the stated order that fits. Raises UsageError with the least that works."""
    asked, last = experiment, experiment
    for plan in _candidates(experiment, terms.arms):
        last = plan
        seconds = plan_s(plan, terms)
        if seconds <= budget_s:
            return Fitted(experiment=plan, seconds=seconds, said=_left_out(asked, plan))
    least_s = plan_s(last, terms)
    raise UsageError(
        f"--budget {budget_s:g}s is too short: one block at {_levels(last)} takes about {words(least_s, up=True)},"
        " checks included. Give that much, or shorten the window (--window 30s)."
    )


def _candidates(experiment: Experiment, arms: int) -> Iterator[Experiment]:
    """Yield plans from the one asked for to the least: blocks go first, then levels, then blocks again."""
    ladder = experiment.load.levels
    for blocks in range(experiment.plan.blocks, FEW_BLOCKS - 1, -1):
        yield override(experiment, "plan", blocks=blocks)
    few = override(experiment, "plan", blocks=min(FEW_BLOCKS, experiment.plan.blocks))
    if experiment.plan.stages == "two":
        while len(ladder) > LEAST_COARSE:
            ladder = thinned(ladder)
            yield override(few, "load", levels=ladder)
        few = override(few, "load", levels=ladder)
        if few.plan.blocks > 2:
            yield override(few, "plan", blocks=2)
        few, ladder = override(few, "plan", stages="one"), experiment.load.levels
        for levels in ((ladder[0], ladder[len(ladder) // 2], ladder[-1]), (ladder[0], ladder[-1])):
            yield from _fewer_blocks(override(few, "load", levels=tuple(sorted(set(levels)))), 2)
    else:
        while len(ladder) > 2:
            ladder = thinned(ladder)
            yield override(few, "load", levels=ladder)
    few = override(few, "load", levels=tuple(sorted({experiment.load.levels[0], experiment.load.levels[-1]})))
    yield from _fewer_blocks(few, 1)


def _fewer_blocks(experiment: Experiment, least: int) -> Iterator[Experiment]:
    for blocks in range(experiment.plan.blocks, least - 1, -1):
        yield override(experiment, "plan", blocks=blocks)


def thinned(ladder: tuple[float, ...]) -> tuple[float, ...]:
    """Return every second level of a ladder of more than two, the lowest and the highest among them."""
    kept = ladder[:-1:2]
    return (*(kept[:-1] if len(ladder) % 2 == 0 and len(kept) > 1 else kept), ladder[-1])


def _levels(experiment: Experiment) -> str:
    return " and ".join(f"{level:g}" for level in experiment.load.levels) + f" {unit_of(experiment.load)}"


def _left_out(asked: Experiment, plan: Experiment) -> str:
    """Say what was left out of a plan, in the order in which it went."""
    parts = []
    if plan.plan.blocks < asked.plan.blocks:
        parts.append(f"{plan.plan.blocks} block{'s' if plan.plan.blocks > 1 else ''} instead of {asked.plan.blocks}")
    if plan.load.levels != asked.load.levels:
        kept = f"{', '.join(f'{x:g}' for x in plan.load.levels)} {unit_of(plan.load)}"
        parts.append(f"{len(plan.load.levels)} levels ({kept}) instead of {len(asked.load.levels)}")
    if plan.plan.stages != asked.plan.stages:
        parts.append("no first stage that chooses the levels")
    if not parts:
        return "Nothing is left out."
    return f"To fit: {'; '.join(parts)}. Blocks go first, then levels, then the first stage, then blocks again."


def words(seconds: float, *, up: bool = False) -> str:
    """Return a duration in words, such as "3 min" or "2 h 40 min"; `up` rounds to what is surely enough."""
    if seconds < 90:
        return f"{-(-seconds // 1) if up else seconds:.0f} s"
    minutes = int(-(-seconds // 60)) if up else round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
