"""Request bodies, stream events and whole answers, held against captures from vLLM 0.32.0."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from loadtest.simulate.intake import Call, Refusal, read_call
from loadtest.simulate.wire import Answer

# Captured from a real server (no speculation; first tokens, last token, closing events).
CHAT = (
    '{"id":"chatcmpl-a2e540de168f75df","object":"chat.completion.chunk","created":1795979565,"model":"toy","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":98,"total_tokens":98,"completion_tokens":0,"completion_tokens_details":null},"prompt_token_ids":null,"prompt_text":null}',
    '{"id":"chatcmpl-a2e540de168f75df","object":"chat.completion.chunk","created":1795979565,"model":"toy","choices":[{"index":0,"delta":{"content":"{\\""},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":98,"total_tokens":99,"completion_tokens":1,"completion_tokens_details":null}}',
    '{"id":"chatcmpl-a2e540de168f75df","object":"chat.completion.chunk","created":1795979565,"model":"toy","choices":[{"index":0,"delta":{"content":"ar"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"usage":{"prompt_tokens":98,"total_tokens":158,"completion_tokens":60,"completion_tokens_details":null}}',
    '{"id":"chatcmpl-a2e540de168f75df","object":"chat.completion.chunk","created":1795979565,"model":"toy","choices":[],"usage":{"prompt_tokens":98,"total_tokens":158,"completion_tokens":60},"system_fingerprint":"vllm-0.32.0-f4df385e"}',
)
COMPLETION = (
    '{"id":"cmpl-a926a4321b105ae4","object":"text_completion","created":1795979567,"model":"toy","choices":[{"index":0,"text":"\\n","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}',
    '{"id":"cmpl-a926a4321b105ae4","object":"text_completion","created":1795979567,"model":"toy","choices":[{"index":0,"text":"\\n","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"system_fingerprint":"vllm-0.32.0-f4df385e"}',
)
WHOLE_CHAT = '{"id":"chatcmpl-b3205715bc890619","object":"chat.completion","created":1795979567,"model":"toy","choices":[{"index":0,"message":{"role":"assistant","content":"x","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-f4df385e","usage":{"prompt_tokens":98,"total_tokens":138,"completion_tokens":40,"prompt_tokens_details":null,"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'  # noqa: E501
WHOLE_COMPLETION = '{"id":"cmpl-9d431940c6a32800","object":"text_completion","created":1795979689,"model":"toy","choices":[{"index":0,"text":" it","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-345e2a54","usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1,"prompt_tokens_details":null,"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'  # noqa: E501

PROMPT = [{"role": "user", "content": "Tell me something about rivers and the sea, please."}]


def body(**more: Any) -> bytes:
    return orjson.dumps({"model": "toy", "messages": PROMPT, "max_tokens": 6} | more)


def call(chat: bool = True, **more: Any) -> Call:
    raw = body(**more) if chat else orjson.dumps({"prompt": "Once", "max_tokens": 6} | more)
    return read_call(raw, chat=chat, model="toy", max_model_len=2048)


def events(answer: Answer, pieces: tuple[int, ...]) -> list[str]:
    """Return the data of the events, having checked that each is one HTTP chunk."""
    data = []
    raw = b"".join(answer.emit(tokens) for tokens in pieces)
    while raw:
        size, raw = raw.split(b"\r\n", 1)
        event, raw = raw[: int(size, 16)], raw[int(size, 16) :]
        assert raw[:2] == b"\r\n"
        raw = raw[2:]
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        data.append(event[6:-2].decode())
    return data


def shape(text: str) -> str:
    """Return an event with every value that belongs to the request replaced; names, order and spacing stay."""

    def blank(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {inner: blank(inner, v) for inner, v in value.items()}
        if isinstance(value, list):
            return [blank(key, v) for v in value]
        free = ("id", "created", "content", "text", "model", "prompt_tokens", "total_tokens", "completion_tokens",
                "system_fingerprint")  # fmt: skip
        return "…" if key in free and value != "" else value

    # The same bytes come back from a compact dump, so that the text itself is what is compared.
    parsed = json.loads(text)
    assert json.dumps(parsed, separators=(",", ":"), ensure_ascii=False) == text
    return json.dumps(blank("", parsed))


def answer_to(asked: Call) -> Answer:
    return Answer(asked, "chatcmpl-1" if asked.chat else "cmpl-1", "toy", 1_795_979_565, "vllm-0.32.0-00000000")


def test_chat_events_have_the_form_of_vllm() -> None:
    asked = call(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    said = events(answer_to(asked), (1, 3, 2))
    assert len(said) == 6
    assert said[-1] == "[DONE]"
    role, first, middle, last, usage = said[:-1]
    assert [shape(event) for event in (role, first, last, usage)] == [shape(event) for event in CHAT]
    assert shape(middle) == shape(first)
    counts = [json.loads(event)["usage"]["completion_tokens"] for event in said[:-1]]
    assert counts == [0, 1, 4, 6, 6]


def test_completion_events_without_options_have_the_form_of_vllm() -> None:
    said = events(answer_to(call(chat=False, stream=True)), (1, 5))
    assert [shape(event) for event in said[:-1]] == [shape(event) for event in COMPLETION]
    assert said[-1] == "[DONE]"


def test_usage_without_a_running_count_stands_at_the_end_alone() -> None:
    said = events(answer_to(call(stream=True, stream_options={"include_usage": True})), (1, 5))
    assert ['"usage"' in event for event in said] == [False, False, False, True, False]
    assert ['"system_fingerprint"' in event for event in said] == [False, False, False, True, False]


@pytest.mark.parametrize("chat", [True, False])
def test_token_ids_are_given_on_request(chat: bool) -> None:
    answer = answer_to(call(chat, stream=True, return_token_ids=True))
    said = [json.loads(event) for event in events(answer, (1, 3, 2))[:-1]]
    chunks = said[1:] if chat else said
    assert [len(event["choices"][0]["token_ids"]) for event in chunks] == [1, 3, 2]
    prompt_ids = said[0]["prompt_token_ids"] if chat else said[0]["choices"][0]["prompt_token_ids"]
    assert len(prompt_ids) == (call().prompt_tokens if chat else 1)
    if not chat:
        assert said[1]["choices"][0]["prompt_token_ids"] is None


def test_whole_answers_have_the_form_of_vllm_and_the_text_of_the_stream() -> None:
    for chat, captured in ((True, WHOLE_CHAT), (False, WHOLE_COMPLETION)):
        whole = answer_to(call(chat)).whole("toy")
        assert shape(orjson.dumps(whole).decode()) == shape(captured)
        said = [json.loads(event)["choices"] for event in events(answer_to(call(chat, stream=True)), (1, 3, 2))[:-1]]
        parts = [choice["delta"]["content"] if chat else choice["text"] for (choice,) in said]
        assert "".join(parts) == (whole["choices"][0]["message"]["content"] if chat else whole["choices"][0]["text"])


def test_an_answer_that_stops_by_itself_ends_with_a_token_without_text() -> None:
    asked = call(stream=True, max_tokens=1500)
    assert asked.finish == "stop"
    said = events(answer_to(asked), (1,) * asked.output_tokens)
    last = json.loads(said[-2])["choices"][0]
    assert (last["delta"]["content"], last["finish_reason"]) == ("", "stop")


def test_both_arms_answer_a_prompt_alike_whatever_the_salt() -> None:
    assert call(cache_salt="a").key == call(cache_salt="b", temperature=0.5).key
    assert call(cache_salt="a").salt == "a"
    assert (call().output_tokens, call().finish) == (6, "length")


REFUSED = [
    ({"model": "nope"}, 404, "NotFoundError", "model"),
    ({"messages": []}, 400, "BadRequestError", "messages"),
    ({"messages": ["hello"]}, 400, "BadRequestError", "messages"),
    ({"max_tokens": 0}, 400, "BadRequestError", "max_tokens"),
    ({"max_tokens": "many"}, 400, "BadRequestError", "max_tokens"),
    ({"max_tokens": 1_000_000}, 400, "BadRequestError", "max_tokens"),
    ({"max_tokens": 2040}, 400, "BadRequestError", "max_tokens"),
    ({"max_completion_tokens": 0}, 400, "BadRequestError", "max_tokens"),
    ({"messages": [{"role": "user", "content": "x" * 9000}]}, 400, "BadRequestError", "input_tokens"),
    ({"temperature": -1}, 400, "BadRequestError", "temperature"),
    ({"top_p": 1.5}, 400, "BadRequestError", "top_p"),
    ({"n": 2}, 400, "BadRequestError", "n"),
    ({"stream": "yes"}, 400, "BadRequestError", "stream"),
    ({"stream_options": {"include_usage": True}}, 400, "BadRequestError", "stream_options"),
    ({"stream": True, "stream_options": 1}, 400, "BadRequestError", "stream_options"),
]


@pytest.mark.parametrize(("changes", "status", "kind", "param"), REFUSED)
def test_bad_input_is_refused_as_vllm_does(changes: dict[str, Any], status: int, kind: str, param: str) -> None:
    with pytest.raises(Refusal) as caught:
        call(**changes)
    error = caught.value.body["error"]
    assert (caught.value.status, error["type"], error["param"], error["code"]) == (status, kind, param, status)
    assert list(error) == ["message", "type", "param", "code"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        read_call(raw, chat=True, model="toy", max_model_len=2048)
    assert caught.value.status == 400


def test_defaults_and_other_forms_of_prompt() -> None:
    assert call(chat=False, max_tokens=None, ignore_eos=True).output_tokens == 16
    free = call(max_tokens=None, ignore_eos=True)
    assert free.prompt_tokens + free.output_tokens == 2048
    ids = call(chat=False, prompt=[5, 6, 7])
    assert ids.prompt_tokens == 3
    assert ids.key != call(chat=False, prompt=[5, 6, 8]).key
    with pytest.raises(Refusal):
        call(chat=False, prompt="")
