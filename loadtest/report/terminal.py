"""The answer on a terminal: reads well at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadtest import loads
from loadtest.analyse.results import Judgement
from loadtest.report import again, header, limits, runs, sure, vocabulary, why_words, words
from loadtest.report import gate as gate_report
from loadtest.report.caveats import caveats
from loadtest.report.charts_classes import by_class
from loadtest.report.next_steps import Step, next_steps
from loadtest.report.runs import Entry
from loadtest.report.view import View

IN_FLIGHT, E2E = 2, 5  # columns of the table of levels
COLUMNS = 80
LINES = 8  # of reasons and of notes
NARROWEST = 74  # characters of a command's line, which no width breaks: 80 columns less indents and the backslash
SHORT_UNITS = {"users": "users", "requests/s": "req/s", "sessions/s": "sess/s"}  # a table of 80 columns is full
VERDICT_STYLES = {
    "pays": "green",
    "slower": "red",
    "guard broken": "red",
    "too little": "yellow",
    "cannot tell": "yellow",
}


def print_summary(
    console: Console, run: Mapping[str, Any], judgement: Judgement, page_path: Path | None = None
) -> None:
    """Print the answer; `page_path` is where report.html lies."""
    console.print(summary(run, judgement, page_path), highlight=False, soft_wrap=False, crop=False)


def print_comparison(console: Console, found: Sequence[Entry], page_path: Path) -> None:
    """Print which of several runs pays up to the highest load, one line per run, and where their page lies."""
    parts: list[RenderableType] = [
        Text(f"{banner.word.upper()}: {banner.text}", style="bold red" if banner.tone == "alarm" else "bold yellow")
        for banner in runs.banners(found)
    ]
    said = runs.headline(found)
    parts += [Text(""), Text(words.plain(said[:1].upper() + said[1:]), style="bold"), Text("")]
    parts += [Text(f"- {entry.name}: {words.plain(entry.view.judgement.decision.headline, 400)}") for entry in found]
    parts.append(Text(f"Page: {words.plain(page_path)}", no_wrap=True, overflow="ignore"))
    console.print(Group(*parts), highlight=False, soft_wrap=False, crop=False)


@words.in_its_unit
def summary(run: Mapping[str, Any], judgement: Judgement, page_path: Path | None = None) -> RenderableType:
    """Return the answer, the table by level and what the exit code means; foreign text is never markup."""
    view, decision = View(run=run, judgement=judgement), judgement.decision
    parts: list[RenderableType] = [
        Text(f"{banner.word.upper()}: {banner.text}", style="bold red" if banner.tone == "alarm" else "bold yellow")
        for banner in header.banners(view)
    ]
    parts += [Text(""), Text(words.plain(decision.headline), style="bold")]
    parts += [Text(words.plain(text)) for text in gate_report.second(judgement.gate)]
    parts += _gate(judgement)
    even = limits.break_even(view)
    parts += [Text(words.plain(text)) for text in (even, decision.second) if text]
    if decision.recommendation:
        parts.append(Text(f"Recommendation: {words.plain(sure.recommendation(view))}"))
    parts += _list("", decision.reasons)
    if view.levels and judgement.arm_levels:
        parts += [Text(""), _levels(view)]
    parts += [
        Text(""),
        *(Text(line) for line in (*why_words.why_sentences(view), by_class(view)) if line),
        Text(sure.certainty(view)),
        *(Text(line) for line in (*caveats(view), sure.cut_answers(view)) if line),
    ]
    parts += _steps(next_steps(view))
    parts += _list("note: ", judgement.notes)
    if page_path is not None:
        parts.append(Text(f"Page: {words.plain(page_path)}", no_wrap=True, overflow="ignore"))
    parts.append(Text(f"Exit code: {vocabulary.exit_words(header.exit_code(view))}"))
    return Group(*parts)


def _gate(judgement: Judgement) -> Iterator[Text]:
    """The gate's answer, and every objective on a line of its own."""
    gate = judgement.gate
    if gate is None:
        return
    if gate.headline != judgement.decision.headline:
        yield Text(words.plain(gate.headline), style="bold")
    for line in gate_report.lines(gate):
        style = {"pass": "green", "fail": "red", "invalid": "red"}.get(line.partition(":")[0], "yellow")
        yield Text(f"- {words.plain(line, 600)}", style=style)
    for note in gate.notes:
        yield Text(f"- note: {words.plain(note, 400)}")


