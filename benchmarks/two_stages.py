"""What two stages save: a coarse ladder and levels around the break-even, against a fixed ladder of seven levels.

    python -m benchmarks.two_stages --seeds 300

Both are experiments in virtual time with the demo windows of scenarios/chat.toml and one estimator. For every design
and number of blocks it prints how many of the experiments' intervals contain the true break-even, with its standard
error, their median width (log of upper ÷ lower) and the mean number of requests, the first stage's included; then the
share of the fixed ladder's requests at which two stages reach its width, interpolated between their numbers of blocks,
with a standard error by resampling the experiments.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.judgement.cases import BY_NAME, Case
from benchmarks.judgement.truth import find
from loadtest.analyse.judge import judge_data
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import run_virtual
from loadtest.experiment import override
from loadtest.simulate.worlds import world
from loadtest.workload.templates import TemplateSource

# Seven levels each: the break-even of the default world lies at a level of the first, between two of the second.
LADDERS = {"doubling": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), "shifted": (1.0, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0)}
FIXED_BLOCKS = 6
STAGED_BLOCKS = (3, 4, 5, 6)
LOST = math.log(64)  # width of an interval with a missing bound: the whole ladder
RESAMPLES = 300
TRUTH_BLOCKS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One experiment."""

    requests: int
    low: float | None
    high: float | None
    answer: str

    @property
    def width(self) -> float:
        """Log of upper ÷ lower bound."""
        return math.log(self.high / self.low) if self.low and self.high else LOST

    def contains(self, at: float) -> bool:
        """Whether the interval contains a load; a missing bound is open, an interval without any claims nothing."""
        return (self.low or 0.0) <= at <= (self.high or math.inf)


@lru_cache(maxsize=1)
def pool_of_shapes() -> ShapePool:
    return ShapePool(TemplateSource("chat"))


def one(arguments: tuple[str, int, tuple[float, ...], str, int]) -> Found:
    name, seed, ladder, stages, blocks = arguments
    experiment = BY_NAME[name].experiment(seed, stages=stages, blocks=blocks)
    pair = world(BY_NAME[name].world)
    run = run_virtual(override(experiment, "load", levels=ladder),
                      {"baseline": pair.baseline, "speculative": pair.speculative}, pool_of_shapes())  # fmt: skip
    table = run.requests()
    decision = judge_data(run.header, run.cells, run.scrapes, table).decision
    even = decision.break_even
    return Found(requests=table.num_rows, low=even.at.low if even else None, high=even.at.high if even else None,
                 answer=decision.answer.value)  # fmt: skip


def row(label: str, found: Sequence[Found], at: float) -> None:
    covered = statistics.fmean(one.contains(at) for one in found)
    error = math.sqrt(covered * (1 - covered) / len(found))
    whole = statistics.fmean(one.width < LOST for one in found)
    print(f"  {label:22s} {covered:6.1%} ± {error:.1%}   {median_width(found):6.3f}   {mean_requests(found):9,.0f}"
          f"   {whole:6.1%}   {statistics.fmean(one.answer == 'cannot_tell' for one in found):6.1%}")  # fmt: skip


def median_width(found: Sequence[Found]) -> float:
    return statistics.median(one.width for one in found)


def mean_requests(found: Sequence[Found]) -> float:
    return statistics.fmean(one.requests for one in found)


def needed_share(fixed: Sequence[Found], staged: Sequence[Sequence[Found]]) -> float:
    """Return the staged designs' requests at the fixed one's width ÷ its requests, log-linear between designs.

    NaN when no staged design is as wide or none as narrow, but for the cheapest being narrow enough by itself.
    """
    aim = median_width(fixed)
    points = sorted((median_width(found), mean_requests(found)) for found in staged)
    if aim >= points[-1][0]:
        return points[-1][1] / mean_requests(fixed)
    for (narrow, dear), (wide, cheap) in itertools.pairwise(points):
        if narrow <= aim <= wide:
            share = math.log(aim / narrow) / math.log(wide / narrow) if wide > narrow else 0.0
            return math.exp(math.log(dear) + share * math.log(cheap / dear)) / mean_requests(fixed)
    return math.nan


def with_error(fixed: Sequence[Found], staged: Sequence[Sequence[Found]]) -> tuple[float, float]:
    draw = random.Random(1)
    shares = []
    for _ in range(RESAMPLES):
        share = needed_share(draw.choices(fixed, k=len(fixed)), [draw.choices(s, k=len(s)) for s in staged])
        if not math.isnan(share):
            shares.append(share)
    return needed_share(fixed, staged), statistics.stdev(shares) if len(shares) > 1 else math.nan


def true_break_even(case: Case, pool: Executor, cache: Path) -> float:
    found = find(case, pool, cache, TRUTH_BLOCKS).crossings("e2e", 1.0)
    if len(found) != 1:
        sys.exit(f"the case {case.name} has {len(found)} break-evens; this table is made of cases with one")
    return found[0][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="crossing", choices=BY_NAME)
    parser.add_argument("--ladder", choices=LADDERS, action="append", help="may be given twice; default: both")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first-seed", type=int, default=40_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/loadtest/truth"), help="folder of truths")
    parser.add_argument("--true-at", type=float, help="the true break-even, where it is known: saves finding it")
    given = parser.parse_args()
    began = time.perf_counter()
    with ProcessPoolExecutor(given.processes) as pool:
        at = given.true_at or true_break_even(BY_NAME[given.case], pool, given.cache.expanduser())
        print(f"case {given.case}, true break-even {at:.1f} users, {given.seeds} experiments a row")
        for name in given.ladder or LADDERS:
            print(f"ladder {name} ({', '.join(f'{level:g}' for level in LADDERS[name])} users)")
            print("  design                 contains truth   width    requests   bounded   cannot tell")
            found = {}
            for stages, blocks in (("one", FIXED_BLOCKS), *(("two", blocks) for blocks in STAGED_BLOCKS)):
                work = [(given.case, given.first_seed + i, LADDERS[name], stages, blocks) for i in range(given.seeds)]
                found[stages, blocks] = list(pool.map(one, work, chunksize=4))
                row(f"{'fixed' if stages == 'one' else 'two stages'}, {blocks} blocks", found[stages, blocks], at)
            staged = [found["two", blocks] for blocks in STAGED_BLOCKS]
            share, error = with_error(found["one", FIXED_BLOCKS], staged)
            print(f"  requests for the fixed ladder's width: {share:.0%} ± {error:.0%} of its own")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
