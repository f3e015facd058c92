"""Request bodies for OpenAI-compatible servers, built so that both arms receive the same bytes but model and salt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson

from loadtest.settings import Generation

CHAT_PATH = "/v1/chat/completions"
COMPLETION_PATH = "/v1/completions"

# How the tokens of each chunk are asked for: a running count in the usage or in the timings, ids, not at all.
COUNTS = ("continuous", "ids", "timings", "none")

_PER_ARM = ("model", "cache_salt")


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    generation: Generation,
    max_tokens: int,
    cache_salt: str | None = None,
    count: str = "continuous",
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str = "none",
) -> bytes:
    """Return the body of a streamed chat request. `max_tokens` stands in place of the generation's own limit."""
    asked: dict[str, Any] = {"messages": list(messages)}
    if tools:
        asked |= {"tools": list(tools), "tool_choice": tool_choice}
    body = _body(model, asked, generation, max_tokens, cache_salt, count)
    if generation.template:
        body["chat_template_kwargs"] = generation.template
    return orjson.dumps(body)


def nonce_of(salt: str) -> str:
    """Return a text of 19 plain characters that stands before prompts in place of a salt: always as many tokens.

    A prefix cache then finds nothing of another salt's prompts but what the chat template puts before the first one.
    """
    number = int.from_bytes(blake2b(salt.encode(), digest_size=8).digest()) % 10**16
    return f"[{number:016d}] "


def begun_with(nonce: str, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return messages with a nonce before the first text in them."""
    begun = list(messages)
    for i, message in enumerate(begun):
        content = message.get("content")
        if isinstance(content, str):
            begun[i] = {**message, "content": nonce + content}
            break
        if isinstance(content, list):
            begun[i] = {**message, "content": [{"type": "text", "text": nonce}, *content]}
            break
    return begun


def completion_body(
    model: str,
    prompt: str,
    generation: Generation,
    max_tokens: int,
    cache_salt: str | None = None,
    count: str = "continuous",
) -> bytes:
    """Return the body of a streamed completion of `prompt`; chat template arguments do not apply to it."""
    return orjson.dumps(_body(model, {"prompt": prompt}, generation, max_tokens, cache_salt, count))


def _body(
    model: str,
    asked: dict[str, Any],
    generation: Generation,
    max_tokens: int,
    cache_salt: str | None,
    count: str,
) -> dict[str, Any]:
    if count not in COUNTS:
        raise ValueError(f"count is {count!r}, not one of {', '.join(COUNTS)}")
    options = {"include_usage": True}
    if count == "continuous":
        options["continuous_usage_stats"] = True
    body: dict[str, Any] = {
        "model": model,
        "cache_salt": cache_salt,
        **asked,
        "max_tokens": max_tokens,
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "top_k": generation.top_k,
        "stop": list(generation.stop) or None,
        "seed": generation.seed,
        # Left out when false, which every server takes for granted: some refuse fields that they do not know.
        "ignore_eos": generation.ignore_eos or None,
        "return_token_ids": True if count == "ids" else None,
        "timings_per_token": True if count == "timings" else None,
        "stream": True,
        "stream_options": options,
    }
    return {name: value for name, value in body.items() if value is not None}


def body_hash(body: bytes, nonce: str = "") -> str:
    """Return 16 hex digits (blake2b-64) of a body without model, cache_salt and nonce, whatever its keys' order."""
    fields = orjson.loads(_without_nonce(body, nonce) if nonce else body)
    for name in _PER_ARM:
        fields.pop(name, None)
    return blake2b(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def _without_nonce(body: bytes, nonce: str) -> bytes:
    part = orjson.dumps({"type": "text", "text": nonce}) + b","
    return body.replace(part, b"", 1) if part in body else body.replace(nonce.encode(), b"", 1)
