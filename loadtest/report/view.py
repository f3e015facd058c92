"""A judgement and its run header, laid out for reading: lookups by arm, level and metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import TailRatio
from loadtest.analyse.results import Answer, ArmLevel, CellView, Finding, Guard, Judgement, Speedup, Why
from loadtest.loads import USERS
from loadtest.report import vocabulary, words

DEPTHS = ("p50", "p90", "p95", "p99")
TAILED = ("e2e", "ttft", "tpot")  # latencies whose tails are told beside a verdict
IN_FLIGHT_RATIO = 0.98  # in flight ÷ users, from which on nobody pauses
VERDICTS = {
    "pays": "the whole interval of the deciding metric is beyond the least gain and no guard is broken; a"
    " percentile may still be worse, and stands beside it",
    "too little": "the whole interval is below the least gain",
    "slower": "the whole interval is below 1",
    "guard broken": "beyond the least gain, and a guard is proven broken",
    "cannot tell": "the interval holds the least gain, a guard has no data, or the load pays by its own interval and"
    " not surely where so many loads are looked at",
    "no data": "no speed-up was measured",
    "not judged": "the run is invalid, or was only measured",
}


@dataclass(frozen=True, kw_only=True)
class View:
    """What the report reads from; built by every part that draws, and cheap to build."""

    run: Mapping[str, Any]
    judgement: Judgement
    whole: Judgement | None = None  # of a run of several candidates, where this is one pair of it

    @property
    def levels(self) -> tuple[float, ...]:
        """Tested levels, ascending."""
        return tuple(sorted(self.judgement.levels))

    @property
    def baseline(self) -> str:
        """Name of the first arm, or of the only one; empty when the run has none."""
        return self.judgement.arms[0] if self.judgement.arms else ""

    @property
    def candidate(self) -> str | None:
        """Name of the one arm under comparison; None in a run of one arm, or of several candidates."""
        return self.judgement.arms[1] if len(self.judgement.arms) == 2 else None

    @property
    def itself(self) -> bool:
        """Whether a server is held against itself (A/A): neither arm is the one with speculation."""
        return bool(self.run.get("aa"))

    @property
    def gated(self) -> bool:
        """Whether objectives were judged, whatever is said of speculation."""
        gate = self.judgement.gate
        return gate is not None and not gate.refused

    @property
    def compared(self) -> bool:
        """Whether anything is held against the baseline."""
        return len(self.judgement.arms) > 1

    @cached_property
    def pairs(self) -> dict[str, View]:
        """Each of several candidates with the view of it against the baseline; empty in a run of one pair."""
        return {pair.arms[1]: View(run=self.run, judgement=pair, whole=self.judgement) for pair in self.judgement.pairs}

    def of(self, arm: str) -> View | None:
        """Return the view in which an arm is held against the baseline; None for the baseline, or one arm alone."""
        return self if arm == self.candidate else self.pairs.get(arm)

    @cached_property
    def _arm_levels(self) -> dict[tuple[str, float], ArmLevel]:
        return {(item.arm, item.level): item for item in self.judgement.arm_levels}

    @cached_property
    def _speedups(self) -> dict[tuple[str, float], Speedup]:
        return {(item.metric, item.level): item for item in self.judgement.speedups}

    @cached_property
    def _why(self) -> dict[float, Why]:
        return {item.level: item for item in self.judgement.why}

    @cached_property
    def unanswered(self) -> frozenset[float]:
        """Levels with a valid cell in which every request failed: it counts, and has no latency and no throughput."""
        return frozenset(cell.level for cell in self.judgement.cells
                         if cell.valid and 0 < cell.requests == cell.failed)  # fmt: skip

    def at(self, arm: str, level: float) -> ArmLevel:
        """Return an arm at a level; without data an empty one."""
        return self._arm_levels.get((arm, level)) or ArmLevel(arm=arm, level=level, requests=0, failed=0)

    def mean(self, arm: str, level: float, metric: str) -> Estimate:
        """Return the mean of a metric over blocks; without data an empty estimate."""
        return self.at(arm, level).means.get(metric, Estimate())

    def tail(self, arm: str, level: float, metric: str, depth: str) -> Estimate:
        """Return one percentile (`p50` … `p99`); empty without data, or beyond the deepest whose bound exists."""
        found = self.at(arm, level).tails.get(metric)
        if found is None or (depth != "p50" and depth > found.deepest):
            return Estimate()
        estimate: Estimate = getattr(found, depth)
        return estimate

    def speedup(self, metric: str, level: float) -> Speedup:
        """Return the speed-up by a metric at a level; without data an empty one."""
        return self._speedups.get((metric, level)) or Speedup(metric=metric, level=level, ratio=Estimate())

    def why(self, level: float) -> Why:
        """Return the decode accounting of a level; without data an empty one."""
        return self._why.get(level) or Why(level=level)

    def guards(self, level: float) -> tuple[Guard, ...]:
        """Return the guards of a level."""
        return tuple(guard for guard in self.judgement.decision.guards if guard.level == level)

    def worse_tails(self, level: float) -> tuple[TailRatio, ...]:
        """Return, of each of TAILED, the deepest percentile whose whole interval is worse than the baseline's."""
        found = self.judgement.findings
        deepest: dict[str, TailRatio] = {}
        for one in found.tails if found else ():  # by metric and level, each from p50 to p99
            if one.level == level and one.speedup.high is not None and one.speedup.high < 1:
                deepest[one.metric] = one
        return tuple(deepest[name] for name in TAILED if name in deepest)

    def cut_share(self, arm: str) -> float | None:
        """Return the share of an arm's answers that ended at the most tokens allowed; None where none ended."""
        return cut_share([item.finish_reasons for item in self.judgement.arm_levels if item.arm == arm])

    @property
    def pauses(self) -> bool:
        """Whether users of a closed load pause between requests, as far as header and requests in flight say."""
        if self.judgement.unit != USERS or section(self.run, "experiment", "load").get("think_time") == 0:
            return False
        seen = [(item.in_flight, item.level) for item in self.judgement.arm_levels if item.in_flight]
        return not seen or any(here < IN_FLIGHT_RATIO * level for here, level in seen)

    def deepest(self, metric: str) -> str:
        """Return the deepest percentile whose bound exists at half of the levels of every arm or more; else ''."""
        by_arm: dict[str, list[int]] = {}
        for item in self.judgement.arm_levels:
            tail = item.tails.get(metric)
            if tail is not None and words.known(tail.p50.value):
                by_arm.setdefault(item.arm, []).append(DEPTHS.index(tail.deepest) if tail.deepest in DEPTHS else 0)
        if not any(item.tails[metric].deepest in DEPTHS for item in self.judgement.arm_levels if metric in item.tails):
            return ""
        return DEPTHS[min(sorted(depths)[len(depths) // 2] for depths in by_arm.values())] if by_arm else ""

    def metrics_compared(self) -> tuple[str, ...]:
        """Return the metrics that have a speed-up anywhere, the deciding one first."""
        names = {item.metric for item in self.judgement.speedups if words.known(item.ratio.value)}
        rest = [name for name in vocabulary.METRICS if name in names] + sorted(names - set(vocabulary.METRICS))
        return tuple(sorted(rest, key=lambda name: name != self.decision_metric))

    @property
    def decision_metric(self) -> str:
        """Name of the metric that decides."""
        limit = self.judgement.decision.limit
        return limit.metric if limit else str(section(self.run, "experiment", "decision").get("metric") or "e2e")

    @property
    def threshold(self) -> float:
        """Speed-up from which on speculation counts as paying: 1 + the least gain."""
        limit = self.judgement.decision.limit
        if limit:
            return limit.threshold
        gain = section(self.run, "experiment", "decision").get("min_gain")
        return 1.0 + (gain if isinstance(gain, int | float) else 0.0)

    def verdict(self, level: float) -> str:
        """Return the word of VERDICTS for a level, by the rule written there."""
        if self.judgement.decision.answer in (Answer.INVALID, Answer.MEASURED):
            return "not judged"
        ratio = self.speedup(self.decision_metric, level).ratio
        if ratio.low is None or ratio.high is None or not (words.known(ratio.low) and words.known(ratio.high)):
            return "no data"
        if ratio.high < self.threshold:
            return "slower" if ratio.high < 1 else "too little"
        findings = {guard.finding for guard in self.guards(level)}
        if ratio.low <= self.threshold:
            return "cannot tell"
        if Finding.BROKEN in findings:
            return "guard broken"
        return "pays" if Finding.NO_DATA not in findings and self._claimed(level) else "cannot tell"

    def _claimed(self, level: float) -> bool:
        """Return whether the decision claims that it pays at a level: of many levels one seems to by chance."""
        decision = self.judgement.decision
        if decision.answer in (Answer.PAYS_UP_TO, Answer.PAYS_IN_BAND) and decision.limit is not None:
            return any(low <= level <= high for low, high in decision.limit.regions)
        return decision.answer is Answer.PAYS_EVERYWHERE

    def first_and_last(self, with_data: Iterable[float]) -> tuple[float, float] | None:
        """Return the lowest and the highest of the levels given, None when there is none."""
        found = sorted(with_data)
        return (found[0], found[-1]) if found else None


def span_s(cells: Sequence[CellView]) -> float | None:
    """Return the seconds from the first window's opening to the last one's closing; None where no window is known."""
    opened = [cell.opened_s for cell in cells if cell.opened_s is not None]
    closed = [cell.closed_s for cell in cells if cell.closed_s is not None]
    return max(closed) - min(opened) if opened and closed else None


def cut_share(counts: Iterable[Mapping[str, int]]) -> float | None:
    """Return the share of answers that ended at the most tokens allowed, by finish reason; None where none ended."""
    reasons = list(counts)
    ended = sum(sum(own.values()) for own in reasons)
    return sum(own.get("length", 0) for own in reasons) / ended if ended else None


def section(run: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return a nested table of the run header; an absent or foreign one is empty."""
    here: Any = run
    for name in path:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else {}
