"""Runs made of known figures, as the driver would leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from loadtest.experiment import as_document
from loadtest.record import REQUEST_SCHEMA, CellRecord, Request, Scrape
from loadtest.record_writer import batch_of
from loadtest.settings import Experiment, Load

BASE, SPEC = "baseline", "speculative"


def table_of(rows: Iterable[Request]) -> pa.Table:
    return pa.Table.from_batches([batch_of(list(rows))]).cast(REQUEST_SCHEMA)


def request(**values: Any) -> Request:
    """A request of cell 0, due at 100, four chunks of 1, 3, 2 and 1 tokens."""
    given: dict[str, Any] = {
        "cell": 0,
        "arm": BASE,
        "level": 1.0,
        "block": 0,
        "user": 0,
        "session": 0,
        "due_s": 100.0,
        "sent_s": 100.001,
        "headers_s": 100.10,
        "first_visible_s": 100.11,
        "end_s": 100.26,
        "outcome": "ok",
        "finish_reason": "stop",
        "http_status": 200,
        "output_tokens": 7,
        "prompt_tokens": 20,
        "tokens_source": "usage",
        "body_hash": "aa",
        "chunk_s": [100.11, 100.15, 100.19, 100.25],
        "chunk_tokens": [1, 3, 2, 1],
    }
    return Request(**{**given, **values})


def cell(number: int = 0, **values: Any) -> CellRecord:
    given: dict[str, Any] = {
        "cell": number,
        "arm": BASE,
        "level": 1.0,
        "block": 0,
        "order": number,
        "state": "complete",
        "started_s": 98.0,
        "window_open_s": 99.0,
        "window_close_s": 109.0,
        "drained_s": 110.0,
        "in_flight_mean": 1.0,
        "lateness_p50_s": 0.0001,
        "lateness_p99_s": 0.001,
        "client_cpu_ratio": 0.2,
        "hub_lag_p99_s": 0.001,
        "hub_lag_max_s": 0.004,
        "clock_steps": 0,
        "coalesced_ratio": 0.0,
    }
    return CellRecord(**{**given, **values})


def header(**values: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "schema": 1,
        "version": "0.1.0",
        "status": "complete",
        "reason": "",
        "experiment": as_document(Experiment(load=Load(think_time=0))),
        "baseline": BASE,
        "candidate": SPEC,
        "simulated": None,
        "smoke": False,
        "measure_only": False,
        "comparability": [],
    }
    return {**given, **values}


@dataclass(kw_only=True)
class Made:
    """A run: `speedup(level)` of the decode, TTFT of the candidate `ttft_factor(level)` times the baseline's."""

    levels: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0)
    blocks: int = 6
    speedup: Callable[[float], float] = lambda level: 1.5
    speedups: Mapping[str, Callable[[float], float]] = field(default_factory=dict)  # of arms that have their own
    ttft_factor: Callable[[float], float] = lambda level: 1.0
    noise: float = 0.005
    seed: int = 7
    requests: int = 60  # due in the window of a cell
    chunks: int = 20
    ttft_s: float = 0.05
    gap_s: float = 0.02
    counters: bool = True
    arms: tuple[str, ...] = (BASE, SPEC)
    run: dict[str, Any] = field(default_factory=header)
    edit_cell: Callable[[CellRecord], CellRecord] = lambda record: record
    edit_request: Callable[[Request], Request] = lambda row: row

    def build(self) -> tuple[dict[str, Any], list[CellRecord], list[Scrape], pa.Table]:
        rng = np.random.default_rng(self.seed)
        cells: list[CellRecord] = []
        rows: list[Request] = []
        scrapes: list[Scrape] = []
        clock = 0.0
        totals = dict.fromkeys(self.arms, 0.0)
        for block in range(self.blocks):
            for level in self.levels:
                for arm in self.arms:
                    number = len(cells)
                    own = self._rows(rng, number, arm, level, block, clock)
                    window = self.requests * self._length(arm, level) / level
                    cells.append(self.edit_cell(cell(number, arm=arm, level=level, block=block, started_s=clock,
                                                     window_open_s=clock, window_close_s=clock + window,
                                                     drained_s=clock + window + 5, in_flight_mean=level)))  # fmt: skip
                    rows += [self.edit_request(row) for row in own]
                    if self.counters:
                        scrapes += self._scrapes(number, arm, level, clock, window, totals, own)
                    clock += window + 10
        return self.run, cells, scrapes, table_of(rows)

    def _speculates(self, arm: str) -> bool:
        return arm == SPEC or arm in self.speedups

    def _gap(self, arm: str, level: float) -> float:
        loaded = self.gap_s * (1 + level / 50)
        return loaded / self.speedups.get(arm, self.speedup)(level) if self._speculates(arm) else loaded

    def _ttft(self, arm: str, level: float) -> float:
        return self.ttft_s * (self.ttft_factor(level) if self._speculates(arm) else 1.0)

    def _length(self, arm: str, level: float) -> float:
        return self._ttft(arm, level) + self._gap(arm, level) * (self.chunks - 1)

    def _rows(
        self, rng: np.random.Generator, number: int, arm: str, level: float, block: int, clock: float
    ) -> list[Request]:
        factor = float(np.exp(rng.normal(0, self.noise)))
        every = self._length(arm, level) / level
        rows = []
        for i in range(self.requests + int(level)):  # one round of the users falls due before the window opens
            due = clock + (i - int(level)) * every
            first = due + self._ttft(arm, level) * factor * float(np.exp(rng.normal(0, 0.05)))
            arrivals = (first + factor * self._gap(arm, level) * np.arange(self.chunks)).tolist()
            rows.append(request(
                cell=number, arm=arm, level=level, block=block, session=i, due_s=due, sent_s=due, headers_s=first,
                first_visible_s=first, end_s=arrivals[-1], output_tokens=self.chunks, chunk_s=arrivals,
                chunk_tokens=[1] * self.chunks, body_hash=f"{level:g}/{block}/{i}",
            ))  # fmt: skip
        return rows

    def _scrapes(self, number: int, arm: str, level: float, clock: float, window: float, totals: dict[str, float],
                 own: list[Request]) -> list[Scrape]:  # fmt: skip
        """Counters of a server that drafts 3 and accepts 1 per step in a speculative arm."""
        made = []
        before = totals[arm]
        for moment, share in (("idle_before", 0.0), ("window_open", 0.1), ("window_close", 0.9), ("idle_after", 1.0)):
            requests = before + share * len(own)
            tokens = self.chunks * requests
            decoded = tokens - requests
            steps = decoded / 2 if self._speculates(arm) else decoded
            step_s = self._gap(arm, level) * (2 if self._speculates(arm) else 1)
            values = {
                "vllm:generation_tokens_total": tokens,
                "vllm:request_success_total": requests,
                "vllm:time_to_first_token_seconds_count": requests,
                "vllm:inter_token_latency_seconds_count": steps,
                "vllm:inter_token_latency_seconds_sum": steps * step_s + 1000.0 * number,
                "vllm:num_requests_running": 0.0 if moment.startswith("idle") else level,
                "vllm:num_preemptions_total": 0.0,
            }
            slots = []
            if self._speculates(arm):
                values["vllm:spec_decode_num_drafts_total"] = steps
                values["vllm:spec_decode_num_draft_tokens_total"] = 3 * steps
                values["vllm:spec_decode_num_accepted_tokens_total"] = steps
                slots = [0.6 * steps, 0.3 * steps, 0.1 * steps]
            at = {"idle_before": clock - 1, "window_open": clock, "window_close": clock + window,
                  "idle_after": clock + window + 5}[moment]  # fmt: skip
            made.append(Scrape(t_s=at, arm=arm, cell=number, moment=moment, values=values, per_position=slots))
        totals[arm] = before + len(own)
        return made

    def having(self, **changes: Any) -> Made:
        return replace(self, **changes)
