"""What to do next, from what was found: what would settle the answer, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from loadtest.analyse.estimates import Crossing
from loadtest.analyse.results import Answer, Finding
from loadtest.analyse.validity import FEW_REQUESTS
from loadtest.errors import ExitCode
from loadtest.report import again, header, vocabulary, words
from loadtest.report.sure import neighbours
from loadtest.report.tables_detail import GAINS
from loadtest.report.view import View, section, span_s

MOST = 5
MOSTLY = 0.5  # of the cells; a few short windows are what their own marks say
RARE = 0.05  # of drafts; a slot accepted more seldom is hardly worth its place


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do, and the command that does it where one does."""

    text: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.text.rstrip('.')}: {self.command}" if self.command else self.text


def next_steps(view: View) -> tuple[Step, ...]:
    """Return what to do next, the most telling first, MOST at most."""
    answer = view.judgement.decision.answer
    if answer is Answer.INVALID and header.interrupted(view.run) and len(view.judgement.decision.reasons) < 2:
        return (_missing_cells(view),)
    if answer is Answer.INVALID:
        return (Step(text="Mend what makes this run invalid and measure again: none of its figures can decide."),)
    own = _of_measured(view) if answer is Answer.MEASURED else _of_pairs(view) if view.pairs else of_answer(view)
    if header.simulated(view.run):
        own = (_of_the_model(step, named=bool(view.pairs)) for step in own)
    return (*of_run(view), *own)[:MOST]


def _of_the_model(step: Step, *, named: bool) -> Step:
    """Return a step with the word that its command measures the simulated servers; `named`: it begins with a name."""
    if not step.command.startswith("loadtest run "):
        return step
    first = step.text[:1] if named else step.text[:1].lower()
    return replace(step, text=f"With the simulated servers again: {first}{step.text[1:]}")


def _of_pairs(view: View) -> Iterator[Step]:
    """Yield the most telling step of each of several candidates; the rest stands in their sections."""
    for name, own in view.pairs.items():
        step = next(of_answer(own), None)
        if step is not None:
            yield replace(step, text=f"{words.plain(name, 80)}: {step.text[:1].lower()}{step.text[1:]}")


def of_run(view: View) -> Iterator[Step]:
    """Yield what the run as a whole lacks, whatever it says of a pair."""
    if header.exit_code(view) == ExitCode.INTERRUPTED:
        yield _missing_cells(view)
    if not view.run.get("smoke"):
        yield from _short_windows(view)
    judged = view.compared and view.judgement.decision.answer is not Answer.MEASURED
    if header.simulated(view.run):
        yield Step(
            text="Measure your own servers, at their addresses. These figures are a model's.",
            command=again.own_servers(view.run, compared=view.compared),
        )
    elif judged and header.starts(view.run) <= 1:
        yield Step(
            text="Start each server several times (--servers with a file that holds start commands): how a server"
            " differs from start to start is not in these intervals."
        )


def _missing_cells(view: View) -> Step:
    """Return how a run that was stopped is ended: with the cells that it has, and those that it lacks."""
    return Step(text="Measure the cells that are missing.", command=again.resumed(view.run))


def _short_windows(view: View) -> Iterator[Step]:
    """Yield the length of windows that would hold enough requests, where most cells have too few or cut them."""
    cells = [cell for cell in view.judgement.cells if cell.window_s]
    few = [cell for cell in cells if cell.requests < FEW_REQUESTS]
    cut = [cell for cell in cells if words.known(cell.e2e_mean_s) and (cell.e2e_mean_s or 0.0) > (cell.window_s or 0.0)]
    short = {cell.cell for cell in (*few, *cut)}
    if not short or len(short) < MOSTLY * len(cells):
        return
    wanted = [(cell.window_s or 0.0) * FEW_REQUESTS / max(1, cell.requests) for cell in few]
    wanted += [cell.e2e_mean_s or 0.0 for cell in cut]
    longest = max(cell.window_s or 0.0 for cell in cells)
    yield Step(
        text=f"Longer windows before all: {len(short)} of {len(cells)} cells hold fewer than {FEW_REQUESTS} requests,"
        " or last less than one does.",
        command=again.anew(view.run, {"--window": again.longer(longest, max(wanted) / longest)}),
    )


