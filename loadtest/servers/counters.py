"""A server's counters: the text of `/metrics` → values by exposition name, labels summed."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from loadtest.servers.kinds import KINDS, prefixes

PREFIXES = prefixes()
MOST_SERIES = 20_000  # of the known families, beyond which reading them would hold up the load
LARGEST = 1e18  # beyond it a figure is no count and no time, and its sums may overflow
# When a process began: it tells a restart even where the counters have grown past what they were.
BEGAN = "process_start_time_seconds"
_KEPT = (*PREFIXES, BEGAN)
_SKIPPED_SUFFIXES = ("_bucket", "_created", "_info")
_AVERAGED_SUFFIXES = ("_perc", "_usage", "_rate", "_ratio", "_accept_length")
_MODEL = re.compile(r'[{,]model_name="((?:[^"\\]|\\.)*)"')
PER_POSITION = tuple(kind.per_position for kind in KINDS.values() if kind.per_position)

Sample = tuple[str, Mapping[str, str], float]  # exposition name, labels, value


def parse_exposition(text: str, model: str = "", *, shared: bool = False) -> tuple[dict[str, float], list[float]]:
    """Return (values, accepted tokens by draft slot) of an exposition in Prometheus' text format.

    Counters and gauges are summed over their labels (engines of a data-parallel server, finish reasons); shares
    (`…_perc`) are averaged. Histogram buckets, `_created` twins and other processes' families are left out, before
    parsing, so that a scrape costs well under a millisecond. Where the exposition tells several models apart and
    `model` is one of them, only that one counts; `shared`: only what names it. Raises ValueError for text that is no
    exposition, or has more than MOST_SERIES of them.
    """
    lines = [line for line in text.split("\n") if line.startswith(_KEPT) and not _skipped(line)]
    if len(lines) > MOST_SERIES:
        raise ValueError(f"{len(lines):,} series of known counters, of which at most {MOST_SERIES:,} are read")
    lines = _of_model(lines, model, shared=shared)
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return added_up((s.name, s.labels, s.value) for family in families for s in family.samples)


def added_up(samples: Iterable[Sample]) -> tuple[dict[str, float], list[float]]:
    """Return (values, accepted tokens by draft slot) of samples: counts are summed, shares averaged."""
    sums: dict[str, list[float]] = defaultdict(list)
    positions: dict[int, float] = defaultdict(float)
    for name, labels, value in samples:
        if math.isnan(value):
            continue
        sums[name].append(value)
        if name in PER_POSITION:
            positions[_slot(labels.get("position", ""))] += value
    values = {name: sum(v) / (len(v) if name.endswith(_AVERAGED_SUFFIXES) else 1) for name, v in sums.items()}
    whole = sorted(positions) == list(range(len(positions)))  # else nobody knows which slots these are
    accepted = [positions[slot] for slot in sorted(positions)] if whole else []
    told = {name: value for name, value in values.items() if abs(value) <= LARGEST}
    return told, accepted if all(abs(value) <= LARGEST for value in accepted) else []


def _slot(position: str) -> int:
    """Return the draft slot that a label names, -1 for none."""
    return int(position) if position.isdecimal() and len(position) < 5 else -1


def _skipped(line: str) -> bool:
    name = line.split("{", 1)[0].split(" ", 1)[0]
    return name.endswith(_SKIPPED_SUFFIXES)


def _of_model(lines: list[str], model: str, *, shared: bool) -> list[str]:
    """Return the lines of one model, and those that name none; all of them unless that model is among several."""
    if not model:
        return lines
    named = {line: match[1] for line in lines if (match := _MODEL.search(line))}
    models = set(named.values())
    if shared:
        return [line for line in lines if named.get(line) == model]
    return [line for line in lines if named.get(line, model) == model] if model in models and len(models) > 1 else lines


def family_names(text: str) -> set[str]:
    """Return the names of the known families in an exposition, as far as its lines tell."""
    return {line.split("{", 1)[0].split(" ", 1)[0] for line in text.split("\n") if line.startswith(PREFIXES)}


def is_idle(values: Mapping[str, float]) -> bool | None:
    """Return whether the server works on nothing; None when it does not say."""
    for kind in KINDS.values():
        if kind.running and kind.running in values:
            return values[kind.running] + values.get(kind.waiting, 0.0) == 0
    return None
