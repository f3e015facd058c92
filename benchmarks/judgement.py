"""How often the judgement is right: experiments in virtual time, on worlds whose truth is found by high replication.

    python benchmarks/judgement.py --world default --seeds 200

prints, for the demo settings of scenarios/chat.toml: how many intervals of the break-even contain the true one, their
median width (upper ÷ lower), and how often each answer was given. The truth is the same scenario at many blocks on a
finer ladder, never a closed form.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Judgement
from loadtest.drive.prepare import Options, prepare
from loadtest.drive.virtual import ShapePool, run_virtual
from loadtest.experiment import override
from loadtest.settings import Experiment
from loadtest.simulate.worlds import world
from loadtest.workload.templates import TemplateSource

SCENARIO = Path(__file__).parents[1] / "scenarios" / "chat.py"
POOL = ShapePool(TemplateSource("chat"))
COARSE_BLOCKS, FINE_BLOCKS = 40, 400
TRUTH_SEED = 987_654_321


def demo(name: str, seed: int, **plan: object) -> Experiment:
    experiment = prepare(Options(scenario=SCENARIO, world=name), {}).experiment
    return override(override(experiment, "plan", seed=seed), "plan", **plan)


def judged(name: str, experiment: Experiment) -> Judgement:
    pair = world(name)
    run = run_virtual(experiment, {"baseline": pair.baseline, "speculative": pair.speculative}, POOL)
    return judge_data(run.header, run.cells, run.scrapes, run.requests())


def truth_curve(arguments: tuple[str, int, tuple[float, ...], int]) -> dict[float, list[float]]:
    """Return level → paired speed-ups of mean end-to-end time over many blocks."""
    name, seed, ladder, blocks = arguments
    judgement = judged(name, override(demo(name, seed, blocks=blocks), "load", levels=ladder))
    return {s.level: list(s.blocks) for s in judgement.speedups if s.metric == "e2e"}


def truth(name: str, pool: ProcessPoolExecutor) -> dict[float, float]:
    """Return level → true speed-up: a ladder over the demo's range, and where it crosses 1 a finer, longer one."""
    levels = demo(name, TRUTH_SEED).load.levels
    ladder = _ladder(levels[0], levels[-1], 9)
    curve = _mean(pool, name, ladder, COARSE_BLOCKS)
    at = crossing(curve)
    return curve if at is None else curve | _mean(pool, name, _ladder(at / 1.3, at * 1.3, 5), FINE_BLOCKS)


def _ladder(low: float, high: float, count: int) -> tuple[float, ...]:
    ratio = (high / low) ** (1 / (count - 1))
    return tuple(sorted({float(round(low * ratio**i)) for i in range(count)}))


def _mean(pool: ProcessPoolExecutor, name: str, ladder: tuple[float, ...], blocks: int) -> dict[float, float]:
    parts = list(pool.map(truth_curve, [(name, TRUTH_SEED + i, ladder, blocks // 4) for i in range(4)]))
    logs = {level: [math.log(ratio) for part in parts for ratio in part[level]] for level in ladder}
    return {level: math.exp(statistics.fmean(values)) for level, values in logs.items()}


def crossing(curve: dict[float, float], threshold: float = 1.0) -> float | None:
    """Return the load at which a falling curve passes the threshold, linear in log load; None when it does not."""
    rows = sorted(curve.items())
    for (a, x), (b, y) in pairwise(rows):
        if x >= threshold > y:
            share = math.log(x / threshold) / math.log(x / y)
            return math.exp(math.log(a) + share * math.log(b / a))
    return None


def one(arguments: tuple[str, int]) -> tuple[str, str, float | None, float | None]:
    name, seed = arguments
    judgement = judged(name, demo(name, seed))
    result = judgement.decision.break_even
    if result is None:
        return judgement.decision.answer.value, "none", None, None
    return judgement.decision.answer.value, result.form.value, result.at.low, result.at.high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", default="default")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--at-least", type=int, default=0, help="fail when fewer intervals contain the truth")
    given = parser.parse_args()
    began = time.perf_counter()
    with ProcessPoolExecutor(given.processes) as pool:
        curve = truth(given.world, pool)
    at = crossing(curve)
    print(f"truth of {given.world}: " + ", ".join(f"{level:g}: {ratio:.3f}" for level, ratio in sorted(curve.items())))
    print(f"true break-even: {f'{at:.1f} users' if at else 'none'} ({time.perf_counter() - began:.0f} s)")
    work = [(given.world, given.first_seed + i) for i in range(given.seeds)]
    with ProcessPoolExecutor(given.processes) as pool:
        rows = list(pool.map(one, work, chunksize=4))
    print("answers:", dict(Counter(row[0] for row in rows)))
    print("forms:  ", dict(Counter(row[1] for row in rows)))
    bounded = [(low, high) for _, _, low, high in rows if low and high]
    if at and bounded:
        inside = sum(low <= at <= high for low, high in bounded)
        share = inside / given.seeds
        error = math.sqrt(share * (1 - share) / given.seeds)
        width = statistics.median(high / low for low, high in bounded)
        print(f"contain the true break-even: {inside} of {given.seeds} ({share:.1%} ± {error:.1%})")
        print(f"median upper ÷ lower: {width:.3f}")
        if inside < given.at_least:
            sys.exit(f"{inside} intervals contain the truth; at least {given.at_least} must")
    print(f"{given.seeds} experiments in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
