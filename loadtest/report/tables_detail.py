"""The tables behind the answer: what would change it, tails, single slow requests, the client's floor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.results import Answer, Finding
from loadtest.report import header, rules, vocabulary, words
from loadtest.report.tables import MOST, Row, Table
from loadtest.report.view import View, section

GAINS = (0.0, 0.03, 0.05, 0.10, 0.20)  # least gains that the answer is tried with
TAILS = ("ttft", "e2e", "tpot", "token_gap")


def changes(view: View) -> Table:
    """Return what would change the answer: another least gain, another metric, no guards, more measuring."""
    decision = view.judgement.decision
    rows: list[Row] = []
    if decision.answer not in (Answer.INVALID, Answer.MEASURED) and view.candidate:
        gains = sorted({*GAINS, round(view.threshold - 1, 6)})
        rows += [(f"the least gain were {words.share(gain)}", _proven(view, gain)) for gain in gains]
        rows += _other_metrics(view) + _without_guards(view) + _without_floor(view)
    if decision.would_settle:
        rows.append(("more were measured", words.plain(decision.would_settle)))
    return Table(name="What would change the answer", columns=("if", "then"), rows=tuple(rows))


def _proven(view: View, gain: float) -> str:
    """Say at which tested loads the whole interval is beyond a gain; guards stand apart."""
    ratios = [(level, view.speedup(view.decision_metric, level).ratio) for level in view.levels]
    beyond = [level for level, ratio in ratios if ratio.low is not None and ratio.low > 1 + gain]
    short = [level for level, ratio in ratios if ratio.high is not None and ratio.high < 1 + gain]
    known = [level for level, ratio in ratios if words.known(ratio.low) and words.known(ratio.high)]
    said = f"proven at {words.levels(beyond)}" if beyond else "proven at no tested load"
    if short:
        said += f", ruled out at {words.levels(short)}"
    open_at = [level for level in known if level not in beyond and level not in short]
    said += f", open at {words.levels(open_at)}" if open_at else ""
    absent = [level for level in view.levels if level not in known and level not in beyond and level not in short]
    return said + (f", without an interval at {words.levels(absent)}" if absent else "")


def _other_metrics(view: View) -> list[Row]:
    """Return the break-even of every other metric: the loads at which it is better at all."""
    others = [even for even in view.judgement.break_evens if even.metric != view.decision_metric]
    return [
        (f"{vocabulary.metric(even.metric).label} decided, by any gain", words.plain(even.sentence))
        for even in others if even.sentence and even.metric in ("ttft", "tpot", "output_tokens_per_s")
    ]  # fmt: skip


def _without_guards(view: View) -> list[Row]:
    broken = sorted({guard.level for guard in view.judgement.decision.guards if guard.finding is Finding.BROKEN})
    held_back = [level for level in broken if view.verdict(level) == "guard broken"]
    lacking = [level for level in view.levels if level not in broken and _only_data_missing(view, level)]
    said = [f"{words.levels(held_back)} would pay as well"] if held_back else []
    said += [f"{words.levels(lacking)} would not lack data"] if lacking else []
    if not said:
        unproven = f"the gain itself is not proven at {words.levels(broken)}"
        said = [f"nothing: {unproven if broken else 'none is proven broken'}"]
    return [("the guards did not count", "; ".join(said))]


def _without_floor(view: View) -> list[Row]:
    """Say which loads pay only since a short time to first token is never held against the candidate."""
    excused = [guard for guard in view.judgement.decision.guards if rules.excused(view, guard)]
    if not excused:
        return []
    allowed = 1 + (rules.margin(view, "ttft_margin") or 0.0)
    worse = {guard.level for guard in excused if (guard.ratio.low or 0.0) > allowed}
    lost = [level for level in view.levels if level in worse and view.verdict(level) == "pays"]
    said = f"{words.levels(lost)} would not pay" if lost else "nothing: no load that pays needs that"
    condition = f"first tokens within {rules.absolute_limit(view)} were held against the candidate like any others"
    return [(condition, said)]


def _only_data_missing(view: View, level: float) -> bool:
    low = view.speedup(view.decision_metric, level).ratio.low
    found = {guard.finding for guard in view.guards(level)}
    return low is not None and low > view.threshold and Finding.NO_DATA in found


def tails(view: View) -> Table:
    """Return the percentiles of both servers against each other, and how many requests each claim needs."""
    every = view.judgement.findings.tails if view.judgement.findings else ()
    found = [one for one in every if one.metric in TAILS and words.known(one.speedup.value)]
    found.sort(key=lambda one: (TAILS.index(one.metric), one.level, one.statistic))
    rows = tuple(
        (words.level(one.level), vocabulary.metric(one.metric).short, one.statistic,
         words.time(view.tail(view.baseline, one.level, one.metric, one.statistic).value),
         words.time(view.tail(view.candidate or "", one.level, one.metric, one.statistic).value),
         _bounded(one.speedup, words.ratio), _bounded(one.difference_s, words.signed_time),
         words.count(one.requests), words.count(one.requests_needed))
        for one in found
    )  # fmt: skip
    columns = ("load", "metric", "percentile", "baseline", "candidate", "speed-up, 95 %", "difference, 95 %",
               "requests", "requests for an interval")  # fmt: skip
    return Table(name="Percentiles against each other", columns=columns, rows=rows[:MOST], heads=3,
                 left_out=max(0, len(rows) - MOST))  # fmt: skip


def _bounded(estimate: Estimate, form: words.Format) -> str:
    """Return an estimate with its interval; – without one, as the percentiles that it is of are then not shown."""
    return words.MISSING if estimate.low is None and estimate.high is None else words.interval(estimate, form)


def slowest(view: View) -> Table:
    """Return the requests that make the tail: times, counts and what made them late; never their text."""
    found = view.judgement.detail.slowest if view.judgement.detail else ()
    rows = tuple(
        (words.level(one.level), words.plain(one.arm), words.time(one.e2e_s) if one.outcome == "ok" else "∞",
         words.plain(one.cause), words.time(one.ttft_s), words.time(one.worst_stall_s), words.count(one.tokens),
         words.count(one.prompt_tokens), words.time(one.twin_s), words.plain(one.category, 40) or words.MISSING,
         words.plain(one.outcome, 40), f"cell {one.cell}, session {one.session}, turn {one.turn + 1}",
         words.minutes(one.due_s))
        for one in found[:MOST]
    )  # fmt: skip
    columns = ("load", "arm", "end-to-end", "why late", "first token", "worst stall", "tokens", "prompt tokens",
               "on the other server", "class", "ended", "which", "due after")  # fmt: skip
    return Table(name="The requests that make the tail", columns=columns, rows=rows, heads=2,
                 left_out=max(0, len(found) - MOST))  # fmt: skip


def batch_table(view: View) -> Table:
    """Return the draft tokens that were better by running requests, as vLLM's setting takes them."""
    found = view.judgement.findings.batch_table if view.judgement.findings else None
    rows = tuple(
        (f"{row.start} to {row.end}" if row.end > row.start else f"{row.start}", str(row.draft_tokens),
         "yes" if row.settled else "no", words.plain(row.evidence))
        for row in (found.rows if found else ())
    )  # fmt: skip
    columns = ("running requests", "draft tokens", "by proven loads", "in words")
    return Table(name="Draft tokens by running requests", columns=columns, rows=rows)


