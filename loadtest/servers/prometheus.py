"""A Prometheus as the source of a server's counters, for servers whose own /metrics cannot be reached.

It holds what it scraped, every few seconds. Asked for the samples of the last minutes, it gives each with its time;
a reading waits until every series has one from after the question, so that idle moments are truly idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from loadtest.errors import printable
from loadtest.servers.arm import Arm
from loadtest.servers.counters import BEGAN, PREFIXES, Sample, added_up
from loadtest.servers.fetch import Answer, NoAnswer

REACH_S = 120  # how far back a sample may lie
FRESH_WITHIN_S = 35.0  # two scrapes at the usual 15 s, and some
POLL_S = 1.0
QUOTED = 300  # characters of its own words
GONE_S = 45.0  # a series that has had no sample for three scrapes at the usual 15 s

Fetch = Callable[[str], Answer]


def scrape(arm: Arm, fetch: Fetch) -> tuple[dict[str, float], list[float], float]:
    """Return (values, accepted by slot, when its last answer was asked for, by `time.perf_counter`).

    Raises NoAnswer where it holds no such series, or none that is fresh in time.
    """
    deadline_s = time.perf_counter() + FRESH_WITHIN_S
    first_at_s: float | None = None  # by the Prometheus's clock: its newest sample when it was first asked
    while True:
        asked_s = time.perf_counter()
        answer = fetch(query_url(arm))
        found = answer.document()  # what is wrong with a query comes with status 400
        if found is None or (answer.status != 200 and "error" not in found):
            raise NoAnswer(f"Prometheus answers with HTTP {answer.status} and no figures")
        samples, oldest_s, newest_s = read(found)
        if not samples:
            raise NoAnswer(f"Prometheus holds no series for {{{arm.prometheus_match}}} within {REACH_S} s")
        if first_at_s is not None and oldest_s > first_at_s:
            return *added_up(samples), asked_s
        first_at_s = newest_s if first_at_s is None else first_at_s
        if time.perf_counter() > deadline_s:
            raise NoAnswer(f"Prometheus had no newer figures within {FRESH_WITHIN_S:g} s: is the server still scraped?")
        time.sleep(POLL_S)


def query_url(arm: Arm) -> str:
    """Return the URL that asks for the raw samples of an arm's series."""
    names = "|".join((*(f"{prefix}.*" for prefix in PREFIXES), BEGAN))
    matchers = ",".join(part for part in (f'__name__=~"{names}",__name__!~".*_(bucket|created|info)"',
                                          arm.prometheus_match) if part)  # fmt: skip
    expression = f"{{{matchers}}}[{REACH_S}s]"
    return f"{arm.prometheus}/api/v1/query?{urlencode({'query': expression})}"


def read(document: Mapping[str, Any]) -> tuple[list[Sample], float, float]:
    """Return (the last sample of each series, the time of the oldest of them, the time of the newest known).

    Raises NoAnswer for what is no answer to a query. The clock is the Prometheus's, in seconds.
    """
    data = document.get("data")
    if document.get("status") != "success" or not isinstance(data, Mapping) or data.get("resultType") != "matrix":
        said = printable(str(document.get("error") or "no matrix of samples"))[:QUOTED]
        raise NoAnswer(f"Prometheus refuses the query: {said}")
    try:
        series = [(each["metric"], *each["values"][-1]) for each in data["result"]]
        found = [(labels["__name__"], labels, float(value), float(at_s)) for labels, at_s, value in series]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NoAnswer("Prometheus answers in a form that is not known") from error
    newest_s = max((at_s for *_, at_s in found), default=0.0)
    living = [row for row in found if row[3] > newest_s - GONE_S]  # the others are of a server that has ended
    return [row[:3] for row in living], min((row[3] for row in living), default=0.0), newest_s
