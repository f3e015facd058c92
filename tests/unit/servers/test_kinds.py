"""Each kind of server, from what real ones answered: how it is told apart, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
from recorded_servers import RecordedServer, llamacpp, sglang, vllm

from loadtest.analyse.counters import GAUGES, NAMES
from loadtest.servers.comparison import compare
from loadtest.servers.control import Arm, Control
from loadtest.servers.counters import is_idle, parse_exposition
from loadtest.servers.identity import Identity, identify
from loadtest.servers.kinds import KINDS, Kind, detect, remembers
from loadtest.servers.vllm import read as read_vllm
from loadtest.settings import Servers

Meet = Callable[..., Identity]


@pytest.fixture
def meet() -> Iterator[Meet]:
    """`meet(server, …)`: what a recorded server says of itself."""
    servers: list[RecordedServer] = []

    def introduced(server: RecordedServer, model: str = "", **arm: Any) -> Identity:
        servers.append(server)
        control = Control(Arm(name="server", role="single", url=server.url, **arm))
        try:
            return identify(control, model or control.models()[0]["id"])
        finally:
            control.close()

    yield introduced
    for server in servers:
        server.stop()


def kinds_of(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["item"]: row["kind"] for row in rows}


def test_a_vllm_with_ngram_drafting(meet: Meet) -> None:
    told = meet(vllm("ngram"))
    assert (told.kind, told.version, told.model_root, told.max_model_len) == (
        "vllm", "0.32.0", "/models/target-s", 2048)  # fmt: skip
    assert (told.speculates, told.shown_by, told.method, told.num_speculative_tokens) == (True, "counters", "ngram", 4)
    assert (told.drafter, told.modes, told.remembers, told.counters) == (None, (), False, "")
    assert told.config["scheduler_config.max_num_seqs"] == 128
    assert told.config["system.torch_version"] == "2.13.0+cpu"
    assert told.config["system.cpu_model"] == "Intel(R) Xeon(R) Processor"
    assert told.probe_tokens is not None
    assert told.template is not None


def test_a_real_vllm_pair_differs_in_speculation_alone(meet: Meet) -> None:
    kinds = kinds_of(compare(meet(vllm("base")), meet(vllm("ngram"))))
    assert kinds["speculation"] == "expected"
    assert kinds["scheduler_config.max_num_scheduled_tokens"] == "consequence"
    assert {"violation", "unknown"} & set(kinds.values()) == set()


def test_a_vllm_that_tells_its_settings_as_one_text(meet: Meet) -> None:
    """Before 0.12, and without config_format: no counters are needed to see that it drafts."""
    base, told = meet(vllm("base", as_text=True)), meet(vllm("ngram", as_text=True, metrics=False))
    assert (told.speculates, told.shown_by, told.method, told.num_speculative_tokens) == (True, "settings", "ngram", 4)
    assert (base.config["max_seq_len"], base.config["dtype"]) == ("2048", "torch.bfloat16")
    assert base.config["observability_config"].startswith("ObservabilityConfig(show_hidden_metrics_for_version=None, ")
    kinds = kinds_of(compare(base, told))
    assert kinds["speculative_config"] == "expected"
    assert "violation" not in kinds.values()


def test_a_vllm_without_dev_mode_tells_its_cache_by_the_labels_of_its_metrics(meet: Meet) -> None:
    base, told = meet(vllm("base", dev=False)), meet(vllm("ngram", dev=False))
    assert told.config["cache_config.enable_prefix_caching"] == "True"
    assert "engine" not in "".join(told.config)
    assert (told.speculates, told.method, told.num_speculative_tokens) == (True, None, 4)
    server = vllm("ngram", dev=False)
    server.got["/metrics"] = str(server.got["/metrics"]).replace('ix_caching="True"', 'ix_caching="False"')
    assert kinds_of(compare(base, meet(server)))["cache_config.enable_prefix_caching"] == "violation"


def test_settings_that_were_told_in_two_ways_are_compared_where_both_tell_them(meet: Meet) -> None:
    """Seen on a real pair: one server, busy, did not answer /server_info in time."""
    rows = {row["item"]: row for row in compare(meet(vllm("base", dev=False)), meet(vllm("ngram")))}
    assert {row["kind"] for row in rows.values()} == {"equal", "expected", "unknown"}
    settings = rows["settings (/server_info)"]
    assert (settings["baseline"], settings["candidate"]) == ("labels of /metrics", "/server_info")
    other = vllm("ngram")
    info: Any = other.got["/server_info"]
    cache = info["vllm_config"]["cache_config"] | {"enable_prefix_caching": False}
    other.got["/server_info"] = info | {"vllm_config": info["vllm_config"] | {"cache_config": cache}}
    kinds = kinds_of(compare(meet(vllm("base", dev=False)), meet(other)))
    assert kinds["cache_config.enable_prefix_caching"] == "violation"


def test_a_vllm_without_metrics_and_dev_mode_is_unknown_where_it_is_silent(meet: Meet) -> None:
    told = meet(vllm("base", dev=False, metrics=False))
    assert (told.kind, told.speculates, told.config, told.counters) == ("vllm", None, {}, "HTTP 404")
    rows = {row["item"]: row for row in compare(told, told)}
    assert rows["settings (/server_info)"]["kind"] == "unknown"
    assert "no difference can be laid to speculation for certain" in rows["settings (/server_info)"]["note"]
    assert rows["counters (/metrics)"]["kind"] == "unknown"
    assert "why cannot" in rows["counters (/metrics)"]["note"]


@pytest.mark.parametrize(
    ("speculative", "modes", "speculates"),
    [
        ({"method": "eagle3", "rejection_sample_method": "synthetic"}, ("faked acceptance",), True),
        ({"method": "eagle3", "synthetic_acceptance_length": 3.0}, ("faked acceptance",), True),
        ({"method": "eagle3", "rejection_sample_method": "fly"}, ("lossy acceptance",), True),
        ({"method": "eagle", "acceptance_method": "typical_acceptance_sampler"}, ("lossy acceptance",), True),
        ({"method": "extract_hidden_states"}, ("no speculation, data extraction",), False),
        ({"method": "eagle3", "rejection_sample_method": "standard", "synthetic_acceptance_rates": None}, (), True),
    ],
)
def test_faked_and_lossy_acceptance_are_told(meet: Meet, speculative: Any, modes: Any, speculates: bool) -> None:
    server = vllm("ngram", metrics=False)
    info: Any = server.got["/server_info"]
    server.got["/server_info"] = info | {"vllm_config": info["vllm_config"] | {"speculative_config": speculative}}
    told = meet(server)
    assert (told.modes, told.speculates) == (modes, speculates)
    row = next(row for row in compare(meet(vllm("base")), told) if row["item"] == "speculation")
    assert all(mode in row["candidate"] for mode in modes)


def test_settings_that_tell_of_speculation_outweigh_a_counter_that_is_missing(meet: Meet) -> None:
    """A gateway may pass on some of the metrics, and a later version may name them otherwise."""
    server = vllm("ngram")
    text = str(server.got["/metrics"])
    server.got["/metrics"] = "".join(line for line in text.splitlines(keepends=True) if "spec_decode" not in line)
    told = meet(server)
    assert (told.counters, told.speculates, told.shown_by) == ("", True, "settings")
    server = vllm("ngram", dev=False)
    server.got["/metrics"] = "vllm:num_requests_running 0.0\n"
    assert (meet(server).speculates, meet(vllm("base", dev=False)).shown_by) == (False, "counters")


def test_drafts_that_were_counted_outweigh_settings_that_deny_them(meet: Meet) -> None:
    server = llamacpp("base")
    server.got["/metrics"] = "llamacpp:spec_decode_num_drafts_total 3\nllamacpp:requests_processing 0\n"
    told = meet(server)
    assert (told.speculates, told.shown_by) == (True, "counters")
    server = vllm("ngram")
    info: Any = server.got["/server_info"]
    extracting = info["vllm_config"] | {"speculative_config": {"method": "extract_hidden_states"}}
    server.got["/server_info"] = info | {"vllm_config": extracting}
    server.got["/metrics"] = "vllm:spec_decode_num_drafts_total 7\n"
    assert meet(server).speculates is False


def test_names_that_a_server_tells_fit_on_a_line(meet: Meet) -> None:
    server = vllm("base")
    server.got["/version"] = {"version": "\x1b]0;title\x07" + "9" * 100_000 + "\n"}
    server.got["/server_info"] = {"vllm_config": {"a\x1b[31m\nb": {"c\x07": 1}}}
    told = meet(server)
    assert told.version == "9" * 200
    assert told.config == {"a\nb.c": 1}


def test_a_declared_method_tells_that_a_drafter_remembers(meet: Meet) -> None:
    rows = {"data": [{"id": "gpt", "owned_by": "someone"}]}
    assert meet(RecordedServer({"/v1/models": rows}), method="suffix").remembers
    assert not meet(RecordedServer({"/v1/models": rows})).remembers


def test_a_llamacpp_that_drafts_and_one_that_does_not(meet: Meet) -> None:
    base, told = meet(llamacpp("base")), meet(llamacpp("ngram"))
    assert (told.kind, told.version, told.max_model_len) == ("llamacpp", "b1-7e4c0a9", 2048)
    assert (base.speculates, told.speculates, told.method) == (False, True, "ngram-simple")
    assert told.config == {"total_slots": 8, "model_ftype": "Q4_K - Medium", "model_path": "/models/model.gguf",
                           "n_ctx": 2048, "chat_template": told.template}  # fmt: skip
    assert told.probe_tokens == 12
    kinds = kinds_of(compare(base, told))
    assert (kinds["speculation"], kinds["chat template"]) == ("expected", "equal")
    assert "violation" not in kinds.values()


def test_an_sglang_pair_and_what_it_lowers_by_itself(meet: Meet) -> None:
    base, told = meet(sglang("base")), meet(sglang("eagle3"))
    assert (told.kind, told.version, told.method, told.num_speculative_tokens) == ("sglang", "0.5.23", "eagle3", 3)
    assert (told.drafter, base.speculates, base.counters) == ("lmsys/qwen3-eagle3", False, "HTTP 404")
    assert "s3cret" not in str(told.config)
    kinds = kinds_of(compare(base, told))
    assert kinds["max_running_requests"] == "consequence"
    assert "violation" not in kinds.values()
    pinned = meet(sglang("eagle3", launch_command="sglang serve --max-running-requests 48"))
    assert kinds_of(compare(base, pinned))["max_running_requests"] == "violation"
    lossy = meet(sglang("eagle3", speculative_accept_threshold_acc=0.5))
    assert lossy.modes == ("lossy acceptance",)


def test_anything_else_is_openai_and_may_be_named_otherwise(meet: Meet) -> None:
    rows = {"data": [{"id": "gpt", "owned_by": "someone"}]}
    told = meet(RecordedServer({"/v1/models": rows}))
    assert (told.kind, told.speculates, told.version, told.template) == ("openai", None, None, None)
    assert meet(RecordedServer({"/v1/models": rows}), kind="sglang").kind == "sglang"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_entry_says_how_to_ask_count_idle_and_read(kind: Kind) -> None:
    assert KINDS[kind.name] is kind
    assert kind.title
    assert kind.counts[-1] == "none"
    assert callable(kind.read)
    named = [kind.running, kind.waiting, kind.drafts, kind.per_position]
    assert all(name.startswith(kind.prefix) for name in named if name)
    if kind.running:  # an entry with counters is known to the analysis by the same names
        assert is_idle({kind.running: 0.0, kind.waiting: 0.0}) is True
        assert is_idle({kind.running: 0.0, kind.waiting: 1.0}) is False
        assert kind.running in GAUGES["running"]
        assert kind.waiting in GAUGES["waiting"]
        assert kind.drafts in NAMES["drafts"]
        assert kind.preemptions in ("", *NAMES["preemptions"])
    else:
        assert kind.name == "openai"
    assert {f.name for f in fields(Kind)} >= {"salts", "reset", "remembering", "expected", "consequences", "ignored"}


def test_the_setting_knows_every_kind() -> None:
    setting = next(f for f in fields(Servers) if f.name == "kind")
    assert [setting.metadata["check"](name) for name in ("", *KINDS)] == ["", *KINDS]
    with pytest.raises(ValueError, match="one of"):
        setting.metadata["check"]("no such kind")


def test_detection() -> None:
    assert detect("vllm", ()) == "vllm"
    assert detect("", ("llamacpp:requests_processing",)) == "llamacpp"
    assert detect("who", ("sglang:num_running_reqs",)) == "sglang"
    assert detect("", ("http_requests_total",)) == "openai"
    assert detect("sglang", ("vllm:num_requests_running",)) == "vllm"  # the entrance wrote the list of models
    assert detect("sglang", ("vllm:num_requests_running", "sglang:num_running_reqs")) == "sglang"
    assert detect("sglang", ("http_requests_total",)) == "sglang"


@pytest.mark.parametrize(
    ("kind", "method", "expected"),
    [("vllm", "suffix", True), ("sglang", "NGRAM", True), ("vllm", "ngram", False), ("vllm", None, False),
     ("llamacpp", "ngram-simple", False), ("llamacpp", "draft+ngram-mod", True), ("what", "suffix", False),
     ("openai", "suffix", True), ("openai", "ngram", False), ("vllm", "", False)],
)  # fmt: skip
def test_drafters_that_remember(kind: str, method: str | None, expected: bool) -> None:
    assert remembers(kind, method) is expected


def test_the_counters_of_every_kind() -> None:
    from recorded_servers import read

    values, positions = parse_exposition(read("llamacpp-ngram-metrics.txt"))
    assert values["llamacpp:spec_decode_num_draft_tokens_total"] == 57
    assert values["llamacpp:spec_decode_num_accepted_tokens_total"] == 54
    assert positions == [9, 9, 6, 6, 6, 6, 6, 6]
    assert is_idle(values) is True
    values, _ = parse_exposition(read("sglang-eagle3-metrics.txt"))
    assert (values["sglang:spec_verify_calls_total"], values["sglang:token_usage"]) == (500, 0.25)
    assert is_idle(values) is False
    values, positions = parse_exposition(read("vllm-0.32-ngram-metrics.txt"))
    assert values["process_start_time_seconds"] == 1795979581.03
    assert len(positions) == 4
    assert not [name for name in values if name.endswith("_created")]


def test_a_simulated_server_is_one_by_its_environment() -> None:
    server = vllm("ngram")
    info: Any = server.got["/server_info"]
    server.got["/server_info"] = info | {"vllm_env": {"LOADTEST_SIMULATED": "default"}}
    control = Control(Arm(name="server", role="single", url=server.url))
    try:
        assert read_vllm(control, "toy").simulated_world == "default"
        assert identify(control, "toy").kind == "simulated"
    finally:
        control.close()
        server.stop()