def batch_words(view: View) -> str:
    """Say which metric the table of draft tokens follows, and that it is no bolder than the answer's recommendation."""
    label, own = vocabulary.metric("tpot").label, vocabulary.metric(view.decision_metric).label
    decision = view.judgement.decision
    said = f"The rows follow {label}"
    said += ", as the answer does" if view.decision_metric == "tpot" else f"; the answer follows {own}"
    found = view.judgement.findings.batch_table if view.judgement.findings else None
    last = max((row.end for row in found.rows if row.draft_tokens), default=0) if found else 0
    where = f", here {last} running" if decision.answer is Answer.PAYS_UP_TO and last else ""
    model = " These figures are a model's: measure your own servers first." if header.simulated(view.run) else ""
    return (
        f"{said}. Nothing is drafted beyond what the answer recommends ({words.plain(decision.recommendation)}{where}),"
        " nor where nothing was measured. Running requests are what the server works on at once; users may also wait."
        f"{model}"
    )


def floor(view: View) -> Table:
    """Return what the client adds by itself, from its calibration, beside what was measured."""
    found = section(view.run, "calibration")
    times = (("first token stamped after it was sent, median", "first_error_p50_s"),
             ("first token stamped after it was sent, p99", "first_error_p99_s"),
             ("last token stamped after it was sent, p99", "last_error_p99_s"),
             ("requests sent after they were due, p99", "lateness_p99_s"),
             ("timers late, p99", "hub_lag_p99_s"))  # fmt: skip
    measured = _measured(view)
    rows = [(name, words.time(value), measured.get(key, words.MISSING))
            for name, key in times if (value := _number(found, key)) is not None]  # fmt: skip
    shares = (("CPU", "client_cpu_ratio"), ("chunks that shared a read", "coalesced_ratio"))
    rows += [(name, words.share(value), measured.get(key, words.MISSING))
             for name, key in shares if (value := _number(found, key)) is not None]  # fmt: skip
    users = _number(found, "users")
    name = "The client's floor, its own error" + (f", at {words.calibrated(found)} of a null server" if users else "")
    return Table(name=name, columns=("what", "in calibration", "worst cell of this run"), rows=tuple(rows))


def _number(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _measured(view: View) -> dict[str, str]:
    """Return the worst of the valid cells by the name that the calibration gives it."""
    cells = [cell for cell in view.judgement.cells if cell.valid]
    worst = {
        "lateness_p99_s": (words.time, [cell.lateness_p99_s for cell in cells]),
        "hub_lag_p99_s": (words.time, [cell.hub_lag_p99_s for cell in cells]),
        "client_cpu_ratio": (words.share, [cell.cpu_ratio for cell in cells]),
        "coalesced_ratio": (words.share, [cell.coalesced_ratio for cell in cells]),
    }
    found = {}
    for key, (form, values) in worst.items():
        known = [value for value in values if value is not None and math.isfinite(value)]
        if known:
            found[key] = form(max(known))
    return found
