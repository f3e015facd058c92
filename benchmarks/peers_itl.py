"""How other tools' definitions of inter-token latency would have scored a run.

    python benchmarks/peers_itl.py RUN [LEVEL …]

Every definition is applied to the same records: the requests that were due in the windows of complete cells, ended
well and said how many tokens each chunk carried. Nothing is judged. The formulas were read from the tools' sources in
2026: vLLM 0.33.0, GuideLLM 0.8.1, AIPerf 0.13.0, inference-perf 0.7.0, SGLang 0.5.23, EvalScope 1.14.1, LLMPerf
f1d6bed, llm-bench 05acc7f.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadtest.record import CellRecord
from loadtest.run_folder import read_cells, read_requests, read_run

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One answer: times in seconds, tokens of each chunk."""

    sent_s: float
    end_s: float
    chunk_s: Floats
    tokens: NDArray[np.int64]

    @property
    def gaps(self) -> Floats:
        return np.diff(self.chunk_s)

    @property
    def after_first(self) -> float:
        return float(self.tokens.sum() - 1)  # these tools take the first chunk for one token


def per_chunk(one: Stream) -> Floats:
    return one.gaps


def per_request(one: Stream) -> Floats:
    return np.array([(one.chunk_s[-1] - one.chunk_s[0]) / one.after_first])


def burst(one: Stream) -> Floats:
    after = [np.r_[gap, np.zeros(count - 1)] for gap, count in zip(one.gaps, one.tokens[1:], strict=True)]
    return np.concatenate([np.zeros(one.tokens[0] - 1), *after])


def spread_out(one: Stream) -> Floats:
    return np.repeat(one.gaps / one.tokens[1:], one.tokens[1:])


def with_first(one: Stream) -> Floats:
    return np.array([(one.chunk_s[-1] - one.sent_s) / len(one.chunk_s)])


def whole_answer(one: Stream) -> Floats:
    return np.array([(one.chunk_s[-1] - one.sent_s) / one.tokens.sum()])


def to_the_end(one: Stream) -> Floats:
    return np.array([(one.end_s - one.chunk_s[0]) / one.after_first])


def by_all_tokens(one: Stream) -> Floats:
    return np.array([(one.end_s - one.chunk_s[0]) / one.tokens.sum()])


def exact(one: Stream) -> Floats:
    return np.array([(one.chunk_s[-1] - one.chunk_s[0]) / (one.tokens.sum() - one.tokens[0])])


DEFINITIONS: tuple[tuple[str, str, Callable[[Stream], Floats]], ...] = (
    ("ITL: vLLM bench serve, EvalScope", "gap between chunks, one value per chunk", per_chunk),
    ("ITL: GuideLLM, AIPerf", "(last − first chunk) ÷ (tokens − 1), per request", per_request),
    ("ITL: inference-perf", "per token: the gap for the first token of a chunk, 0 for the others", burst),
    ("ITL: SGLang bench", "per token: the gap ÷ tokens of the chunk", spread_out),
    ("ITL: LLMPerf", "(time to first token + all gaps) ÷ chunks, per request", with_first),
    ("TPOT: vLLM bench serve", "(last − first chunk) ÷ (tokens − 1), per request", per_request),
    ("TPOT: SGLang bench, EvalScope", "(end of the stream − first chunk) ÷ (tokens − 1)", to_the_end),
    ("TPOT: GuideLLM", "(last chunk − sent) ÷ tokens: time to first token included", whole_answer),
    ("TPOT: llm-bench", "(end of the stream − first chunk) ÷ tokens", by_all_tokens),
    ("tpot: loadtest", "(last − first chunk) ÷ (tokens − tokens of the first chunk)", exact),
)


def streams(folder: Path, level: float, arm: str) -> Iterator[Stream]:
    """Yield the answers of an arm at a level that every definition can be applied to."""
    windows: dict[int, CellRecord] = {cell.cell: cell for cell in read_cells(folder) if cell.state == "complete"}
    for row in read_requests(folder).to_pylist():
        cell = windows.get(row["cell"])
        if cell is None or row["arm"] != arm or row["level"] != level or row["outcome"] != "ok":
            continue
        opened, closed = cell.window_open_s, cell.window_close_s
        inside = opened is not None and closed is not None and opened <= row["due_s"] < closed
        tokens = np.array(row["chunk_tokens"], dtype=np.int64)
        if inside and len(tokens) == len(row["chunk_s"]) > 1 and tokens.sum() > tokens[0]:
            yield Stream(sent_s=row["sent_s"], end_s=row["end_s"], chunk_s=np.array(row["chunk_s"]), tokens=tokens)


def figures(values: list[Floats]) -> tuple[float, float, float]:
    """Return mean, median and p99 (nearest rank) in milliseconds."""
    pooled = np.sort(np.concatenate(values)) * 1000
    rank = max(0, int(np.ceil(0.99 * len(pooled))) - 1)
    return float(pooled.mean()), float(pooled[(len(pooled) - 1) // 2]), float(pooled[rank])


def change(base: float, cand: float) -> str:
    return "–" if base <= 0 else f"{100 * (cand / base - 1):+.0f} %".replace("-", "−")


def table(folder: Path, level: float, baseline: str, candidate: str) -> list[str]:
    """Return the definitions as rows of a markdown table."""
    both = [list(streams(folder, level, arm)) for arm in (baseline, candidate)]
    if not all(both):
        return [f"No answers with token counts at {level:g} in both servers."]
    ends = [np.mean([one.chunk_s[-1] - one.sent_s for one in own]) for own in both]
    said = f"{level:g} users: {len(both[0])} answers of {baseline}, {len(both[1])} of {candidate};"
    heads = (f"{baseline}: mean / p50 / p99, ms", f"{candidate}: mean / p50 / p99, ms", "at the mean", "at p99")
    lines = [
        f"{said} mean end-to-end {ends[0]:.2f} s and {ends[1]:.2f} s.",
        "",
        f"| as defined by | {' | '.join(heads)} |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, formula, values in DEFINITIONS:
        base, cand = (figures([values(one) for one in own]) for own in both)
        shown = [" / ".join(f"{value:.1f}" for value in own) for own in (base, cand)]
        lines.append(f"| {name}: {formula} | {shown[0]} | {shown[1]} | {change(base[0], cand[0])}"
                     f" | {change(base[2], cand[2])} |")  # fmt: skip
    return lines


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    run = read_run(folder)
    if not run.get("candidate"):
        sys.exit(f"{folder} is a run of one server: there is nothing to compare.")
    wanted = {float(text) for text in sys.argv[2:]} or {cell.level for cell in read_cells(folder)}
    for level in sorted(wanted):
        print("\n".join(table(folder, level, str(run["baseline"]), str(run["candidate"]))), end="\n\n")


if __name__ == "__main__":
    main()
