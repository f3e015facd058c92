"""What could overturn the answer, for How sure: marginal loads, guards that are not proven, acceptance that moved."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.analyse import wording
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import Trend
from loadtest.analyse.results import Answer, Finding
from loadtest.report import vocabulary, words
from loadtest.report.view import View

SUSPECT_P, SUSPECT_CHANGE = 0.05, 0.05  # a trend is told of; below p = 0.01 a note states it as a fact


def caveats(view: View) -> tuple[str, ...]:
    """Return the sentences, of each candidate by its name; none of a run that judged nothing."""
    if view.pairs:
        each = [(name, said) for name, own in view.pairs.items() for said in caveats(own)]
        return tuple(f"{words.plain(name, 80)}: {said[:1].lower()}{said[1:]}" for name, said in each)
    if not view.candidate or view.judgement.decision.answer in (Answer.INVALID, Answer.MEASURED):
        return ()
    return tuple(said for said in (marginal(view), _open_guards(view), *_moved(view)) if said)


def marginal(view: View) -> str:
    """Name the loads whose estimate, or the end of whose interval, is the least gain but for the last digits shown."""
    asked = view.threshold
    found = [f"at {words.level(level)} {said}" for level in view.levels
             if (said := _marginal(view.speedup(view.decision_metric, level).ratio, asked))]  # fmt: skip
    return f"Marginal against the least gain, {words.ratio(asked)}: {'; '.join(found)}." if found else ""


def _marginal(ratio: Estimate, asked: float) -> str:
    if ratio.value is None or ratio.low is None or ratio.high is None:
        return ""
    if ratio.low > asked:
        return f"the interval begins at {wording.apart(ratio.low, asked)}" if _looks_alike(ratio.low, asked) else ""
    if ratio.high < asked:
        return f"the interval ends at {wording.apart(ratio.high, asked)}" if _looks_alike(ratio.high, asked) else ""
    return f"the estimate itself is {wording.ratio(ratio)}" if _looks_alike(ratio.value, asked) else ""


def _looks_alike(value: float, asked: float) -> bool:
    return f"{value:.2f}" == f"{asked:.2f}"


def _open_guards(view: View) -> str:
    """Say which guards are neither broken nor proven to hold, and where."""
    open_at: dict[str, list[float]] = {}
    for guard in view.judgement.decision.guards:
        if guard.finding is Finding.UNPROVEN:
            of = f"{words.plain(guard.statistic)} of the " if guard.statistic else ""
            open_at.setdefault(f"{of}{vocabulary.metric(guard.name).label}", []).append(guard.level)
    each = [f"{what} at {words.levels(found)}" for what, found in open_at.items()]
    return f"Guards neither broken nor proven to hold: {'; '.join(each)}." if each else ""


def suspects(view: View) -> tuple[Trend, ...]:
    """Return the trends of acceptance, over load and over time, that are larger and surer than chance mostly makes."""
    found = view.judgement.findings.acceptance if view.judgement.findings else None
    both = (found.flat, found.drift) if found else ()
    return tuple(
        one for one in both
        if one is not None and one.change is not None and one.p_value is not None
        and abs(one.change) > SUSPECT_CHANGE and one.p_value < SUSPECT_P
    )  # fmt: skip


def _moved(view: View) -> Iterator[str]:
    for one in suspects(view):
        over = "over the run" if one.per == "hour" else "from the lowest to the highest load"
        verb = "fell" if (one.change or 0.0) < 0 else "rose"
        yield (
            f"The acceptance of drafts {verb} by {words.share(abs(one.change or 0.0))} {over} (p = {one.p_value:.2g}):"
            " the answer is of its mean, and another run may meet another."
        )
