"""What a plan will cost and which claims it can reach, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.drive.asking import PAIRS, short_cells
from loadtest.drive.balance import orders
from loadtest.drive.budget import SINGLE, START_UP_S, level_s, plan_s, words
from loadtest.drive.outputs import wanted_in_run
from loadtest.drive.plan import Cell, cell_duration_s
from loadtest.drive.prepare import REQUEST_S, SIMULATED_REQUEST_S, Prepared, terms_of
from loadtest.drive.slo_check import BOUND_NEEDS, needs, objective_words
from loadtest.drive.stages import RESERVED_LEVELS
from loadtest.drive.timetable import Habits, timetable
from loadtest.loads import unit_of
from loadtest.settings import Experiment
from loadtest.workload.arrivals import TRACE

NO_INTERVAL = "One block gives no interval: speed-ups are shown and nothing can be claimed."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def forecast(experiment: Experiment, cells: Sequence[Cell], request_s: float, starts: int = 0,
             habits: Habits | None = None) -> list[str]:  # fmt: skip
    """Return sentences on time, requests and claims, for requests that take about `request_s` without load.

    `starts` is how many servers are started on the way, in all; `habits` what the sessions of an open load are like.
    """
    window, blocks, levels = experiment.window, experiment.plan.blocks, experiment.load.levels
    shortest, longest = cell_duration_s(window, request_s)
    starting_s = starts * START_UP_S
    span = words(shortest * len(cells) + starting_s)
    if experiment.load.kind == "open":  # its windows are known beforehand
        span = words(sum(level_s(experiment, cell.level, request_s, habits) for cell in cells) + starting_s)
    elif window.max_s > window.min_s:
        span += f" to {words(longest * len(cells) + starting_s)}"
    arms = len({cell.arm for cell in cells})
    ladder = f"{', '.join(f'{level:g}' for level in levels)} {unit_of(experiment.load)}"
    shape = f"{_count(arms, 'arm')} × {_count(len(levels), 'level')} ({ladder}) × {_count(blocks, 'block')}"
    sentences = [
        f"{_count(len(cells), 'cell')}: {shape}.",
        f"Time: {span}, if a request takes about {request_s:g} s{_starting(starts)}.",
    ]
    sentences += _arrival_words(experiment, request_s, habits)
    pooled = window.min_requests * blocks
    reached = [name for name in BOUND_NEEDS if pooled >= needs(name, blocks)]
    if window.max_s > window.min_s:
        sentences.append(f"Requests: at least {pooled} per arm and level, unless the longest window cuts them:"
                         f" percentiles with a bound up to {reached[-1] if reached else 'none'}.")  # fmt: skip
    if blocks == 1:
        sentences.append(NO_INTERVAL)
    elif arms == 1:
        sentences.append(f"Intervals: {blocks} blocks per level.")
    else:
        freedom = _freedom(blocks, len(levels), restarted=starts > arms)
        sentences.append(f"Intervals: {blocks} paired ratios per level, {freedom} degrees of freedom over all levels.")
    if arms > 2:
        sentences.append(_several_words(arms - 1))
    return sentences


def _several_words(candidates: int) -> str:
    """Say what is compared where there are several candidates, and what that costs."""
    each = 100 * (1 - 0.05 / candidates)
    balanced = len(orders(candidates + 1))
    return (
        f"{candidates} candidates share the baseline's cells. Their intervals hold together with 95 % (Bonferroni: each"
        f" with {each:.4g} %). The order of the arms is balanced over {balanced} blocks: each stands at each place, and"
        " follows each other one, equally often."
    )


def _arrival_words(experiment: Experiment, request_s: float, habits: Habits | None) -> list[str]:
    """Say how sessions of an open load arrive, and how many requests that comes to."""
    load = experiment.load
    if load.kind == "closed":
        of_open = [f"load.{name} ({value})" for name, value, default in
                   (("shape", load.shape, "steady"), ("per", load.per, "requests")) if value != default]  # fmt: skip
        unused = f"{' and '.join(of_open)} say how an open load arrives, and are not used: this load is closed."
        return [unused] if of_open else []
    windows_s = [timetable(experiment, level, habits or SINGLE, request_s).window_s for level in load.levels]
    due = [f"{level * window_s:.0f}" for level, window_s in zip(load.levels, windows_s, strict=True)]
    told = load.arrivals in ("gamma", "weibull") or (load.arrivals == TRACE and habits is not None)
    cv = f" with a coefficient of variation of {habits.gap_cv if habits else load.cv:.3g}" if told else ""
    shape = "" if load.shape == "steady" else f", in a {load.shape} of {load.factor:g} times"
    ladder = ", ".join(f"{level:g}" for level in load.levels)
    sentence = (
        f"Arrivals: {load.arrivals}{cv}{shape}, at times that are set beforehand and the same for all servers."
        f" Expected in a window at {ladder} {unit_of(load)}: about {', '.join(due)} {load.per}."
    )
    return [sentence]


def _freedom(blocks: int, levels: int, *, restarted: bool) -> int:
    """Return the degrees of freedom of the intervals: the levels of one start share its luck and add none."""
    return (blocks - 1) * (1 if restarted else levels)


def _starting(starts: int) -> str:
    return f" and each of {_count(starts, 'start')} about {START_UP_S:g} s" if starts else ""


def announcement(prepared: Prepared, cells: Sequence[Cell]) -> list[str]:
    """Return what is printed before a run: where the servers came from, then the forecast."""
    request_s = SIMULATED_REQUEST_S if prepared.world else REQUEST_S
    choice = prepared.choice
    starts = len(choice.starts) * (prepared.experiment.plan.blocks if choice.restarts else 1)
    if prepared.course.staged:
        sentences = _stages(prepared, cells, request_s)
    else:
        sentences = forecast(prepared.experiment, cells, request_s, starts, terms_of(prepared).habits)
    if choice.restarts:
        order = _order(cells)
        sentences.insert(1, f"One server at a time: {_count(len(order), 'start')}, {' '.join(order)}.")
    sentences += objective_words(prepared.experiment)
    before = [*_answer_words(prepared, request_s), *_price_words(prepared, cells, request_s)]
    return [prepared.found, *sentences, *before, *_budget_words(prepared)]


def _stages(prepared: Prepared, cells: Sequence[Cell], request_s: float) -> list[str]:
    """Announce a coarse ladder and the blocks at the levels that it chooses."""
    experiment, blocks, terms = prepared.experiment, prepared.experiment.plan.blocks, terms_of(prepared)
    ladder = experiment.load.levels
    each = "one pair of starts" if prepared.choice.restarts else _count(prepared.course.coarse_blocks, "block")
    climbs = f"{each} at {', '.join(f'{x:g}' for x in ladder)} {unit_of(experiment.load)}"
    ends = "it is settled against speculation, tokens per second stop growing, or errors or preemption begin"
    if experiment.load.kind == "open":
        ends += ", or more requests arrive than are completed"
    sentences = [
        f"First stage: at most {_count(len(cells), 'cell')}, {climbs}; it chooses the levels and is not judged.",
        f"It ends early once {ends}.",
        *_arrival_words(experiment, request_s, terms.habits),
        f"Second stage: {_count(blocks, 'block')} at 2 to 5 levels: the lowest, and around where it stops paying.",
        f"Time: about {words(plan_s(experiment, terms))}, if a request takes about {request_s:g} s.",
    ]
    if blocks == 1:
        return [*sentences, NO_INTERVAL]
    freedom = _freedom(blocks, RESERVED_LEVELS, restarted=prepared.choice.restarts)
    pairs = f"{blocks} paired ratios per level, about {freedom} degrees of freedom"
    return [*sentences, f"In reach: up to what load it pays, and its break-even, each with an interval ({pairs})."]


def _budget_words(prepared: Prepared) -> list[str]:
    if prepared.budget_s is None:
        return []
    budget = f"Budget: {words(prepared.budget_s)}, start-up, checks and waiting included."
    begun = "A block is begun only if it will end in time; what has ended by then is judged."
    return [f"{budget} {prepared.fitted} {begun}"]


def _answer_words(prepared: Prepared, request_s: float) -> list[str]:
    """Announce the prompts by which answers are compared; whether a server is simulated is not known yet."""
    count = wanted_in_run(prepared, {})
    if not count:
        return []
    times = 3 if prepared.experiment.generation.temperature == 0 else 4
    sentence = (
        f"Before them {_count(count, 'prompt')} go to both servers one by one, to the baseline twice, to compare"
        f" answers: about {words(times * count * request_s)} (simulated servers: none; --set outputs.prompts=0: none)."
    )
    return [sentence]


def _price_words(prepared: Prepared, cells: Sequence[Cell], request_s: float) -> list[str]:
    """Announce the cells that take the price of asking for token counts, where they may be run."""
    setting = prepared.experiment.servers.token_counts
    if setting in ("all", "sample") or (setting == "auto" and prepared.world):
        return []
    level = max(cell.level for cell in cells)
    _, longest = cell_duration_s(short_cells(prepared.experiment, level).window, request_s)
    sentence = (
        f"Before them {2 * PAIRS} short cells at {level:g} {unit_of(prepared.experiment.load)} take what asking for"
        f" token counts costs: at most {words(2 * PAIRS * longest)} (simulated servers: none;"
        " --set servers.token_counts=all: none)."
    )
    return [sentence]


def _order(cells: Sequence[Cell]) -> list[str]:
    """Return the arms in the order of their starts."""
    order: list[Cell] = []
    for cell in cells:
        if not order or (order[-1].arm, order[-1].block) != (cell.arm, cell.block):
            order.append(cell)
    return [cell.arm for cell in order]
