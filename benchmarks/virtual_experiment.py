"""How fast a whole experiment runs in virtual time: plan, cells, both arms, records and their table.

python benchmarks/virtual_experiment.py
"""

from __future__ import annotations

import time
from pathlib import Path

from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import run_virtual
from loadtest.simulate.worlds import world
from loadtest.workload.templates import TemplateSource

SCENARIO = Path(__file__).parents[1] / "scenarios" / "chat.py"


def main() -> None:
    pool = ShapePool(TemplateSource("chat"))
    for name in ("default", "eagle3"):
        pair = world(name)
        experiment = prepare(Options(scenario=SCENARIO, world=name), {}).experiment
        rates = []
        for _ in range(5):
            began = time.perf_counter()
            run = run_virtual(experiment, {"baseline": pair.baseline, "speculative": pair.speculative}, pool)
            rows = run.requests().num_rows
            rates.append(rows / (time.perf_counter() - began))
        print(f"{name}: {rows:,} requests; {sorted(rates)[2]:,.0f} requests/s (median of 5; {min(rates):,.0f} lowest)")


if __name__ == "__main__":
    main()
