"""A run against another one: what differs between them, and whether it is worse than the margin allows.

Both are judged by today's rules first. Runs of different days are not paired: the intervals of both add up. Where both
measured a baseline, the speed-ups over it are compared, so that what changed for both arms of a day cancels.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadtest.analyse.estimates import Estimate, exponential
from loadtest.analyse.gate import GRAVEST
from loadtest.analyse.gate_results import Gate, GateOutcome, Regression
from loadtest.analyse.gating import concluded
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.results import Answer, ArmLevel, Judgement, Speedup
from loadtest.analyse.shares import difference, exact_interval
from loadtest.analyse.slo_levels import held
from loadtest.errors import ExitCode, NotComparable, UsageError, nearest

ERROR_MARGIN = 0.01  # most that the share of failed requests may be higher, as a difference
SHOWN = ("e2e", "ttft", "tpot", "output_tokens_per_s")
SECTIONS = ("load", "window", "plan", "generation", "limits")  # of the experiment; the rest judges or says where
ALIASES = {"vllm_version": "version"}
Value = Any


def items(run: Mapping[str, Any], ignored: Sequence[str]) -> dict[str, Value]:
    """Return what defines a measurement, by the name that `--changed` takes; an unknown value is None."""
    experiment = run.get("experiment") or {}
    scenario = run.get("scenario") or {}
    found: dict[str, Value] = {
        f"{section}.{key}": value for section in SECTIONS for key, value in (experiment.get(section) or {}).items()
    }
    found["servers.cache"] = (experiment.get("servers") or {}).get("cache")
    found["scenario"], found["prompts"] = scenario.get("sha256"), scenario.get("prompts_sha256") or ""
    trace = {name: value for name, value in (experiment.get("trace") or {}).items() if name != "file"}
    found["trace"] = {**trace, "sha256": scenario["trace_sha256"]} if scenario.get("trace_sha256") else ""
    arms = {str(arm.get("role") or arm.get("name")): arm for arm in run.get("arms") or () if isinstance(arm, Mapping)}
    for name, read in OF_ARMS.items():
        found[name] = {role: read(arm, ignored) for role, arm in arms.items()}
    found["client"] = {key: (run.get("host") or {}).get(key) for key in ("platform", "cpus")}
    found["loadtest_version"] = run.get("version")
    found["world"] = (run.get("simulated") or {}).get("world") or ""
    return found


def _identity(arm: Mapping[str, Any]) -> Mapping[str, Any]:
    identity = arm.get("identity")
    return identity if isinstance(identity, Mapping) else {}


def _settings(arm: Mapping[str, Any], ignored: Sequence[str]) -> Value:
    config = _identity(arm).get("config")
    if not isinstance(config, Mapping) or not config:
        return None
    return {key: value for key, value in config.items() if not any(fnmatch.fnmatchcase(key, one) for one in ignored)}


OF_ARMS: dict[str, Callable[[Mapping[str, Any], Sequence[str]], Value]] = {
    "model": lambda arm, _: _identity(arm).get("model_root") or arm.get("model"),
    "version": lambda arm, _: arm.get("version"),
    "kind": lambda arm, _: _identity(arm).get("kind"),
    "context_length": lambda arm, _: _identity(arm).get("max_model_len"),
    "speculation": lambda arm, _: arm.get("speculative") or arm.get("declared") or "",
    "gpus": lambda arm, _: arm.get("gpus") or 0,
    "replicas": lambda arm, _: arm.get("replicas") or 1,
    "settings": _settings,
}


def refuse_unnamed(
    run: Mapping[str, Any], other: Mapping[str, Any], changed: Sequence[str], ignored: Sequence[str] = ()
) -> list[str]:
    """Return notes on the two runs' differences.

    Raises UsageError for a name in `changed` that nothing has, and NotComparable for a difference that is not named.
    """
    mine, its = items(run, ignored), items(other, ignored)
    kinds = {str(one.get("load.kind") or "closed") for one in (mine, its)}
    if len(kinds) > 1:
        raise NotComparable(
            "One run is of a closed load and the other of an open one. Times at so many users and times at so many"
            " requests/s are answers to different questions: measure both alike."
        )
    named = {ALIASES.get(name, name) for name in changed}
    for name in sorted(named):
        if name not in mine and name not in its:
            raise UsageError(f"--changed {name}: nothing is called so.{nearest(name, [*mine, *ALIASES])}"
                             f" Names are {', '.join(sorted(mine))}.")  # fmt: skip
    differing = [name for name in sorted(mine.keys() | its.keys()) if mine.get(name) != its.get(name)]
    unknown = [name for name in differing if not _known_apart(name, mine.get(name), its.get(name))]
    told = [name for name in differing if name not in named and name not in unknown]
    if told:
        lines = "\n".join(f"  {name}: {_pair(mine.get(name), its.get(name))}" for name in told)
        raise NotComparable(f"The runs differ in more than what is under test:\n{lines}\n"
                            f"Name what is meant to differ: --changed {','.join([*sorted(named), *told])}")  # fmt: skip
    notes = [f"Under test: {name}: {_pair(mine.get(name), its.get(name))}." for name in differing if name in named]
    notes += [f"{name} is known of one run only." for name in unknown if name not in named]
    same = [name for name in sorted(named) if name not in differing]
    notes += [f"{name} was named as changed and is the same in both runs." for name in same]
    return notes


def _known_apart(name: str, mine: Value, its: Value) -> bool:
    """Return whether two unequal items are known to be so; an arm's unknown value hides no difference of the other."""
    if name not in OF_ARMS or mine is None or its is None or mine.keys() != its.keys():
        return mine is not None and its is not None
    return any(None not in (mine[role], its[role]) and mine[role] != its[role] for role in mine)


