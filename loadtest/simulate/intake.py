"""Reading a request body: what is asked, or why it is refused, with vLLM's status codes and shape of error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import orjson

from loadtest.simulate import text
from loadtest.simulate.draws import mix


class Refusal(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


def bad(message: str, param: str, value: object = None) -> Refusal:
    """Return the refusal (400) of a parameter, whose value stands in the message where it is known."""
    shown = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return Refusal(400, f"{message} ({shown})", "BadRequestError", param)


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
        unknown = f"The model `{body['model']}` does not exist. Valid aliases: {model}."
        raise Refusal(404, unknown, "NotFoundError", "model")
    prompt, opening, tokens = _chat_prompt(body) if chat else _plain_prompt(body)
    limit = _max_tokens(body, max(1, max_model_len - tokens) if chat else 16)
    _check_room(tokens, limit, max_model_len)
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


def _check_room(prompt: int, limit: int, room: int) -> None:
    if limit > room:
        raise bad(f"max_tokens={limit} cannot be greater than max_model_len={room}.", "max_tokens", limit)
    length = f"This model's maximum context length is {room} tokens."
    if prompt >= room:
        raise bad(f"{length} The prompt alone has {prompt}.", "input_tokens", prompt)
    if prompt + limit > room:
        raise bad(f"{length} The prompt has {prompt}, and {limit} more were asked for.", "max_tokens", limit)


def _chat_prompt(body: dict[str, Any]) -> tuple[str, str, int]:
    """Return the prompt, the text that tells its category (the first thing the user says), and its tokens."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad("messages must be a non-empty list.", "messages")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        raise bad("Every message must be an object with a role.", "messages")
    prompt = text.rendered(messages)
    opening = next((text.content_of(message) for message in messages if message["role"] == "user"), prompt)
    return prompt, opening, text.token_count(prompt)


def _plain_prompt(body: dict[str, Any]) -> tuple[str, str, int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        prompt = "".join(f"{mix(token) & 0xFFFF:04x}" for token in prompt)  # four characters make a token
    if not isinstance(prompt, str) or not prompt:
        raise bad("prompt must be a text or a list of token ids, and not empty.", "prompt")
    return prompt, prompt, text.token_count(prompt)


def _max_tokens(body: dict[str, Any], default: int) -> int:
    given = body.get("max_completion_tokens")
    given = body.get("max_tokens") if given is None else given
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int):
        raise bad("max_tokens must be a whole number.", "max_tokens", repr(given))
    if given < 1:
        raise bad(f"max_tokens must be at least 1, got {given}.", "max_tokens", given)
    return given


def _check_sampling(body: dict[str, Any]) -> None:
    for name, high, allowed in (("temperature", math.inf, "non-negative"), ("top_p", 1.0, "between 0 and 1")):
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
            raise bad(f"{name} must be {allowed}, got {value}.", name, value)
    if body.get("n", 1) not in (None, 1):
        raise bad("The simulated server gives one answer: n must be 1.", "n", body["n"])


def _stream(body: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    stream, options = _flag(body, "stream"), body.get("stream_options")
    if options is not None and not stream:
        raise bad("stream_options need `stream=True`.", "stream_options")
    if options is not None and not isinstance(options, dict):
        raise bad("stream_options must be an object.", "stream_options")
    return stream, options or {}


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise bad(f"{name} must be true or false.", name, repr(value))
