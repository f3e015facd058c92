"""Comparability: each kind of difference, by name."""

from dataclasses import replace

import pytest

from loadtest.servers.arm import Arm
from loadtest.servers.comparison import compare
from loadtest.servers.identity import Identity, flatten

BASE = Identity(
    kind="vllm", model="m", model_root="org/m", max_model_len=4096, version="0.33.0", probe_tokens=30, speculates=False,
    config={"speculative_config": None, "scheduler_config.max_num_seqs": 256, "cache_config.num_gpu_blocks": 9000,
            "cache_config.enable_prefix_caching": True, "parallel_config.data_parallel_rpc_port": 29550},
)  # fmt: skip
SPEC = replace(
    BASE, speculates=True, method="eagle3", num_speculative_tokens=3,
    config={"speculative_config.method": "eagle3", "speculative_config.num_speculative_tokens": 3,
            "scheduler_config.max_num_seqs": 256, "cache_config.num_gpu_blocks": 8200,
            "cache_config.enable_prefix_caching": True, "parallel_config.data_parallel_rpc_port": 31000},
)  # fmt: skip


def _kinds(baseline: Identity, candidate: Identity) -> dict[str, str]:
    return {row["item"]: row["kind"] for row in compare(baseline, candidate)}


def test_a_good_pair_differs_only_in_speculation_and_its_consequences():
    kinds = _kinds(BASE, SPEC)
    assert kinds["speculation"] == "expected"
    assert kinds["speculative_config.method"] == "expected"
    assert kinds["cache_config.num_gpu_blocks"] == "consequence"
    assert "parallel_config.data_parallel_rpc_port" not in kinds
    assert "violation" not in kinds.values()


@pytest.mark.parametrize(
    ("candidate", "item"),
    [
        (replace(SPEC, model_root="org/other"), "model"),
        (replace(SPEC, version="0.32.0"), "version"),
        (replace(SPEC, kind="openai"), "kind of server"),
        (replace(SPEC, probe_tokens=31), "tokenizer (tokens of a probe text)"),
        (replace(SPEC, config=SPEC.config | {"scheduler_config.max_num_seqs": 48}), "scheduler_config.max_num_seqs"),
        (
            replace(SPEC, config=SPEC.config | {"cache_config.enable_prefix_caching": False}),
            "cache_config.enable_prefix_caching",
        ),
        (replace(SPEC, speculates=False), "speculation"),
    ],
)
def test_each_wrong_pair_is_caught_by_name(candidate, item):
    assert _kinds(BASE, candidate)[item] == "violation"


def test_what_differs_between_any_two_starts_of_a_real_vllm_is_no_violation():
    """Seen on a pair of vLLM 0.32 on a CPU, equal but for n-gram speculation."""
    mine = {"env.VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": "vllm_mm_3LsujlLARxaI0EFyOV0ifQ",
            "parallel_config.disable_nccl_for_dp_synchronization": True}  # fmt: skip
    other = {"env.VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": "vllm_mm_CI__hOXOQBeU_pzgu-BGYQ",
             "parallel_config.disable_nccl_for_dp_synchronization": False}  # fmt: skip
    kinds = _kinds(replace(BASE, config=BASE.config | mine), replace(SPEC, config=SPEC.config | other))
    assert "violation" not in kinds.values()
    assert kinds["parallel_config.disable_nccl_for_dp_synchronization"] == "consequence"


def test_speculation_on_both_sides_or_swapped_arms_are_violations():
    assert _kinds(SPEC, SPEC)["speculation"] == "violation"
    assert _kinds(SPEC, BASE)["speculation"] == "violation"


def test_what_a_side_does_not_tell_is_unknown_and_never_equal():
    silent = Identity(kind="openai", model="m")
    kinds = _kinds(silent, silent)
    assert kinds["version"] == "unknown"
    assert kinds["speculation"] == "unknown"
    assert kinds["settings (/server_info)"] == "unknown"


def test_a_model_that_one_side_names_only_by_its_alias_is_compared_by_alias():
    assert _kinds(replace(BASE, model_root=None), SPEC)["model"] == "equal"
    assert _kinds(replace(BASE, model_root=None), replace(SPEC, model="another"))["model"] == "violation"


def test_settings_of_two_kinds_of_server_are_not_held_against_each_other():
    kinds = _kinds(replace(BASE, kind="sglang"), SPEC)
    assert [kinds["kind of server"], kinds["settings (/server_info)"]] == ["violation", "unknown"]
    assert not [item for item in kinds if "config" in item]


def test_flatten():
    assert flatten({"a": {"b": 1, "c": {"d": None}}, "e": [1]}) == {"a.b": 1, "a.c.d": None, "e": [1]}
    assert flatten(None) == {}


def test_where_a_function_lies_in_memory_is_no_setting():
    """Seen on vLLM 0.32: the repr of a function stands among the settings of speculation, other at every start."""
    first, second = (f"<function SpeculativeConfig.hf_config_override at {place}>" for place in ("0x7f94", "0x7f80"))
    told = {"draft_model_config": {"hf_overrides": first}}
    assert flatten(told) == flatten({"draft_model_config": {"hf_overrides": second}})
    assert flatten(told) == {"draft_model_config.hf_overrides": "<function SpeculativeConfig.hf_config_override>"}


def arms(baseline: dict[str, str], candidate: dict[str, str]) -> tuple[Arm, Arm]:
    return (Arm(name="baseline", role="baseline", url="http://a", declared=baseline),
            Arm(name="fast", role="candidate", url="http://b", declared=candidate))  # fmt: skip


def rows_of(baseline: Identity, candidate: Identity, declared: tuple[Arm, Arm]) -> dict[str, tuple[str, str]]:
    return {row["item"]: (row["source"], row["kind"]) for row in compare(baseline, candidate, declared)}


def test_what_is_declared_stands_in_for_what_a_server_does_not_tell():
    silent = replace(SPEC, version=None)
    assert rows_of(BASE, silent, arms({}, {"version": "0.33.0"}))["version"] == ("declared", "equal")
    assert rows_of(BASE, silent, arms({}, {"version": "0.32.0"}))["version"] == ("declared", "violation")
    both = rows_of(replace(BASE, version=None), silent, arms({"version": "1"}, {}))
    assert both["version"] == ("unknown", "unknown")
    assert rows_of(BASE, SPEC, arms({"version": "9"}, {"version": "8"}))["version"] == ("verified", "equal")


def test_further_facts_that_are_declared_are_compared():
    found = rows_of(BASE, SPEC, arms({"GPU": "H100", "image": "a"}, {"GPU": "H200"}))
    assert found["GPU"] == ("declared", "violation")
    assert found["image"] == ("unknown", "unknown")
    assert rows_of(BASE, SPEC, arms({"GPU": "H100"}, {"GPU": "H100"}))["GPU"] == ("declared", "equal")


def test_speculation_and_counters_cannot_be_declared_equal():
    silent = replace(SPEC, speculates=None, counters="HTTP 404")
    found = rows_of(BASE, silent, arms({}, {"speculation": "on", "counters (/metrics)": "read"}))
    assert found["speculation"] == ("unknown", "unknown")
    assert found["counters (/metrics)"] == ("unknown", "unknown")


def test_a_candidate_that_is_quicker_only_by_its_answers_is_told_from_one_that_is_off():
    by_answers = replace(SPEC, speculates=False, shown_by="answers to an idle server")
    assert _kinds(BASE, by_answers)["speculation"] == "unknown"
    assert _kinds(BASE, replace(by_answers, shown_by="counters"))["speculation"] == "violation"
    assert _kinds(SPEC, by_answers)["speculation"] == "violation"
