"""What a server says of a request is kept without the request's own text."""

from __future__ import annotations

import orjson
import pytest

from loadtest.drive.echo import without_echo

SECRET = "Patient Anna K. was seen on Tuesday because of her knee."
BODY = orjson.dumps({"model": "a-model-with-a-long-name", "cache_salt": "20261130-a-long-salt", "max_tokens": 5,
                     "messages": [{"role": "user", "content": SECRET + " Please sum up."}]})  # fmt: skip


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("HTTP 500", "HTTP 500"),
        ("This model's maximum context length is 4096 tokens.", "This model's maximum context length is 4096 tokens."),
        (f"invalid input: '{SECRET}'", "invalid input: '…'"),
        (f"x{SECRET[3:40]}y", "x…y"),
        (SECRET, "…"),
        (f"{SECRET[:30]} and {SECRET[20:50]}!", "… and…!"),
        ("model a-model-with-a-long-name does not exist", "model a-model-with-a-long-name does not exist"),
        ("salt 20261130-a-long-salt", "salt 20261130-a-long-salt"),
    ],
)
def test_an_echo_is_hidden(said: str, kept: str) -> None:
    assert without_echo(said, BODY) == kept


def test_an_echo_of_24_characters_is_found_wherever_it_begins() -> None:
    for start in range(20):
        for before in range(10):
            found = without_echo("-" * before + SECRET[start : start + 24] + "-" * 5, BODY)
            assert SECRET[start : start + 12] not in found
            assert SECRET[start + 12 : start + 24] not in found


def test_prompts_and_tools_are_texts_of_a_request_too() -> None:
    body = orjson.dumps({"prompt": SECRET, "tools": [{"function": {"description": "Looks up what a patient pays."}}]})
    assert without_echo(f"bad: {SECRET}", body) == "bad: …"
    assert without_echo("bad: Looks up what a patient pays.", body) == "bad: …"
