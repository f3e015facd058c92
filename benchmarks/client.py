"""Hold the stream client against a server that writes down what it truly did, and say what a chunk costs.

    python -m loadtest.simulate --arm speculative --port 8000 --log truth.jsonl &
    python benchmarks/client.py http://127.0.0.1:8000 truth.jsonl --streams 64,1024 --seconds 6

The log is the server's own record on this machine, one JSON object per request:
{"id": response id, "sent_s": [CLOCK_MONOTONIC just before each write], "chunk_tokens": […], "arrival_s": optional}.
One line of JSON is printed per number of streams; errors are client − server, in microseconds, as absolute values.
For figures that can be compared, give server and client a core each (taskset) and leave the machine otherwise idle.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import gevent
import numpy as np

from loadtest.drive.client import Client, Clock, Endpoint
from loadtest.drive.openai import CHAT_PATH, chat_body
from loadtest.record import Outcome, Request, read_lines
from loadtest.settings import Generation

LOG_WAIT_S = 2.0  # for the server to write the last requests down


def drive(endpoint: Endpoint, clock: Clock, body: bytes, streams: int, seconds: float) -> tuple[list[Request], float]:
    """Keep `streams` requests in flight for `seconds`, started over the first; return them and the CPU seconds used."""
    records: list[Request] = []
    until_s = clock.now_s() + seconds

    def user(delay_s: float) -> None:
        client = Client(endpoint, clock)
        gevent.sleep(delay_s)
        while clock.now_s() < until_s:
            record = Request()
            client.stream(CHAT_PATH, body, record)
            records.append(record)
            if record.outcome != Outcome.OK:
                gevent.sleep(0.1)
        client.close()

    gc.collect()
    gc.freeze()
    before = cpu_s()
    gevent.joinall([gevent.spawn(user, number / streams) for number in range(streams)], raise_error=True)
    return records, cpu_s() - before


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def errors(record: Request, true: dict[str, Any], origin_s: float) -> tuple[list[float], list[float], float]:
    """Return the errors of a request's stamps, of its gaps, and of its TTFT (NaN where the log lacks the arrival).

    Chunks may merge on the way: they are matched by the running count of tokens.
    """
    sent_at = dict(zip(itertools.accumulate(true["chunk_tokens"]), true["sent_s"], strict=True))
    counts = itertools.accumulate(record.chunk_tokens)
    pairs = [(at_s + origin_s, sent_at[count]) for count, at_s in zip(counts, record.chunk_s, strict=True)]
    stamps = [said - sent for said, sent in pairs]
    gaps = [b - a for a, b in itertools.pairwise(stamps)]
    arrival_s = true.get("arrival_s", float("nan"))
    ttft = (record.chunk_s[0] - record.sent_s) - (pairs[0][1] - arrival_s)
    return stamps, gaps, ttft


def row(records: list[Request], cpu: float, log: Path, clock: Clock) -> dict[str, object]:
    truth = {line["id"]: line for line in read_lines(log)}
    good = [record for record in records if record.outcome == Outcome.OK]
    found = [(record, truth[record.response_id]) for record in good if record.response_id in truth]
    if not found:
        why = records[0].error if records and not good else "the log knows none of the answers"
        raise SystemExit(f"nothing to compare: {why}")
    measured = [errors(record, true, clock.origin_ns / 1e9) for record, true in found]
    chunks = sum(len(record.chunk_s) for record in good)
    span_s = max(record.end_s for record in good) - min(record.sent_s for record in good)
    differ = sum(sum(record.chunk_tokens) != sum(true["chunk_tokens"]) for record, true in found)
    return {
        "requests": len(records),
        "not_ok": len(records) - len(good),
        "not_in_log": len(good) - len(found),
        "tokens_differ": differ,
        "chunks_per_s": round(chunks / span_s),
        "cpu_us_per_chunk": round(cpu / chunks * 1e6, 2),
        "stamp_error_us": tails([error for stamps, _, _ in measured for error in stamps]),
        "gap_error_us": tails([error for _, gaps, _ in measured for error in gaps]),
        "ttft_error_us": tails([ttft for _, _, ttft in measured]),
        "lag_max_us": tails([record.lag_max_s for record in good]),
        "coalesced_ratio": round(sum(record.coalesced for record in good) / chunks, 5),
        "stamps": {source: sum(r.stamp_source == source for r in good) for source in ("kernel", "mixed", "user")},
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024)),
    }


def tails(values: list[float]) -> dict[str, float] | None:
    known = np.abs([value for value in values if value == value])
    if not len(known):
        return None
    p50, p99 = np.percentile(known, [50, 99], method="inverted_cdf")
    return {"p50": round(float(p50) * 1e6, 1), "p99": round(float(p99) * 1e6, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("log", type=Path)
    parser.add_argument("--streams", default="64,1024")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--model", default="simulated-8b")
    parser.add_argument("--max-tokens", type=int, default=100)
    given = parser.parse_args()
    clock = Clock()
    endpoint = Endpoint(given.url)
    body = chat_body(given.model, [{"role": "user", "content": "hello there"}], Generation(), given.max_tokens)
    for streams in map(int, given.streams.split(",")):
        records, cpu = drive(endpoint, clock, body, streams, given.seconds)
        time.sleep(LOG_WAIT_S)
        print(json.dumps({"streams": streams, **row(records, cpu, given.log, clock)}), flush=True)


if __name__ == "__main__":
    main()