def _pair(mine: Value, its: Value) -> str:
    if isinstance(mine, Mapping) and isinstance(its, Mapping):
        parts = [f"{key}: {_pair(mine.get(key), its.get(key))}" for key in sorted({*mine, *its}, key=str)
                 if mine.get(key) != its.get(key)]  # fmt: skip
        return "; ".join(parts[:5]) + (f"; {len(parts) - 5} more" if len(parts) > 5 else "")
    return f"{_short(its)} → {_short(mine)}"


def _short(value: Value) -> str:
    text = "nothing" if value in (None, "") else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def regressions(here: Judgement, there: Judgement, metric: str, margin: float) -> tuple[Regression, ...]:
    """Return this run's metrics against the other's, at every load that both tested; the deciding metric is judged."""
    levels = [level for level in here.levels if level in there.levels]
    both = len(here.arms) > 1 and len(there.arms) > 1
    found: list[Regression] = []
    for name in dict.fromkeys((metric, *SHOWN)):
        for level in levels:
            ratio = _of_ratios(here, there, name, level) if both else _of_arms(here, there, name, level)
            if ratio.value is None and name != metric:
                continue
            found.append(Regression(metric=name, level=level, ratio=ratio, of_ratios=both, judged=name == metric,
                                    outcome=held(ratio, 1 / (1 + margin), lower=False)))  # fmt: skip
    found += [_errors(here, there, level) for level in levels]
    return tuple(found)


def _of_ratios(here: Judgement, there: Judgement, metric: str, level: float) -> Estimate:
    mine, its = (_speedup(j.speedups, metric, level) for j in (here, there))
    return _quotient(mine, its)


def _speedup(speedups: Sequence[Speedup], metric: str, level: float) -> Estimate:
    return next((s.ratio for s in speedups if s.metric == metric and s.level == level), Estimate())


def _of_arms(here: Judgement, there: Judgement, metric: str, level: float) -> Estimate:
    mine, its = (_row(j, level).means.get(metric, Estimate()) for j in (here, there))
    return _quotient(its, mine) if BY_NAME[metric].better == "lower" else _quotient(mine, its)


def _row(judgement: Judgement, level: float) -> ArmLevel:
    arm = judgement.arms[-1]
    empty = ArmLevel(arm=arm, level=level, requests=0, failed=0)
    return next((row for row in judgement.arm_levels if row.arm == arm and row.level == level), empty)


def _quotient(above: Estimate, below: Estimate) -> Estimate:
    """Return the quotient of two independent estimates; half-widths in logarithms are squared and added."""
    if not above.value or not below.value:
        return Estimate()
    value = above.value / below.value
    if not above.low or not above.high or not below.low or not below.high or min(above.low, below.low) <= 0:
        return Estimate(value=value, n=min(above.n, below.n))
    down = math.hypot(math.log(above.value / above.low), math.log(below.high / below.value))
    up = math.hypot(math.log(above.high / above.value), math.log(below.value / below.low))
    return Estimate(value=value, low=value * math.exp(-down), high=value * exponential(up), n=min(above.n, below.n))


