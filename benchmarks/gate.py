"""How often the gate is wrong: objectives whose limit is the true value itself, judged in virtual time.

    python benchmarks/gate.py --world default --seeds 200

At the margin neither pass nor fail is right, so that both are errors; an interval of 95 % gives each in 2.5 % of runs.
The truth of a world is the same scenario and the same estimator at many blocks, on other seeds, never a closed form; it
errs too, and its own standard error stands in percent of it: a limit beside the true value counts as a wrong gate.
The capacity's interval must contain the load at which the true curve, on a finer ladder, passes the limit.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from loadtest.analyse.explain import scrapes_by_cell
from loadtest.analyse.gate_results import Gate, GateOutcome
from loadtest.analyse.gating import RUN, with_gate
from loadtest.analyse.judge import judge_data
from loadtest.analyse.table import derive
from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import VirtualRun, run_virtual
from loadtest.experiment import override
from loadtest.settings import Experiment
from loadtest.simulate.worlds import world
from loadtest.workload.templates import TemplateSource

SCENARIO = Path(__file__).parents[1] / "scenarios" / "chat.py"
POOL = ShapePool(TemplateSource("chat"))
TRUTH_SEED = 987_654_321
PARTS = 8  # of the truth, each with a seed of its own
HOURS = {"loads": (4.0, 16.0, 24.0, 40.0), "hours": (10.0, 8.0, 4.0, 2.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An objective without its limit, and how a limit is written so that it equals an observed truth."""

    name: str
    table: dict[str, Any]
    key: str
    write: Callable[[float], str]
    start: str  # a limit to begin with


def _ms(value: float) -> str:
    return f"{1000 * value:.12g} ms"


def _share(value: float) -> str:
    return f"{100 * value:.12g} %"


CASES = (
    Case(name="absolute, ttft p90", key="max", write=_ms, start="1 s",
         table={"metric": "ttft", "statistic": "p90", "at": "48 users"}),
    Case(name="absolute, tpot p50", key="max", write=_ms, start="1 s",
         table={"metric": "tpot", "statistic": "p50", "at": "32 users"}),
    Case(name="absolute, e2e p95", key="max", write=_ms, start="1 s",
         table={"metric": "e2e", "statistic": "p95", "at": "32 users"}),
    Case(name="absolute, e2e mean", key="max", write=_ms, start="1 s",
         table={"metric": "e2e", "statistic": "mean", "at": "32 users"}),
    Case(name="absolute, goodput", key="min", write=_share, start="50 %",
         table={"metric": "goodput", "at": "48 users", "within": {"ttft": "60 ms", "tpot": "16 ms"}}),
    Case(name="absolute, output tokens/s", key="min", write=lambda v: f"{v:.12g} tokens/s", start="1 tokens/s",
         table={"metric": "output_tokens_per_s", "at": "32 users"}),
    Case(name="acceptance floor", key="min", write=_share, start="50 %",
         table={"metric": "acceptance_ratio", "at": "32 users"}),
    Case(name="relative, e2e mean", key="not_worse_by", write=lambda v: _share(1 / v - 1), start="1 %",
         table={"metric": "e2e", "statistic": "mean", "at": "64 users"}),
    Case(name="relative, ttft p90", key="not_worse_by", write=lambda v: _share(1 / v - 1), start="1 %",
         table={"metric": "ttft", "statistic": "p90", "at": "64 users"}),
    Case(name="benefit, e2e mean", key="better_by", write=lambda v: _share(v - 1), start="1 %",
         table={"metric": "e2e", "statistic": "mean", "at": "4 users"}),
    Case(name="benefit, tpot p50", key="better_by", write=lambda v: _share(v - 1), start="1 %",
         table={"metric": "tpot", "statistic": "p50", "at": "4 users"}),
    Case(name="benefit over the traffic", key="better_by", write=lambda v: _share(v - 1), start="1 %",
         table={"metric": "e2e", "statistic": "mean", "at": "traffic"}),
)  # fmt: skip
STARTS = {"starts": 4}  # worlds in which a block is a start of the servers of its own, and how many there are
DRIFTING = ("drift",)  # worlds whose truth depends on how long a run lasts: as long as the runs that are judged
CAPACITY = {"metric": "tpot", "statistic": "p90"}
CAPACITY_AT = (36.0,)  # users: the capacity's limits are the true figures there


def demo(name: str, seed: int, rules: Sequence[dict[str, Any]], **plan: object) -> Experiment:
    """Return the demo's experiment in a world, with a seed, objectives and settings of the plan."""
    experiment = prepare(Options(scenario=SCENARIO, world=name), {}).experiment
    plan = {"blocks": STARTS[name]} | plan if name in STARTS else plan
    experiment = override(override(experiment, "plan", seed=seed), "plan", **plan)
    experiment = override(experiment, "traffic", unit="users", **HOURS)
    return override(experiment, "slo", rules=tuple(rules))


