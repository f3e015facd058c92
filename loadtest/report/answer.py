"""The answer in ten seconds: tiles of the key figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from loadtest import loads
from loadtest.analyse import wording
from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.results import Answer, BreakEven, Finding
from loadtest.report import rules, vocabulary, words
from loadtest.report.sure import neighbours
from loadtest.report.view import DEPTHS, View

TOLD = 0.1  # of difference between running requests and the load, from which both are said


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A key figure. `tone` is `good`, `bad` or empty."""

    label: str
    value: str
    detail: str
    tone: str = ""


def tiles(view: View) -> tuple[Tile, ...]:
    """Return the key figures of the run, those without data left out."""
    if view.judgement.decision.answer is Answer.INVALID:
        return ()
    if view.candidate is None:
        found = (_peak(view), _latency_range(view), _tail_at_top(view), _errors(view))
    else:
        found = (limit_tile(view), _speedup_range(view), _throughput(view), _ttft(view))
    return tuple(tile for tile in found if tile is not None)


def _tone(estimate: Estimate) -> str:
    """Colour only what the interval proves: all of it above 1, or all of it below."""
    if estimate.low is not None and estimate.low > 1:
        return "good"
    return "bad" if estimate.high is not None and estimate.high < 1 else ""


def limit_tile(view: View) -> Tile | None:
    """Return up to where the candidate pays; None without a limit."""
    limit = view.judgement.decision.limit
    if limit is None or not view.levels:
        return None
    value, tone = {
        Crossing.PAYS_UP_TO: (_proven(limit.at), "good"),
        Crossing.PAYS_EVERYWHERE: (f"≥ {words.load(view.levels[-1])}", "good"),
        Crossing.NEVER_PAYS: ("never", "bad"),
        Crossing.PAYS_FROM: (f"from {words.load(limit.at.value)}", ""),
        Crossing.BAND: ("a band", ""),
    }.get(limit.form, ("open", ""))
    upward = limit.form in (Crossing.PAYS_UP_TO, Crossing.PAYS_EVERYWHERE)
    label = f"Pays up to, in {loads.unit()}" if upward else "Pays"
    return Tile(label=label, value=value, detail=limit_detail(view, limit), tone=tone)


def _proven(at: Estimate) -> str:
    """Return the load up to which it is proven to pay, as the headline has it, or the bound there is."""
    if words.known(at.high) and not words.known(at.low):
        return f"≤ {wording.texts(at)[2]}"
    return wording.claimed(at).partition(" ")[0] if words.known(at.low) or words.known(at.value) else words.MISSING


def limit_detail(view: View, limit: BreakEven) -> str:
    """Return the limit's estimate, the tested loads it lies between, and how many requests run at what is proven."""
    parts = []
    if limit.form is Crossing.BAND:
        parts.append(wording.ranges(limit.regions))
    if limit.form is Crossing.PAYS_UP_TO:
        parts += [part for part in (wording.estimated(limit, view.levels),) if part]
        around = neighbours(view, limit.at.value)
        parts += [f"between the tested {words.load(around[0])} and {words.load(around[1])}"] if around else []
    proven = _translated(limit)
    for name, value in (("in flight", proven[1]), ("running", proven[2])):
        if words.known(value) and _differs(name, value, proven[0]):
            parts.append(f"≈ {words.load(value)} {name}")
    return ", ".join(parts)


def _differs(name: str, value: float | None, proven: float | None) -> bool:
    """Say whether a load in another unit tells more than the load itself: of users that never pause nearly all run."""
    if loads.is_rate() or not value or not proven:
        return True
    return abs(value / proven - 1) > TOLD if name == "running" else words.load(value) != words.load(proven)


def _translated(limit: BreakEven) -> tuple[float | None, float | None, float | None]:
    """Return what is proven: in the controlled load, in flight and running."""
    end = "low" if limit.at.low is not None else "value"
    return getattr(limit.at, end), getattr(limit.in_flight, end), getattr(limit.running, end)


def _speedup_range(view: View) -> Tile | None:
    name = view.decision_metric
    ends = view.first_and_last(x for x in view.levels if words.known(view.speedup(name, x).ratio.value))
    if ends is None:
        return None
    low, high = (view.speedup(name, level).ratio for level in ends)
    label = f"Speed-up by {vocabulary.metric(name).label}"
    if ends[0] == ends[1]:
        return Tile(label=label, value=words.ratio(low.value), detail=f"at {words.level(ends[0])}", tone=_tone(low))
    detail = f"from {words.level(ends[0])} {_bounds(low)} to {words.level(ends[1])} {_bounds(high)}"
    if not any(_tone(view.speedup(name, level).ratio) for level in view.levels):
        detail += "; at no load proven above or below 1"
    tones = {_tone(low), _tone(high)}
    tone = tones.pop() if len(tones) == 1 else ""
    return Tile(label=label, value=f"{words.ratio(low.value)} → {words.ratio(high.value)}", detail=detail, tone=tone)


