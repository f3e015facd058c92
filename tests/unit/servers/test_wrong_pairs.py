"""Ten pairs that are no pairs, each caught by name; a good one, and what is waived, passes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from recorded_servers import RecordedServer, chatting, streamed, vllm, words

from loadtest.cli import main

ONE_BY_ONE, SEVERAL = [1] * 40, [1] + [3] * 20
Change = Callable[[RecordedServer], None]


@pytest.fixture
def checked() -> Iterator[Callable[..., Result]]:
    """`checked(baseline, candidate, …)`: what `loadtest check` says of two servers."""
    servers: list[RecordedServer] = []

    def check(baseline: RecordedServer, candidate: RecordedServer, *options: str) -> Result:
        servers.extend((baseline, candidate))
        words = ["check", "--baseline", baseline.url, "--speculative", candidate.url, *options]
        return CliRunner().invoke(main, words, catch_exceptions=False)

    yield check
    for server in servers:
        server.stop()


def base() -> RecordedServer:
    return chatting(vllm("base"), ONE_BY_ONE)


def ngram() -> RecordedServer:
    return chatting(vllm("ngram"), SEVERAL)


def setting(*path: str, value: Any) -> Change:
    """Change one setting of /server_info."""

    def change(server: RecordedServer) -> None:
        table = server.got["/server_info"] = copy.deepcopy(server.got["/server_info"])
        for name in path[:-1]:
            table = table[name]  # type: ignore[index, call-overload]  # JSON
        table[path[-1]] = value  # type: ignore[index, call-overload]

    return change


def listed(name: str, value: Any) -> Change:
    """Change the row of /v1/models."""

    def change(server: RecordedServer) -> None:
        rows: Any = copy.deepcopy(server.got["/v1/models"])
        rows["data"][0][name] = value
        server.got["/v1/models"] = rows

    return change


def version(server: RecordedServer) -> None:
    server.got["/version"] = {"version": "0.33.0"}


def template(server: RecordedServer) -> None:
    server.posted["/tokenize"] = lambda body: words(
        " ".join(f"[{m['role']}] {m['content']}" for m in body["messages"]) if "messages" in body else body["prompt"]
    )


WRONG: dict[str, tuple[Change, str]] = {
    "another model": (listed("root", "/models/other"), "model: /models/target-s | /models/other"),
    "a shorter context": (listed("max_model_len", 1024), "context length: 2048 | 1024"),
    "other scheduler limits": (
        setting("vllm_config", "scheduler_config", "max_num_seqs", value=16),
        "scheduler_config.max_num_seqs: 128 | 16"),
    "the prefix cache on one side": (
        setting("vllm_config", "cache_config", "enable_prefix_caching", value=False),
        "cache_config.enable_prefix_caching: True | False"),
    "another template": (template, "chat template: "),
    "another version": (version, "version: 0.32.0 | 0.33.0"),
    "another GPU": (
        setting("system_env", "nvidia_gpu_models", value="GPU 0: NVIDIA A100-SXM4-80GB"),
        "system.nvidia_gpu_models: – | GPU 0: NVIDIA A100-SXM4-80GB"),
}  # fmt: skip


def violations(result: Result) -> list[str]:
    return [line.split(None, 1)[1] for line in result.output.splitlines() if line.startswith("  violation")]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_pair_is_caught_by_name(checked: Callable[..., Result], name: str) -> None:
    change, said = WRONG[name]
    candidate = ngram()
    change(candidate)
    result = checked(base(), candidate)
    assert [line for line in violations(result) if line.startswith(said)], result.output
    assert len(violations(result)) == 1
    assert result.exit_code == 5


@pytest.mark.parametrize(
    ("pair", "said"),
    [((ngram, ngram), "both speculate; start the baseline without"),
     ((base, base), "none speculates; start the candidate with"),
     ((ngram, base), "the arms are swapped: the baseline speculates and the candidate does not")],
    ids=["on both", "on none", "swapped"],
)  # fmt: skip
def test_speculation_on_the_wrong_side_is_caught_by_name(checked: Any, pair: Any, said: str) -> None:
    result = checked(*(make() for make in pair))
    assert [line for line in violations(result) if line.startswith("speculation: ") and said in line], result.output
    assert result.exit_code == 5


def test_a_good_pair_passes(checked: Callable[..., Result]) -> None:
    result = checked(base(), ngram())
    assert violations(result) == []
    assert "expected     speculation: off | on (ngram, k = 4) (verified)" in result.output
    assert "consequence  scheduler_config.max_num_scheduled_tokens: – | 2048 (verified)" in result.output
    assert "baseline: vLLM 0.32.0 at http://127.0.0.1" in result.output
    assert result.exit_code == 0


def test_a_waived_item_is_said_and_passes(checked: Callable[..., Result]) -> None:
    candidate = ngram()
    version(candidate)
    result = checked(base(), candidate, "--waive", "version")
    assert "waived       version: 0.32.0 | 0.33.0" in result.output
    assert result.exit_code == 0


def test_a_shorter_context_that_the_draft_explains_is_a_consequence(checked: Callable[..., Result]) -> None:
    candidate = ngram()
    listed("max_model_len", 1024)(candidate)
    path = ("vllm_config", "speculative_config", "draft_model_config", "spec_target_max_model_len")
    setting(*path, value=2048)(candidate)
    result = checked(base(), candidate)
    assert "consequence  context length: 2048 | 1024 (verified)" in result.output
    assert result.exit_code == 0


def silent(chunks: list[int], **more: Any) -> RecordedServer:
    """A vLLM with /metrics hidden and dev mode off."""
    return chatting(vllm("base", dev=False, metrics=False), chunks, **more)


@pytest.mark.parametrize(
    ("baseline", "candidate", "more", "code", "said"),
    [
        (ONE_BY_ONE, SEVERAL, {}, 0, "expected     speculation: off | on (method not told) (verified)"),
        (SEVERAL, SEVERAL, {}, 5, "violation    speculation: on (method not told) | on (method not told)"),
        (ONE_BY_ONE, ONE_BY_ONE, {}, 4, "unknown      speculation: off | off (unknown): what was compared is open"),
        ([1, 1, 1], SEVERAL, {}, 4, "unknown      speculation: ? | on (method not told)"),
        (ONE_BY_ONE, ONE_BY_ONE, {"metrics": {"speculative_decoding": {"num_draft_tokens": 60, "num_spec_steps": 20,
                                                                       "num_accepted_draft_tokens": 0}}}, 0,
         "expected     speculation: off | on (method not told) (verified)"),
    ],
)  # fmt: skip
def test_without_counters_and_settings_the_answers_show_it(
    checked: Callable[..., Result], baseline: Any, candidate: Any, more: Any, code: int, said: str
) -> None:
    result = checked(silent(baseline), silent(candidate, **more))
    assert said in result.output
    assert "unknown      counters (/metrics): HTTP 404 | HTTP 404 (unknown): τ, step times" in result.output
    assert "unknown      settings (/server_info): not told | not told (unknown): limits, caches and" in result.output
    assert result.exit_code == code


def test_a_stream_that_comes_in_one_piece_is_named(checked: Callable[..., Result]) -> None:
    slow = ngram()

    def late(body: dict[str, Any]) -> str:
        time.sleep(0.3)
        return streamed(SEVERAL)

    slow.posted["/v1/chat/completions"] = late
    assert "speculative: vLLM" in (result := checked(base(), slow)).output
    assert "its streams come in one piece" in result.output
