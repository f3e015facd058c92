"""The scenario and the settings that an import proposes: the traffic as it was seen, and a ladder around its peak."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadtest.workload.seen import Seen, clock

STEPS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # of the busiest hour's rate
QUIET = 0.1  # of that rate: below it an hour brings too few requests to measure, and too few to weigh
WINDOW_S = (120, 600)  # longest window: at least, at most
WANTED = 100  # requests in a window
DEMO_S = (4, 20)  # window with the simulated pair: at least, at most
DEMO_WANTED = 10  # requests in such a window at the busiest hour's rate
LONGEST_ANSWER = 4096  # where the log does not say which limit was asked for
SAMPLING = ("temperature", "top_p", "top_k", "stop")

SCENARIO = '''"""Traffic imported from {log}: its requests, in their order and at their times.

`loadtest run` measures it; beside this file stand its settings, and the trace with what was asked.
"""

from loadtest.scenario import LLMUser, task


class Traffic(LLMUser):
    """Sessions of the trace that [trace] names."""

    @task
    def session(self) -> None:
        """Send the requests of one session."""
        self.hold(self.next_session())
'''


def scenario_text(log: str) -> str:
    """Return the scenario; `log` is the name of the file that it was made from."""
    return SCENARIO.format(log=_plain(log))


def settings_text(trace: str, seen: Seen, params: Mapping[str, Counter[str]], source: Sequence[str]) -> str:
    """Return the settings; `params` counts by name the values, as JSON, that the log's requests were sent with.

    `source` are sentences on where they come from.
    """
    seen = _replayed(seen)
    return "\n".join([*_heading(source), *_trace(trace), *_load(seen), *_generation(seen, params), *_rest(seen)]) + "\n"


def _replayed(seen: Seen) -> Seen:
    """Return what was seen with the rates of the replay; its hours stay those of the log, whose day is weighed."""
    return replace(seen, hours=tuple(replace(h, requests_per_s=h.requests_per_s * seen.speed) for h in seen.hours))


def _heading(source: Sequence[str]) -> Iterator[str]:
    yield f"# Proposed by `loadtest import` from {_plain(source[0])}"
    yield from (f"# {_plain(sentence)}" for sentence in source[1:])
    yield "# scenarios/chat.toml shows all settings. Look these over before a run is to decide anything."


def _trace(trace: str) -> Iterator[str]:
    yield from ("", "[trace]", f"file = {_quoted(trace)}")
    yield 'output = "cap"                               # answers have at most the tokens of the log'


def _load(seen: Seen) -> Iterator[str]:
    peak, hours, left_out = seen.busiest, *_day(seen)
    when = f"in the busiest hour ({clock(peak.begins_s)})" if len(seen.hours) > 1 else "on average"
    when += f", {seen.speed:g} times as fast as the log" if seen.speed != 1 else ""
    yield from (
        "", "[load]",
        'kind = "open"                                # requests arrive as they did, whatever the server does',
        'arrivals = "trace"',
        f"levels = {_list(levels_for(list(hours)))}   # requests/s; {peak.requests_per_s:.3g} {when}",
        "think_time = 1.0                             # within a session pauses are the log's, of at most a minute",
        "", "[traffic]                                    # the day by which the gain is weighed",
        'unit = "requests/s"',
        f"loads = {_list(list(hours))}", f"hours = {_list(list(hours.values()))}",
    )  # fmt: skip
    if left_out:
        yield f"# Hours below a tenth of the busiest are left out; they bring {100 * left_out:.2g} % of the requests."


def levels_for(loads: list[float]) -> list[float]:
    """Return a ladder that covers the loads of a day and goes on to three times the greatest."""
    low, high = min(loads), max(loads)
    found = {high, *(rounded(step * high) for step in STEPS)}
    if low < min(found):
        found |= {low, rounded(math.sqrt(low * min(found)))}
    return sorted(found)


def _day(seen: Seen) -> tuple[dict[float, float], float]:
    """Return load → hours, and the share of the requests that quiet hours bring; a shorter trace stands for a day."""
    least = QUIET * seen.busiest.requests_per_s
    lasting: dict[float, float] = {}
    for hour in seen.hours:
        if hour.requests_per_s >= least:
            load = rounded(hour.requests_per_s)
            lasting[load] = lasting.get(load, 0.0) + hour.lasts_s
    quiet = sum(hour.requests_per_s * hour.lasts_s for hour in seen.hours if hour.requests_per_s < least) / seen.speed
    total = sum(hour.lasts_s for hour in seen.hours)
    day = {load: max(0.01, round(24 * seconds / total, 2)) for load, seconds in sorted(lasting.items())}
    return day, quiet / seen.requests


def _generation(seen: Seen, params: Mapping[str, Counter[str]]) -> Iterator[str]:
    yield from ("", "[generation]                                 # sent alike with every request")
    if not params:
        yield "# The log names no sampling parameters: put in what your production sends."
    for name in SAMPLING:
        if name in params:
            value, share = _commonest(params[name], seen.requests)
            written = _toml_value(name, json.loads(value))
            if written:
                yield f"{name} = {written}{' ' * max(1, 42 - len(name) - len(written))}# {share} of the requests"
    yield f"max_tokens = {_limit(seen, params)}"


def _commonest(values: Counter[str], requests: int) -> tuple[str, str]:
    value, count = values.most_common(1)[0]
    return value, f"{100 * count / requests:.3g} %"


def _toml_value(name: str, value: Any) -> str:
    """Return a sampling parameter in TOML; empty where it is none."""
    if name == "stop":
        words = [value] if isinstance(value, str) else value
        return _quoted(words) if isinstance(words, list) and all(isinstance(w, str) and w for w in words) else ""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _limit(seen: Seen, params: Mapping[str, Counter[str]]) -> int:
    """Return the largest limit that was asked for, else the longest answer with a little room."""
    asked = [json.loads(value) for name in ("max_tokens", "max_completion_tokens") for value in params.get(name, ())]
    limits = [value for value in asked if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    if limits:
        return min(max(limits), 1_000_000)
    longest = seen.output_tokens[-1] if seen.output_tokens else 512
    return min(64 * math.ceil(longest / 64), LONGEST_ANSWER)


def _rest(seen: Seen) -> Iterator[str]:
    longest = min(WINDOW_S[1], max(WINDOW_S[0], 10 * math.ceil(WANTED / seen.busiest.requests_per_s / 10)))
    ladder = levels_for(list(_day(seen)[0]))
    peak = rounded(seen.busiest.requests_per_s)
    quick = [ladder[0], *(level for level in ladder if level in (peak, ladder[-1]) and level != ladder[0])]
    demo_s = min(DEMO_S[1], max(DEMO_S[0], math.ceil(DEMO_WANTED / peak)))
    faster = max(1.0, DEMO_WANTED / (peak * demo_s))  # a quiet log brings no request in a window that short
    said = f", {faster:.3g} times as fast as the log" if faster > 1 else ""
    rates = _list([rounded(faster * rate) for rate in quick])
    yield from (
        "", "[window]", "min_s = 60", f"max_s = {longest}", f"min_requests = {WANTED}",
        "", "[plan]", "blocks = 6", "seed = 1",
        "", "[decision]", 'metric = "e2e"', "min_gain = 0.03", "ttft_margin = 0.10", "ttft_ignore_below_s = 0.1",
        "", f"[demo]                                       # with the built-in simulated pair{said}",
        'preset = "default"', f"rates = {rates}", "blocks = 2", f"window_s = {demo_s}", "max_tokens = 64",
        "think_time = 1.0",
    )  # fmt: skip


def rounded(value: float) -> float:
    """Return a number to two significant digits, at least 0.01."""
    return max(0.01, float(f"{value:.2g}")) if value > 0 else 0.0


def _list(values: list[float]) -> str:
    return "[" + ", ".join(f"{value:g}" for value in values) + "]"


def _quoted(value: str | list[str]) -> str:
    """Return texts as TOML has them: as JSON does, but for pairs of surrogates, which it refuses, and DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(name: str) -> str:
    """Return the name of a file as it may stand in a comment or a docstring."""
    return "".join(c if c.isprintable() and c not in '"\\' else "_" for c in name)
