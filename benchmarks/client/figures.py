"""What is measured, in the order of the table: each figure runs its workloads and returns lines with their targets.

A figure is one entry of FIGURES. Targets are those that the project set itself from what the best peers and the best
loops on a library reached on one core of a 2-core Xeon server (kernel 6.18, Python 3.11); elsewhere they are a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from benchmarks.client.bench import Bench, Result
from benchmarks.client.workload import GAP_S, Workload

STREAMS = (64, 256, 512, 1024, 2048)
QUICK_STREAMS = {"kernel": (64, 1024), "user": (1024,)}
TARGETED = range(64, 1025)  # streams for which the errors have targets
MS, US = 1e3, 1e6
LONG_STREAMS, LONG_GAP_S = 384, 0.01  # 32 k chunks/s: less than a core can do, so that the client still sleeps
LONG_MINUTE = 20_000  # requests: about a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure with its target."""

    name: str
    ours: str
    target: str = ""
    met: bool | None = None  # None: there is no target, or nothing to hold against it
    remark: str = ""  # what makes the figure suspect or wrong

    @property
    def verdict(self) -> str:
        """The target's outcome in a word."""
        if self.met is None:
            return ""
        return "met" if self.met else "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One entry: what it measures, and how; `quick` marks those of the short pass."""

    name: str
    says: str
    lines: Callable[[Bench], Iterable[Line]]
    quick: bool = True


def _line(name: str, result: Result, values: tuple[float, ...], limits: tuple[float, ...], unit: str) -> Line:
    """Return a line of values that must not exceed their limits; NaN never meets one."""
    ours = " / ".join(number(value) for value in values)
    target = f"≤ {' / '.join(number(limit) for limit in limits)} {unit}" if limits else ""
    met = all(value <= limit for value, limit in zip(values, limits, strict=True)) if limits else None
    return Line(name=name, ours=f"{ours} {unit}", target=target, met=met and not result.wrong, remark=_remark(result))


def _remark(result: Result) -> str:
    return "; ".join(filter(None, [result.wrong, *result.disturbance.reasons]))


