"""What each kind of server says in a stream, re-made event by event, and what the client makes of it."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field
from typing import Any

import pytest

from loadtest.drive.deltas import Deltas
from loadtest.drive.sse import EventSplitter
from loadtest.record import Request

DONE = b"data: [DONE]\n\n"


def event(said: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\n\n"


def counted(tokens: int, prompt: int = 7, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens, **more}


def vllm(delta: dict[str, Any] | None, tokens: int | None = None, finish: str | None = None, **more: Any) -> bytes:
    """A chat event of vLLM 0.32; without a delta it is one of the end."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
    said: dict[str, Any] = {"id": "chatcmpl-9a", "object": "chat.completion.chunk", "created": 1795979565, "model": "m",
                            "choices": [] if delta is None else [choice]}  # fmt: skip
    if tokens is not None:
        said["usage"] = counted(tokens, completion_tokens_details=None)
    return event(said | more)


def completion(text: str, finish: str | None = None, ids: list[int] | None = None, **more: Any) -> bytes:
    """An event of vLLM's /v1/completions."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None,
              "prompt_token_ids": None, "token_ids": ids}  # fmt: skip
    return event({"id": "cmpl-8f", "object": "text_completion", "created": 1795979565, "model": "m",
                  "choices": [choice]} | more)  # fmt: skip


def sglang(delta: dict[str, Any], tokens: int | None = None, finish: str | None = None) -> bytes:
    """A chat event of SGLang: every field of the delta is there, most of them null."""
    whole = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None} | delta
    choice = {"index": 0, "delta": whole, "logprobs": None, "finish_reason": finish, "matched_stop": None}
    usage = None if tokens is None else counted(tokens, prompt_tokens_details=None)
    return event({"id": "0f3a", "object": "chat.completion.chunk", "created": 1795979565, "model": "m",
                  "choices": [choice], "usage": usage})  # fmt: skip


def llamacpp(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """A chat event of llama.cpp, whose keys stand in another order."""
    return event({"choices": [{"finish_reason": finish, "index": 0, "delta": delta}], "created": 1795981823,
                  "id": "chatcmpl-yQ", "model": "/models/m.gguf", "system_fingerprint": "b1-7e4c0a9",
                  "object": "chat.completion.chunk"} | more)  # fmt: skip


def call(arguments: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments, **more}}]}


ROLE = {"role": "assistant", "content": ""}
SPEC = {"mean_acceptance_length": 2.25, "draft_acceptance_rate": 0.42, "acceptance_histogram": [1, 1, 2, 0],
        "num_spec_steps": 4, "num_accepted_draft_tokens": 5, "num_draft_tokens": 12, "num_spec_tokens": 3}  # fmt: skip
TIMINGS = {"cache_n": 0, "prompt_n": 25, "prompt_ms": 172.193, "predicted_n": 8, "predicted_ms": 1206.5}
SGL = {"spec_accept_rate": 0.5, "spec_accept_length": 2.5, "spec_num_correct_drafts": 3, "spec_num_proposed_drafts": 6,
       "spec_verify_ct": 2, "spec_correct_drafts_histogram": [0, 1, 1]}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A stream, its n-th event read at n seconds, and what its record must hold."""

    events: list[bytes]
    chunk_s: list[float]
    chunk_tokens: list[int]
    output_tokens: int
    source: str = "usage"
    first_visible_s: float = 1.0
    finish: str = "stop"
    spec: tuple[int, int, int] = (-1, -1, -1)  # drafts, drafted, accepted
    cached: int = -1
    more: dict[str, Any] = field(default_factory=dict)


