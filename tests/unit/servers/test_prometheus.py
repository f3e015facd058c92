"""A Prometheus as the source of counters: fresh figures only, added up over replicas, and no key for it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from recorded_servers import RecordedServer

from loadtest.servers import prometheus
from loadtest.servers.control import Arm, Control
from loadtest.servers.fetch import Answer, NoAnswer

ARM = Arm(name="baseline", role="baseline", url="http://127.0.0.1:1", prometheus="http://127.0.0.1:9",
          prometheus_match='job="a"')  # fmt: skip


def series(name: str, at_s: float, value: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name} | labels, "values": [[at_s - 15, "0"], [at_s, value]]}


def matrix(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(rows)}}


def told(document: Any, status: int = 200) -> Answer:
    return Answer(status=status, kind="application/json", location="", body=json.dumps(document).encode())


def test_what_is_asked_for() -> None:
    url = urlsplit(prometheus.query_url(ARM))
    query = parse_qs(url.query)["query"][0]
    assert f"{url.scheme}://{url.netloc}{url.path}" == "http://127.0.0.1:9/api/v1/query"
    assert query == ('{__name__=~"vllm:.*|sglang:.*|llamacpp:.*|process_start_time_seconds",'
                     '__name__!~".*_(bucket|created|info)",job="a"}[120s]')  # fmt: skip


def test_only_samples_from_after_the_question_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "POLL_S", 0.0)
    name = "vllm:generation_tokens_total"
    asked = iter([
        matrix(series(name, 100, "5", pod="a"), series(name, 92, "7", pod="b")),
        matrix(series(name, 115, "6", pod="a"), series(name, 92, "7", pod="b")),  # one replica is not fresh yet
        matrix(series(name, 115, "6", pod="a"), series(name, 107, "9", pod="b"), series(name, 20, "1000", pod="gone"),
               series("vllm:kv_cache_usage_perc", 115, "0.5", pod="a"),
               series("vllm:kv_cache_usage_perc", 107, "0.1", pod="b"),
               series("vllm:spec_decode_num_accepted_tokens_per_pos_total", 115, "4", position="0", pod="a")),
    ])  # fmt: skip
    values, positions, _ = prometheus.scrape(ARM, lambda url: told(next(asked)))
    assert values[name] == 15
    assert values["vllm:kv_cache_usage_perc"] == pytest.approx(0.3)
    assert positions == [4]
    assert next(asked, None) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (told({}, 503), "HTTP 503 and no figures"),
        (told(matrix(), 503), "HTTP 503 and no figures"),
        (told({"status": "error", "error": "1:2: \x1b[31mparse error" + "!" * 999}, 400),
         r"^Prometheus refuses the query: 1:2: parse error!{280,285}$"),
        (told({"status": "error", "error": "bad matcher"}), "refuses the query: bad matcher"),
        (told(matrix()), r"no series for \{job=\"a\"\} within 120 s"),
        (told({"status": "success", "data": {"resultType": "vector", "result": []}}), "no matrix of samples"),
        (told({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": []}]}}),
         "a form that is not known"),
    ],
)  # fmt: skip
def test_why_there_are_no_figures(answer: Answer, said: str) -> None:
    with pytest.raises(NoAnswer, match=said):
        prometheus.scrape(ARM, lambda url: answer)


def test_figures_that_stay_old_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "POLL_S", 0.0)
    monkeypatch.setattr(prometheus, "FRESH_WITHIN_S", 0.02)
    old = told(matrix(series("vllm:num_requests_running", 100, "1")))
    with pytest.raises(NoAnswer, match=r"no newer figures within 0\.02 s: is the server still scraped\?"):
        prometheus.scrape(ARM, lambda url: old)


def test_the_key_of_the_server_is_not_sent_to_the_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYV", "KEYCANARY777")
    server = RecordedServer({"/api/v1/query": matrix()})
    control = Control(Arm(name="server", role="single", url=server.url, prometheus=server.url, api_key_env="KEYV"))
    try:
        assert control.scrape()[3].startswith("Prometheus holds no series")
        assert [path.partition("?")[0] for path, _ in server.asked] == ["/api/v1/query"]
        assert "KEYCANARY777" not in str(server.asked)
    finally:
        control.close()
        server.stop()