def _errors(here: Judgement, there: Judgement, level: float) -> Regression:
    shares = []
    for judgement in (there, here):
        row = _row(judgement, level)
        if not row.requests:
            shares.append(Estimate())
            continue
        low, high = exact_interval(row.failed, row.requests)
        shares.append(Estimate(value=row.failed / row.requests, low=low, high=high, n=row.requests))
    change = difference(shares[0], shares[1], lower=True)
    return Regression(metric="error_ratio", level=level, ratio=change, of_ratios=False, outcome=_guarded(change))


def _guarded(change: Estimate) -> GateOutcome:
    """Return what a guard says: as in the decision, only what is proven breaks it; some failures more leave it open."""
    outcome = held(change, -ERROR_MARGIN, lower=False)
    unproven = outcome is GateOutcome.INCONCLUSIVE and change.value is not None and change.value >= -ERROR_MARGIN
    return GateOutcome.PASS if unproven else outcome


def with_regressions(here: Judgement, there: Judgement, metric: str, margin: float, notes: Sequence[str]) -> Judgement:
    """Return the judgement with its gate extended by the comparison with another run."""
    gate = here.gate
    assert gate is not None
    refused = _refused(gate, there)
    if refused is not None:
        return _with(here, refused)
    found = regressions(here, there, metric, margin)
    if not found:
        return _with(here, _invalid(gate, "the two runs tested no load in common"))
    judged = tuple(r for r in found if r.judged)
    said = [*gate.notes, *notes, "Runs of different times are not paired: the intervals of both add up."]
    if len(here.arms) > 1 and len(there.arms) > 1:
        said.append("Speed-ups over each run's own baseline are compared; what changed for both arms alike cancels.")
    alone = sorted({*here.levels} ^ {*there.levels})
    if alone:
        levels = ", ".join(f"{level:g}" for level in alone)
        said.append(f"Tested in one of the two runs only, and not compared: {levels} {here.unit}.")
    done = concluded(replace(gate, regressions=judged, notes=tuple(said)))
    return _with(here, replace(_no_better(gate, done, alone=len(here.arms) == 1), regressions=found))


def _no_better(own: Gate, done: Gate, *, alone: bool) -> Gate:
    """Return the gate no better than without the other run: where the decision is the gate, it stays a demand.

    One server alone has no decision, and is held against the other run only.
    """
    if own.objectives or alone or GRAVEST.index(own.outcome) >= GRAVEST.index(done.outcome):
        return done
    return replace(done, outcome=own.outcome, exit_code=own.exit_code, headline=own.headline)


def _refused(gate: Gate, there: Judgement) -> Gate | None:
    if gate.refused:
        return gate
    if there.decision.answer is Answer.INVALID:
        return _invalid(gate, f"the other run is invalid: {there.decision.headline}")
    other = there.gate
    if other is not None and other.refused:
        return _invalid(gate, f"the other run is not to be judged: {other.refused}")
    unproven = gate.unproven or (f"of the other run: {other.unproven}" if other is not None and other.unproven else "")
    return _no_data(gate, unproven) if unproven else None


def _invalid(gate: Gate, why: str) -> Gate:
    return replace(gate, outcome=GateOutcome.INVALID, exit_code=int(ExitCode.INVALID), refused=why,
                   headline=f"Gate: not judged: {why.rstrip('.')}.")  # fmt: skip


def _no_data(gate: Gate, why: str) -> Gate:
    """Return the gate as it passes nothing for want of proof; what has failed stays so."""
    if GateOutcome.FAIL in (gate.outcome, *(result.outcome for result in gate.objectives)):
        return gate
    return replace(gate, outcome=GateOutcome.NO_DATA, exit_code=int(ExitCode.INCONCLUSIVE),
                   headline=f"Gate: not passed: {why.rstrip('.')}.")  # fmt: skip


def _with(judgement: Judgement, gate: Gate) -> Judgement:
    return replace(judgement, gate=gate, decision=replace(judgement.decision, exit_code=gate.exit_code))