def _list(prefix: str, items: tuple[str, ...]) -> Iterator[Text]:
    for item in items[:LINES]:
        yield Text(f"- {prefix}{words.plain(item, 400)}")
    if len(items) > LINES:
        yield Text(f"- {len(items) - LINES} more on the page")


def _steps(steps: tuple[Step, ...]) -> Iterator[Text]:
    """What to do next; a command as lines that no width breaks, so that it can be copied."""
    for step in steps:
        yield Text(f"- next: {words.plain(step.text, 400)}")
        if step.command:
            for line in again.lines(step.command, NARROWEST).splitlines():
                yield Text(f"  {line}", no_wrap=True, overflow="ignore")


def _levels(view: View) -> Table:
    """One entry per level, one line per arm; the speed-up and, below it, the verdict at the right.

    Where it is wider than 80 columns its gaps narrow, and then requests in flight and end-to-end times stand on the
    page alone: what is judged is never cut. Requests in flight that are the users say nothing and are left out.
    """
    names = [SHORT_UNITS.get(loads.unit(), "load"), "arm", "in flight", "TTFT p50", "TPOT", "E2E", "tokens/s"]
    names += [f"speed-up, {vocabulary.metric(view.decision_metric).short}"] if view.compared else []
    names += [""] if view.pairs else []
    rows = []
    for level in view.levels:
        columns = [[f"{level:g}"], *zip(*(_arm(view, arm, level) for arm in view.judgement.arms), strict=True)]
        row = [Text("\n".join(lines)) for lines in columns]
        if view.candidate:
            row.append(_judged(view, level))
        rows.append([*row, *_of_candidates(view, level)])
    dropped = {IN_FLIGHT} if view.pairs or _all_in_flight(view) else set()  # verdicts of several need the room
    for place in (IN_FLIGHT, E2E):
        if _width(names, rows, 1, dropped) > COLUMNS:
            dropped.add(place)
    gap = 1 if _width(names, rows, 2, dropped) > COLUMNS else 2
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    for place, name in enumerate(names):
        if place not in dropped:
            table.add_column(name, no_wrap=True, justify="right" if 2 <= place <= 6 else "left")
    for row in rows:
        table.add_row(*(text for place, text in enumerate(row) if place not in dropped))
    return table


def _all_in_flight(view: View) -> bool:
    """Return whether each arm has as many requests in flight as the load says, to a digit after the point."""
    seen = [(view.at(arm, level).in_flight, level) for arm in view.judgement.arms for level in view.levels]
    return not loads.is_rate() and all(
        value is not None and words.tenths(value) == words.tenths(level) for value, level in seen
    )


def _width(names: Sequence[str], rows: Sequence[Sequence[Text]], gap: int, dropped: Collection[int] = ()) -> int:
    """Return how many columns of a terminal a table takes."""
    each = [max([cell_len(name), *(cell_len(line) for row in rows for line in row[place].plain.split("\n"))])
            for place, name in enumerate(names) if place not in dropped]  # fmt: skip
    return sum(each) + gap * (len(each) - 1)


def _of_candidates(view: View, level: float) -> tuple[Text, ...]:
    """Return the speed-ups of several candidates at a level and their verdicts, each beside its arm."""
    if not view.pairs:
        return ()
    ratios, verdicts = Text(""), Text("")
    for own in view.pairs.values():
        verdict = own.verdict(level)
        ratios.append("\n" + words.interval(own.speedup(own.decision_metric, level).ratio, words.ratio))
        verdicts.append("\n").append(verdict, style=VERDICT_STYLES.get(verdict, ""))
    return ratios, verdicts


def _arm(view: View, arm: str, level: float) -> tuple[str, ...]:
    return (
        words.plain(arm, 14),
        words.tenths(view.at(arm, level).in_flight),
        words.time(view.tail(arm, level, "ttft", "p50").value),
        words.time(view.mean(arm, level, "tpot").value),
        words.time(view.mean(arm, level, "e2e").value),
        words.whole(view.mean(arm, level, "output_tokens_per_s").value),
    )


def _judged(view: View, level: float) -> Text:
    verdict = view.verdict(level)
    text = Text(words.interval(view.speedup(view.decision_metric, level).ratio, words.ratio) + "\n")
    return text.append(verdict, style=VERDICT_STYLES.get(verdict, ""))
