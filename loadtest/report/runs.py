"""Several runs beside each other: what tells them apart, which limit is highest, and tables of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest import loads
from loadtest.analyse import wording
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import Answer, Judgement
from loadtest.errors import UsageError
from loadtest.report import header, protocol, vocabulary, words
from loadtest.report.header import Banner
from loadtest.report.tables import MOST, Row, Table
from loadtest.report.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run among several: its name on the page, and what it found."""

    name: str
    view: View


def entries(runs: Sequence[tuple[str, Mapping[str, Any], Judgement]]) -> tuple[Entry, ...]:
    """Return the runs (folder, header, judgement) with names that tell them apart: method and k, else the folder."""
    views = [View(run=run, judgement=judgement) for _, run, judgement in runs]
    folders = [words.plain(folder, 80) for folder, _, _ in runs]
    short = [_method(view) for view in views]
    scenarios = [header.scenario(view.run) for view in views]
    if len(set(scenarios)) > 1:
        short = [", ".join(part for part in pair if part) for pair in zip(scenarios, short, strict=True)]
    names = [one if one and short.count(one) == 1 else ", ".join(part for part in (one, folder) if part)
             for one, folder in zip(short, folders, strict=True)]  # fmt: skip
    names = [f"{name}, {words.plain(view.candidate or '')}" if names.count(name) > 1 else name
             for name, view in zip(names, views, strict=True)]  # fmt: skip
    return tuple(Entry(name=name, view=view) for name, view in zip(names, views, strict=True))


def _method(view: View) -> str:
    tables = dict(header.arm_tables(view))
    own = tables.get(words.plain(view.candidate), {}) if view.candidate else {}
    k = own.get("num_speculative_tokens")
    parts = [words.plain(own.get("method"), 60) if own.get("method") else words.plain(view.candidate or "", 60)]
    parts += [f"k = {k}"] if isinstance(k, int) and not isinstance(k, bool) else []
    return ", ".join(part for part in parts if part)


def unit_of(runs: Sequence[tuple[str, Mapping[str, Any], Judgement]]) -> str:
    """Return the unit of the loads of all runs. Raises UsageError where they have none in common."""
    units = dict.fromkeys(judgement.unit for _, _, judgement in runs)
    if len(units) > 1:
        raise UsageError(f"The runs are of different loads ({', '.join(units)}), which no axis holds together:"
                         " compare runs of one kind.")  # fmt: skip
    return next(iter(units), loads.USERS)


def limits(found: Sequence[Entry]) -> list[tuple[Entry, Estimate]]:
    """Return the runs that pay up to a load, with that load."""
    return [
        (entry, limit.at) for entry in found
        if (limit := entry.view.judgement.decision.limit) is not None and limit.form is Crossing.PAYS_UP_TO
        and entry.view.judgement.decision.answer is Answer.PAYS_UP_TO
    ]  # fmt: skip


def headline(found: Sequence[Entry]) -> str:
    """Return which run's limit is highest, and whether its interval is clear of the others'."""
    limited = limits(found)
    settled = [(entry, at) for entry, at in limited if words.known(at.value)]
    everywhere = [e.name for e in found if e.view.judgement.decision.answer is Answer.PAYS_EVERYWHERE]
    if everywhere:
        return f"{' and '.join(everywhere)} pay{'s' if len(everywhere) == 1 else ''} at every tested load"
    if not settled:
        return _unsettled(limited)
    best, at = max(settled, key=lambda pair: pair[1].value or 0.0)
    others = [other for entry, other in limited if entry is not best]
    said = f"the limit is highest with {best.name}, {words.of_loads(at)}"
    if not others:
        return said
    clear = at.low is not None and all(other.high is not None and other.high < at.low for other in others)
    return said + (", clear of every other" if clear else "; the intervals overlap, so that the order is not proven")


def _unsettled(limited: Sequence[tuple[Entry, Estimate]]) -> str:
    """Say that no limit is known, and up to which load speculation is proven to pay all the same."""
    proven = [(at.low, entry) for entry, at in limited if at.low is not None]
    if not proven:
        return "no run settled a load up to which speculation pays"
    low, entry = max(proven, key=lambda pair: pair[0])
    claimed = wording.claimed(Estimate(low=low))
    return f"no run settled where speculation stops paying; it is proven to pay up to {claimed} with {entry.name}"


