"""The tables of the page: rows of text, in the reader's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.results import CellView, Comparability
from loadtest.report import limits, vocabulary, words
from loadtest.report.sure import worse_words
from loadtest.report.view import View, cut_share

Row = tuple[str, ...]
FEW = 8  # settings of speculation that need no fold
MOST = 250  # rows of a table that grows with the run: the page stays under 6 MB
INTER_TOKEN = ("tpot", "token_gap", "chunk_gap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; the first `heads` columns of each row name it."""

    name: str
    columns: Row
    rows: tuple[Row, ...]
    heads: int = 1
    left_out: int = 0  # rows that stand in the run's folder alone


def levels(view: View) -> Table:
    """Return all arms at every level, the speed-up beside each candidate."""
    depth = view.deepest("ttft")
    depth = depth if depth not in ("", "p50") else "p90"
    compared: Row = ()
    if view.compared:
        compared = (
            f"speed-up by {vocabulary.metric(view.decision_metric).short}",
            "verdict",
            "percentiles proven worse",
        )
    figures = (
        "TTFT p50",
        f"TTFT {depth}",
        "TPOT mean",
        "E2E mean",
        "tokens/s",
        "requests",
        "failed",
        "in flight",
        "running",
    )
    rows = []
    for level in view.levels:
        for arm in view.judgement.arms:
            row: Row = (words.level(level), words.plain(arm))
            own = view.of(arm)
            if own is not None:
                ratio = words.interval(own.speedup(own.decision_metric, level).ratio, words.ratio)
                row += (ratio, own.verdict(level), worse_words(own, level) or words.MISSING)
            elif view.compared:
                row += ("", "", "")
            rows.append(row + _figures(view, arm, level, depth))
    name = "Both arms by level" if view.candidate else "All arms by level" if view.pairs else "By level"
    return Table(name=name, columns=("load", "arm", *compared, *figures), rows=tuple(rows), heads=2)


def _figures(view: View, arm: str, level: float, depth: str) -> Row:
    at = view.at(arm, level)
    return (
        words.time(view.tail(arm, level, "ttft", "p50").value), words.time(view.tail(arm, level, "ttft", depth).value),
        words.time(view.mean(arm, level, "tpot").value), words.time(view.mean(arm, level, "e2e").value),
        words.whole(view.mean(arm, level, "output_tokens_per_s").value),
        words.count(at.requests), words.count(at.failed), words.tenths(at.in_flight), words.tenths(at.running),
    )  # fmt: skip


def break_evens(view: View) -> Table:
    """Return every load that the page calls a limit, and what each is for; only the first decides."""
    decision = view.judgement.decision
    found = [("limit of the decision", decision.limit, limits.of_decision(view))] if decision.limit is not None else []
    first = sorted(view.judgement.break_evens, key=lambda item: item.metric != view.decision_metric)
    found += [(vocabulary.metric(item.metric).label, item, limits.of_metric(view, item)) for item in first]
    rows = tuple(
        (name, words.ratio(item.threshold), vocabulary.CROSSINGS[item.form], words.load_interval(item.at),
         words.load_interval(item.in_flight), words.load_interval(item.running), use, words.plain(item.sentence))
        for name, item, use in found
    )  # fmt: skip
    columns = ("metric", "speed-up", "form", "load, 95 %", "in flight", "running", "what it is for", "in words")
    others = tuple(
        (one.name, words.MISSING, words.MISSING, one.load, one.in_flight, words.MISSING, one.use, one.said)
        for one in limits.others(view)
    )
    return Table(name="Every limit on this page, and what it is for", columns=columns, rows=rows + others)


def pairs(view: View) -> Table:
    """Return the same request on both servers, by level: descriptive, since requests of a cell share batches."""
    judgement = view.judgement
    rows = tuple(
        (
            words.level(level),
            words.ratio(judgement.median_pair.get(level)),
            words.share(judgement.slower_share.get(level)),
        )
        for level in view.levels
        if level in judgement.median_pair or level in judgement.slower_share
    )
    columns = ("load", "median speed-up of paired requests", "requests slower by over 10 %")
    return Table(name="The same request on both servers", columns=columns, rows=rows)


def inter_token(view: View) -> Table:
    """Return the three inter-token latencies of each arm at every level, middle and tail."""
    depths = {name: view.deepest(name) for name in INTER_TOKEN}
    columns = ["load", "arm"]
    for name in INTER_TOKEN:
        columns += [f"{vocabulary.metric(name).short} {statistic}" for statistic in _statistics(depths[name])]
    rows = []
    for level in view.levels:
        for arm in view.judgement.arms:
            figures = [
                words.time(_statistic(view, arm, level, name, statistic).value)
                for name in INTER_TOKEN
                for statistic in _statistics(depths[name])
            ]
            carried = words.count(view.mean(arm, level, "tokens_per_chunk").value)
            rows.append((words.level(level), words.plain(arm), *figures, carried))
    return Table(name="Inter-token latency by level", columns=(*columns, "tokens/chunk"), rows=tuple(rows), heads=2)


def _statistics(depth: str) -> tuple[str, ...]:
    return ("mean", "p50", depth) if depth and depth != "p50" else ("mean", "p50")


def _statistic(view: View, arm: str, level: float, name: str, statistic: str) -> Estimate:
    return view.mean(arm, level, name) if statistic == "mean" else view.tail(arm, level, name, statistic)


