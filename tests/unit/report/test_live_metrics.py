"""The figures of a run that goes on, as Prometheus reads them."""

import socket
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadtest.errors import UsageError
from loadtest.report.live_metrics import HOST, LiveMetrics

START = {"event": "cell_start", "arm": "baseline", "level": 16.0, "unit": "users", "total": 4}
TICK = {"event": "tick", "phase": "window", "tokens_per_s": 1234.5, "ttft_p50_s": None, "in_flight": 15, "errors": 1}


@pytest.fixture
def live():
    with LiveMetrics(0) as metrics:
        yield metrics


def scraped(live):
    with urlopen(f"http://{HOST}:{live.port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {(s.name, s.labels.get("arm")): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def test_a_tick_shows_and_what_does_not_exist_is_absent(live):
    live.handle(START)
    live.handle(TICK)
    found = scraped(live)
    assert found["loadtest_output_tokens_per_second", "baseline"] == 1234.5
    assert found["loadtest_in_flight", "baseline"] == 15
    assert found["loadtest_errors", "baseline"] == 1
    assert found["loadtest_level", "baseline"] == 16
    assert found["loadtest_cells", None] == 4
    assert ("loadtest_ttft_p50_seconds", "baseline") not in found


def test_an_arm_that_is_not_under_load_has_no_figures(live):
    live.handle(START)
    live.handle(TICK)
    live.handle({"event": "cell_end", "arm": "baseline"})
    assert scraped(live) == {("loadtest_cells_done", None): 1, ("loadtest_cells", None): 4}
    live.handle(START | {"arm": 'a"}\nb'})
    live.handle(TICK | {"ttft_p50_s": 0.04})
    assert scraped(live)["loadtest_ttft_p50_seconds", 'a"}\nb'] == 0.04


def test_the_calibration_and_unknown_events_show_nothing(live):
    for event in (TICK, {"event": "beat"}, {}):
        live.handle(event)
    assert set(scraped(live)) == {("loadtest_cells_done", None), ("loadtest_cells", None)}


def test_a_port_that_is_taken_is_answered_by_a_sentence():
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(UsageError, match=r"for --metrics-port: .* Give a free port\."):
            LiveMetrics(taken.getsockname()[1])


def test_after_the_run_nobody_listens():
    with LiveMetrics(0) as live:
        port = live.port
    with socket.socket() as probe:
        assert probe.connect_ex((HOST, port)) != 0