def measured(name: str, experiment: Experiment) -> VirtualRun:
    pair = world(name)
    arms = {"baseline": pair.baseline, "speculative": pair.speculative}
    return run_virtual(experiment, arms, POOL, restarts=name in STARTS)


def judged(name: str, experiment: Experiment) -> Gate:
    run = measured(name, experiment)
    gate = judge_data(run.header, run.cells, run.scrapes, run.requests()).gate
    assert gate is not None
    return gate


def observed(
    arguments: tuple[str, int, tuple[dict[str, Any], ...], int, tuple[float, ...]],
) -> list[dict[float | None, float]]:
    """Return each objective's observed value by level (None: over the traffic) at many blocks."""
    name, seed, rules, blocks, levels = arguments
    experiment = demo(name, seed, rules, blocks=blocks)
    if levels:
        experiment = override(experiment, "load", levels=levels)
    gate = judged(name, experiment)
    found = []
    for result in gate.objectives:
        rows = {at.level: at.observed.value for at in result.levels}
        if result.at is not None:
            rows[result.at.level] = result.at.observed.value
        found.append({level: value for level, value in rows.items() if value is not None})
    return found


def averaged(parts: Sequence[list[dict[float | None, float]]]) -> list[dict[float | None, float]]:
    """Return the mean of the parts for the levels that all of them have."""
    return [
        {level: statistics.fmean(part[i][level] for part in parts) for level in parts[0][i]
         if all(level in part[i] for part in parts)}
        for i in range(len(parts[0]))
    ]  # fmt: skip


def truth(name: str, pool: ProcessPoolExecutor, blocks: int) -> list[tuple[float, float]]:
    """Return each objective's true value and its standard error in CASES' order; NaN where a world has none."""
    rules = tuple(case.table | {case.key: case.start} for case in CASES)
    own = demo(name, 0, ()).plan.blocks
    each, number = (own, PARTS * blocks // own) if name in DRIFTING else (blocks, PARTS)
    parts = list(pool.map(observed, [(name, TRUTH_SEED + i, rules, each, ()) for i in range(number)]))
    values = []
    for i, case in enumerate(CASES):
        at = str(case.table["at"])
        level = None if at == "traffic" else float(at.split()[0])
        found = [part[i][level] for part in parts if level in part[i]]
        if len(found) < len(parts):
            values.append((math.nan, math.nan))
        else:
            values.append((statistics.fmean(found), statistics.stdev(found) / math.sqrt(len(found))))
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit that the candidate meets up to a known load, and where each arm's true curve passes it."""

    limit: str
    at: dict[str, float]


def capacity_truth(name: str, pool: ProcessPoolExecutor, blocks: int, loads: Sequence[float]) -> list[Bound]:
    """Return the arms' true capacities under the limits that the candidate reaches at `loads`, on a fine ladder.

    None where a longer ladder, and so a longer run, has another truth.
    """
    if name in DRIFTING:
        return []
    ladder = tuple(sorted({*(float(x) for x in range(12, 73, 6)), *loads}))
    rules = (CAPACITY | {"max": "1 s"}, CAPACITY | {"max": "1 s", "arm": "baseline"})
    parts = list(pool.map(observed, [(name, TRUTH_SEED + 100 + i, rules, blocks, ladder) for i in range(PARTS)]))
    curves = dict(zip(("speculative", "baseline"), averaged(parts), strict=True))
    found = []
    for load in loads:
        if load not in curves["speculative"]:  # the gate refuses this world's runs
            continue
        limit = curves["speculative"][load]
        at = {arm: passes(curve, limit) for arm, curve in curves.items()}
        found.append(Bound(limit=_ms(limit), at={arm: where for arm, where in at.items() if where is not None}))
    return found


def passes(curve: dict[float | None, float], limit: float) -> float | None:
    """Return where a curve first goes beyond a limit; None where it does not within its loads."""
    rows = sorted((level, value) for level, value in curve.items() if level is not None)
    for (a, x), (b, y) in pairwise(rows):
        if x <= limit < y:
            return a + (b - a) * (limit - x) / (y - x)
    return None


Ends = dict[str, tuple[float | None, float | None]]  # of each arm's capacity


def one(
    arguments: tuple[str, int, tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]],
) -> tuple[list[str], list[Ends]]:
    """Return the outcomes of the objectives, and each arm's capacity under other ones, of the same run."""
    name, seed, rules, bounds = arguments
    run = measured(name, demo(name, seed, rules))
    requests = run.requests()
    judgement = judge_data(run.header, run.cells, run.scrapes, requests)
    assert judgement.gate is not None
    valid = {cell.cell for cell in judgement.cells if cell.valid}
    data = (derive(requests, run.cells), [c for c in run.cells if c.cell in valid], scrapes_by_cell(run.scrapes))
    ends = []
    for bound in bounds:  # the gate alone is asked again: all else of the judgement is the same
        gate = with_gate(judgement, run.header, demo(name, seed, (bound,)), *data, RUN).gate
        assert gate is not None
        ends.append({c.arm: (c.at.low, c.at.high) for c in gate.capacities})
    return [r.outcome.value for r in judgement.gate.objectives], ends