def why(view: View) -> Table:
    """Return the decode accounting of every level."""
    entries = [view.why(level) for level in view.levels]
    rows = tuple(
        (words.level(w.level), words.count(w.tau_all_baseline), words.count(w.tau_all), words.count(w.tau_drafting),
         words.time(w.step_baseline_s), words.time(w.step_candidate_s), words.ratio(w.step_ratio),
         words.ratio(w.decode_speedup), words.count(w.tau_needed), words.share(w.acceptance_ratio),
         words.count(w.drafted_per_step), words.tenths(w.running_baseline),
         words.tenths(w.running_candidate), words.share(w.edge_error_ratio))
        for w in entries
    )  # fmt: skip
    columns = (
        "load", "τ baseline", "τ all steps", "τ drafting steps", "step baseline", "step candidate", "step ratio",
        "decode speed-up", "τ needed", "acceptance ratio", "drafted per step", "running baseline",
        "running candidate", "edge error",
    )  # fmt: skip
    return Table(name="Decode accounting by level", columns=columns, rows=rows if view.judgement.why else ())


def outcomes(view: View) -> Table:
    """Return how requests ended, and why answers stopped."""
    rows = tuple(
        (
            words.level(at.level),
            words.plain(at.arm),
            words.count(at.requests),
            _tally(at.outcomes),
            _tally(at.finish_reasons),
            words.share(cut_share((at.finish_reasons,))),
        )
        for level in view.levels
        for at in (view.at(arm, level) for arm in view.judgement.arms)
    )
    columns = ("load", "arm", "requests due", "outcomes", "finish reasons", "cut at max tokens")
    return Table(name="How requests ended", columns=columns, rows=rows, heads=2)


def _tally(counts: dict[str, int]) -> str:
    return ", ".join(f"{words.plain(name, 80)} {number:,}" for name, number in sorted(counts.items())) or words.MISSING


def comparability(view: View) -> dict[str, Table]:
    """Return what is known of the two servers: what differs, the gravest first, what speculation itself sets, the rest.

    The settings of speculation stand apart where they are many: a real server lists some two hundred.
    """
    rank = {"violation": 0, "waived": 1, "unknown": 1, "consequence": 2, "expected": 3}
    lines = sorted(view.judgement.comparability, key=lambda line: rank.get(line.kind, 1))
    equal = [line for line in lines if line.kind == "equal"]
    settings = [line for line in lines if line.kind == "expected" and "." in line.item]
    settings = settings if len(settings) > FEW else []
    rest = [line for line in lines if line not in equal and line not in settings]
    return {
        "comparability": _compared("Differences", rest),
        "speculation_settings": _compared("What speculation itself sets", settings),
        "equal": _compared("Equal items", equal),
    }


def _compared(name: str, lines: Sequence[Comparability]) -> Table:
    rows: tuple[Row, ...] = tuple(
        (words.plain(line.item), words.plain(line.kind), words.plain(line.baseline) or words.MISSING,
         words.plain(line.candidate) or words.MISSING, words.plain(line.source))
        for line in lines[:MOST]
    )  # fmt: skip
    columns: Row = ("item", "difference", "baseline", "candidate", "source")
    if any(line.note for line in lines):
        columns += ("what that means",)
        rows = tuple((*row, words.plain(line.note, 300)) for row, line in zip(rows, lines, strict=False))
    return Table(name=name, columns=columns, rows=rows, left_out=max(0, len(lines) - MOST))


def cells(view: View, *, marked_only: bool = False) -> Table:
    """Return the cells with their quality marks, in running order."""
    chosen = [cell for cell in view.judgement.cells if not marked_only or cell.marks or not cell.valid]
    columns = (
        "cell", "arm", "load", "block", "state", "marks", "window", "requests", "failed", "in flight", "tokens/s",
        "TTFT p50", "E2E mean", "late sends p99", "client CPU", "timer lag p99", "coalesced", "tokens client / server",
        "requests client / server",
    )  # fmt: skip
    name = "Cells that are invalid or carry a mark" if marked_only else "All cells, in running order"
    return Table(
        name=name,
        columns=columns,
        rows=tuple(_cell(cell) for cell in chosen[:MOST]),
        left_out=max(0, len(chosen) - MOST),
    )


def _cell(cell: CellView) -> Row:
    return (
        str(cell.cell), words.plain(cell.arm), words.level(cell.level), str(cell.block + 1),
        "valid" if cell.valid else "invalid", words.plain(" ".join(cell.marks), 400) or words.MISSING,
        words.time(cell.window_s), words.count(cell.requests), words.count(cell.failed),
        words.tenths(cell.in_flight), words.whole(cell.output_tokens_per_s),
        words.time(cell.ttft_p50_s), words.time(cell.e2e_mean_s), words.time(cell.lateness_p99_s),
        words.share(cell.cpu_ratio), words.time(cell.hub_lag_p99_s), words.share(cell.coalesced_ratio),
        f"{words.count(cell.tokens_client)} / {words.count(cell.tokens_server)}",
        f"{words.count(cell.requests_client)} / {words.count(cell.requests_server)}",
    )  # fmt: skip


def definitions() -> Table:
    """Return the metrics as they are defined."""
    rows = tuple(
        (
            item.label,
            item.short,
            {"share": "0 to 100 %"}.get(item.unit, item.unit),
            item.better or words.MISSING,
            item.definition,
        )
        for item in vocabulary.METRICS.values()
    )
    return Table(name="Metrics", columns=("metric", "short", "unit", "better", "definition"), rows=rows)