def of_answer(view: View) -> Iterator[Step]:
    """Yield what would settle or change the answer of one comparison."""
    decision = view.judgement.decision
    yield from _guards_without_data(view)
    longer = decision.would_settle.startswith("Longer windows") and any(_guards_without_data(view))
    if decision.would_settle and not longer and not any(_short_windows(view)):
        yield _more_blocks(view, decision.more_blocks) if decision.more_blocks else Step(text=decision.would_settle)
    yield from _objectives(view)
    yield from _around_the_limit(view)
    yield from _never(view)
    yield from _tails(view)
    yield from _drafts(view)
    yield from _another_gain(view)


def _objectives(view: View) -> Iterator[Step]:
    """Yield what would settle the first objective that is open."""
    gate = view.judgement.gate
    for result in gate.objectives if gate else ():
        if result.would_settle:
            settles = f"{result.would_settle[:1].lower()}{result.would_settle[1:]}"
            yield Step(text=f"For the objective {result.sentence.rstrip('.')}: {settles}")
            return


def _guards_without_data(view: View) -> Iterator[Step]:
    """Yield what the guard lacks at the lowest load that gains enough and is open for want of data alone."""
    for level in view.levels:
        low = view.speedup(view.decision_metric, level).ratio.low
        missing = [g for g in view.guards(level) if g.finding is Finding.NO_DATA and g.sentence]
        if low is not None and low > view.threshold and missing and view.verdict(level) == "cannot tell":
            said = f"At {words.level(level)} only data are missing (longer windows): {missing[0].sentence}."
            yield Step(text=said, command=_longer(view, 2.0))
            return


def _longer(view: View, factor: float) -> str:
    """Return the run's command with windows that many times as long; empty where their length is not known."""
    lengths = [cell.window_s for cell in view.judgement.cells if cell.window_s and words.known(cell.window_s)]
    return again.anew(view.run, {"--window": again.longer(max(lengths), factor)}) if lengths else ""


def _more_blocks(view: View, wanted: int) -> Step:
    """Return what would settle the answer, and how the run is gone on with to where it is judged again."""
    said, block_s = view.judgement.decision.would_settle.rstrip("."), _block_s(view)
    planned, look = section(view.run, "experiment", "plan").get("blocks"), section(view.run, "look")
    if block_s is None or not isinstance(planned, int):
        return Step(text=f"{said}.")
    number, most = look.get("number"), look.get("of")  # a run that was judged goes on to its next look
    if isinstance(number, int) and isinstance(most, int) and number >= most:
        said += f"; this run was judged {number} times, which is as often as its intervals allow"
        return Step(text=f"{said}.", command=again.anew(view.run, {"--blocks": str(planned * most)}))
    how = f"a block of all loads and servers took {words.minutes(block_s)}"
    how += f", so {words.minutes(wanted * block_s)} in all" if wanted > 1 else ""
    how += f"; a run that goes on is judged again after {planned} more"
    return Step(text=f"{said} ({how}).", command=again.resumed(view.run, seconds=planned * block_s))


def _block_s(view: View) -> float | None:
    """Return how long a block of the whole run took, all its loads and servers; None where it is not known."""
    cells = (view.whole or view.judgement).cells
    blocks = {cell.block for cell in cells if cell.opened_s is not None and cell.closed_s is not None}
    spent = span_s(cells)
    return spent / len(blocks) if spent is not None and blocks else None


def _of_measured(view: View) -> Iterator[Step]:
    """Yield what makes a judgement of a run that judged nothing."""
    run = view.run
    if run.get("smoke"):
        yield Step(text="Measure it whole.", command=again.anew(run, {}, without=("--smoke",)))
    elif run.get("aa"):
        yield Step(
            text="Measure the pair held against this run: there a claim smaller than this noise is marked.",
            command=again.anew(run, {"--aa": again.folder(run)}, without=("--arms",)),
        )
    elif view.gated:
        yield from _objectives(view)
        if not view.compared:
            yield Step(text="Measure it beside a server that speculates (--baseline, --speculative).")
    elif not view.compared:
        yield Step(
            text="Hold it against objectives (slo.toml: a file of yours), or measure it beside a server that speculates"
            " (--baseline, --speculative).",
            command=again.gated(run),
        )
    else:
        yield Step(
            text="Hold these records against objectives (slo.toml: a file of yours). Nothing has to be measured again.",
            command=again.gated(run),
        )