def _bounds(estimate: Estimate) -> str:
    if not (words.known(estimate.low) or words.known(estimate.high)):
        return "(no interval)"
    return "[" + ", ".join(words.ratio(bound).removesuffix("×") for bound in (estimate.low, estimate.high)) + "]"


def _throughput(view: View) -> Tile | None:
    name = "output_tokens_per_s"
    ends = view.first_and_last(x for x in view.levels if words.known(view.speedup(name, x).ratio.value))
    if ends is None:
        return None
    ratio = view.speedup(name, ends[1]).ratio
    pair = [view.mean(arm, ends[1], name).value for arm in (view.candidate or "", view.baseline)]
    beside = _beside(ratio.value, *pair, form=words.count, unit=" tokens/s", of="plain means")
    return Tile(
        label=f"Throughput at {words.level(ends[1])}",
        value=words.change(ratio.value),
        detail=", ".join(part for part in (_changes(ratio), beside) if part),
        tone=_tone(ratio),
    )


def _ttft(view: View) -> Tile | None:
    guards = [g for g in view.judgement.decision.guards if g.name == "ttft" and words.known(g.ratio.value)]
    if not guards:
        return None
    worst = max(guards, key=lambda guard: (guard.ratio.value or 0.0, -guard.level))
    depth = worst.statistic if worst.statistic in DEPTHS else "p50"
    pair = [view.tail(arm, worst.level, "ttft", depth).value for arm in (view.candidate or "", view.baseline)]
    only = f", the only load of {len(view.levels)} with enough requests" if len(guards) == 1 < len(view.levels) else ""
    detail = f"at {words.level(worst.level)}{only or (', the worst' if len(guards) > 1 else '')}"
    ratio = worst.ratio
    detail = f"{_changes(ratio)} {detail}".lstrip()
    beside = _beside(ratio.value, *pair, form=words.time, of="pooled")
    detail += f", {beside}" if beside else ""
    broken = [guard.level for guard in guards if guard.finding is Finding.BROKEN]
    if broken:
        detail += f"; guard broken at {words.levels(broken)}"
    elif any(rules.excused(view, guard) for guard in guards):
        detail += f"; guard holds: within {rules.absolute_limit(view)}"
    label = f"Time to first token, {words.plain(worst.statistic) or 'tail'}"
    return Tile(label=label, value=words.change(worst.ratio.value), detail=detail, tone="bad" if broken else "")


def _changes(ratio: Estimate) -> str:
    """Return the interval of a ratio as changes; empty where it is open at an end."""
    if not (words.known(ratio.low) and words.known(ratio.high)):
        return ""
    return f"[{words.change(ratio.low)}, {words.change(ratio.high)}]"


def _beside(
    ratio: float | None, candidate: float | None, baseline: float | None, *, form: words.Format, of: str, unit: str = ""
) -> str:
    """Return both servers' figures beside a mean of ratios paired by block, `of` what they are where they differ.

    Percentiles of pooled requests, or plain means, give another ratio than the mean over blocks: what each is, is said
    then, and their ratio is not. Of few requests it may even lean the other way; such figures are left out.
    """
    if ratio is None or not candidate or not baseline or not (ratio - 1) * (candidate - baseline) >= 0:
        return ""
    said = f"{form(candidate)} against {form(baseline)}{unit}"
    same = words.change(candidate / baseline) == words.change(ratio)
    return said if same else f"mean of the blocks' ratios; {of} {said}"


def _peak(view: View) -> Tile | None:
    name = "output_tokens_per_s"
    pairs = [(view.mean(view.baseline, level, name).value, level) for level in view.levels]
    found = [(value, level) for value, level in pairs if value is not None and not math.isnan(value)]
    if not found:
        return None
    value, level = max(found)
    return Tile(label="Highest throughput", value=f"{words.count(value)} tokens/s", detail=f"at {words.level(level)}")


def _latency_range(view: View) -> Tile | None:
    ends = view.first_and_last(x for x in view.levels if words.known(view.mean(view.baseline, x, "e2e").value))
    if ends is None:
        return None
    low, high = (words.time(view.mean(view.baseline, level, "e2e").value) for level in ends)
    detail = f"mean at {words.level(ends[0])} and at {words.level(ends[1])}"
    return Tile(label="End-to-end time", value=f"{low} → {high}", detail=detail)


def _tail_at_top(view: View) -> Tile | None:
    depth = view.deepest("ttft")
    if not depth:
        return None
    ends = view.first_and_last(x for x in view.levels if words.known(view.tail(view.baseline, x, "ttft", depth).value))
    if ends is None:
        return None
    value = words.time(view.tail(view.baseline, ends[1], "ttft", depth).value)
    return Tile(label=f"Time to first token, {depth}", value=value, detail=f"at {words.level(ends[1])}")


def _errors(view: View) -> Tile | None:
    requests = sum(item.requests for item in view.judgement.arm_levels)
    failed = sum(item.failed for item in view.judgement.arm_levels)
    if not requests:
        return None
    return Tile(label="Failed requests", value=words.share(failed / requests), detail=f"{failed:,} of {requests:,}",
                tone="bad" if failed else "")  # fmt: skip
