"""Count how often the judgement is right, on simulated worlds whose truth is known, in virtual time.

    python -m benchmarks.judgement --seeds 100 --core-seeds 100 --resume outcomes.jsonl

runs every case and prints, for each estimator: how many of its nominal 95 % intervals hold the truth, with the standard
error of that share; their median width (upper ÷ lower − 1); how often nothing was claimed, beside the ceiling stated in
cases.py; and the standard error of the truth ÷ half of the width. Then how often answers were wrong. Cases take turns,
so that what an interrupted run has printed is a smaller table; `--resume` goes on where it ended. With `--check` the
exit code is 1 when a coverage is too low, or an error too frequent, by more than three standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.judgement.cases import BY_NAME, CASES, Case
from benchmarks.judgement.runs import outcome
from benchmarks.judgement.table import answers, coverage_rows, lines, mean_line, rate_line, rates
from benchmarks.judgement.truth import Truth, code_hash, find

TURN = 5  # experiments of a case before the next one's
SAID_EVERY_S = 60.0
CODE = ("simulate", "workload", "drive", "analyse", "settings.py", "experiment.py")


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judgement", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--worlds", default=",".join(BY_NAME), help="cases, by commas: %(default)s")
    parser.add_argument("--seeds", type=int, default=500, help="experiments of each case (%(default)s)")
    parser.add_argument("--core-seeds", type=int, default=2000, help="of each core case (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--truth-blocks", type=int, default=240, help="blocks behind each truth (%(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="file for the table")
    parser.add_argument("--resume", type=Path, help="file to which outcomes are appended, and from which it goes on")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/loadtest/truth"), help="folder of truths")
    parser.add_argument("--check", action="store_true", help="exit with 1 when something is off by more than luck")
    given = parser.parse_args(words)
    unknown = [name for name in given.worlds.split(",") if name not in BY_NAME]
    if unknown:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    if given.first_seed + max(given.seeds, given.core_seeds) > 900_000_000:
        parser.error("seeds from 900000000 on are those of the truths")
    return given


def work(cases: Sequence[Case], seeds: int, core_seeds: int, first: int) -> Iterator[tuple[str, int]]:
    """Yield (case, seed) in turns, so that every case grows together."""
    most = max(seeds, core_seeds)
    for begin in range(0, most, TURN):
        for case in cases:
            count = core_seeds if case.core else seeds
            for number in range(begin, min(begin + TURN, count)):
                yield case.name, first + number


class Outcomes:
    """What experiments came to, kept in a file when one is named."""

    def __init__(self, file: Path | None) -> None:
        """Read what the file holds; outcomes of other code are refused."""
        self.found: dict[tuple[str, int], dict[str, Any]] = {}
        self._out = None
        if file is None:
            return
        code = code_hash(CODE)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a kill may cut the last line
        rows = [json.loads(line) for line in whole.splitlines()]
        if rows and rows[0] != {"code": code}:
            sys.exit(f"{file} holds outcomes of other code; move it away, or name another file")
        self.found = {(row["case"], row["seed"]): row for row in rows[1:]}
        if whole != text or not rows:
            file.write_text(whole if rows else json.dumps({"code": code}) + "\n", encoding="utf-8")
        self._out = file.open("a", encoding="utf-8")

    def close(self) -> None:
        if self._out is not None:
            self._out.close()

    def keep(self, row: dict[str, Any]) -> None:
        self.found[row["case"], row["seed"]] = row
        if self._out is not None:
            self._out.write(json.dumps(row) + "\n")
            self._out.flush()


def collect(pool: ProcessPoolExecutor, todo: Sequence[tuple[str, int]], outcomes: Outcomes) -> None:
    """Run what is missing; ends early at an interrupt, with what there is."""
    began_s = said_s = time.monotonic()
    try:
        for number, row in enumerate(pool.map(outcome, todo, chunksize=4), 1):
            outcomes.keep(row)
            now_s = time.monotonic()
            if now_s - said_s > SAID_EVERY_S:
                said_s = now_s
                left_min = (now_s - began_s) / number * (len(todo) - number) / 60
                print(
                    f"{number} of {len(todo)} experiments; about {left_min:.0f} min left", file=sys.stderr, flush=True
                )
    except KeyboardInterrupt:
        print("interrupted: the tables are of what there is", file=sys.stderr)
        pool.shutdown(wait=False, cancel_futures=True)


def report(cases: Sequence[Case], truths: dict[str, Truth], outcomes: Outcomes) -> tuple[dict[str, Any], bool]:
    """Print the tables; return them as data, and whether nothing is off by more than luck."""
    by_case: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for _, row in sorted(outcomes.found.items()):
        by_case[row["case"]].append(row)
    all_rows, all_rates = [], []
    for case in cases:
        own, truth = by_case[case.name], truths[case.name]
        if not own:
            continue
        least_gain = case.experiment(0).decision.min_gain
        rows, wrong = coverage_rows(case, own, truth, least_gain), rates(case, own, truth, least_gain)
        all_rows += rows
        all_rates += wrong
        print(f"\n{case.name}{' (core)' if case.core else ''}: {len(own)} experiments; {answers(own)}")
        print(_true(truth))
        print("\n".join([*lines(rows), *map(rate_line, wrong)]))
    print(f"\n{mean_line(all_rows, BY_NAME)}")
    off = [row for row in all_rows if not row.held] + [rate for rate in all_rates if not rate.held]
    print(f"{len(off)} of {len(all_rows) + len(all_rates)} rows do not hold" if off else "every row holds")
    data = {"code": code_hash(CODE), "rows": [asdict(row) for row in all_rows], "rates": [asdict(r) for r in all_rates]}
    return data, not any(one.broken for one in [*all_rows, *all_rates])


def _true(truth: Truth) -> str:
    curve = ", ".join(f"{level:g}: {math.exp(mean):.4f}" for level, (mean, _) in truth.ladder["e2e"].items())
    evens = [f"{metric} {at:.1f} ± {error:.1f}" for metric in truth.fine for at, error in truth.crossings(metric, 1.0)]
    return f"truth ({truth.blocks} blocks): e2e {curve}; break-evens: {', '.join(evens) or 'none'}"


def main() -> None:
    given = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cases = [case for case in CASES if case.name in given.worlds.split(",")]
    outcomes = Outcomes(given.resume)
    planned = work(cases, given.seeds, given.core_seeds, given.first_seed)
    with ProcessPoolExecutor(given.processes) as pool:
        truths = {case.name: find(case, pool, given.cache.expanduser(), given.truth_blocks) for case in cases}
        collect(pool, [one for one in planned if one not in outcomes.found], outcomes)
    outcomes.close()
    data, holds = report(cases, truths, outcomes)
    if given.json:
        given.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if given.check and not holds:
        sys.exit(1)


if __name__ == "__main__":
    main()
