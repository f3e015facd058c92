"""What to do next, from what was found: what would settle the answer, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from loadtest import loads
from loadtest.analyse.estimates import Crossing
from loadtest.analyse.results import Answer, Finding
from loadtest.report import header, vocabulary, words
from loadtest.report.sure import neighbours
from loadtest.report.tables_detail import GAINS
from loadtest.report.view import View

MOST = 5
RARE = 0.05  # of drafts; a slot accepted more seldom is hardly worth its place
MORE_BLOCKS = "loadtest run --resume RUN --budget +TIME"


def next_steps(view: View) -> tuple[str, ...]:
    """Return what to do next, the most telling first, MOST at most."""
    answer = view.judgement.decision.answer
    if answer is Answer.INVALID:
        return ("Mend what makes this run invalid and measure again: none of its figures can decide.",)
    own = _of_measured(view) if answer is Answer.MEASURED else _of_pairs(view) if view.pairs else of_answer(view)
    return (*of_run(view), *own)[:MOST]


def _of_pairs(view: View) -> Iterator[str]:
    """Yield the most telling step of each of several candidates; the rest stands in their sections."""
    for name, own in view.pairs.items():
        step = next(of_answer(own), "")
        if step:
            yield f"{words.plain(name, 80)}: {step[:1].lower()}{step[1:]}"


def of_run(view: View) -> Iterator[str]:
    """Yield what the run as a whole lacks, whatever it says of a pair."""
    if header.interrupted(view.run):
        yield "Measure the cells that are missing: loadtest run --resume RUN."
    judged = view.compared and view.judgement.decision.answer is not Answer.MEASURED
    if header.simulated(view.run):
        servers = "--baseline URL --speculative URL" if view.compared else "--server URL"
        yield f"Measure your own servers: loadtest run {_scenario(view.run)} {servers}. These figures are a model's."
    elif judged and header.starts(view.run) <= 1:
        yield (
            "Start each server several times (--servers FILE with start commands): how a server differs from start to"
            " start is not in these intervals."
        )


def of_answer(view: View) -> Iterator[str]:
    """Yield what would settle or change the answer of one comparison."""
    decision = view.judgement.decision
    yield from _guards_without_data(view)
    if decision.would_settle:
        how = f" ({_block(view)}{MORE_BLOCKS})" if "block" in decision.would_settle else ""
        yield f"{decision.would_settle.rstrip('.')}{how}."
    gate = view.judgement.gate
    for result in gate.objectives if gate else ():
        if result.would_settle:
            yield f"For the objective {result.sentence.rstrip('.')}: {result.would_settle}"
            break
    yield from _around_the_limit(view)
    yield from _never(view)
    yield from _tails(view)
    yield from _drafts(view)
    yield from _another_gain(view)


def _guards_without_data(view: View) -> Iterator[str]:
    """Yield what the guard lacks at the lowest load that gains enough and is open for want of data alone."""
    for level in view.levels:
        low = view.speedup(view.decision_metric, level).ratio.low
        missing = [g for g in view.guards(level) if g.finding is Finding.NO_DATA and g.sentence]
        if low is not None and low > view.threshold and missing and view.verdict(level) == "cannot tell":
            yield f"At {words.level(level)} only data are missing (longer windows: --window): {missing[0].sentence}."
            return


def _block(view: View) -> str:
    """Return how long a block took, for the time that more of them need; empty where it is not known."""
    cells = [cell for cell in view.judgement.cells if cell.opened_s is not None and cell.closed_s is not None]
    blocks = {cell.block for cell in cells}
    if not blocks:
        return ""
    spent = max(cell.closed_s or 0.0 for cell in cells) - min(cell.opened_s or 0.0 for cell in cells)
    return f"a block took {words.minutes(spent / len(blocks))}: "


def _of_measured(view: View) -> Iterator[str]:
    """Yield what makes a judgement of a run that judged nothing."""
    run = view.run
    if run.get("smoke"):
        yield f"Measure it whole: loadtest run {_scenario(run)} without --smoke."
    elif run.get("aa"):
        yield "Measure the pair with --aa RUN: there a claim smaller than this noise is marked."
    elif not view.compared:
        yield (
            "Hold it against objectives (loadtest gate RUN --slo FILE), or against a server that speculates (--baseline"
            " URL --speculative URL)."
        )
    else:
        yield "Hold these records against objectives: loadtest gate RUN --slo FILE. Nothing has to be measured again."


def _scenario(run: Mapping[str, object]) -> str:
    scenario = run.get("scenario")
    path = scenario.get("path") if isinstance(scenario, Mapping) else None
    return words.plain(path, 200) if path else "SCENARIO"


def _around_the_limit(view: View) -> Iterator[str]:
    """Yield the loads that would bound the limit more closely."""
    limit, levels = view.judgement.decision.limit, view.levels
    if limit is None or not levels:
        return
    option = "--levels" if loads.unit() == loads.USERS else "--rates"
    if limit.form is Crossing.PAYS_EVERYWHERE:
        yield f"Test above {words.level(levels[-1])} ({option}): the limit lies beyond the tested loads."
    around = neighbours(view, limit.at.value) if limit.form is Crossing.PAYS_UP_TO else None
    if around is not None:
        yield f"Test loads between {_between(*around)} ({option}): the limit is interpolated there."
    if limit.form is Crossing.BAND:
        gaps = [
            (a, b) for a, b in pairwise(levels) if any(a < low <= b or a <= high < b for low, high in limit.regions)
        ]
        if gaps:
            yield f"Test loads between {', and '.join(_between(*gap) for gap in gaps)} ({option}): the band ends there."


def _between(low: float, high: float) -> str:
    return f"{words.load(low)} and {words.level(high)}"


def _never(view: View) -> Iterator[str]:
    """Yield what to try where no load pays, by whether decoding alone gains anywhere."""
    gains = [(why.decode_speedup, why.level) for why in view.judgement.why if why.decode_speedup]
    if view.judgement.decision.answer is not Answer.NEVER_PAYS or not gains:
        return
    best, level = max(gains)
    where = f"{words.ratio(best)}, at {words.level(level)}"
    if best <= 1:
        yield f"Try another method, or fewer draft tokens: decoding alone never gains (at best {where})."
    else:
        yield f"Look at first tokens and the queue: decoding alone gains (at best {where}), and requests do not."


def _tails(view: View) -> Iterator[str]:
    """Yield how many requests bound the p95 of the deciding metric, at the loads that pay and lack them."""
    found = view.judgement.findings
    short = [one for one in (found.tails if found else ())
             if one.metric == view.decision_metric and one.statistic == "p95" and one.speedup.high is None
             and view.verdict(one.level) == "pays" and one.requests_needed > one.requests]  # fmt: skip
    if short:
        worst = max(short, key=lambda one: (one.requests_needed / max(one.requests, 1), -one.level))
        label = vocabulary.metric(worst.metric).short
        yield (
            f"Longer windows (--window) bound the tail where it pays: the p95 of {label} at {words.level(worst.level)}"
            f" needs {worst.requests_needed:,} requests and has {worst.requests:,}."
        )


def _drafts(view: View) -> Iterator[str]:
    """Yield that fewer draft tokens are worth a run, where the last is hardly ever accepted."""
    found = view.judgement.findings
    slots = found.acceptance.slots if found and found.acceptance else ()
    last = slots[-1] if len(slots) > 1 else None
    if last is not None and last.survival.value is not None and last.survival.value < RARE:
        yield (
            f"Try fewer draft tokens: of {len(slots)} the last is accepted in {words.share(last.survival.value)} of"
            " drafts, and is drafted and verified in all."
        )


def _another_gain(view: View) -> Iterator[str]:
    """Yield the smallest greater gain that fewer loads prove."""
    asked = view.threshold - 1
    lows = {level: view.speedup(view.decision_metric, level).ratio.low or 0.0 for level in view.levels
            if view.verdict(level) == "pays"}  # fmt: skip
    for gain in (gain for gain in GAINS if gain > asked):
        then = [level for level, low in lows.items() if low > 1 + gain]
        if len(then) < len(lows):
            where = f"at {words.levels(then)} alone" if then else "at no tested load"
            yield f"Should you need {words.share(gain)} instead of {words.share(asked)}, it is proven {where}."
            return
