"""What 'pays' means in this run, and the guards with what each allows."""

from __future__ import annotations

from loadtest.analyse.results import Finding, Guard
from loadtest.report import vocabulary, words
from loadtest.report.tables import Table
from loadtest.report.view import View, section


def rule(view: View) -> str:
    """Say what 'pays' means in this run; nothing pays in a run of one arm, or of one against itself."""
    if not view.compared or view.itself:
        return ""
    metric = vocabulary.metric(view.decision_metric)
    said = f"A load pays when the whole 95 % interval of the speed-up by {metric.label} is above"
    said += f" {words.ratio(view.threshold)} and no guard is proven broken; a guard without data leaves it open."
    said += (
        " Of several loads one may seem to pay by chance: the claims go up load by load from the lowest, or rest on a"
    )
    said += " load whose interval holds for all loads together."
    ttft, on_time = margin(view, "ttft_margin"), margin(view, "on_time_margin")
    if ttft is not None and on_time is not None:
        said += " Guards: the time to first token, at the deepest of p50, p90 and p95 that is bounded, at most"
        said += f" {words.share(ttft)} above the baseline's, the share of tokens on time at most {_points(on_time)}"
        said += " lower, failed requests not more."
        below = margin(view, "ttft_ignore_below_s")
        if below:
            said += f" A time to first token below {words.time(below)} is never held against the candidate."
    return said + (f" {family(view)}" if view.pairs else "")


def family(view: View) -> str:
    """Say what the intervals of several candidates are worth; empty where there is one."""
    ranking = view.judgement.ranking
    if ranking is None:
        return ""
    return (
        f"The intervals of all {len(view.pairs)} candidates hold together with {words.share(ranking.confidence)}"
        f" (Bonferroni: each with {100 * ranking.of_candidate:.4g} %)."
    )


def guards(view: View) -> Table:
    """Return every guard at every level, what it allows, and both servers' tails where it is of a tail."""
    rows = tuple(
        (words.level(guard.level), vocabulary.metric(guard.name).label, words.plain(guard.statistic) or words.MISSING,
         _figure(guard), *(_tail(view, arm, guard) for arm in (view.baseline, view.candidate or "")),
         allowed(view, guard), vocabulary.FINDINGS[guard.finding], words.plain(guard.sentence))
        for guard in view.judgement.decision.guards
    )  # fmt: skip
    columns = ("load", "guard", "statistic", "change, 95 %", "baseline's", "candidate's", "allowed", "finding",
               "in words")  # fmt: skip
    return Table(name="Guards: what must not get worse", columns=columns, rows=rows, heads=2)


def allowed(view: View, guard: Guard) -> str:
    """Return what a guard allows, the absolute rule included; – where the header does not say."""
    if guard.name == "error_ratio":
        return "no more"
    most = margin(view, f"{guard.name}_margin")
    if most is None:
        return words.MISSING
    if guard.name != "ttft":
        return f"{_points(most)} lower"
    below = margin(view, "ttft_ignore_below_s")
    return words.ratio(1 + most) + (f", or within {words.time(below)}" if below else "")


def excused(view: View, guard: Guard) -> bool:
    """Return whether a guard holds by the absolute rule alone, its ratio not being within the margin."""
    most, high = margin(view, f"{guard.name}_margin"), guard.ratio.high
    if guard.name != "ttft" or guard.finding is not Finding.HOLDS or most is None or not absolute_limit(view):
        return False
    return high is None or high > 1 + most


def absolute_limit(view: View) -> str:
    """Return the time to first token that is never held against the candidate; empty where there is none."""
    below = margin(view, "ttft_ignore_below_s")
    return words.time(below) if below else ""


def _tail(view: View, arm: str, guard: Guard) -> str:
    if guard.name != "ttft":
        return words.share(guard.baseline if arm == view.baseline else guard.candidate)
    return words.time(view.tail(arm, guard.level, "ttft", guard.statistic).value if guard.statistic else None)


def _figure(guard: Guard) -> str:
    return words.interval(guard.ratio, words.ratio if guard.name == "ttft" else words.points)


def margin(view: View, name: str) -> float | None:
    """Return a margin of the decision; None where the header does not say."""
    value = section(view.run, "experiment", "decision").get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _points(share: float) -> str:
    return f"{100 * share:g} point{'' if share == 0.01 else 's'}"