def inside(ends: tuple[float | None, float | None], at: float) -> bool:
    low, high = ends
    return (low is None or low <= at) and (high is None or at <= high)


def has_margin(case: Case, limit: str) -> bool:
    """Return whether values lie on both sides of a limit: not of one below 0, of a share of 100 %, or of none (NaN)."""
    number, unit = limit.split(maxsplit=1)
    return float(number) > 0 and not (case.key == "min" and unit == "%" and float(number) >= 100)


def report(
    names: Sequence[str], limits: Sequence[str], errors: Sequence[float], outcomes: Sequence[list[str]]
) -> float:
    """Print each objective's outcomes, with its limit's own error as a share of it; return the worst wrong share."""
    worst = 0.0
    print(f"{'objective':28s} {'limit':>22s}      ±  false pass  false fail  inconclusive  no data")
    for i, name in enumerate(names):
        counts = Counter(row[i] for row in outcomes)
        shares = [
            counts[o.value] / len(outcomes)
            for o in (GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.INCONCLUSIVE, GateOutcome.NO_DATA)
        ]
        worst = max(worst, *shares[:2])
        print(f"{name:28s} {limits[i]:>22s} {errors[i]:6.2%}  {shares[0]:10.1%}  {shares[1]:10.1%}  {shares[2]:12.1%}"
              f"  {shares[3]:7.1%}")  # fmt: skip
    return worst


def report_capacities(bounds: Sequence[Bound], rows: Sequence[list[Ends]]) -> None:
    for i, bound in enumerate(bounds):
        for arm, at in bound.at.items():
            ends = [row[i][arm] for row in rows]
            share = sum(inside(pair, at) for pair in ends) / len(ends)
            widths = [high / low for low, high in ends if low and high]
            width = statistics.median(widths) if widths else math.nan
            print(f"capacity of {arm} at most {bound.limit}: {share:.1%} of the intervals contain {at:.1f} users;"
                  f" median upper ÷ lower {width:.2f}, {len(widths)} of {len(ends)} bounded on both sides")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", default="default")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--truth-blocks", type=int, default=80, help="blocks of each of the truth's parts")
    parser.add_argument("--blocks", type=int, default=40, help="the same of the capacity's truth, on a finer ladder")
    parser.add_argument("--capacity-at", type=float, nargs="+", default=CAPACITY_AT, metavar="USERS",
                        help="loads at which the candidate reaches the limits that bound a capacity")  # fmt: skip
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--at-most", type=float, default=1.0, help="fail when a share of wrong outcomes is above this")
    given = parser.parse_args()
    began = time.perf_counter()
    with ProcessPoolExecutor(given.processes, initializer=gc.freeze) as pool:  # a tenth less time a seed
        found = truth(given.world, pool, given.truth_blocks)
        values = [value for value, _ in found]
        capacities = capacity_truth(given.world, pool, given.blocks, given.capacity_at)
        print(f"truth in {time.perf_counter() - began:.0f} s; capacities under {CAPACITY}")
        if refused := all(math.isnan(value) for value in values):
            print(
                "the gate refuses this world's runs: with limits that are easy to meet, still nothing may pass or fail"
            )
        limits = [case.start if refused else case.write(v) for case, v in zip(CASES, values, strict=True)]
        usable = [i for i, written in enumerate(limits) if has_margin(CASES[i], written)]
        rules = tuple(CASES[i].table | {CASES[i].key: limits[i]} for i in usable)
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        bounds = tuple(CAPACITY | {"max": bound.limit} for bound in capacities)
        rows = list(pool.map(one, [(given.world, seed, rules, bounds) for seed in seeds], chunksize=2))
    errors = [found[i][1] / found[i][0] for i in usable]
    worst = report([CASES[i].name for i in usable], [limits[i] for i in usable], errors, [row for row, _ in rows])
    report_capacities(capacities, [ends for _, ends in rows])
    print(f"{given.seeds} experiments in {time.perf_counter() - began:.0f} s")
    if worst > given.at_most:
        sys.exit(f"{worst:.1%} of an objective's outcomes are wrong; at most {given.at_most:.1%} may be")


if __name__ == "__main__":
    main()
