"""Where speculation stops paying, scenario by scenario, on one simulated pair: traffic decides the answer.

python benchmarks/by_scenario.py [--world default] [--blocks 24] [SCENARIO …]

Virtual time; each scenario with its own dialogues and its own [demo] settings. With many blocks the interval is narrow:
what is printed is nearly the truth of the model, and no one's hardware. `mix` draws from the dialogues of its classes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Judgement
from loadtest.drive.loading import load_user_class
from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import run_virtual
from loadtest.experiment import override
from loadtest.simulate.worlds import world

SCENARIOS = Path(__file__).parents[1] / "scenarios"
NAMES = ("chat", "code", "edit", "summarize", "rag", "reasoning", "agent", "mix")


def judged(name: str, world_name: str, blocks: int) -> tuple[Judgement, float, float]:
    """Return the judgement of one scenario, and its mean prompt and answer in tokens."""
    pair = world(world_name)
    path = SCENARIOS / f"{name}.py"
    experiment = override(prepare(Options(scenario=path, world=world_name), {}).experiment, "plan", blocks=blocks)
    pool = ShapePool(load_user_class(path, experiment.load).source)
    made = run_virtual(experiment, {"baseline": pair.baseline, "speculative": pair.speculative}, pool)
    rows = made.requests()
    lengths = [float(np.mean(rows.column(column).to_numpy())) for column in ("prompt_tokens", "output_tokens")]
    return judge_data(made.header, made.cells, made.scrapes, rows), lengths[0], lengths[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", default=NAMES)
    parser.add_argument("--world", default="default")
    parser.add_argument("--blocks", type=int, default=24)
    given = parser.parse_args()
    print(f"{'scenario':10} prompt answer     τ accepted step × at top  answer")
    for name in given.scenario:
        found, prompt, answer = judged(name, given.world, given.blocks)
        why = found.why
        tau = np.mean([w.tau_all for w in why if w.tau_all])
        ratio = np.mean([w.acceptance_ratio for w in why if w.acceptance_ratio])
        print(f"{name:10} {prompt:6.0f} {answer:6.0f} {tau:5.2f} {ratio:8.2f} {why[-1].step_ratio or np.nan:13.2f}  "
              f"{found.decision.headline} {found.decision.second}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
