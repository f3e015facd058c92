"""How right the answer of several candidates is: experiments in virtual time on worlds whose truth is known.

python -m benchmarks.candidates [--seeds N] [--first N] [--blocks N] [--world NAME]

Four candidates are held against one baseline. Every candidate is the baseline made faster by a known share, so that its
speed-up by any latency is that share at every load, without replication. Printed are the shares of experiments in which

- the intervals of all candidates hold together at a load (family-wise coverage, by metric and load: the least and the
  mean), and those of a single one (which must be more),
- some candidate is said to pay although its true gain is not above min_gain (`false claims`),
- one of two candidates is said to be better although it is not, at some load (`false order`),
- the candidate that is truly the best is named at some load (`best named`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Answer, Judgement
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
LEVELS, WINDOW_S = (4.0, 16.0), 1.5
METRICS = ("e2e", "tpot", "ttft")
GAINS = {
    "alike": {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0},  # the same server five times
    "edge": {"a": 0.0, "b": 0.01, "c": 0.03, "d": 0.03},  # none beyond min_gain, two exactly there
    "apart": {"a": 0.0, "b": 0.03, "c": 0.05, "d": 0.10},
}
PAYS = (Answer.PAYS_UP_TO, Answer.PAYS_EVERYWHERE, Answer.PAYS_IN_BAND)
MIN_GAIN = 0.03


def experiment_of(seed: int, blocks: int) -> Experiment:
    """Return the experiment with this seed."""
    experiment = prepare(Options(scenario=SCENARIO, world="flat-0"), {}).experiment
    experiment = override(experiment, "load", levels=LEVELS)
    experiment = override(experiment, "window", min_s=WINDOW_S, max_s=WINDOW_S)
    return override(experiment, "plan", seed=seed, blocks=blocks)


def arms_of(gains: dict[str, float]) -> dict[str, ArmModel]:
    """Return the baseline and the candidates that are faster than it by these shares."""
    calm = world("flat-0").baseline
    return {"baseline": calm, **{name: faster(calm, gain) for name, gain in gains.items()}}


def judged(gains: dict[str, float], seed: int, blocks: int, pool: ShapePool) -> Judgement:
    """Run one experiment and judge it."""
    made = run_virtual(experiment_of(seed, blocks), arms_of(gains), pool)
    return judge_data(made.header, made.cells, made.scrapes, made.requests())


def counted(judgement: Judgement, gains: dict[str, float]) -> Counter[str]:
    """Count what one judgement says rightly and wrongly."""
    found: Counter[str] = Counter(runs=1)
    rows: dict[tuple[str, float], list[bool]] = {}
    for pair in judgement.pairs:
        truth = 1 + gains[pair.arms[1]]
        for one in pair.speedups:
            if one.metric in METRICS and one.ratio.low is not None and one.ratio.high is not None:
                rows.setdefault((one.metric, one.level), []).append(one.ratio.low <= truth <= one.ratio.high)
    for (metric, level), held in rows.items():
        found[f"all {metric} {level:g}"] += len(held) == len(gains) and all(held)
        found["each"] += sum(held)
        found["intervals"] += len(held)
    claimed = [pair.arms[1] for pair in judgement.pairs if pair.decision.answer in PAYS]
    found["false claims"] += any(gains[name] <= MIN_GAIN for name in claimed)
    assert judgement.ranking is not None
    wrong = missed = False
    for one in judgement.ranking.against:
        low, high, truth = one.speedup.low, one.speedup.high, (1 + gains[one.first]) / (1 + gains[one.second])
        if low is not None and high is not None:
            wrong |= (low > 1 and truth <= 1) or (high < 1 and truth >= 1)
            missed |= not low <= truth <= high
    found["false order"] += wrong
    found["all pairs"] += not missed
    best = [name for name, gain in gains.items() if gain == max(gains.values())]
    found["best named"] += len(best) == 1 and best[0] in judgement.ranking.best.values()
    return found


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
            found += counted(judged(GAINS[name], seed, given.blocks, pool), GAINS[name])
            if (seed - given.first) % 50 == 49:
                print(f"  {name}, {given.blocks} blocks so far: {said(found)}", flush=True)
        print(f"{name}, {given.blocks} blocks: {said(found)}", flush=True)


if __name__ == "__main__":
    main()