DIALECTS = {
    "vLLM chat, a running count": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": "a"}, 1), vllm({"content": " b c d"}, 5),
                vllm({"content": " e"}, 7, "stop"),
                vllm(None, 7), DONE],
        chunk_s=[1, 2, 3], chunk_tokens=[1, 4, 2], output_tokens=7),
    "vLLM chat, the role with the first token in one read": Dialect(
        events=[vllm(ROLE, 0) + vllm({"content": "a"}, 1), vllm({"content": "b"}, 2, "length"), vllm(None, 2) + DONE],
        chunk_s=[0, 1], chunk_tokens=[1, 1], output_tokens=2, first_visible_s=0.0, finish="length"),
    "vLLM chat, the usage at the end alone": Dialect(
        events=[vllm(ROLE), vllm({"content": "a"}), vllm({"content": "b c"}), vllm({}, finish="stop"), vllm(None, 4),
                DONE],
        chunk_s=[1, 2], chunk_tokens=[], output_tokens=4, source="none"),
    "vLLM chat, per-request figures on the closing usage": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": "a"}, 1), vllm({"content": "b c"}, 9, "stop"),
                vllm(None, 9, metrics={"time_to_first_token_ms": 12.5, "queue_time_ms": 0.1,
                                       "speculative_decoding": SPEC}), DONE],
        chunk_s=[1, 2], chunk_tokens=[1, 8], output_tokens=9, spec=(4, 12, 5)),
    "vLLM chat, figures without speculation": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": "a"}, 1, "stop"),
                vllm(None, 1, metrics={"mean_itl_ms": 20.1, "speculative_decoding": None}), DONE],
        chunk_s=[1], chunk_tokens=[1], output_tokens=1),
    "vLLM chat, cached tokens and details": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": "a"}, 1), vllm({"content": "b"}, 2, "stop"),
                event({"id": "chatcmpl-9a", "model": "m", "choices": [],
                       "usage": counted(2, 98, prompt_tokens_details={"cached_tokens": 64},
                                        completion_tokens_details={"reasoning_tokens": 1})}), DONE],
        chunk_s=[1, 2], chunk_tokens=[1, 1], output_tokens=2, cached=64, more={"prompt_tokens": 98}),
    "vLLM chat, withheld text": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": ""}, 1), vllm({"content": ""}, 4), vllm({"content": "née"}, 5),
                vllm({"content": ""}, 6, "stop"), vllm(None, 6), DONE],
        chunk_s=[1, 2, 3, 4], chunk_tokens=[1, 3, 1, 1], output_tokens=6, first_visible_s=3.0),
    "vLLM chat, chunks that a parser swallowed": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": "a"}, 1), vllm({"content": "b"}, 6), vllm({}, 6, "stop"),
                vllm(None, 8), DONE],
        chunk_s=[1, 2], chunk_tokens=[1, 5], output_tokens=8),
    "vLLM chat, comments that keep it alive": Dialect(
        events=[b": keep-alive\n\n", vllm(ROLE, 0), b": keep-alive\n\n", vllm({"content": "a"}, 1), b": keep-alive\n\n",
                vllm({"content": "b"}, 2, "stop"), DONE],
        chunk_s=[3, 5], chunk_tokens=[1, 1], output_tokens=2, first_visible_s=3.0),
    "vLLM chat, reasoning": Dialect(
        events=[vllm(ROLE, 0), vllm({"reasoning": "hm"}, 1), vllm({"reasoning": " so"}, 3),
                vllm({"content": "a"}, 5, "stop"),
                vllm(None, 5), DONE],
        chunk_s=[1, 2, 3], chunk_tokens=[1, 2, 2], output_tokens=5),
    "vLLM chat before 0.16, reasoning under its older name": Dialect(
        events=[vllm(ROLE), vllm({"reasoning_content": "hm"}), vllm({"content": "a"}, finish="stop"), vllm(None, 2),
                DONE],
        chunk_s=[1, 2], chunk_tokens=[], output_tokens=2, source="none"),
    "vLLM chat, both names at once": Dialect(
        events=[vllm(ROLE), vllm({"reasoning": "hm", "reasoning_content": "hm"}), vllm({}, finish="stop"),
                vllm(None, 1), DONE],
        chunk_s=[1], chunk_tokens=[], output_tokens=1, source="none"),
    "vLLM chat, a tool call with a running count": Dialect(
        events=[vllm({"role": "assistant", "content": None}, 0), vllm({"content": None}, 2),
                vllm(call("", name="look"), 6), vllm(call('{"a": 1, "a"'), 8), vllm(call(": 2}"), 9, "tool_calls"),
                DONE],
        chunk_s=[1, 2, 3, 4], chunk_tokens=[2, 4, 2, 1], output_tokens=9, first_visible_s=2.0, finish="tool_calls"),
    "vLLM chat, a tool call without counts": Dialect(
        events=[vllm(ROLE), vllm(call("", name="look")), vllm(call("{}")), vllm({}, finish="tool_calls"),
                vllm(None, 12), DONE],
        chunk_s=[1, 2], chunk_tokens=[], output_tokens=12, source="none", finish="tool_calls"),
    "vLLM completion, token ids": Dialect(
        events=[completion("{", ids=[301]), completion("", ids=[]), completion("id: 3", ids=[1, 2, 3]),
                completion("", "length", [2]), DONE],
        chunk_s=[0, 2, 3], chunk_tokens=[1, 3, 1], output_tokens=5, source="ids", first_visible_s=0.0, finish="length"),
    "vLLM completion, a running count": Dialect(
        events=[completion("a", usage=counted(1)), completion("b c", usage=counted(4)),
                completion("", "stop", usage=counted(5)), event({"id": "cmpl-8f", "choices": [],
                "usage": counted(5)}), DONE],
        chunk_s=[0, 1, 2], chunk_tokens=[1, 3, 1], output_tokens=5, first_visible_s=0.0),
    "vLLM completion, ids and a closing usage": Dialect(
        events=[completion("a", ids=[1]), completion("b", "stop", [2, 3]),
                event({"id": "cmpl-8f", "choices": [], "usage": counted(4)}), DONE],
        chunk_s=[0, 1], chunk_tokens=[1, 2], output_tokens=4, source="ids", first_visible_s=0.0),
    "SGLang chat, the end in an event of its own": Dialect(
        events=[sglang({"role": "assistant", "content": ""}, 0), sglang({"content": "a"}, 1),
                sglang({"content": "b c"}, 4),
                sglang({}, finish="stop"),
                event({"id": "0f3a", "object": "chat.completion.chunk", "model": "m", "choices": [],
                "usage": counted(4)}), DONE],
        chunk_s=[1, 2], chunk_tokens=[1, 3], output_tokens=4),
    "SGLang chat, no counts but the last": Dialect(
        events=[sglang({"role": "assistant", "content": ""}), sglang({"reasoning_content": "hm"}),
                sglang({"content": "b"}),
                b"event: sglext_ids\ndata: 12 13\n\n", sglang({}, finish="length"),
                event({"id": "0f3a", "model": "m", "choices": [], "usage": counted(3)}), DONE],
        chunk_s=[1, 2], chunk_tokens=[], output_tokens=3, source="none", finish="length"),
    "SGLang chat, figures on speculation": Dialect(
        events=[sglang({"role": "assistant", "content": ""}, 0), sglang({"content": "a"}, 1),
                sglang({"content": "b"}, 5, "stop"),
                event({"id": "0f3a", "model": "m", "choices": [], "usage": counted(5),
                       "sglext": {"spec_tokens_details": SGL}}), DONE],
        chunk_s=[1, 2], chunk_tokens=[1, 4], output_tokens=5, spec=(2, 6, 3)),
    "llama.cpp chat, drafting": Dialect(
        events=[llamacpp({"role": "assistant", "content": None}), llamacpp({"content": "<"}),
                llamacpp({"content": "|"}),
                llamacpp({}, "length"),
                event({"choices": [], "id": "chatcmpl-yQ", "model": "/models/m.gguf",
                       "usage": {"completion_tokens": 8, "prompt_tokens": 25,
                                 "prompt_tokens_details": {"cached_tokens": 0}},
                       "timings": TIMINGS | {"draft_n": 7, "draft_n_accepted": 4}}), DONE],
        chunk_s=[1, 2], chunk_tokens=[], output_tokens=8, source="none", finish="length", spec=(-1, 7, 4), cached=0),
    "llama.cpp chat, timings on every event and no drafts": Dialect(
        events=[llamacpp({"role": "assistant", "content": None}),
                llamacpp({"content": "<"}, timings=TIMINGS | {"predicted_n": 1}),
                llamacpp({"content": ">"}, timings=TIMINGS | {"predicted_n": 2}),
                llamacpp({}, "stop", timings=TIMINGS | {"predicted_n": 2}),
                event({"choices": [], "usage": counted(2), "timings": TIMINGS | {"predicted_n": 2}}), DONE],
        chunk_s=[1, 2], chunk_tokens=[1, 1], output_tokens=2, source="timings"),
    "llama.cpp chat, figures on the last event with a choice": Dialect(
        events=[llamacpp({"role": "assistant", "content": None}), llamacpp({"content": "<"}),
                llamacpp({}, "stop", timings=TIMINGS | {"draft_n": 9, "draft_n_accepted": 2}, usage=counted(3)), DONE],
        chunk_s=[1], chunk_tokens=[], output_tokens=3, source="none", spec=(-1, 9, 2)),
    "a role long before the first token": Dialect(
        events=[vllm(ROLE), b": thinking\n\n", b": thinking\n\n", vllm({"content": "a"}, 1), vllm({}, 1, "stop"), DONE],
        chunk_s=[3], chunk_tokens=[1], output_tokens=1, first_visible_s=3.0),
    "a role with its count, and then counts at the end alone": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": "a"}), vllm({"content": "b"}), vllm({}, finish="stop"), vllm(None, 5),
                DONE],
        chunk_s=[1, 2], chunk_tokens=[], output_tokens=5, source="none"),
    "a usage without the key choices": Dialect(
        events=[vllm(ROLE, 0), vllm({"content": "a"}, 2, "stop"), event({"id": "chatcmpl-9a", "usage": counted(2)}),
                DONE],
        chunk_s=[1], chunk_tokens=[2], output_tokens=2),
    "a usage on the last event with a choice": Dialect(
        events=[vllm(ROLE), vllm({"content": "a"}), vllm({"content": "b"}), vllm({}, 4, "stop"), DONE],
        chunk_s=[1, 2], chunk_tokens=[], output_tokens=4, source="none"),
    "a gateway that begins with an empty event": Dialect(
        events=[event({"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
                vllm(ROLE, 0),
                vllm({"content": "a"}, 1, "stop"), DONE],
        chunk_s=[2], chunk_tokens=[1], output_tokens=1, first_visible_s=2.0),
}  # fmt: skip


def read(events: list[bytes], piece: int = 1 << 20) -> Request:
    """Read the events, the n-th at n seconds, each in pieces of so many bytes."""
    record = Request()
    splitter, deltas = EventSplitter(), Deltas(record)
    for number, whole in enumerate(events):
        for start in range(0, len(whole), piece):
            for name, data in splitter.feed(whole[start : start + piece]):
                deltas.take(name, data, float(number))
    assert deltas.verdict() is None
    return record


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_understood(name: str) -> None:
    dialect = DIALECTS[name]
    record = read(dialect.events)
    assert (list(record.chunk_s), list(record.chunk_tokens)) == (dialect.chunk_s, dialect.chunk_tokens)
    assert (record.output_tokens, record.tokens_source) == (dialect.output_tokens, dialect.source)
    assert (record.first_visible_s, record.finish_reason) == (dialect.first_visible_s, dialect.finish)
    assert (record.spec_drafts, record.spec_drafted, record.spec_accepted) == dialect.spec
    assert record.cached_tokens == dialect.cached
    assert {key: getattr(record, key) for key in dialect.more} == dialect.more


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("piece", [1, 13])
def test_a_dialect_is_understood_in_pieces(name: str, piece: int) -> None:
    assert astuple(read(DIALECTS[name].events, piece)) == astuple(read(DIALECTS[name].events))  # NaN is itself there


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_understood_with_other_line_ends_and_event_names(name: str) -> None:
    changed = [part.replace(b"\n", b"\r\n") for part in DIALECTS[name].events]
    named = [part if part.startswith((b":", b"event:")) else b"event: message\r\nid: 4\r\n" + part for part in changed]
    assert astuple(read(named)) == astuple(read(DIALECTS[name].events))