def _around_the_limit(view: View) -> Iterator[Step]:
    """Yield the loads that would bound the limit more closely."""
    limit, levels = view.judgement.decision.limit, view.levels
    if limit is None or not levels:
        return
    if limit.form is Crossing.PAYS_EVERYWHERE:
        tested = again.loads_option((levels[-1], 2 * levels[-1], 4 * levels[-1]))
        yield Step(
            text=f"Test above {words.level(levels[-1])}: the limit lies beyond the tested loads.",
            command=again.anew(view.run, tested),
        )
    around = neighbours(view, limit.at.value) if limit.form is Crossing.PAYS_UP_TO else None
    if around is not None and all(view.speedup(view.decision_metric, level).ratio.value for level in around):
        yield from _within(view, [around], "the limit is interpolated there")
    if limit.form is Crossing.BAND:
        known = [level for level in levels if view.speedup(view.decision_metric, level).ratio.value]
        gaps = [(a, b) for a, b in pairwise(levels) if a in known and b in known
                and any(a < low <= b or a <= high < b for low, high in limit.regions)]  # fmt: skip
        yield from _within(view, gaps, f"the band has {'an end' if len(gaps) == 1 else 'its ends'} there")


def _within(view: View, gaps: list[tuple[float, float]], why: str) -> Iterator[Step]:
    """Yield loads between tested ones where there are any: between 1 and 2 users there is none."""
    found = {gap: inner for gap in gaps if (inner := again.between(*gap))}
    if found:
        tested = again.loads_option(load for gap, inner in found.items() for load in (*gap, *inner))
        yield Step(
            text=f"Test loads between {', and '.join(_between(*gap) for gap in found)}: {why}.",
            command=again.anew(view.run, tested),
        )


def _between(low: float, high: float) -> str:
    return f"{words.load(low)} and {words.level(high)}"


def _never(view: View) -> Iterator[Step]:
    """Yield what to try where no load pays, by whether decoding alone gains anywhere."""
    gains = [(why.decode_speedup, why.level) for why in view.judgement.why if why.decode_speedup]
    if view.judgement.decision.answer is not Answer.NEVER_PAYS or not gains:
        return
    best, level = max(gains)
    where = f"{words.ratio(best)}, at {words.level(level)}"
    if best <= view.threshold:  # counters have no interval: a few thousandths above 1 are no gain of decoding
        what = "never gains" if best <= 1 else f"never gains {words.share(view.threshold - 1)}"
        yield Step(text=f"Try another method, or fewer draft tokens: decoding alone {what} (at best {where}).")
    else:
        said = f"Look at first tokens and the queue: decoding alone gains (at best {where}), and requests do not."
        yield Step(text=said)


def _tails(view: View) -> Iterator[Step]:
    """Yield how many requests bound the p95 of the deciding metric, at the loads that pay and lack them."""
    found = view.judgement.findings
    short = [one for one in (found.tails if found else ())
             if one.metric == view.decision_metric and one.statistic == "p95" and one.speedup.high is None
             and view.verdict(one.level) == "pays" and one.requests_needed > one.requests]  # fmt: skip
    if short:
        worst = max(short, key=lambda one: (one.requests_needed / max(one.requests, 1), -one.level))
        label = vocabulary.metric(worst.metric).short
        yield Step(
            text=f"Longer windows bound the tail where it pays: the p95 of {label} at {words.level(worst.level)}"
            f" needs {worst.requests_needed:,} requests and has {worst.requests:,}.",
            command=_longer(view, worst.requests_needed / max(worst.requests, 1)),
        )


def _drafts(view: View) -> Iterator[Step]:
    """Yield that fewer draft tokens are worth a run, where the last is hardly ever accepted."""
    found = view.judgement.findings
    slots = found.acceptance.slots if found and found.acceptance else ()
    last = slots[-1] if len(slots) > 1 else None
    if last is not None and last.survival.value is not None and last.survival.value < RARE:
        yield Step(
            text=f"Try fewer draft tokens: of {len(slots)} the last is accepted in {words.share(last.survival.value)}"
            " of drafts, and is drafted and verified in all."
        )


def _another_gain(view: View) -> Iterator[Step]:
    """Yield the smallest greater gain that fewer loads prove."""
    asked = view.threshold - 1
    lows = {level: view.speedup(view.decision_metric, level).ratio.low or 0.0 for level in view.levels
            if view.verdict(level) == "pays"}  # fmt: skip
    for gain in (gain for gain in GAINS if gain > asked):
        then = [level for level, low in lows.items() if low > 1 + gain]
        if len(then) < len(lows):
            where = f"at {words.levels(then)} alone" if then else "at no tested load"
            said = f"Should you need {words.share(gain)} instead of {words.share(asked)}, it is proven {where}."
            yield Step(text=said)
            return