def banners(found: Sequence[Entry]) -> tuple[Banner, ...]:
    """Return what a reader must know before any figure: each run's own stamps, and that runs are not side by side."""
    said = [
        Banner(word=banner.word, tone=banner.tone, text=f"{entry.name}: {banner.text}")
        for entry in found
        for banner in header.banners(entry.view)
    ]
    said.append(
        Banner(word="Not side by side", tone="note",
               text="Each speed-up is against the run's own baseline. Between runs the machine may have changed: see"
               " the baselines against each other.")
    )  # fmt: skip
    return tuple(said)


def answers(found: Sequence[Entry]) -> Table:
    """Return one row per run: what it was of, and what it says."""
    rows = []
    for entry in found:
        view, decision = entry.view, entry.view.judgement.decision
        limit = decision.limit
        valid = sum(cell.valid for cell in view.judgement.cells)
        models = dict.fromkeys(str(t.get("model")) for _, t in header.arm_tables(view) if t.get("model"))
        rows.append(
            (entry.name, vocabulary.ANSWERS[decision.answer], words.plain(decision.headline),
             words.load_interval(limit.at) if limit else words.MISSING,
             words.plain(decision.recommendation) or words.MISSING, header.scenario(view.run) or words.MISSING,
             words.plain(", ".join(models), 200) or words.MISSING, header.started(view.run) or words.MISSING,
             f"{valid:,} of {len(view.judgement.cells):,}", vocabulary.exit_words(header.exit_code(view)))
        )  # fmt: skip
    columns = ("run", "answer", "in words", f"limit, {loads.unit()}", "recommendation", "scenario", "model", "started",
               "valid cells", "exit code")  # fmt: skip
    return Table(name="What each run says", columns=columns, rows=tuple(rows))


def all_levels(found: Sequence[Entry]) -> list[float]:
    """Return the levels of all runs, ascending."""
    return sorted({level for entry in found for level in entry.view.levels})


def speedups(found: Sequence[Entry]) -> Table:
    """Return the deciding metric's speed-up of every run at every load."""
    rows = tuple(
        (words.level(level),
         *(words.interval(entry.view.speedup(entry.view.decision_metric, level).ratio, words.ratio) for entry in found))
        for level in all_levels(found)
    )  # fmt: skip
    return Table(name="Speed-up at every load", columns=("load", *(entry.name for entry in found)), rows=rows)


def baselines(found: Sequence[Entry]) -> Table:
    """Return the baselines' mean end-to-end times: where they differ, more than speculation differs between runs."""
    rows = tuple(
        (words.level(level),
         *(words.interval(entry.view.mean(entry.view.baseline, level, "e2e"), words.time) for entry in found))
        for level in all_levels(found)
    )  # fmt: skip
    name = "The baselines against each other, mean end-to-end time"
    return Table(name=name, columns=("load", *(entry.name for entry in found)), rows=rows)


def differences(found: Sequence[Entry]) -> Table:
    """Return the settings that are not the same in all runs."""
    settings = [
        {
            f"{group.title}: {name}": value
            for group in protocol.protocol(_kept(entry.view.run))
            for name, value in group.rows
        }
        for entry in found
    ]
    names = dict.fromkeys(name for own in settings for name in own)
    rows: list[Row] = []
    for name in names:
        values = [own.get(name, words.MISSING) for own in settings]
        if len(set(values)) > 1:
            rows.append((name, *(words.plain(value, 200) for value in values)))
    columns = ("setting", *(entry.name for entry in found))
    return Table(name="What differs between the runs", columns=columns, rows=tuple(rows[:MOST]),
                 left_out=max(0, len(rows) - MOST))  # fmt: skip


def _kept(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was set, of a header: the experiment, the servers, the versions; not what came out of the run."""
    return {key: value for key, value in run.items() if key in ("experiment", "arms", "version", "versions", "host")}


def commands(found: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """Return each run's name with the command that repeats it."""
    return tuple((entry.name, command) for entry in found if (command := header.command(entry.view.run)))
