"""What stands behind the example run's answer: causes, classes, slow requests, the day. Figures are made up."""

from __future__ import annotations

import dataclasses
import math

from loadtest.analyse.detail_results import ClassLevel, Detail, Instant, PairSpread, SlowRequest
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import (
    Acceptance,
    BatchRow,
    BatchTable,
    Findings,
    FirstToken,
    FirstTokenChange,
    Group,
    Law,
    Line,
    LineCrossing,
    Moment,
    Slot,
    TailRatio,
    Trend,
)
from loadtest.analyse.gate_results import DayLoad, Gate, GateOutcome, SloResult, TrafficGain

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
ARMS = ("baseline", "speculative")
CLASSES = {"chat": 1.0, "code": 1.12, "rag": 0.88}


def near(value: float, relative: float = 0.05, n: int = 6) -> Estimate:
    return Estimate(value=value, low=value * (1 - relative), high=value * (1 + relative), n=n)


def speedup_at(level: float) -> float:
    return 1.5 - 0.1 * math.log2(level)


def class_level(name: str, level: float) -> ClassLevel:
    ratio = speedup_at(level) * CLASSES[name]
    return ClassLevel(
        name=name, level=level, requests_baseline=40, requests_candidate=41,
        means_baseline={"e2e": 2.0, "ttft": 0.1, "tpot": 0.02},
        means_candidate={"e2e": 2.0 / ratio, "ttft": 0.11, "tpot": 0.02 / ratio},
        speedups={"e2e": near(ratio), "ttft": near(0.9), "tpot": Estimate(value=ratio, n=1)},
    )  # fmt: skip


def slow(arm: str, level: float) -> SlowRequest:
    failed = level == 64 and arm == "speculative"
    return SlowRequest(
        arm=arm, level=level, block=2, cell=int(level), category="code", session=17, turn=1,
        outcome="timeout" if failed else "ok", due_s=90.0 * level, sent_late_s=0.0004, ttft_s=0.41,
        e2e_s=None if failed else 7.25, worst_stall_s=0.9, tokens=301, prompt_tokens=1220, twin_s=5.5,
        cause="failed" if failed else "one stall",
    )  # fmt: skip


def detail() -> Detail:
    times = [(block * len(LEVELS) + place) * 150.0 for block in range(6) for place in range(len(LEVELS))]
    return Detail(
        classes=tuple(class_level(name, level) for level in LEVELS for name in CLASSES),
        slowest=tuple(slow(arm, level) for level in LEVELS for arm in ARMS),
        spreads=tuple(
            PairSpread(level=x, pairs=200, p5=0.6 * speedup_at(x), p25=0.9 * speedup_at(x), p50=speedup_at(x),
                       p75=1.1 * speedup_at(x), p95=1.5 * speedup_at(x)) for x in LEVELS
        ),
        instants=tuple(
            Instant(t_s=t + 10 + 20 * i + 75 * place, arm=arm, level=LEVELS[n % 7], block=n // 7,
                    in_flight=int(LEVELS[n % 7]), running=0.92 * LEVELS[n % 7],
                    waiting=3.0 if LEVELS[n % 7] == 64 else 0.0, kv_use=0.012 * LEVELS[n % 7])
            for n, t in enumerate(times) for place, arm in enumerate(ARMS) for i in range(3)
        ),
    )  # fmt: skip


def first_token(arm: str, level: float) -> FirstToken:
    more = 0.002 * level if arm == "speculative" else 0.0
    return FirstToken(
        arm=arm, level=level, client_s=0.0305 + 0.0021 * level + more, outside_s=0.0005, front_s=0.001,
        queue_s=0.001 * level + more, prefill_s=0.029 + 0.0011 * level, cache_hit_ratio=0.31,
        kv_use=0.012 * level, preemptions=0,
    )  # fmt: skip


def change(level: float) -> FirstTokenChange:
    terms = {"outside": near(0.0001), "front": near(0.0001), "queue": near(0.002 * level), "prefill": near(0.0)}
    said = f"At {level:g} users first tokens come {2 * level:g} ms later; the queue grew most (+{2 * level:g} ms)."
    return FirstTokenChange(level=level, total_s=near(0.002 * level), terms_s=terms, term="queue", sentence=said)


