"""How sure the answer is, and what it does not say: the limit's interval, tails, cut answers."""

from __future__ import annotations

from loadtest import loads
from loadtest.analyse import wording
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.gate_results import Gate, GateOutcome
from loadtest.analyse.results import Answer
from loadtest.record import GIVEN_UP
from loadtest.report import vocabulary, words
from loadtest.report.view import TAILED, View, section

MOSTLY = 0.5  # of the answers cut at the most tokens: their length is the scenario's, and no property of the model
ENDED_EARLY = ("interrupted", GIVEN_UP)
PAYING = (Answer.PAYS_UP_TO, Answer.PAYS_EVERYWHERE, Answer.PAYS_IN_BAND)


def certainty(view: View) -> str:
    """Say on how much measuring the answer rests."""
    cells = view.judgement.cells
    requests = sum(item.requests for item in view.judgement.arm_levels)
    failed = sum(item.failed for item in view.judgement.arm_levels)
    valid = sum(cell.valid for cell in cells)
    marked = sum(cell.valid and bool(cell.marks) for cell in cells)
    flagged = f" ({marked:,} of them with a quality mark)" if marked else ""
    parts = (
        _many(len(view.levels), "load"),
        f"{_many(len({cell.block for cell in cells}), 'block')} (a visit to every server at a load, close in time)",
        f"{valid:,} of {_many(len(cells), 'cell')} (one server at one load, once) valid{flagged}{_never_begun(view)}",
        _many(requests, "request"),
        f"{failed:,} failed",
    )
    return (
        f"{_bound(view)}{', '.join(parts)}.{_fewer_blocks(view)} Intervals of speed-ups are 95 % intervals over blocks."
    )


def _never_begun(view: View) -> str:
    """Say how many cells a run that ended early left out of its plan; empty where it left none."""
    plan, load = section(view.run, "experiment", "plan"), section(view.run, "experiment", "load")
    blocks, asked = plan.get("blocks"), load.get("levels")
    if view.run.get("status") not in ENDED_EARLY or plan.get("stages") != "one":
        return ""  # of two stages the first chooses the loads of the second
    if not isinstance(blocks, int) or not isinstance(asked, list):
        return ""
    left = blocks * len(asked) * len(view.judgement.arms) - len(view.judgement.cells)
    return f", {left:,} more planned and never begun" if left > 0 else ""


def _fewer_blocks(view: View) -> str:
    """Say at which loads fewer blocks than were measured have a valid cell of both servers; empty where none lacks."""
    blocks = len({cell.block for cell in view.judgement.cells})
    counts = {level: len(view.speedup(view.decision_metric, level).blocks) for level in view.levels}
    if not view.compared or view.pairs:
        return ""
    each = ", ".join(
        f"{number} at {words.levels([level for level in view.levels if counts[level] == number])}"
        for number in sorted({number for number in counts.values() if number < blocks})
    )
    answered = " with an answer" if any(counts[level] < blocks for level in view.unanswered & set(counts)) else ""
    return f" Fewer blocks have valid cells of both servers{answered}: {each}." if each else ""


def _bound(view: View) -> str:
    """Say what the answer's own interval is: of the limit, or of the load that is nearest to another answer."""
    decision = view.judgement.decision
    limit = decision.limit
    if decision.answer is Answer.PAYS_UP_TO and limit is not None:
        _, lower, upper = wording.texts(limit.at)
        if lower is not None and upper is not None:
            why = f" ({wording.ended(limit)})" if wording.ended(limit) else ""
            return f"With 95 % confidence the limit lies between {lower} and {loads.said(upper)}{why}. "
    ends = [(view.speedup(view.decision_metric, level).ratio, level) for level in view.levels]
    lows = [(ratio.low, level) for ratio, level in ends if ratio.low is not None]
    highs = [(ratio.high, level) for ratio, level in ends if ratio.high is not None]
    if decision.answer is Answer.PAYS_EVERYWHERE and lows:
        (end, level), word = min(lows), "lowest"
    elif decision.answer is Answer.NEVER_PAYS and highs:
        (end, level), word = max(highs), "highest"
    else:
        return ""
    return f"The {word} end of a 95 % interval of the speed-up is {words.ratio(end)}, at {words.level(level)}. "


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def neighbours(view: View, load: float | None) -> tuple[float, float] | None:
    """Return the tested loads around one that lies between them; None where it was tested, or lies outside."""
    if load is None:
        return None
    below, above = [x for x in view.levels if x < load], [x for x in view.levels if x > load]
    return (below[-1], above[0]) if below and above and load not in view.levels else None


