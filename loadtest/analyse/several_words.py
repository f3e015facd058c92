"""The answer of a run of several candidates, in words: which one, up to where, or that they cannot be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadtest.analyse import wording
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.ranking_results import Ranking
from loadtest.analyse.results import Answer, Decision, Finding, Judgement

PAYING = (Answer.PAYS_EVERYWHERE, Answer.PAYS_UP_TO, Answer.PAYS_IN_BAND)
STRENGTH = (*PAYING, Answer.CANNOT_TELL, Answer.NEVER_PAYS, Answer.MEASURED, Answer.INVALID)

Pairs = Mapping[str, Judgement]  # candidate → it against the baseline


def by_strength(pairs: Pairs) -> list[str]:
    """Return the candidates, those that pay up to the highest load first; equal ones as they were given."""
    return sorted(pairs, key=lambda name: (STRENGTH.index(pairs[name].decision.answer), -_reach(pairs[name].decision)))


def _reach(decision: Decision) -> float:
    limit = decision.limit
    return 0.0 if limit is None else limit.at.value or limit.at.low or max((b for _, b in limit.regions), default=0.0)


def listed(parts: Sequence[str], word: str = "and") -> str:
    """Return parts of a sentence: 'a, b and c'."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def headline(pairs: Pairs, metric: str, min_gain: float, levels: Sequence[float], ranking: Ranking) -> str:
    """Return which candidates pay and up to where, which cannot be told or never do, and which is the best where."""
    answers = {name: pairs[name].decision.answer for name in by_strength(pairs)}
    paying = [f"{name} {_where(pairs[name].decision, levels)}" for name, answer in answers.items() if answer in PAYING]
    never = [name for name, answer in answers.items() if answer is Answer.NEVER_PAYS]
    unsure = [name for name, answer in answers.items() if answer is Answer.CANNOT_TELL]
    invalid = [name for name, answer in answers.items() if answer is Answer.INVALID]
    by = f"by {BY_NAME[metric].label}, by at least {wording.percent(min_gain)}"
    parts = []
    if paying:
        parts.append(f"{listed(paying)} {by}")
    if never:
        none = f"{listed(never)} {'pays' if len(never) == 1 else 'pay'} at none of the tested loads"
        parts.append(none if paying else f"{none} ({wording.tested(levels)}) {by}")
    if unsure:
        asked = "" if parts else f"; at least {wording.percent(min_gain)} must be gained by {BY_NAME[metric].label}"
        parts.append(
            f"whether {listed(unsure, 'or')} {'pays' if len(unsure) == 1 else 'pay'} cannot be told yet{asked}"
        )
    if invalid:
        parts.append(f"{listed(invalid)} {'is' if len(invalid) == 1 else 'are'} not judged")
    said = "; ".join(parts)
    if said.startswith("whether"):  # what else stands first is a name
        said = f"W{said[1:]}"
    return f"{said}.{_told_apart(pairs, ranking)}"


def _where(decision: Decision, levels: Sequence[float]) -> str:
    limit = decision.limit
    assert limit is not None
    match decision.answer:
        case Answer.PAYS_UP_TO:
            known = wording.estimated(limit, levels)
            return f"pays up to {wording.pays_up_to(limit)}" + (f" ({known})" if known else "")
        case Answer.PAYS_EVERYWHERE:
            return f"pays at every tested load ({wording.tested(levels)})"
        case _:
            return f"pays {wording.ranges(limit.regions)}"


def best_where_it_pays(pairs: Pairs, ranking: Ranking) -> dict[str, list[float]]:
    """Return the candidates that are proven the best at loads at which they pay, with these loads, ascending."""
    found: dict[str, list[float]] = {}
    for level, name in sorted(ranking.best.items()):
        if pays_at(pairs[name], ranking.metric, level):
            found.setdefault(name, []).append(level)
    return found


def pays_at(pair: Judgement, metric: str, level: float) -> bool:
    """Return whether a candidate's whole interval at a load is beyond the least gain, and no guard is broken there."""
    decision = pair.decision
    if decision.answer not in PAYING or decision.limit is None:
        return False
    broken = any(guard.level == level and guard.finding is Finding.BROKEN for guard in decision.guards)
    own = next((s.ratio.low for s in pair.speedups if s.metric == metric and s.level == level), None)
    return not broken and own is not None and own > decision.limit.threshold


def _told_apart(pairs: Pairs, ranking: Ranking) -> str:
    """Say which paying candidate is the best, and where; or that those that pay cannot be told apart."""
    paying = [name for name in by_strength(pairs) if pairs[name].decision.answer in PAYING]
    best = best_where_it_pays(pairs, ranking)
    if best:
        where = [f"{name} at {wording.spans(levels, sorted(pairs[name].levels))}" for name, levels in best.items()]
        return f" Best: {listed(where)}."
    if len(paying) < 2:
        return ""
    alike = [pair for pair in ranking.alike if set(pair) <= set(paying)]
    if len(alike) == len(paying) * (len(paying) - 1) // 2:
        return f" {listed(paying)} cannot be told apart at any tested load."
    return f" Which of {listed(paying)} is the best cannot be told."


def recommendation(pairs: Pairs, ranking: Ranking) -> str:
    """Return what to do: the candidate that is the best wherever any is, else every one that pays, with its limit."""
    best = list(best_where_it_pays(pairs, ranking))
    order = by_strength(pairs)
    paying = [name for name in order if pairs[name].decision.answer in PAYING]
    if not paying:
        unsure = any(pairs[name].decision.answer is Answer.CANNOT_TELL for name in order)
        return "measure more" if unsure else "off"
    if len(best) == 1:
        return f"{best[0]}: {pairs[best[0]].decision.recommendation}"
    return listed([f"{name}: {pairs[name].decision.recommendation}" for name in paying], "or")


def relations(ranking: Ranking) -> str:
    """Say which candidates are proven the best where, and which are told apart nowhere."""
    spans: dict[str, list[float]] = {}
    for level, name in sorted(ranking.best.items()):
        spans.setdefault(name, []).append(level)
    levels = sorted({one.level for one in ranking.against})
    said = [f"{name} is proven better than every other candidate at {wording.spans(own, levels)}."
            for name, own in spans.items()]  # fmt: skip
    said += [f"{first} and {second} cannot be told apart at any tested load." for first, second in ranking.alike]
    if not said:
        said = ["At no tested load is one candidate proven better than every other."]
    return " ".join(said)
