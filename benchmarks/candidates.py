"""How right the answer of several candidates is: experiments in virtual time on worlds whose truth is known.

python -m benchmarks.candidates [--seeds N] [--first N] [--blocks N] [--world NAME]

Four candidates are held against one baseline. Every candidate is the baseline made faster by a known share, so that its
speed-up by any latency is that share at every load, without replication. Printed are the shares of experiments in which

- the intervals of all candidates hold together at a load (family-wise coverage, by metric and load: the least and the
  mean), and those of a single one (which must be more),
- some candidate is said to pay although its true gain is not above min_gain (`false claims`; without guards, which can
  only take claims away),
- one of two candidates is said to be better although it is not, at some load (`false order`),
- the candidate that is truly the best is named at some load (`best named`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from loadtest.analyse.breakeven import Translation
from loadtest.analyse.compare import curves
from loadtest.analyse.decide import Evidence, level_states
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.looks import of_candidate
from loadtest.analyse.ranking import rank
from loadtest.analyse.summary import measure
from loadtest.analyse.table import derive
from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import run_virtual
from loadtest.experiment import override
from loadtest.settings import Experiment
from loadtest.simulate.models import ArmModel
from loadtest.simulate.worlds import faster, world
from loadtest.workload.templates import TemplateSource

SCENARIO = Path(__file__).parents[1] / "scenarios" / "chat.py"
LEVELS, WINDOW_S = (4.0, 8.0), 0.5
METRICS = ("e2e", "tpot", "ttft")
GAINS = {
    "alike": {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0},  # the same server five times
    "edge": {"a": 0.0, "b": 0.01, "c": 0.03, "d": 0.03},  # none beyond min_gain, two exactly there
    "apart": {"a": 0.0, "b": 0.03, "c": 0.05, "d": 0.10},
}
MIN_GAIN = 0.03


def experiment_of(seed: int, blocks: int) -> Experiment:
    """Return the experiment with this seed."""
    experiment = prepare(Options(scenario=SCENARIO, world="flat-0"), {}).experiment
    experiment = override(experiment, "load", levels=LEVELS)
    experiment = override(experiment, "window", min_s=WINDOW_S, max_s=WINDOW_S)
    experiment = override(experiment, "generation", max_tokens=16)
    return override(experiment, "plan", seed=seed, blocks=blocks)


def arms_of(gains: Mapping[str, float]) -> dict[str, ArmModel]:
    """Return the baseline and the candidates that are faster than it by these shares."""
    calm = world("flat-0").baseline
    return {"baseline": calm, **{name: faster(calm, gain) for name, gain in gains.items()}}


def counted(gains: Mapping[str, float], seed: int, blocks: int, pool: ShapePool) -> Counter[str]:
    """Run one experiment and count what its intervals, its claims and its ranking say rightly and wrongly."""
    experiment = experiment_of(seed, blocks)
    made = run_virtual(experiment, arms_of(gains), pool)
    measured = measure(derive(made.requests(), made.cells, experiment.decision.reading_pace), made.cells)
    figures = {(c.arm, c.level, c.block): measured[c.cell].figures for c in made.cells}
    found: Counter[str] = Counter(runs=1)
    held: dict[tuple[str, float], list[bool]] = {}
    for name, gain in gains.items():
        by_metric = curves(figures, "baseline", name, confidence=of_candidate(made.header))
        for metric in METRICS:
            for level in LEVELS:
                ratio = by_metric[metric].ratio(level)
                held.setdefault((metric, level), []).append(_holds(ratio, 1 + gain))
        evidence = Evidence(
            levels=LEVELS, rules=experiment.decision, curves=by_metric, guards=(), rows={}, baseline="baseline",
            candidate=name, in_flight=Translation(by_level={}), running=Translation(by_level={}),
        )  # fmt: skip
        found["false claims"] |= gain <= MIN_GAIN and "pays" in level_states(evidence)
    for (metric, level), each in held.items():
        found[f"all {metric} {level:g}"] += all(each)
        found["each"] += sum(each)
        found["intervals"] += len(each)
    ranking = rank(figures, tuple(gains), LEVELS, experiment.decision.metric, among=len(gains))
    truths = {(one.first, one.second): (1 + gains[one.first]) / (1 + gains[one.second]) for one in ranking.against}
    wrong = [_wrong(one.speedup, truths[one.first, one.second]) for one in ranking.against]
    found["false order"] += any(wrong)
    found["all pairs"] += all(_holds(one.speedup, truths[one.first, one.second]) for one in ranking.against)
    best = [name for name, gain in gains.items() if gain == max(gains.values())]
    found["best named"] += len(best) == 1 and best[0] in ranking.best.values()
    return found


def _holds(interval: Estimate, truth: float) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= truth <= interval.high


def _wrong(interval: Estimate, truth: float) -> bool:
    """Return whether an interval says that one of two is better which is not."""
    if interval.low is None or interval.high is None:
        return False
    return (interval.low > 1 and truth <= 1) or (interval.high < 1 and truth >= 1)


def said(found: Counter[str]) -> str:
    """Return the shares in a line."""
    runs = found["runs"]
    every = [found[key] / runs for key in found if key.startswith("all ") and key != "all pairs"]
    shares = [f"{key} {found[key] / runs:.3f}" for key in ("all pairs", "false claims", "false order", "best named")]
    return (
        f"{runs} runs: all candidates at once {min(every):.3f} (least of {len(every)} rows),"
        f" {sum(every) / len(every):.3f} (mean); a single one {found['each'] / max(1, found['intervals']):.4f};"
        f" {', '.join(shares)}"
    )


def main() -> None:
    """Run what is asked for and print one line per world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--world", choices=tuple(GAINS), action="append")
    given = parser.parse_args()
    pool = ShapePool(TemplateSource("chat"))
    for name in given.world or GAINS:
        found: Counter[str] = Counter()
        for seed in range(given.first, given.first + given.seeds):
            found += counted(GAINS[name], seed, given.blocks, pool)
            if (seed - given.first) % 50 == 49:
                print(f"  {name}, {given.blocks} blocks so far: {said(found)}", flush=True)
        print(f"{name}, {given.blocks} blocks: {said(found)}", flush=True)


if __name__ == "__main__":
    main()
