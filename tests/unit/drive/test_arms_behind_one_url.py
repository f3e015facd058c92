"""Several arms behind one URL, told apart by a model or a header of their own; and what is then not theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.drive.choice import choose_from_file
from loadtest.errors import UsageError
from loadtest.servers.counters import parse_exposition
from loadtest.servers.file import read_servers

BOTH = """
[arms.plain]
role = "baseline"
url = "https://gateway.example/llm"
{first}
[arms.fast]
role = "candidate"
url = "https://gateway.example/llm"
{second}
"""


def chosen(folder: Path, first: str, second: str):
    path = folder / "servers.toml"
    path.write_text(BOTH.format(first=first, second=second))
    return choose_from_file(read_servers(path, {}), None).arms


def test_one_url_without_anything_that_tells_the_arms_apart_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"told apart by a\s+model or a header"):
        chosen(tmp_path, "", 'model = "only-one-is-named"')


def test_arms_told_apart_by_model_count_only_what_names_their_model(tmp_path):
    plain, fast = chosen(tmp_path, 'model = "m"', 'model = "m-eagle"')
    assert (plain.shared, fast.shared, plain.metrics, fast.metrics) == (True, True, (), ())
    text = """vllm:generation_tokens_total{engine="0",model_name="m"} 5.0
vllm:generation_tokens_total{engine="0",model_name="m-eagle"} 7.0
vllm:num_requests_running 3.0
"""
    assert parse_exposition(text, "m-eagle", shared=True)[0] == {"vllm:generation_tokens_total": 7.0}
    assert parse_exposition(text, "m-eagle")[0] == {"vllm:generation_tokens_total": 7.0, "vllm:num_requests_running": 3}
    assert parse_exposition(text, "other")[0]["vllm:generation_tokens_total"] == 12.0


def test_arms_told_apart_by_header_have_no_counters_unless_each_names_its_own(tmp_path):
    plain, fast = chosen(tmp_path, 'headers_env = {"X-Route" = "ROUTE_A"}', 'headers_env = {"X-Route" = "ROUTE_B"}')
    assert plain.metrics == fast.metrics == ("none",)
    plain, fast = chosen(
        tmp_path,
        'headers_env = {"X-Route" = "A"}\nmetrics = ["http://10.0.0.1:8000/metrics", "http://10.0.0.2:8000/metrics"]',
        'headers_env = {"X-Route" = "B"}\nprometheus = "http://prom:9090"\nprometheus_match = \'job="fast"\'',
    )
    assert (plain.shared, fast.shared) == (False, False)
    assert plain.metrics == ("http://10.0.0.1:8000/metrics", "http://10.0.0.2:8000/metrics")
    assert (fast.metrics, fast.prometheus, fast.prometheus_match) == ((), "http://prom:9090", 'job="fast"')


def test_declared_facts_and_the_kind_are_read(tmp_path):
    plain, fast = chosen(
        tmp_path, 'model = "a"\nkind = "vllm"\ndeclared = {GPU = "H100", version = "0.33.0"}\nreplicas = 4\ngpus = 8',
        'model = "b"'
    )  # fmt: skip
    assert (plain.kind, plain.declared, plain.replicas, plain.gpus) == (
        "vllm", {"GPU": "H100", "version": "0.33.0"}, 4, 8)  # fmt: skip
    assert fast.declared == {}
    with pytest.raises(
        UsageError, match=r"line 5: arms\.plain\.kind is 'vlm'; it must be one of \"simulated\", \"vllm\""
    ):
        chosen(tmp_path, 'kind = "vlm"', "")
