"""The loads that a page calls a limit, and what each is for: one decides, the others explain or serve the gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.findings import LineCrossing
from loadtest.analyse.results import Answer, BreakEven
from loadtest.report import vocabulary, words
from loadtest.report.view import View
from loadtest.report.why_words import meeting


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A load that is no speed-up's crossing of the decision's kind."""

    name: str
    use: str
    load: str = words.MISSING
    in_flight: str = words.MISSING
    said: str = ""


def of_decision(view: View) -> str:
    """Say what the limit of the decision is for."""
    match view.judgement.decision.answer:
        case Answer.PAYS_UP_TO:
            return "decides: the recommendation is its lower end"
        case Answer.PAYS_EVERYWHERE | Answer.PAYS_IN_BAND:
            return "decides: the recommendation is the loads at which it is proven"
        case Answer.NEVER_PAYS:
            return "decides: there is none"
        case _:
            return "would decide, and is not settled"


def break_even(view: View) -> str:
    """Return the sentence on the break-even, and how it stands to the limit where both are loads; it may be empty."""
    decision = view.judgement.decision
    even, limit = decision.break_even, decision.limit
    if even is None or not even.sentence or limit is None or limit.threshold == even.threshold:
        return even.sentence if even else ""
    if decision.answer is not Answer.PAYS_UP_TO or even.form is not Crossing.PAYS_UP_TO:
        return even.sentence
    return f"{even.sentence} Beyond it nothing is gained; what decides is the limit, which asks for {_asked(limit)}."


def _asked(limit: BreakEven) -> str:
    return words.share(limit.threshold - 1)


def of_metric(view: View, found: BreakEven) -> str:
    """Say what the break-even of a metric is for."""
    own = (
        "the whole gain of the metric that decides is gone"
        if found.metric == view.decision_metric
        else (f"{vocabulary.metric(found.metric).short} is as good on both servers")
    )
    return f"where {own}; decides nothing"


def others(view: View) -> Iterator[Limit]:
    """Yield the limits that are of decoding alone, of straight lines, and of objectives."""
    met = meeting({why.level: why.decode_speedup or 0.0 for why in view.judgement.why})
    if met is not None and not view.itself:
        yield Limit(name="decoding, by the servers' counters", load=f"≈ {words.load(met[0])}",
                    use="explains: where a step costs what it brings; no interval",
                    said="First tokens and queues are not in it.")  # fmt: skip
    law = view.judgement.findings.law if view.judgement.findings else None
    if law is not None and law.crossing in (LineCrossing.PAYS_BELOW, LineCrossing.PAYS_ABOVE):
        yield Limit(name="straight lines over requests in flight", in_flight=_positive(law.at),
                    use="a check of the break-even by end-to-end time; where they differ go by the latter",
                    said=words.plain(law.sentence))  # fmt: skip
    gate = view.judgement.gate
    for one in gate.capacities if gate else ():
        yield Limit(name=f"capacity of {words.plain(one.arm, 80)}", load=words.load_interval(one.at),
                    use="up to where the objectives are met; for the gate", said=words.plain(one.sentence))  # fmt: skip


def _positive(at: Estimate) -> str:
    return words.load_interval(at) if (at.value or 0.0) > 0 else words.MISSING
