"""What is shown while servers start."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from loadtest.report.progress import Progress


def _said(*events: dict) -> list[str]:
    out = StringIO()
    with Progress(Console(file=out, width=80)) as progress:
        for event in events:
            progress.handle(event)
    return out.getvalue().splitlines()


def test_a_start_its_wait_and_its_health_are_said_and_the_wait_not_too_often():
    wait = {"event": "server_wait", "arm": "draft", "ready_s": 600.0, "line": "loading \x1b[31m weights"}
    waits = [wait | {"waited_s": s} for s in (2.0, 18.0, 20.5, 22.0, 40.0, 41.0)]
    lines = _said(
        {"event": "server_start", "arm": "draft", "start": 2, "starts": 4, "url": "http://a:1"},
        *waits,
        {"event": "server_ready", "arm": "draft", "took_s": 42.04},
        {"event": "server_stop", "arm": "draft"},
    )
    assert lines == [
        "starting draft at http://a:1, start 2 of 4",
        "waiting for draft to be healthy, 20 s of at most 10 min: loading \ufffd[31m weights",
        "waiting for draft to be healthy, 41 s of at most 10 min: loading \ufffd[31m weights",
        "draft is healthy after 42.0 s",
        "ending draft",
    ]


def test_one_start_is_not_counted():
    assert _said({"event": "server_start", "arm": "a", "start": 1, "starts": 1, "url": "u"}) == ["starting a at u"]


def test_workers_are_awaited_and_shown_with_their_clocks():
    worker = {"name": "w\x1b[2J", "host": "far", "offset_s": -3600.0015, "bound_s": 0.00025}
    assert _said(
        {"event": "workers_awaited", "count": 2, "local": False, "host": "10.0.0.7", "port": 5557, "wait_s": 300.0},
        {"event": "workers", "crew": [worker, {"name": "w2", "host": "near", "offset_s": None, "bound_s": None}]},
        {"event": "workers_awaited", "count": 4, "local": True},
    ) == [
        "waiting 5 min at most for 2 workers at 10.0.0.7:5557: loadtest worker --master HOST:5557",
        "w\ufffd[2J on far is ready; the master's clock − its own: -3600001.500 ± 0.250 ms",
        "w2 on near is ready; the master's clock − its own: unknown",
        "starting 4 workers",
    ]
