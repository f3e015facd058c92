from __future__ import annotations

import re
from typing import Any

import pytest

from loadtest.drive.openai import begun_with, body_hash, chat_body, completion_body, nonce_of
from loadtest.settings import Generation

MESSAGES = [{"role": "user", "content": "hé"}]


def test_a_chat_body_says_what_is_set_and_nothing_else() -> None:
    assert (
        chat_body("m", MESSAGES, Generation(), 32, None, "continuous")
        == (
            '{"model":"m","messages":[{"role":"user","content":"hé"}],"max_tokens":32,"temperature":0.0,"stream":true,'
            '"stream_options":{"include_usage":true,"continuous_usage_stats":true}}'
        ).encode()
    )


def test_every_setting_of_the_generation_is_sent() -> None:
    generation = Generation(
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        stop=("a", "b"),
        seed=0,
        ignore_eos=True,
        template={"enable_thinking": False},
    )
    assert (
        chat_body("m", MESSAGES, generation, 9, "salt", "ids")
        == (
            '{"model":"m","cache_salt":"salt","messages":[{"role":"user","content":"hé"}],"max_tokens":9,"temperature":0.7,'
            '"top_p":0.9,"top_k":40,"stop":["a","b"],"seed":0,"ignore_eos":true,"return_token_ids":true,"stream":true,'
            '"stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":false}}'
        ).encode()
    )
    assert b'"timings_per_token":true,"stream":true,"stream_options":{"include_usage":true}' in chat_body(
        "m", MESSAGES, generation, 9, "salt", "timings"
    )
    assert completion_body("m", "hi", generation, 9, None, "none") == (
        b'{"model":"m","prompt":"hi","max_tokens":9,"temperature":0.7,"top_p":0.9,"top_k":40,"stop":["a","b"],"seed":0,'
        b'"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}'
    )


def test_the_hash_leaves_out_model_and_salt_alone() -> None:
    one = body_hash(chat_body("a", MESSAGES, Generation(), 32, "s1"))
    assert one == body_hash(chat_body("b", MESSAGES, Generation(), 32, None)) == "f2b898d2dc39f436"
    assert one != body_hash(chat_body("a", MESSAGES, Generation(), 33, "s1"))
    assert one != body_hash(chat_body("a", MESSAGES, Generation(seed=1), 32, "s1"))
    assert one != body_hash(chat_body("a", MESSAGES, Generation(), 32, "s1", "none"))
    assert body_hash(b'{"b":1,"a":2}') == body_hash(b'{"a":2,"cache_salt":"x","b":1,"model":"y"}')


def test_an_unknown_way_of_counting_is_refused() -> None:
    with pytest.raises(ValueError, match="count is 'all'"):
        chat_body("m", MESSAGES, Generation(), 32, None, "all")


def test_a_nonce_is_plain_as_long_as_any_other_and_of_its_salt() -> None:
    found = [nonce_of(f"20261130T120000-1-1-{cell}") for cell in range(500)]
    assert len(set(found)) == 500
    assert all(re.fullmatch(r"\[\d{16}\] ", nonce) for nonce in found)
    assert nonce_of("a") == nonce_of("a") == "[1665781835383343] "


PARTS = [{"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "text", "text": "hé"}]


@pytest.mark.parametrize(
    ("messages", "first"),
    [
        (MESSAGES, {"role": "user", "content": "[1] hé"}),
        ([{"role": "system", "content": "Be brief."}, *MESSAGES], {"role": "system", "content": "[1] Be brief."}),
        ([{"role": "user", "content": PARTS}],
         {"role": "user", "content": [{"type": "text", "text": "[1] "}, *PARTS]}),
    ],
)  # fmt: skip
def test_a_nonce_begins_the_first_text_and_leaves_the_hash(messages: list[Any], first: dict[str, Any]) -> None:
    begun = begun_with("[1] ", messages)
    assert begun == [first, *messages[1:]]
    plain = body_hash(chat_body("m", messages, Generation(), 32))
    assert body_hash(chat_body("m", begun, Generation(), 32), "[1] ") == plain
    assert body_hash(chat_body("m", begun, Generation(), 32)) != plain
    completed = [completion_body("m", prompt, Generation(), 32) for prompt in ("[1] hi [1] ", "hi [1] ")]
    assert body_hash(completed[0], "[1] ") == body_hash(completed[1])


def test_a_nonce_goes_before_the_first_message_that_has_text() -> None:
    silent = {"role": "assistant", "content": None, "tool_calls": []}
    assert begun_with("[1] ", [silent, *MESSAGES]) == [silent, {"role": "user", "content": "[1] hé"}]
    assert begun_with("[1] ", [silent]) == [silent]
