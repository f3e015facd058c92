"""A run as the analysis would hand it over: seven levels, six blocks, a limit at 37 users. Figures are made up."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import report_detail_example as behind

from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import (
    Answer,
    ArmLevel,
    BreakEven,
    CellView,
    Comparability,
    Decision,
    Finding,
    Guard,
    Judgement,
    Speedup,
    Tail,
    Why,
)
from loadtest.record import KeptText

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
BLOCKS = 6
ARMS = ("baseline", "speculative")
HEADLINE = (
    "pays up to 32 users (≈ 30 in flight) by end-to-end time, by at least 3 %; the limit itself is estimated at"
    " 37 [32, 42] users;"
    " first tokens are 18 % later from 16 users on"
)
SECOND = "Throughput breaks even at 35 [31, 40] users: above that the service completes less work per second."


def step_s(arm: str, level: float) -> float:
    return 0.0085 + 0.00012 * level if arm == "baseline" else 0.0105 + 0.00035 * level


def tpot_s(arm: str, level: float) -> float:
    return step_s(arm, level) / (1.0 if arm == "baseline" else 1.82)


def ttft_s(arm: str, level: float) -> float:
    return 0.031 + 0.0021 * level * (1.0 if arm == "baseline" else 1.18)


def e2e_s(arm: str, level: float) -> float:
    return ttft_s(arm, level) + 255 * tpot_s(arm, level)


def tokens_per_s(arm: str, level: float) -> float:
    return level * 256 / e2e_s(arm, level)


def around(value: float, relative: float, n: int = BLOCKS) -> Estimate:
    return Estimate(value=value, low=value * (1 - relative), high=value * (1 + relative), n=n)


def tail(metric: str, middle: float, spread: float) -> Tail:
    return Tail(
        metric=metric,
        p50=around(middle, 0.02, 900),
        p90=around(middle * spread, 0.04, 900),
        p95=around(middle * spread * 1.2, 0.06, 900),
        p99=Estimate(value=middle * spread * 1.5, n=900),
        deepest="p95",
    )


def arm_level(arm: str, level: float) -> ArmLevel:
    means = {
        "e2e": around(e2e_s(arm, level), 0.01),
        "ttft": around(ttft_s(arm, level), 0.03),
        "tpot": around(tpot_s(arm, level), 0.01),
        "token_gap": around(tpot_s(arm, level), 0.01),
        "chunk_gap": around(step_s(arm, level), 0.01),
        "on_time": around(0.998, 0.001),
        "output_tokens_per_s": around(tokens_per_s(arm, level), 0.015),
        "tokens_per_chunk": around(1.0 if arm == "baseline" else 1.82, 0.01),
        "error_ratio": Estimate(value=0.0, n=BLOCKS),
    }
    tails = {
        "ttft": tail("ttft", ttft_s(arm, level), 1.7),
        "e2e": tail("e2e", e2e_s(arm, level), 1.5),
        "tpot": tail("tpot", tpot_s(arm, level), 1.2),
        "token_gap": tail("token_gap", tpot_s(arm, level), 2.4),
        "chunk_gap": tail("chunk_gap", step_s(arm, level), 1.3),
        "worst_stall": tail("worst_stall", 4 * step_s(arm, level), 1.6),
    }
    requests = int(180 + 40 * level)
    failed = 2 if level == 64 and arm == "speculative" else 0
    return ArmLevel(
        arm=arm,
        level=level,
        requests=requests,
        failed=failed,
        means=means,
        tails=tails,
        in_flight=0.94 * level,
        running=0.92 * level,
        waiting=0.0,
        kv_use=min(0.9, 0.012 * level),
        outcomes={"ok": requests - failed} | ({"timeout": failed} if failed else {}),
        finish_reasons={"stop": requests - failed},
    )


def speedup(metric: str, level: float) -> Speedup:
    read = {"e2e": e2e_s, "tpot": tpot_s, "ttft": ttft_s, "output_tokens_per_s": tokens_per_s}[metric]
    ratio = read("baseline", level) / read("speculative", level)
    ratio = 1 / ratio if metric == "output_tokens_per_s" else ratio
    blocks = tuple(ratio * (1 + 0.025 * math.sin(1 + 2.3 * block + level)) for block in range(BLOCKS))
    return Speedup(metric=metric, level=level, ratio=around(ratio, 0.03), blocks=blocks)


def why(level: float) -> Why:
    base, spec = step_s("baseline", level), step_s("speculative", level)
    return Why(
        level=level,
        tau_all_baseline=1.0,
        tau_all=1.82,
        tau_drafting=1.84,
        step_baseline_s=base,
        step_candidate_s=spec,
        step_ratio=spec / base,
        decode_speedup=1.82 * base / spec,
        tau_needed=spec / base,
        acceptance_ratio=0.164,
        drafted_per_step=5.0,
        survival=(0.52 + 0.002 * math.sin(level), 0.17, 0.08, 0.035, 0.015),
        running_baseline=0.91 * level,
        running_candidate=0.93 * level,
        edge_error_ratio=0.004,
    )


def guard(level: float) -> Guard:
    ratio = ttft_s("speculative", level) / ttft_s("baseline", level)
    finding = Finding.BROKEN if ratio > 1.16 else Finding.UNPROVEN if ratio > 1.08 else Finding.HOLDS
    return Guard(
        name="ttft",
        level=level,
        finding=finding,
        ratio=around(ratio, 0.04),
        statistic="p95",
        sentence=f"p95 of TTFT is {ratio - 1:.0%} above the baseline; at most 10 % is allowed.",
    )


def cells() -> tuple[CellView, ...]:
    found = []
    for block in range(BLOCKS):
        for level in LEVELS:
            for arm in ARMS:
                number = len(found)
                wobble = 1 + 0.02 * math.sin(number)
                marks = ("p99 lateness of sends 6 ms: more than 2 % of the median TTFT.",) if number % 31 == 5 else ()
                if number == 40:
                    marks = ("a request of another client was running in the window.",)
                found.append(
                    CellView(
                        cell=number,
                        arm=arm,
                        level=level,
                        block=block,
                        valid=number != 40,
                        marks=marks,
                        window_s=60.0,
                        requests=int(30 + 7 * level),
                        failed=0,
                        in_flight=0.94 * level,
                        output_tokens_per_s=tokens_per_s(arm, level) * wobble,
                        ttft_p50_s=ttft_s(arm, level) * wobble,
                        e2e_mean_s=e2e_s(arm, level) * wobble,
                        lateness_p99_s=0.0012,
                        cpu_ratio=0.21,
                        hub_lag_p99_s=0.002,
                        coalesced_ratio=0.013,
                        tokens_client=15360,
                        tokens_server=15360,
                        requests_client=60,
                        requests_server=60,
                        opened_s=75.0 * number + 10,
                        closed_s=75.0 * number + 70,
                    )
                )
    return tuple(found)


def break_even(metric: str, at: float, threshold: float = 1.0, form: Crossing = Crossing.PAYS_UP_TO) -> BreakEven:
    missing = form in (Crossing.PAYS_EVERYWHERE, Crossing.NEVER_PAYS, Crossing.NO_DATA)
    estimate = Estimate() if missing else Estimate(value=at, low=at * 0.88, high=at * 1.13, n=BLOCKS)
    return BreakEven(
        metric=metric,
        threshold=threshold,
        form=form,
        at=estimate,
        in_flight=Estimate() if missing else around(at * 0.94, 0.12),
        running=Estimate() if missing else around(at * 0.92, 0.12),
        regions=((1.0, at * 0.88),),
        sentence=f"{metric} is better up to {at:.0f} users" if not missing else "",
    )


def decision() -> Decision:
    return Decision(
        answer=Answer.PAYS_UP_TO,
        exit_code=0,
        headline=HEADLINE,
        second=SECOND,
        recommendation="on up to 32 users",
        would_settle="",
        limit=break_even("e2e", 37.0, 1.03),
        break_even=break_even("e2e", 41.0),
        guards=tuple(guard(level) for level in LEVELS),
    )


COMPARABILITY = (
    Comparability(item="model", baseline="Qwen/Qwen3-8B", candidate="Qwen/Qwen3-8B", source="verified", kind="equal"),
    Comparability(item="speculation", baseline="off", candidate="eagle3, k = 5", source="verified", kind="expected"),
    Comparability(item="KV blocks", baseline="27,412", candidate="25,870", source="verified", kind="consequence"),
    Comparability(item="GPU clock", baseline="", candidate="", source="unknown", kind="unknown"),
)


def judgement() -> Judgement:
    """Return a comparison that pays up to a limit."""
    return Judgement(
        decision=decision(),
        arms=ARMS,
        levels=LEVELS,
        arm_levels=tuple(arm_level(arm, level) for level in LEVELS for arm in ARMS),
        speedups=tuple(speedup(m, level) for m in ("e2e", "tpot", "ttft", "output_tokens_per_s") for level in LEVELS),
        break_evens=(
            break_even("e2e", 41.0),
            break_even("tpot", 47.0),
            break_even("output_tokens_per_s", 35.0),
            break_even("ttft", 1.0, form=Crossing.NEVER_PAYS),
        ),
        why=tuple(why(level) for level in LEVELS),
        cells=cells(),
        comparability=COMPARABILITY,
        notes=("Lateness of sends was above its mark in 3 cells.",),
        slower_share={level: 0.01 * level for level in LEVELS},
        median_pair={level: 1.5 - level / 100 for level in LEVELS},
        findings=behind.findings(),
        detail=behind.detail(),
    )


def full() -> Judgement:
    """Return the same with objectives and an expected day."""
    return dataclasses.replace(judgement(), gate=behind.gate())


def run(**changes: Any) -> dict[str, Any]:
    """Return a run header."""
    arm = {"kind": "vllm", "version": "0.11.2", "model": "Qwen/Qwen3-8B", "method": None, "config": {"tp": 1}}
    header: dict[str, Any] = {
        "schema": 1,
        "version": "0.1.0",
        "started": "2026-11-29T21:00:00Z",
        "status": "complete",
        "simulated": None,
        "scenario": {"name": "chat", "path": "scenarios/chat.py", "blake2b": "9d1f"},
        "command": [
            "loadtest",
            "run",
            "scenarios/chat.py",
            "--baseline",
            "http://a:8000",
            "--speculative",
            "http://b:8000",
        ],
        "experiment": {
            "decision": {"metric": "e2e", "min_gain": 0.03, "ttft_margin": 0.1, "on_time_margin": 0.01},
            "generation": {"temperature": 0.0, "max_tokens": 256, "top_p": None, "stop": []},
            "plan": {"blocks": 6, "seed": 1},
        },
        "arms": [
            {"name": "baseline", "url": "http://a:8000", "identity": arm},
            {"name": "speculative", "url": "http://b:8000", "identity": arm | {"method": "eagle3"}},
        ],
        "host": {"system": "Linux 6.1", "cpus": 16},
        "versions": {"python": "3.11.7", "locust": "2.47.0"},
        "calibration": {"users": 64, "lateness_p99_s": 0.0009, "client_cpu_ratio": 0.34},
    }
    return header | changes


def keeping() -> dict[str, Any]:
    """Return the header of a run that was told to keep text."""
    header = run()
    header["experiment"]["outputs"] = {"keep_text": True}
    return header


def texts(prompt: str = "Where is order 17?", answer: str = "It left\nMonday.") -> list[KeptText]:
    """Return the texts of the slow requests of `full`."""
    found = full().detail
    assert found is not None
    return [
        KeptText(cell=one.cell, arm=one.arm, session=one.session, turn=one.turn, prompt=prompt, answer=answer)
        for one in found.slowest
    ]


def one_arm() -> Judgement:
    """Return a run of one server: curves and tails, no comparison."""
    full = judgement()
    return dataclasses.replace(
        full,
        arms=("server",),
        speedups=(),
        break_evens=(),
        why=(),
        comparability=(),
        slower_share={},
        median_pair={},
        findings=None,
        detail=behind.alone(behind.detail()),
        arm_levels=tuple(dataclasses.replace(a, arm="server") for a in full.arm_levels if a.arm == "baseline"),
        cells=tuple(dataclasses.replace(c, arm="server") for c in full.cells if c.arm == "baseline"),
        decision=Decision(answer=Answer.MEASURED, exit_code=0, headline="measured: up to 1,000 tokens/s at 64 users"),
    )


def invalid() -> Judgement:
    """Return a run without a valid cell: every figure is missing."""
    full = judgement()
    return dataclasses.replace(
        full,
        speedups=(),
        break_evens=(),
        why=(),
        slower_share={},
        median_pair={},
        findings=None,
        detail=None,
        arm_levels=(),
        cells=tuple(
            dataclasses.replace(c, valid=False, marks=("the server stopped answering",)) for c in full.cells[:4]
        ),
        decision=Decision(
            answer=Answer.INVALID,
            exit_code=5,
            headline="this comparison is invalid: no cell is valid",
            reasons=("the speculative server stopped answering after 4 cells",),
        ),
    )


def bare() -> Judgement:
    """Return a comparison in which every value that may be missing is."""
    cell = CellView(
        cell=0,
        arm="baseline",
        level=1.0,
        block=0,
        valid=True,
        marks=(),
        window_s=None,
        requests=0,
        failed=0,
        in_flight=None,
        output_tokens_per_s=None,
        ttft_p50_s=None,
        e2e_mean_s=None,
        lateness_p99_s=None,
        cpu_ratio=None,
        hub_lag_p99_s=None,
        coalesced_ratio=None,
        tokens_client=None,
        tokens_server=None,
        requests_client=None,
        requests_server=None,
        opened_s=None,
        closed_s=None,
    )
    empty = BreakEven(metric="e2e", threshold=1.03, form=Crossing.NO_DATA)
    return Judgement(
        decision=Decision(
            answer=Answer.CANNOT_TELL,
            exit_code=4,
            headline="cannot tell yet",
            limit=empty,
            break_even=empty,
            guards=(Guard(name="ttft", level=1.0, finding=Finding.NO_DATA),),
        ),
        arms=ARMS,
        levels=(1.0, 2.0),
        arm_levels=tuple(
            ArmLevel(
                arm=arm,
                level=level,
                requests=0,
                failed=0,
                means={"e2e": Estimate()},
                tails={"ttft": Tail(metric="ttft")},
            )
            for arm in ARMS
            for level in (1.0, 2.0)
        ),
        speedups=(Speedup(metric="e2e", level=1.0, ratio=Estimate()),),
        break_evens=(empty,),
        why=(Why(level=1.0), Why(level=2.0)),
        cells=(cell,),
        comparability=(Comparability(item="model", baseline="", candidate="", source="unknown", kind="unknown"),),
    )
