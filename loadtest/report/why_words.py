"""Why the speed-up changes with load, in sentences: what a step brings against what it costs, and where they meet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from loadtest import loads
from loadtest.analyse.estimates import Crossing
from loadtest.analyse.results import Answer, Why
from loadtest.report import vocabulary, words
from loadtest.report.caveats import suspects
from loadtest.report.view import View

SAME = 0.05  # by which a term may differ between loads and still be called the same
SLIGHT = 0.01  # of a decode speed-up, below which it is none
AGREE = 0.10  # between the decode speed-up by the servers' counters and the clients' time per output token


def why_sentences(view: View) -> tuple[str, ...]:
    """Say where decoding stops gaining and why: tokens per step against the length of a step, at both ends.

    Of an invalid run nothing is explained, nor of a server against itself, which has no speculation to explain.
    """
    if view.judgement.decision.answer is Answer.INVALID or view.itself:
        return ()
    entries = [view.why(level) for level in view.levels if _accounted(view.why(level))]
    if not entries:
        return ()
    first, last = entries[0], entries[-1]
    if last is first:
        return (_accounting(view, first),)
    said = (
        _meeting(view, entries),
        _cause(entries, bool(suspects(view))),
        _accounting(view, first),
        _accounting(view, last),
    )
    return tuple(sentence for sentence in said if sentence)


def slight(gains: Mapping[float, float]) -> bool:
    """Say whether decoding is as fast on both servers at every load, but for less than SLIGHT."""
    return all(gain > 0 and abs(math.log(gain)) < SLIGHT for gain in gains.values())


def meeting(gains: Mapping[float, float]) -> tuple[float, float, float] | None:
    """Return where a decode speed-up falls to 1, and the tested loads below and above; None where it does not.

    Without a gain or a loss of SLIGHT at any load nothing falls: it is the noise of counters, which have no intervals.
    Between tested loads its logarithm is taken as linear in that of the load, as for every break-even.
    """
    if slight(gains):
        return None
    for (low, over), (high, under) in pairwise(sorted(gains.items())):
        if over > 1 >= under > 0:
            way = math.log(over) / math.log(over / under)
            return math.exp((1 - way) * math.log(low) + way * math.log(high)), low, high
    return None


def begins_late(gains: Mapping[float, float], load: float) -> list[float]:
    """Return the tested loads below a crossing at which a decode speed-up is not above 1 either."""
    return [level for level, gain in sorted(gains.items()) if level < load and gain <= 1]


def meets_again(gains: Mapping[float, float], load: float) -> list[float]:
    """Return the tested loads above a crossing at which a decode speed-up is above 1 once more."""
    return [level for level, gain in sorted(gains.items()) if level > load and gain > 1]


def proven_by_tpot(view: View) -> str:
    """Say at which loads the time per output token is proven better and worse; empty where at none."""
    ratios = {level: view.speedup("tpot", level).ratio for level in view.levels}
    better = [level for level, ratio in ratios.items() if ratio.low is not None and ratio.low > 1]
    worse = [level for level, ratio in ratios.items() if ratio.high is not None and ratio.high < 1]
    said = [f"{word} at {words.levels(found)}" for word, found in (("faster", better), ("slower", worse)) if found]
    return f"proven {' and '.join(said)}" if said else ""


def _accounted(why: Why) -> bool:
    return bool(why.tau_all and why.step_ratio and why.decode_speedup)


def _accounting(view: View, why: Why) -> str:
    said = (
        f"At {words.level(why.level)} a step brings {words.count(why.tau_all)} tokens and takes"
        f" {words.ratio(why.step_ratio)} as long as without speculation:"
        f" by the servers' counters decoding runs at {words.ratio(why.decode_speedup)}"
    )
    seen = view.speedup("tpot", why.level).ratio.value
    if not seen or not why.decode_speedup or abs(math.log(why.decode_speedup / seen)) <= AGREE:
        return f"{said}."
    return f"{said}, by the clients' time per output token at {words.ratio(seen)}: too far apart to rest on either."


def _cause(entries: Sequence[Why], moved: bool) -> str:
    """Name the term that changes with load; `moved`: acceptance itself may have, and is not said to be the same."""
    tau, step = (
        math.log(max(values) / min(values))
        for values in ([why.tau_all or 1 for why in entries], [why.step_ratio or 1 for why in entries])
    )
    if max(tau, step) < SAME:
        return f"Neither the tokens of a step nor its cost changes with load by more than {words.share(SAME)}."
    if step > 2 * tau:
        if moved:
            unsaid = "that acceptance stays the same cannot be said (How sure)"
            return f"What changes with load is the cost of a step; {unsaid}."
        if tau >= SAME:
            return (
                "What changes most with load is the cost of a step; tokens per step differ too, by up to"
                f" {words.share(math.exp(tau) - 1)}."
            )
        return "What changes with load is the cost of a step, not the acceptance of drafts."
    if tau > 2 * step:
        return "What changes with load is the number of accepted tokens, not the cost of a step."
    return "Both the cost of a step and the number of accepted tokens change with load."


def _meeting(view: View, entries: Sequence[Why]) -> str:
    """Say at which load decoding stops gaining, and that the deciding metric stops before where first tokens delay."""
    gains = {why.level: why.decode_speedup or 0.0 for why in entries}
    if slight(gains):
        return f"Decoding is as fast as without speculation at every tested load, to within {words.share(SLIGHT)}."
    found = meeting(gains)
    if found is None:
        return ""
    load, low, high = found
    said = f"Decoding stops gaining at ≈ {loads.said(words.load(load))}"
    said += f" (interpolated between {words.load(low)} and {words.load(high)}{_unproven(view, low, high)})"
    if late := begins_late(gains, load):
        said += f"; at {words.levels(late)} it does not gain either"
        said += f" ({', '.join(words.ratio(gains[level]) for level in late)})"
    said += _again(view, gains, load)
    even = view.judgement.decision.break_even
    at = even.at if even is not None and even.form is Crossing.PAYS_UP_TO else None
    if at is None or even is None or even.metric != "e2e" or at.value is None or at.high is None or at.high >= load:
        return f"{said}."
    later = view.speedup("ttft", low).ratio.high
    if later is None or later >= 1:
        return f"{said}."
    label = vocabulary.metric(even.metric).label
    return f"{said}; {label} does so at {words.load(at.value)} already, since first tokens come later."


def _unproven(view: View, low: float, high: float) -> str:
    """Say that no interval shows a crossing between two loads: counters have none, and time per token is not told."""
    before, after = (view.speedup("tpot", level).ratio for level in (low, high))
    shown = before.low is not None and before.low > 1 and after.high is not None and after.high < 1
    return "" if shown else ", by estimates alone"


def _again(view: View, gains: Mapping[float, float], load: float) -> str:
    """Say at which loads above the crossing decoding gains again, and whether time per token proves it."""
    back = meets_again(gains, load)
    if not back:
        return ""
    ratios = [view.speedup("tpot", level).ratio.low for level in back]
    proven = all(low is not None and low > 1 for low in ratios)
    each = ", ".join(words.ratio(gains[level]) for level in back)
    verb = "is" if proven else "is not"
    return f"; at {words.levels(back)} it gains again ({each}), which {verb} proven by time per output token"
