"""What a plan will cost and which claims it can reach, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.drive.plan import Cell, cell_duration_s
from loadtest.drive.prepare import Prepared
from loadtest.settings import Experiment

REQUEST_S, SIMULATED_REQUEST_S = 1.0, 0.5  # how long a request is taken to last before anything was sent
START_UP_S = 60.0  # how long a start of a real server is taken to last, its stop and first requests included

# Least requests for a two-sided 95 % upper bound of a percentile (binomial order statistics): below it none exists.
BOUND_NEEDS = {"p50": 6, "p90": 36, "p95": 72, "p99": 368}


def duration_words(seconds: float) -> str:
    """Return a duration in words, such as "3 min" or "2 h 40 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def forecast(experiment: Experiment, cells: Sequence[Cell], request_s: float, starts: int = 0) -> list[str]:
    """Return sentences on time, requests and claims, for requests that take about `request_s` without load.

    `starts` is how many servers are started on the way, in all.
    """
    window, blocks, levels = experiment.window, experiment.plan.blocks, experiment.load.levels
    shortest, longest = cell_duration_s(window, request_s)
    starting_s = starts * START_UP_S
    span = duration_words(shortest * len(cells) + starting_s)
    if window.max_s > window.min_s:
        span += f" to {duration_words(longest * len(cells) + starting_s)}"
    arms = len({cell.arm for cell in cells})
    ladder = ", ".join(f"{level:g}" for level in levels)
    shape = f"{_count(arms, 'arm')} × {_count(len(levels), 'level')} ({ladder} users) × {_count(blocks, 'block')}"
    sentences = [
        f"{_count(len(cells), 'cell')}: {shape}.",
        f"Time: {span}, if a request takes about {request_s:g} s{_starting(starts)}.",
    ]
    pooled = window.min_requests * blocks
    reached = [name for name, needs in BOUND_NEEDS.items() if pooled >= needs]
    if window.max_s > window.min_s:
        sentences.append(f"Requests: at least {pooled} per arm and level, unless the longest window cuts them:"
                         f" percentiles with a bound up to {reached[-1] if reached else 'none'}.")  # fmt: skip
    if blocks == 1:
        sentences.append("One block gives no interval: speed-ups are shown and nothing can be claimed.")
    elif arms == 1:
        sentences.append(f"Intervals: {blocks} blocks per level.")
    else:
        freedom = (blocks - 1) * len(levels)
        sentences.append(f"Intervals: {blocks} paired ratios per level, {freedom} degrees of freedom over all levels.")
    return sentences


def _starting(starts: int) -> str:
    return f" and each of {_count(starts, 'start')} about {START_UP_S:g} s" if starts else ""


def announcement(prepared: Prepared, cells: Sequence[Cell]) -> list[str]:
    """Return what is printed before a run: where the servers came from, then the forecast."""
    request_s = SIMULATED_REQUEST_S if prepared.world else REQUEST_S
    choice = prepared.choice
    starts = len(choice.starts) * (prepared.experiment.plan.blocks if choice.restarts else 1)
    sentences = forecast(prepared.experiment, cells, request_s, starts)
    if choice.restarts:
        order = _order(cells)
        sentences.insert(1, f"One server at a time: {_count(len(order), 'start')}, {' '.join(order)}.")
    return [prepared.found, *sentences]


def _order(cells: Sequence[Cell]) -> list[str]:
    """Return the arms in the order of their starts."""
    order: list[Cell] = []
    for cell in cells:
        if not order or (order[-1].arm, order[-1].block) != (cell.arm, cell.block):
            order.append(cell)
    return [cell.arm for cell in order]
