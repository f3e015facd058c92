"""The truth of a case: its own experiment many times over, reduced by arithmetic of its own, and kept on disk.

Nothing here goes through the analysis: a wrong metric would otherwise agree with itself.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.judgement.cases import ARMS, BY_NAME, METRICS, QUANTILES, Case
from benchmarks.judgement.runs import run
from loadtest.drive.virtual import VirtualRun
from loadtest.experiment import as_document

ROOT = Path(__file__).parents[2] / "loadtest"
DECIDES = ("simulate", "workload", "drive/virtual.py", "drive/phases.py", "drive/plan.py")  # what a truth rests on
ROUNDING = 1e-9  # differences below it are those of floating point
FIRST_SEED = 900_000_000  # far from the seeds that are judged
Curve = dict[float, tuple[float, float]]  # level → mean and standard error of the log speed-up


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is true of a case: speed-ups (logarithms) on its own ladder and on a finer one, and percentiles."""

    ladder: dict[str, Curve]  # metric → the levels that are judged
    fine: dict[str, Curve]  # metric → these, and more around the crossings
    tails: dict[str, tuple[float, float]]  # "ttft p90 baseline 32" → value and its standard error, s
    blocks: int

    def crossings(self, metric: str, threshold: float) -> list[tuple[float, float]]:
        """Return where the speed-up is `threshold`: load and its standard error, between the outermost levels."""
        found = []
        for (a, (x, x_se)), (b, (y, y_se)) in pairwise(sorted(self.fine[metric].items())):
            x, y = x - math.log(threshold), y - math.log(threshold)
            if x * y < 0 and max(abs(x), abs(y)) > ROUNDING:
                share = x / (x - y)
                at = math.exp(math.log(a) + share * math.log(b / a))
                error = math.hypot((1 - share) * x_se, share * y_se) * abs(math.log(b / a) / (y - x))
                found.append((at, at * error))
        return found

    def above(self, metric: str, threshold: float, load: float) -> bool:
        """Say whether the speed-up at a load is above the threshold."""
        levels = sorted(self.fine[metric])
        means = [self.fine[metric][level][0] for level in levels]
        return float(np.interp(math.log(load), np.log(levels), means)) > math.log(threshold)


def code_hash(parts: Iterable[str] = DECIDES) -> str:
    """Return a hash of the package's files that are named, or lie in a folder that is."""
    digest = hashlib.sha256()
    for part in parts:
        path = ROOT / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def find(case: Case, pool: Executor, cache: Path, blocks: int) -> Truth:
    """Return the truth of a case from the cache, or by running it for at least so many blocks."""
    settings = json.dumps([asdict(case), as_document(case.experiment(0))], sort_keys=True)
    name = hashlib.sha256(f"{settings}{code_hash()}{blocks}".encode()).hexdigest()[:16]
    file = cache / f"{case.world}-{name}.json"
    if not file.exists():
        truth = _measure(case, pool, blocks)
        cache.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".part")
        draft.write_text(json.dumps(asdict(truth)))
        draft.replace(file)
    return exact(_read(file), case.gain)


def exact(truth: Truth, gain: float | None) -> Truth:
    """Return the truth with speed-ups of exactly 1 + gain, where that is what the case is made of."""
    if gain is None:
        return truth
    curves = {m: dict.fromkeys(curve, (math.log1p(gain), 0.0)) for m, curve in truth.ladder.items()}
    return replace(truth, ladder=curves, fine=curves)


def _read(file: Path) -> Truth:
    data = json.loads(file.read_text())
    curves = {
        kind: {m: {float(x): tuple(v) for x, v in curve.items()} for m, curve in data[kind].items()}
        for kind in ("ladder", "fine")
    }
    tails = {name: tuple(value) for name, value in data["tails"].items()}
    return Truth(ladder=curves["ladder"], fine=curves["fine"], tails=tails, blocks=data["blocks"])


def _measure(case: Case, pool: Executor, blocks: int) -> Truth:
    experiment = case.experiment(0)
    levels, times = experiment.load.levels, math.ceil(blocks / experiment.plan.blocks)
    parts = list(pool.map(_part, [(case.name, FIRST_SEED + i, levels) for i in range(times)]))
    ladder = {m: _curve(parts, m) for m in METRICS}
    more = finer(ladder, levels, 1 + experiment.decision.min_gain)
    fine = ladder
    if more:
        added = list(pool.map(_part, [(case.name, FIRST_SEED + times + i, more) for i in range(times)]))
        fine = {m: ladder[m] | _curve(added, m) for m in METRICS}
    return Truth(ladder=ladder, fine=fine, tails=_tails(parts, levels), blocks=times * experiment.plan.blocks)