def acceptance() -> Acceptance:
    return Acceptance(
        ratio=near(0.164),
        slots=tuple(Slot(slot=j + 1, survival=near(0.52 * 0.4**j), conditional=near(0.5)) for j in range(5)),
        levels=tuple(Group(name=f"{x:g}", value=near(0.164), count=6, low=x, high=x) for x in LEVELS),
        flat=Trend(per="doubling of the load", slope=near(0.0), p_value=0.4, change=0.01),
        drift=Trend(per="hour", slope=near(0.0), p_value=0.6, change=-0.02),
        over_time=tuple(Moment(t_s=75.0 * i, level=LEVELS[i % 7], block=i // 7, value=0.16 + 0.001 * (i % 5))
                        for i in range(42)),
        of_requests="acceptance ratio",
        requests={"p5": near(0.05), "p25": near(0.1), "p50": near(0.16), "p75": near(0.22), "p95": near(0.4)},
        requests_sd=0.09,
        categories=tuple(Group(name=name, value=near(0.164 * by), count=400) for name, by in CLASSES.items()),
        positions=(Group(name="0 to 15", value=near(1.8), count=9000, low=0, high=16),
                   Group(name="16 to 31", value=near(1.9), count=8000, low=16, high=32)),
    )  # fmt: skip


def findings() -> Findings:
    lines = tuple(
        Line(arm=arm, c1_s=near(c1), c2_s=near(c2), lack_of_fit_p=0.3,
             points=tuple((0.94 * x, c1 + c2 * 0.94 * x) for x in LEVELS))
        for arm, c1, c2 in (("baseline", 2.2, 0.032), ("speculative", 1.5, 0.05))
    )  # fmt: skip
    return Findings(
        tails=tuple(
            TailRatio(metric=metric, level=level, statistic=statistic, speedup=near(0.9), difference_s=near(0.004),
                      requests=900, requests_needed=85)
            for metric in ("ttft", "e2e", "worst_stall") for level in LEVELS for statistic in ("p50", "p95")
        ),
        law=Law(lines=lines, crossing=LineCrossing.PAYS_BELOW, at=near(39.0), levels=LEVELS, agrees=True,
                sentence="Both lines cross at 39 requests in flight."),
        first_tokens=tuple(first_token(arm, level) for level in LEVELS for arm in ARMS),
        first_token_changes=tuple(change(level) for level in LEVELS),
        acceptance=acceptance(),
        batch_table=BatchTable(
            rows=(BatchRow(start=1, end=36, draft_tokens=5, settled=True, evidence="1.4 at 8 users"),
                  BatchRow(start=37, end=64, draft_tokens=0, settled=False, evidence="0.9 at 64 users")),
            setting='{"num_speculative_tokens_per_batch_size": [[1, 36, 5], [37, 64, 0]]}',
            warning="Measure a server with the table before you roll it out.",
        ),
    )  # fmt: skip


def gate() -> Gate:
    loads = tuple(DayLoad(level=x, hours=4.0, weight=0.2, speedup=near(speedup_at(x))) for x in LEVELS[1:])
    return Gate(
        outcome=GateOutcome.PASS,
        exit_code=0,
        headline="gate passed: 1 of 1 objectives met",
        objectives=(SloResult(sentence="benefit over the traffic", metric="e2e", statistic="mean", ask="benefit",
                              unit="speed-up", limit=1.03, lower=False, outcome=GateOutcome.PASS),),
        traffic=TrafficGain(metric="e2e", gain=near(1.21), sentence="Expected speed-up over the traffic: 1.21.",
                            loads=loads),
    )  # fmt: skip


def alone(found: Detail) -> Detail:
    """Return the detail of a run of one server."""
    return Detail(
        slowest=tuple(dataclasses.replace(s, arm="server", twin_s=None) for s in found.slowest if s.arm == "baseline"),
        instants=tuple(dataclasses.replace(i, arm="server") for i in found.instants if i.arm == "baseline"),
    )
