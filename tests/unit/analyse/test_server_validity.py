"""What stands behind a URL: streams that come in one piece, restarts, and counters of other kinds of server."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_run import BASE, SPEC, cell, request, table_of

from loadtest.analyse.counters import growth, restarted, tokens_per_step
from loadtest.analyse.metrics import BY_NAME
from loadtest.analyse.server_validity import is_faked, modes_of
from loadtest.analyse.table import derive
from loadtest.record import Request, Scrape

TOKENS, DRAFTS = "vllm:generation_tokens_total", "vllm:spec_decode_num_drafts_total"
BEGAN = "process_start_time_seconds"


def answer(i: int, arm: str = SPEC, *, spread_s: float = 1e-5, coalesced: int = 8, chunks: int = 9) -> Request:
    """An answer that begins to arrive two seconds after it fell due."""
    due_s = 100.0 + 0.1 * i
    times = [due_s + 2.0 + spread_s * n for n in range(chunks)]
    return request(session=i, arm=arm, cell=0 if arm == BASE else 1, due_s=due_s, sent_s=due_s, headers_s=times[0],
                   first_visible_s=times[0], end_s=times[-1], chunk_s=times, chunk_tokens=[1] * chunks,
                   output_tokens=chunks, coalesced=coalesced)  # fmt: skip


def figures(rows: list[Request]) -> dict[str, float]:
    records = [cell(0), cell(1, arm=SPEC)]
    own = derive(table_of(rows), records).cell(records[1])
    return {name: metric.figure(own) for name, metric in BY_NAME.items()}


def test_streams_in_one_piece_have_no_times_within_them() -> None:
    found = figures([answer(i) for i in range(20)])
    absent = ("ttft", "ttft_visible", "tpot", "token_gap", "chunk_gap", "worst_stall", "on_time")
    assert {name for name in found if math.isnan(found[name])} == set(absent)
    assert found["tokens_per_chunk"] == 1.0
    assert found["e2e"] == pytest.approx(2.00008)
    assert found["output_tokens_per_s"] == pytest.approx(18.0)  # 20 answers of 9 tokens in a window of 10 s
    assert BY_NAME["ttft"].values is not None


@pytest.mark.parametrize(
    "rows",
    [
        [answer(i, coalesced=0) for i in range(20)],  # a quick server after a long queue: each chunk in its own read
        [answer(i, spread_s=0.05) for i in range(20)],  # a busy client that reads late
        [answer(i, chunks=7, coalesced=6) for i in range(20)],  # short answers fit into one read
        [answer(i, coalesced=8 if i < 10 else 0) for i in range(20)],  # half of them
    ],
)
def test_what_is_no_stream_held_back(rows: list[Request]) -> None:
    assert not math.isnan(figures(rows)["ttft"])


def test_only_the_arm_whose_streams_are_held_back_loses_its_times() -> None:
    rows = [answer(i, BASE, coalesced=0) for i in range(20)] + [answer(i) for i in range(20)]
    records = [cell(0), cell(1, arm=SPEC)]
    frame = derive(table_of(rows), records).frame
    assert np.isfinite(frame.loc[frame["arm"] == BASE, "ttft_s"]).all()
    assert frame.loc[frame["arm"] == SPEC, "ttft_s"].isna().all()


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({TOKENS: 100.0}, {TOKENS: 180.0}, False),
        ({TOKENS: 100.0}, {TOKENS: 80.0}, True),
        ({TOKENS: 100.0, BEGAN: 5.0}, {TOKENS: 180.0, BEGAN: 9.0}, True),  # it has grown past what it was
        ({TOKENS: 100.0, BEGAN: 5.0}, {TOKENS: 180.0, BEGAN: 5.0}, False),
        ({TOKENS: 100.0, DRAFTS: 7.0}, {TOKENS: 180.0}, False),
    ],
)
def test_a_restart_within_a_cell(first: dict[str, float], last: dict[str, float], expected: bool) -> None:
    scrapes = [Scrape(t_s=99.0, arm=SPEC, cell=1, moment="idle_before", values=first),
               Scrape(t_s=111.0, arm=SPEC, cell=1, moment="idle_after", values=last)]  # fmt: skip
    assert restarted(scrapes) is expected
    assert (growth(scrapes, "idle_before", "idle_after") is None) is expected


def test_a_restart_between_two_samples_is_seen_though_the_ends_agree() -> None:
    values = (100.0, 160.0, 20.0, 120.0)
    told = [{TOKENS: value} for value in values]
    scrapes = [Scrape(t_s=float(i), arm=SPEC, cell=1, moment="sample", values=each) for i, each in enumerate(told)]
    assert restarted(scrapes) is True
    assert restarted(scrapes[:1]) is None


def test_readings_that_overlap_have_no_order() -> None:
    def told(t_s: float, took_s: float, count: float) -> Scrape:
        return Scrape(t_s=t_s, took_s=took_s, arm=SPEC, cell=1, moment="sample", values={TOKENS: count})

    slow, quick = told(5.0, 4.0, 60.0), told(5.1, 0.02, 50.0)  # the slow one was answered last
    assert restarted([slow, quick]) is False
    assert restarted([told(1.0, 0.1, 40.0), slow, quick, told(8.0, 0.1, 70.0)]) is False
    assert restarted([told(1.0, 0.1, 55.0), slow, quick]) is True  # the quick one is below the first, which had ended
    assert restarted([slow, quick, told(8.0, 0.1, 58.0)]) is True


def grown(**counters: float) -> float | None:
    names = {name.replace("__", ":", 1): value for name, value in counters.items()}
    scrapes = [Scrape(t_s=0.0, arm=SPEC, cell=1, moment="window_open", values=dict.fromkeys(names, 0.0)),
               Scrape(t_s=9.0, arm=SPEC, cell=1, moment="window_close", values=names)]  # fmt: skip
    found = growth(scrapes, "window_open", "window_close")
    return tokens_per_step(found) if found else None


def test_tokens_per_step_of_every_kind() -> None:
    assert grown(vllm__generation_tokens_total=130, vllm__time_to_first_token_seconds_count=10,
                 vllm__inter_token_latency_seconds_count=60) == 2.0  # fmt: skip
    assert grown(vllm__generation_tokens_total=130, vllm__time_to_first_token_seconds_count=10,
                 vllm__time_per_output_token_seconds_count=60) == 2.0  # fmt: skip
    assert grown(sglang__generation_tokens_total=1230, sglang__time_to_first_token_seconds_count=30,
                 sglang__spec_verify_calls_total=500) == 2.4  # fmt: skip
    assert grown(llamacpp__tokens_predicted_total=68, llamacpp__spec_decode_num_accepted_tokens_total=51) == 4.0
    assert grown(llamacpp__tokens_predicted_total=68, llamacpp__spec_decode_num_accepted_tokens_total=0) == 1.0
    assert grown(llamacpp__tokens_predicted_total=68) is None


def test_faked_acceptance_is_known_from_the_header() -> None:
    told = {"config": {"speculative_config.method": "eagle3"}, "modes": ["faked acceptance"]}
    assert is_faked({"arms": [{"name": "a", "identity": {}}, {"name": "b", "identity": told}]})
    assert not is_faked({"arms": [{"name": "b", "identity": told | {"modes": []}}]})
    assert modes_of({"config": {}, "modes": []}) is None
    assert modes_of({"config": {"speculative_config": None}}) == ()
