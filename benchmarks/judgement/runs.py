"""One experiment in virtual time, judged, and cut down to what the tables count."""

from __future__ import annotations

import gc
import math
from functools import lru_cache
from typing import Any

from benchmarks.judgement.cases import BY_NAME, METRICS, QUANTILES, Case
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.judge import judge_data
from loadtest.analyse.results import Answer, BreakEven, Judgement
from loadtest.drive.shapes import ShapePool
from loadtest.drive.virtual import VirtualRun, run_virtual
from loadtest.settings import Experiment
from loadtest.simulate.worlds import world
from loadtest.workload.templates import TemplateSource

PAYS = (Answer.PAYS_UP_TO, Answer.PAYS_EVERYWHERE, Answer.PAYS_IN_BAND)
TAILS = ("ttft", "e2e")
Bounds = list[float | None]  # low, value, high


@lru_cache(maxsize=1)
def _pool() -> ShapePool:
    gc.freeze()
    return ShapePool(TemplateSource("chat"))


def run(case: Case, experiment: Experiment) -> VirtualRun:
    """Run a case's experiment on its world."""
    pair = world(case.world)
    arms = {"baseline": pair.baseline, "speculative": pair.speculative}
    made = run_virtual(experiment, arms, _pool(), restarts=case.restarts)
    if case.aa:
        made.header["aa"] = True
    return made


def outcome(work: tuple[str, int]) -> dict[str, Any]:
    """Run and judge one experiment of a case; the result can be written as JSON."""
    name, seed = work
    case = BY_NAME[name]
    made = run(case, case.experiment(seed))
    judgement = judge_data(made.header, made.cells, made.scrapes, made.requests())
    return {"case": name, "seed": seed} | summary(judgement)


def summary(judgement: Judgement) -> dict[str, Any]:
    """Return what a judgement claims: its answer, the loads that pay, and every interval."""
    decision = judgement.decision
    paying = decision.limit.regions if decision.limit and decision.answer in PAYS else ()
    if decision.answer is Answer.PAYS_EVERYWHERE:
        paying = ((judgement.levels[0], judgement.levels[-1]),)
    speedups = [s for s in judgement.speedups if s.metric in METRICS]
    return {
        "answer": decision.answer.value,
        "pays": [level for level in judgement.levels if any(low <= level <= high for low, high in paying)],
        "limit": _even(decision.limit) if decision.limit and decision.answer is Answer.PAYS_UP_TO else None,
        "even": {even.metric: _even(even) for even in judgement.break_evens if even.metric in METRICS},
        "speedup": {m: {f"{s.level:g}": _bounds(s.ratio) for s in speedups if s.metric == m} for m in METRICS},
        "tail": {
            f"{metric} {name} {row.arm} {row.level:g}": _bounds(getattr(row.tails[metric], name))
            for row in judgement.arm_levels for metric in TAILS for name in QUANTILES
        },
    }  # fmt: skip


def _even(found: BreakEven) -> dict[str, Any]:
    return {"form": found.form.value, "at": _bounds(found.at), "regions": [list(region) for region in found.regions]}


def _bounds(estimate: Estimate) -> Bounds:
    return [_short(value) for value in (estimate.low, estimate.value, estimate.high)]


def _short(value: float | None) -> float | None:
    """Return six digits of a value; JSON has no infinity, for which 1e300 stands."""
    if value is None or math.isnan(value):
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else math.copysign(1e300, value)