def number(value: float) -> str:
    """Return a number with three digits that count, "–" for none."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 if abs(value) < 10 else 1}f}"


def _compared(result: Result, *names: str) -> tuple[float, ...]:
    return tuple(getattr(result.comparison, name) for name in names)


def saturation(bench: Bench) -> Iterable[Line]:
    short = Workload(seconds=4.5)
    cases = (
        ("kernel stamps", short, 80_000.0),
        ("kernel stamps, usage in each chunk", replace(short, usage=True), 60_000.0),
        ("user clock", replace(short, stamps="user"), 50_000.0),
    )
    for words, workload, target in cases:
        users, best = bench.highest(workload, 1024)
        rate = best.comparison.chunks_per_s if best and best.comparison else 0.0
        remark = "; ".join(best.disturbance.reasons) if best else "no number of streams held"
        name = f"chunks/s while TTFT and gaps stay within 10 %: {words}"
        yield Line(name=name, ours=f"{rate:,.0f} ({users} streams)", target=f"≥ {target:,.0f}", met=rate >= target,
                   remark=remark)  # fmt: skip


def cpu(bench: Bench) -> Iterable[Line]:
    limits = {(256, False): 22.0, (1024, False): 16.0, (256, True): 28.0, (1024, True): 22.0}
    for (users, usage), limit in limits.items():
        for tokens in (1,) if bench.quick else (1, 3):
            result = bench.run(Workload(users=users, usage=usage, tokens=tokens))
            counted = "usage in each chunk" if usage else "no usage in chunks"
            name = f"CPU per chunk, {users} streams × 50/s, {tokens} token{'s' * (tokens > 1)} a chunk, {counted}"
            yield _line(name, result, (result.cpu_us_per_chunk,), (limit,), "µs")


def gaps(bench: Bench) -> Iterable[Line]:
    for stamps, limit, scale, unit in (("kernel", 25.0, US, "µs"), ("user", 1.0, MS, "ms")):
        for users in QUICK_STREAMS[stamps] if bench.quick else STREAMS:
            result = bench.run(Workload(users=users, stamps=stamps))
            values = tuple(value * scale for value in _compared(result, "gap_error_p99_s"))
            name = f"gap error p99, {users} streams, {stamps} clock"
            yield _line(name, result, values, (limit,) if users in TARGETED else (), unit)


def steps(bench: Bench) -> Iterable[Line]:
    for stamps in ("kernel",) if bench.quick else ("kernel", "user"):
        result = bench.run(Workload(users=512, step=True, stamps=stamps))
        said, true = _compared(result, "gap_said_p99_s", "gap_true_p99_s")
        ratio = said / true
        exact = stamps == "kernel"
        yield Line(name=f"step bursts, 512 streams on one tick, {stamps} clock: gap p99 said ÷ true",
                   ours=f"{ratio:.4f} ({said * MS:.2f} / {true * MS:.2f} ms)", target="1 ± 0.01" if exact else "",
                   met=abs(ratio - 1) <= 0.01 if exact else None, remark=_remark(result))  # fmt: skip


def ttft(bench: Bench) -> Iterable[Line]:
    for users, limits in ((64, (0.15, 0.5)), (1024, (0.15, 1.0))):
        result = bench.run(Workload(users=users))
        values = tuple(value * MS for value in _compared(result, "ttft_error_p50_s", "ttft_error_p99_s"))
        yield _line(f"TTFT error p50 / p99, {users} streams", result, values, limits, "ms")


ONE_CHUNK = Workload(users=32, first_s=0.02, gap_s=0.0, chunks=1, seconds=4.0)


def requests(bench: Bench) -> Iterable[Line]:
    cases: tuple[tuple[str, tuple[float, ...]], ...] = (("client", (120.0,)), ("cell", ()))
    for through, limits in cases[:1] if bench.quick else cases:
        result = bench.run(replace(ONE_CHUNK, through=through))
        added = " through a whole cell of the driver" if through == "cell" else ""
        yield _line(f"CPU per request of one chunk{added}", result, (result.cpu_us_per_request,), limits, "µs")


def open_load(bench: Bench) -> Iterable[Line]:
    cases = ((Workload(rate_per_s=40.0, seconds=8.0), (0.3, 3.0)),
             (Workload(rate_per_s=500.0, first_s=0.02, gap_s=0.0, chunks=1, seconds=6.0), (0.3, 1.0)))  # fmt: skip
    for workload, limits in cases:
        result = bench.run(workload)
        values = tuple(value * MS for value in _compared(result, "send_error_p50_s", "send_error_p99_s"))
        name = f"open load, {workload.rate_per_s:g} requests/s: send-time error p50 / p99"
        yield _line(name, result, values, limits, "ms")


def memory(bench: Bench) -> Iterable[Line]:
    result = bench.run(Workload(users=1024))
    yield _line("resident memory, 1024 streams", result, (result.peak_memory_mb,), (150.0,), "MB")
    if bench.quick:
        return
    wanted = bench.long_requests or LONG_MINUTE
    result = bench.run(Workload(users=LONG_STREAMS, gap_s=LONG_GAP_S, usage=True, requests=wanted))
    early, late = growth(result.memory)
    met = late <= 300 and late - early <= max(3.0, 0.03 * early)
    name = f"resident memory over {result.requests:,} requests × 100 chunks, after a fifth → at the end"
    ours = f"{early:.1f} → {late:.1f} MB"
    yield Line(name=name, ours=ours, target="≤ 300 MB, flat (3 %)", met=met, remark=_remark(result))


def growth(samples: list[tuple[float, int, float]]) -> tuple[float, float]:
    """Return the memory after a fifth of the requests, and at the end; NaN without samples."""
    if not samples:
        return math.nan, math.nan
    fifth = samples[-1][1] / 5
    return next(size for _, done, size in samples if done >= fifth), samples[-1][2]


def tls(bench: Bench) -> Iterable[Line]:
    if not bench.programs.tls:
        yield Line(name="TLS", ours="not measured", remark="cc found no OpenSSL headers (Debian: libssl-dev)")
        return
    for users in (256,) if bench.quick else (256, 1024):
        for usage in (False,) if bench.quick else (False, True):
            result = bench.run(Workload(users=users, tls=True, usage=usage))
            counted = ", usage in each chunk" if usage else ""
            yield _line(
                f"TLS: CPU per chunk, {users} streams × 50/s{counted}", result, (result.cpu_us_per_chunk,), (), "µs"
            )
        result = bench.run(Workload(users=users, tls=True))
        errors = _compared(result, "gap_error_p99_s", "ttft_error_p50_s", "ttft_error_p99_s")
        yield _line(f"TLS: gap error p99; TTFT error p50, p99, {users} streams", result,
                    tuple(value * US for value in errors), (), "µs")  # fmt: skip


def shapes(bench: Bench) -> Iterable[Line]:
    plain = Workload(users=64, seconds=4.0)
    cases = {
        "role event at once": replace(plain, role=2, usage=True),
        "3 tokens a chunk": replace(plain, tokens=3, usage=True),
        "finish_reason in the last chunk": replace(plain, finish_last=True),
        "each chunk in two segments": replace(plain, split=True, usage=True),
    }
    for words, workload in list(cases.items())[:: 3 if bench.quick else 1]:
        result = bench.run(workload)
        said, true = _compared(result, "ttft_said_p50_s", "ttft_true_p50_s")
        yield Line(name=f"{words}: chunks, tokens and TTFT p50, said / true",
                   ours=f"{result.requests} requests; {said * MS:.1f} / {true * MS:.1f} ms", target="equal",
                   met=not result.wrong and abs(said - true) <= 0.1 * true, remark=_remark(result))  # fmt: skip


def cell(bench: Bench) -> Iterable[Line]:
    for users in (256,) if bench.quick else (256, 1024):
        result = bench.run(Workload(users=users, usage=True, through="cell"))
        yield _line(f"CPU per chunk through a whole cell of the driver, {users} streams × 50/s, usage in each chunk",
                    result, (result.cpu_us_per_chunk,), (), "µs")  # fmt: skip


def floor(bench: Bench) -> Iterable[Line]:
    for users in (256, 1024):
        result = bench.run(Workload(users=users, through="c"))
        yield _line(
            f"floor: CPU per chunk of a client in C, {users} streams × 50/s",
            result,
            (result.cpu_us_per_chunk,),
            (),
            "µs",
        )
    values = tuple(value * US for value in _compared(result, "gap_error_p99_s", "ttft_error_p99_s"))
    yield _line("floor: gap and TTFT error p99 of a client in C, 1024 streams", result, values, (), "µs")
    late = tuple(value * MS for value in _compared(result, "server_late_p99_s"))
    yield _line("the server itself: p99 of its lateness, 1024 streams", result, late, (GAP_S * MS / 2,), "ms")


FIGURES = (
    Figure(
        name="saturation", says="the highest rate at which the figures are still right", lines=saturation, quick=False
    ),
    Figure(name="cpu", says="what a chunk costs", lines=cpu),
    Figure(name="gaps", says="how far the gaps between chunks are off", lines=gaps),
    Figure(name="steps", says="all streams on one tick, as continuous batching sends", lines=steps),
    Figure(name="ttft", says="how far the time to the first token is off", lines=ttft),
    Figure(name="requests", says="what a request costs", lines=requests),
    Figure(name="open", says="how punctual requests are at a set rate", lines=open_load),
    Figure(name="memory", says="what is held, and whether it grows", lines=memory),
    Figure(name="tls", says="cost and errors over TLS", lines=tls),
    Figure(name="shapes", says="other forms of a stream", lines=shapes),
    Figure(name="cell", says="what the driver's cells and Locust's users add", lines=cell, quick=False),
    Figure(name="floor", says="what a client in C needs, and how late the server is", lines=floor, quick=False),
)
