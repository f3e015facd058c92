"""A server's counters: the text of `/metrics` → values by exposition name, labels summed."""

from __future__ import annotations

import math
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

PREFIXES = ("vllm:",)
LARGEST = 1e18  # beyond it a figure is no count and no time, and its sums may overflow
_SKIPPED_SUFFIXES = ("_bucket", "_created", "_info")
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def parse_exposition(text: str) -> tuple[dict[str, float], list[float]]:
    """Return (values, accepted tokens by draft slot) of an exposition in Prometheus' text format.

    Counters and gauges are summed over their labels (engines of a data-parallel server, finish reasons); shares
    (`…_perc`) are averaged. Histogram buckets, `_created` twins and other processes' families are left out, before
    parsing, so that a scrape costs well under a millisecond. Raises ValueError for text that is no exposition.
    """
    lines = [line for line in text.splitlines() if line.startswith(PREFIXES) and not _skipped(line)]
    sums: dict[str, list[float]] = defaultdict(list)
    positions: dict[int, float] = defaultdict(float)
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if math.isnan(sample.value):
                continue
            sums[sample.name].append(sample.value)
            if sample.name == PER_POSITION:
                positions[int(sample.labels.get("position", -1))] += sample.value
    values = {name: sum(v) / (len(v) if name.endswith("_perc") else 1) for name, v in sums.items()}
    accepted = [positions[slot] for slot in sorted(positions) if slot >= 0]
    told = {name: value for name, value in values.items() if abs(value) <= LARGEST}
    return told, accepted if all(abs(value) <= LARGEST for value in accepted) else []


def _skipped(line: str) -> bool:
    name = line.split("{", 1)[0].split(" ", 1)[0]
    return name.endswith(_SKIPPED_SUFFIXES)


RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"


def is_idle(values: dict[str, float]) -> bool | None:
    """Return whether the server works on nothing; None when it does not say."""
    if RUNNING not in values:
        return None
    return values[RUNNING] + values.get(WAITING, 0.0) == 0
