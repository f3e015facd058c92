"""What is counted: worlds with the settings they are measured under, and the ceilings stated before anything was run.

A world is a pair of simulated servers (`loadtest.simulate.worlds`); how it is measured stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.experiment import override
from loadtest.settings import Experiment

SCENARIO = Path(__file__).parents[2] / "scenarios" / "chat.py"
METRICS = ("e2e", "tpot", "ttft", "output_tokens_per_s")
ARMS = ("baseline", "speculative")
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

CORE_AT_LEAST, REST_AT_LEAST = 0.93, 0.92  # coverage of every row
MEAN_WITHIN = (0.94, 0.98)  # coverage, mean of all rows
FALSE_AT_MOST = 0.065
TRUTH_AT_MOST = 0.2  # standard error of the truth ÷ median half-width of the intervals
# Share of experiments without an interval (tails: of levels), at most. Break-evens: by case, below.
SPEEDUP_CEILING = 0.0
TAIL_CEILINGS = {"p50": 0.02, "p90": 0.05, "p95": 0.15}
DEEP_CEILING = 0.05  # for p99, where windows are made for it; elsewhere it is not claimed, and has no ceiling
# A window goes on until so many requests are due, as with servers of one's own: a p95 of three blocks takes 24 of each.
WINDOW = {"min_requests": 32, "max_s": 15.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One world under one set of settings; what is left out is as in the demo of scenarios/chat.toml."""

    name: str
    world: str
    core: bool = False
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # section → key → value
    restarts: bool = False  # a block is one start of each arm
    aa: bool = False  # the run says that both arms are the same
    deep: bool = False  # its windows hold the 500 requests that a p99 takes
    guarded: bool = False  # a guard stops it, rather than the metric that decides
    counted: bool = True  # whether the acceptance limits hold for its coverage
    cannot_tell: float = 1.0  # ceiling for a break-even without an answer
    pays_at_most: float | None = None  # ceiling for an answer that it pays somewhere
    gain: float | None = None  # where everything is faster by exactly this much: the truth without replication

    def experiment(self, seed: int, **plan: Any) -> Experiment:
        """Return the experiment with this seed, below 2³⁰; equal seeds of two cases have nothing in common."""
        experiment = prepare(Options(scenario=SCENARIO, world=self.world), {}).experiment
        experiment = override(experiment, "window", **WINDOW)
        for section, values in self.settings.items():
            experiment = override(experiment, section, **values)
        own = crc32(self.name.encode()) << 30  # else cases with the same baseline would share its luck
        return override(experiment, "plan", seed=own + seed, **plan)


_LONG = {
    "generation": {"max_tokens": 4096},
    "load": {"levels": (4.0, 12.0, 24.0, 36.0, 48.0)},
    "window": {"min_s": 4.0, "max_s": 24.0},  # a request lasts about half of the shortest
}
_DEEP = {"load": {"levels": (16.0, 48.0)}, "window": {"min_requests": 600, "max_s": 60.0}}
_THINK = {"load": {"think_time": 0.1, "levels": (16.0, 48.0, 80.0, 112.0, 144.0)}}
_OPEN = {"load": {"kind": "open", "levels": (10.0, 25.0, 40.0, 55.0, 70.0)}, "window": {"min_s": 6.0, "max_s": 6.0}}
_BURSTS = {**_OPEN, "load": {**_OPEN["load"], "arrivals": "gamma", "cv": 2.0}}
_PAIRS = {"plan": {"blocks": 4}}

# The six core cases are the first six worlds of the list that the judgement is held against.
CASES: tuple[Case, ...] = (
    Case(name="crossing", world="default", core=True, cannot_tell=0.05),
    Case(name="to-the-top", world="eagle3", core=True, cannot_tell=0.05),
    Case(name="never", world="never", core=True, cannot_tell=0.05, pays_at_most=0.0),
    Case(name="band", world="band", core=True),
    Case(name="late-first", world="late-first", core=True, guarded=True, cannot_tell=0.05),
    Case(name="k0", world="k0", core=True, cannot_tell=0.05, pays_at_most=0.0),
    Case(name="middle", world="moe", cannot_tell=0.30),
    Case(name="drift", world="drift", cannot_tell=0.05),
    Case(name="load-acceptance", world="load-acceptance", cannot_tell=0.05),
    Case(name="categories", world="categories", cannot_tell=0.10),
    Case(name="starts", world="starts", restarts=True, settings=_PAIRS, cannot_tell=0.20),
    # One start each: its interval does not say how starts differ, and the answer says that it does not.
    Case(name="one-start", world="starts", counted=False, cannot_tell=0.20),
    Case(name="wander", world="wander", cannot_tell=0.30),
    Case(name="long", world="default", settings=_LONG, cannot_tell=0.30),
    Case(name="think", world="default", settings=_THINK, cannot_tell=0.20),
    Case(name="open", world="default", settings=_OPEN, cannot_tell=0.20),
    Case(name="bursts", world="default", settings=_BURSTS, cannot_tell=0.50),
    Case(name="deep", world="default", settings=_DEEP, deep=True, cannot_tell=0.05),
    Case(name="cache", world="cache", cannot_tell=0.05),
    Case(name="failures", world="failures", cannot_tell=0.10),
    Case(name="memory", world="memory"),
    Case(name="silent-off", world="silent-off", gain=0.0, pays_at_most=0.0),
    Case(name="flat-0", world="flat-0", gain=0.0, pays_at_most=FALSE_AT_MOST),
    Case(name="flat-1", world="flat-1", gain=0.01, pays_at_most=FALSE_AT_MOST),
    Case(name="flat-3", world="flat-3", gain=0.03, pays_at_most=FALSE_AT_MOST),  # exactly min_gain
    Case(name="flat-5", world="flat-5", gain=0.05),
    Case(name="aa", world="aa-wander", gain=0.0, aa=True),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}
