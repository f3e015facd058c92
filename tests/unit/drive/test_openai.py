from __future__ import annotations

import pytest

from loadtest.drive.openai import body_hash, chat_body, completion_body
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
