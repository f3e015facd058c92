"""Reading a request body: what is asked, or why it is refused, with vLLM's status codes and shape of error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from loadtest.simulate import text
from loadtest.simulate.draws import mix


class Refusal(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request for an answer, read and found good; lengths in tokens."""

    chat: bool
    prompt: str
    prompt_tokens: int
    key: int
    category: str
    output_tokens: int
    finish: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_ids: bool
    salt: str


def read_json(raw: bytes) -> dict[str, Any]:
    """Return the JSON object that a request carries, or refuse it."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"The body is not JSON: {error}.", "Bad Request", "body") from None
    if not isinstance(body, dict):
        raise Refusal(400, "The body must be a JSON object.", "Bad Request", "body")
    return body


def read_call(raw: bytes, *, chat: bool, model: str, max_model_len: int) -> Call:
    """Return the call that a body makes of a server whose model is `model`, or refuse it."""
    body = read_json(raw)
    if body.get("model") not in (None, model):
        raise Refusal(
            404, f"The model `{body['model']}` does not exist. Valid aliases: {model}.", "NotFoundError", "model"
        )
    prompt, opening, tokens = _chat_prompt(body) if chat else _plain_prompt(body)
    if tokens >= max_model_len:
        raise Refusal(400, f"This model's maximum context length is {max_model_len} tokens. The prompt alone has {tokens}."
                           f" (parameter=input_tokens, value={tokens})", param="input_tokens")  # fmt: skip
    limit = _max_tokens(body, max_model_len - tokens if chat else 16)
    if limit > max_model_len:
        raise Refusal(400, f"max_tokens={limit} cannot be greater than max_model_len={max_model_len}."
                           f" Ask for fewer output tokens. (parameter=max_tokens, value={limit})", param="max_tokens")  # fmt: skip
    if tokens + limit > max_model_len:
        raise Refusal(400, f"This model's maximum context length is {max_model_len} tokens. The prompt has {tokens}, and"
                           f" {limit} were asked for. (parameter=max_tokens, value={limit})", param="max_tokens")  # fmt: skip
    _check_sampling(body)
    stream, options = _stream(body)
    key, category = text.key_of(prompt), text.category_of(opening)
    output, finish = text.answer_length(key, category, limit, ignore_eos=_flag(body, "ignore_eos"))
    return Call(
        chat=chat, prompt=prompt, prompt_tokens=tokens, key=key, category=category, output_tokens=output, finish=finish,
        stream=stream, include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
        return_ids=_flag(body, "return_token_ids"), salt=str(body.get("cache_salt") or ""),
    )  # fmt: skip


def _chat_prompt(body: dict[str, Any]) -> tuple[str, str, int]:
    """Return the prompt, the text that tells its category (the first thing the user says), and its tokens."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "messages must be a non-empty list. (parameter=messages)", param="messages")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        raise Refusal(400, "every message must be an object with a role. (parameter=messages)", param="messages")
    prompt = text.rendered(messages)
    opening = next((text.content_of(message) for message in messages if message["role"] == "user"), prompt)
    return prompt, opening, text.token_count(prompt)


def _plain_prompt(body: dict[str, Any]) -> tuple[str, str, int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        prompt = "".join(f"{mix(token) & 0xFFFF:04x}" for token in prompt)  # four characters make a token
    if not isinstance(prompt, str) or not prompt:
        raise Refusal(400, "prompt must be a text or a list of token ids, and not empty. (parameter=prompt)", param="prompt")
    return prompt, prompt, text.token_count(prompt)


def _max_tokens(body: dict[str, Any], default: int) -> int:
    given = body.get("max_completion_tokens")
    given = body.get("max_tokens") if given is None else given
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int):
        raise Refusal(400, f"max_tokens must be a whole number, not {given!r}. (parameter=max_tokens)", param="max_tokens")
    if given < 1:
        raise Refusal(
            400, f"max_tokens must be at least 1, got {given}. (parameter=max_tokens, value={given})", param="max_tokens"
        )
    return given


def _check_sampling(body: dict[str, Any]) -> None:
    for name, low, high in (("temperature", 0.0, None), ("top_p", 0.0, 1.0)):
        value = body.get(name)
        if value is None:
            continue
        bad = isinstance(value, bool) or not isinstance(value, int | float) or value < low
        if bad or (high is not None and value > high):
            allowed = f"between {low:g} and {high:g}" if high is not None else "non-negative"
            raise Refusal(400, f"{name} must be {allowed}, got {value}. (parameter={name}, value={value})", param=name)
    if body.get("n", 1) not in (None, 1):
        raise Refusal(400, "The simulated server gives one answer: n must be 1. (parameter=n)", param="n")


def _stream(body: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    stream, options = _flag(body, "stream"), body.get("stream_options")
    if options is not None and not stream:
        raise Refusal(
            400, "stream_options need `stream=True`. (parameter=stream_options)", param="stream_options"
        )
    if options is not None and not isinstance(options, dict):
        raise Refusal(400, "stream_options must be an object. (parameter=stream_options)", param="stream_options")
    return stream, options or {}


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise Refusal(400, f"{name} must be true or false, not {value!r}. (parameter={name})", param=name)
