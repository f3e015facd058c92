"""Objectives held against the plan before any load: what could never be judged is refused, what may not be is said."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.errors import UsageError
from loadtest.loads import unit_of
from loadtest.settings import Experiment
from loadtest.slo import IN_FLIGHT, RATE, SESSIONS, TRAFFIC, USERS, Ask, Slo
from loadtest.slo_tables import objectives

# Least requests for a two-sided 95 % upper bound of a percentile (binomial order statistics): below it none exists.
BOUND_NEEDS = {"p50": 6, "p90": 36, "p95": 72, "p99": 368}
EACH_BLOCK = {"p99": 500}  # and least requests of each block, five beyond the percentile


def needs(statistic: str, blocks: int) -> int:
    """Return how many requests bound a percentile at a load; 0 of what is none."""
    return max(BOUND_NEEDS.get(statistic, 0), blocks * EACH_BLOCK.get(statistic, 0))


def refuse_unjudgeable(experiment: Experiment, *, compared: bool) -> None:
    """Raise UsageError for an objective that this plan can never judge."""
    for slo in objectives(experiment.slo.rules):
        if slo.ask is not Ask.ABSOLUTE and not compared:
            raise UsageError(f"{slo.sentence}: one server alone has no baseline; give both servers, or leave it out.")
        _refuse_load(slo, experiment)
    traffic = experiment.traffic
    if traffic.loads:
        _refuse_unit("[traffic]", traffic.unit, experiment)
        if traffic.unit != IN_FLIGHT:
            _refuse_outside("[traffic]", [min(traffic.loads), max(traffic.loads)], experiment)


def refuse_silent_simulation(experiment: Experiment, *, named: bool) -> None:
    """Raise UsageError where objectives would be judged on the simulated pair although nobody asked for it."""
    if experiment.slo.rules and not named:
        raise UsageError(
            "Objectives are asked for ([[slo]]) and no server is named: simulated servers would be judged instead."
            " Name the servers (--baseline and --speculative, LOADTEST_BASELINE_URL and LOADTEST_SPECULATIVE_URL, or"
            " --servers FILE), or ask for the simulated pair with --simulated. Is a variable of the shell not set?"
        )


def _refuse_load(slo: Slo, experiment: Experiment) -> None:
    load = slo.load
    if load.unit == TRAFFIC and not experiment.traffic.loads:
        raise UsageError(f"{slo.sentence}: no [traffic] says what is expected; give its loads and hours, or a trace.")
    if load.value is None:
        return
    _refuse_unit(slo.sentence, load.unit, experiment)
    if load.unit != IN_FLIGHT:
        _refuse_outside(slo.sentence, [load.value], experiment)


def _refuse_unit(what: str, unit: str, experiment: Experiment) -> None:
    own = unit_of(experiment.load)
    if unit not in (own, IN_FLIGHT):
        raise UsageError(f"{what}: the load is given in {unit}, and the levels of this {experiment.load.kind} load are"
                         f" {own}; say it in {own} or in flight.")  # fmt: skip


def _refuse_outside(what: str, values: Sequence[float], experiment: Experiment) -> None:
    levels = experiment.load.levels
    outside = [value for value in values if not levels[0] <= value <= levels[-1]]
    if outside:
        option = "--rates" if experiment.load.kind == "open" else "--levels"
        raise UsageError(f"{what}: {outside[-1]:g} lies outside the levels ({', '.join(f'{x:g}' for x in levels)}), and"
                         f" nothing is extrapolated; add it: {option} {_with(levels, outside[-1])}.")  # fmt: skip


def _with(levels: Sequence[float], value: float) -> str:
    return ",".join(f"{x:g}" for x in sorted({*levels, value}))


def objective_words(experiment: Experiment) -> list[str]:
    """Return what is to be judged, and which of it the plan may be too short or too coarse for."""
    found = objectives(experiment.slo.rules)
    sentences = [f"Objectives: {'; '.join(slo.sentence for slo in found)}."] if found else []
    pooled = experiment.window.min_requests * experiment.plan.blocks
    for slo in found:
        of_requests = slo.ask is Ask.ABSOLUTE and slo.metric not in ("token_gap", "chunk_gap")  # a request has many
        needed = needs(slo.statistic, experiment.plan.blocks) if of_requests else 0
        if pooled < needed:
            sentences.append(
                f"May stay out of reach: {slo.sentence} needs {needed} requests at a load, and the windows of a load"
                f" wait for {pooled} (window.min_requests)."
            )
        if slo.load.unit in (USERS, RATE, SESSIONS) and slo.load.value not in experiment.load.levels:
            sentences.append(
                f"{slo.load.value:g} {slo.load.unit} is no level: {slo.sentence} is judged at the levels around it."
            )
    return sentences
