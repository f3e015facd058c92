"""Services of several replicas: their metrics are added up where each is named, and else not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from recorded_servers import RecordedServer, chatting, vllm

from loadtest.drive.pair import introduce
from loadtest.servers.control import Arm, Control
from loadtest.settings import Generation

METRICS = """process_start_time_seconds {began}
vllm:generation_tokens_total{{engine="0",model_name="toy"}} {tokens}
vllm:kv_cache_usage_perc{{engine="0",model_name="toy"}} {use}
vllm:num_requests_running{{engine="0",model_name="toy"}} 0
"""


def metrics(began: float, tokens: float = 5, use: float = 0.5) -> str:
    return METRICS.format(began=began, tokens=tokens, use=use)


@pytest.fixture
def servers() -> Iterator[list[RecordedServer]]:
    made: list[RecordedServer] = []
    yield made
    for server in made:
        server.stop()


def scraped(arm: Arm) -> tuple[dict[str, float], str]:
    control = Control(arm)
    try:
        values, _, _, error = control.scrape()
        return values, error
    finally:
        control.close()


def test_the_metrics_of_all_replicas_are_added_up(servers: list[RecordedServer]) -> None:
    servers += [RecordedServer({"/metrics": metrics(1.0, 5, 0.2)}), RecordedServer({"/metrics": metrics(2.0, 7, 0.4)})]
    urls = tuple(f"{server.url}/metrics" for server in servers)
    values, error = scraped(Arm(name="a", role="single", url="http://127.0.0.1:1", metrics=urls, replicas=2))
    assert not error
    assert values["vllm:generation_tokens_total"] == 12
    assert values["vllm:kv_cache_usage_perc"] == pytest.approx(0.3)
    assert values["process_start_time_seconds"] == 3.0  # whichever is started again, the sum is another one
    servers[1].got["/metrics"] = 503
    assert scraped(Arm(name="a", role="single", url="http://127.0.0.1:1", metrics=urls, replicas=2)) == ({}, "HTTP 503")


@pytest.mark.parametrize(
    ("arm", "said"),
    [({"replicas": 4}, "1 of 4 replicas is named: give the metrics URL of each"),
     ({"metrics": ("none",)}, "its counters are not read")],
)  # fmt: skip
def test_counters_that_are_of_a_part_are_not_read(servers: list[RecordedServer], arm: dict, said: str) -> None:
    servers.append(RecordedServer({"/metrics": metrics(1.0)}))
    assert scraped(Arm(name="a", role="single", url=servers[0].url, **arm)) == ({}, said)


def entrance(*began: float, told: Callable[[float], str] | None = None) -> RecordedServer:
    """A server whose /metrics is answered by one process after the other."""
    server = chatting(vllm("base", dev=False), [1] * 40)

    class InTurn(dict):
        asked = 0

        def get(self, path: str, other: object = None) -> object:
            if path != "/metrics":
                return super().get(path, other)
            InTurn.asked += 1
            return (told or metrics)(began[InTurn.asked % len(began)])

    server.got = InTurn(server.got)
    return server


def test_replicas_that_nobody_declared_are_noticed(servers: list[RecordedServer]) -> None:
    servers += [entrance(1.0, 2.0, 3.0, 4.0), entrance(1.0)]
    known, identity = introduce(Arm(name="a", role="baseline", url=servers[0].url), Generation())
    assert identity.counters == "several processes answer in turn: give the metrics URL of each replica"
    assert known.metrics == ("none",)
    known, identity = introduce(Arm(name="a", role="baseline", url=servers[1].url), Generation())
    assert (identity.counters, known.metrics) == ("", ())


def test_replicas_that_do_not_tell_when_they_began_are_noticed_by_counters_that_fall(
    servers: list[RecordedServer],
) -> None:
    def counted(tokens: float) -> str:
        return f'vllm:generation_tokens_total{{model_name="m"}} {tokens}\nvllm:num_requests_running{{engine="0"}} 0\n'

    servers += [entrance(30.0, 12.0, 7.0, 0.0, told=counted), entrance(30.0, told=counted)]
    known, identity = introduce(Arm(name="a", role="baseline", url=servers[0].url), Generation())
    assert identity.counters == "several processes answer in turn: give the metrics URL of each replica"
    assert known.metrics == ("none",)
    known, identity = introduce(Arm(name="a", role="baseline", url=servers[1].url), Generation())
    assert (identity.counters, known.metrics) == ("", ())