def recommendation_reason(view: View) -> str:
    """Say why the recommendation ends where it does, and what is worse within it; empty where that needs no word."""
    told = [f"{words.plain(name, 80)}: {said}" for name, own in view.pairs.items() if (said := losing_tails(own))]
    found = view.judgement
    gated = _gated(found.gate) if found.decision.answer in PAYING else ""
    return "; ".join(part for part in (gated, _ends(view), *(told or [losing_tails(view)])) if part)


def _gated(gate: Gate | None) -> str:
    """Say that what speed alone recommends did not pass the gate; empty where it did, or nothing was asked."""
    if gate is None or gate.outcome is GateOutcome.PASS:
        return ""
    return f"by speed alone; the gate says {vocabulary.OUTCOMES[gate.outcome]}"


def _ends(view: View) -> str:
    decision = view.judgement.decision
    at = decision.limit.at if decision.limit is not None else None
    if at is None or not view.levels:
        return ""
    if decision.answer is Answer.PAYS_UP_TO and at.low is not None:
        return (_highest(view, at.low) if at.low == at.value else _lower_end(at)) + _from(view)
    if decision.answer is Answer.PAYS_EVERYWHERE:
        tested = wording.tested(view.levels)
        return f"tested {'at' if len(view.levels) == 1 else 'from'} {tested}; beyond, nothing is said"
    return "the tested loads at which it is proven" if decision.answer is Answer.PAYS_IN_BAND else ""


def _highest(view: View, load: float) -> str:
    return f"the highest {'tested ' if load in view.levels else ''}load proven"


def _lower_end(at: Estimate) -> str:
    """Name the lower end of the limit's interval, and how it is written where that has more digits than whole users."""
    low = wording.texts(at)[1] or ""
    exact = "" if loads.said(low) == wording.claimed(at) else f", {low}, in whole users"
    return f"the lower end of the limit's interval{exact}"


def _from(view: View) -> str:
    """Say from which load on anything was tested, where lighter loads exist."""
    lightest = view.levels[0]
    return "" if lightest <= 1 and not loads.is_rate() else f"; nothing was tested below {words.level(lightest)}"


def recommendation(view: View) -> str:
    """Return the recommendation with its reason, for a line of text."""
    said, why = view.judgement.decision.recommendation, recommendation_reason(view)
    return f"{said} ({why})" if said and why else said


def losing_tails(view: View) -> str:
    """Say at which loads that pay a percentile of the deciding metric is proven worse; empty where at none.

    A metric without tails is asked about its end-to-end time.
    """
    metric = view.decision_metric if view.decision_metric in TAILED else "e2e"
    found = {level: said for level in view.levels
             if view.verdict(level) == "pays" and (said := worse_words(view, level, metric))}  # fmt: skip
    where = {said: [level for level in found if found[level] == said] for said in found.values()}
    each = ", ".join(f"{said} at {words.levels(own)}" for said, own in where.items())
    return f"this is of the mean: proven worse is {each}" if each else ""


def worse_words(view: View, level: float, metric: str = "") -> str:
    """Return the deepest percentile of each latency, or of one, that is proven worse: `E2E p90 +9.4 %`."""
    return ", ".join(
        f"{vocabulary.metric(one.metric).short} {one.statistic} {words.change(1 / one.speedup.value)}"
        for one in view.worse_tails(level)
        if one.speedup.value and metric in ("", one.metric)
    )


def cut_answers(view: View) -> str:
    """Say which share of each arm's answers was cut at the most tokens allowed; empty where none was."""
    shares = {arm: view.cut_share(arm) for arm in view.judgement.arms}
    if not any(shares.values()):
        return ""
    most = section(view.run, "experiment", "generation").get("max_tokens")
    where = f"max tokens ({most:g})" if isinstance(most, int | float) else "the most tokens allowed"
    each = ", ".join(f"{words.share(share)} ({words.plain(arm, 80)})" for arm, share in shares.items())
    said = f"Answers cut at {where}: {each}."
    if view.decision_metric != "e2e" or not view.compared or min(share or 0.0 for share in shares.values()) < MOSTLY:
        return said
    return f"{said} With longer answers decoding would count for more than here, and first tokens for less."