def finer(ladder: Mapping[str, Curve], levels: Sequence[float], threshold: float) -> tuple[float, ...]:
    """Return as many levels as the ladder has (a longer experiment is another one), where curves cross a threshold."""
    gaps: dict[tuple[float, float], int] = defaultdict(int)  # by weight: what decides first
    for metric, curve in ladder.items():
        for mark in (1.0, threshold) if metric == METRICS[0] else (1.0,):
            for (a, (x, _)), (b, (y, _)) in pairwise(sorted(curve.items())):
                if (x - math.log(mark)) * (y - math.log(mark)) < 0:
                    gaps[a, b] += 3 if metric == METRICS[0] else 1
    kept = sorted(gaps, key=lambda gap: -gaps[gap])[: len(levels)]
    chosen: set[float] = set()
    for number, (a, b) in enumerate(kept):
        count = len(levels) // len(kept) + (number < len(levels) % len(kept))
        chosen |= {float(round(a * (b / a) ** ((i + 1) / (count + 1)))) for i in range(count)}
    return tuple(sorted(chosen - set(levels)))


def _part(work: tuple[str, int, tuple[float, ...]]) -> dict[str, Any]:
    """Return one experiment's log speed-ups by metric and level, and its latencies by arm and level."""
    name, seed, levels = work
    case = BY_NAME[name]
    experiment = case.experiment(seed)
    if levels != experiment.load.levels:
        changed = Case(**{**asdict(case), "settings": {**case.settings, "load": {
            **case.settings.get("load", {}), "levels": levels}}})  # fmt: skip
        experiment = changed.experiment(seed)
    return reduced(run(case, experiment))


def reduced(made: VirtualRun) -> dict[str, Any]:
    """Reduce a run by the metrics' definitions: means of cells, paired by block, and the latencies themselves."""
    windows = {c.cell: (c.window_open_s, c.window_close_s) for c in made.cells}
    by_cell: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in made.rows:
        by_cell[row["cell"]].append(row)
    figures: dict[tuple[str, float, int], dict[str, float]] = {}
    latencies: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    for cell in made.cells:
        opened, closed = windows[cell.cell]
        rows = by_cell[cell.cell]
        due = [row for row in rows if opened <= row["due_s"] < closed]
        ok = [row for row in due if row["outcome"] == "ok"]
        ttft = [row["chunk_s"][0] - row["due_s"] for row in ok]
        e2e = [row["chunk_s"][-1] - row["due_s"] for row in ok]
        lost = [math.inf] * (len(due) - len(ok))
        latencies["ttft", cell.arm, cell.level] += ttft + lost
        latencies["e2e", cell.arm, cell.level] += e2e + lost
        figures[cell.arm, cell.level, cell.block] = {
            "ttft": statistics.fmean(ttft), "e2e": statistics.fmean(e2e),
            "tpot": statistics.fmean(_paces(ok)), "output_tokens_per_s": _arrived(rows, opened, closed),
        }  # fmt: skip
    ratios: dict[str, dict[float, list[float]]] = {m: defaultdict(list) for m in METRICS}
    for (arm, level, block), base in figures.items():
        if arm == ARMS[0]:
            other = figures[ARMS[1], level, block]
            for m in METRICS:
                sign = 1 if m == "output_tokens_per_s" else -1
                ratios[m][level].append(sign * math.log(other[m] / base[m]))
    return {"ratios": {m: dict(found) for m, found in ratios.items()}, "latencies": dict(latencies)}


def _paces(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [
        (row["chunk_s"][-1] - row["chunk_s"][0]) / (row["output_tokens"] - row["chunk_tokens"][0])
        for row in rows if row["output_tokens"] > row["chunk_tokens"][0]
    ]  # fmt: skip


def _arrived(rows: Sequence[Mapping[str, Any]], opened: float, closed: float) -> float:
    tokens = 0
    for row in rows:
        first, after = bisect_left(row["chunk_s"], opened), bisect_right(row["chunk_s"], closed)
        tokens += sum(row["chunk_tokens"][first:after])
    return tokens / (closed - opened)


def _curve(parts: Sequence[Mapping[str, Any]], metric: str) -> Curve:
    """Return mean and standard error; parts are independent, and the blocks of a part need not be."""
    levels = sorted(parts[0]["ratios"][metric])
    found = {}
    for level in levels:
        means = [statistics.fmean(part["ratios"][metric][level]) for part in parts]
        found[level] = (statistics.fmean(means), statistics.stdev(means) / math.sqrt(len(means)))
    return found


def _tails(parts: Sequence[Mapping[str, Any]], levels: Sequence[float]) -> dict[str, tuple[float, float]]:
    """Return pooled percentiles (nearest rank), with the standard error from ten groups of parts."""
    found = {}
    for metric in ("ttft", "e2e"):
        for arm in ARMS:
            for level in levels:
                groups = [np.concatenate([p["latencies"][metric, arm, level] for p in parts[i::10]])
                          for i in range(min(10, len(parts)))]  # fmt: skip
                pooled = np.concatenate(groups)
                for name, q in QUANTILES.items():
                    value = rank(pooled, q)
                    each = [rank(group, q) for group in groups]
                    error = statistics.stdev(each) / math.sqrt(len(each)) if np.isfinite(each).all() else math.inf
                    if math.isfinite(value):
                        found[f"{metric} {name} {arm} {level:g}"] = (value, min(error, 1e300))
    return found


def rank(values: np.ndarray[Any, Any], q: float) -> float:
    """Return the value of rank ⌈q·n⌉."""
    return float(np.sort(values)[max(1, math.ceil(q * len(values) - 1e-9)) - 1])
