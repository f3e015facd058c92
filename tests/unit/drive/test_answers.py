"""Answers to one prompt: what is read of them, how far apart they are, and that no text is kept."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from loadtest.drive.answers import Answered, compared, distance, first_difference, read_answer


def whole(**choice: Any) -> dict[str, Any]:
    given = {"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}
    return {"choices": [{**given, **choice}], "usage": {"completion_tokens": 3}}


def test_an_answer_is_read_whole() -> None:
    found = read_answer("baseline", 1, whole(token_ids=[5, 6, 7]))
    assert found == Answered(arm="baseline", number=1, text="Paris.", ids=(5, 6, 7), tokens=3, finish_reason="stop")
    thought = {"content": "Paris.", "reasoning_content": "Which city?", "tool_calls": [{"name": "map"}]}
    assert read_answer("b", 0, whole(message=thought)).text == 'Which city?\nParis.\n[{"name": "map"}]'
    assert read_answer("b", 0, whole(message={"content": None})).text == ""
    bare = read_answer("b", 0, {"choices": whole()["choices"]})
    assert (bare.ids, bare.tokens) == (None, None)


@pytest.mark.parametrize("data", [{}, {"choices": []}, {"choices": [1]}, {"choices": [{"text": "x"}]}])
def test_what_is_no_chat_completion_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="choice"):
        read_answer("b", 0, data)


@pytest.mark.parametrize(
    ("one", "other", "place"), [("abc", "abc", None), ("abc", "abd", 2), ("abc", "ab", 2), ("", "a", 0), ("", "", None)]
)
def test_the_place_of_the_first_difference(one: str, other: str, place: int | None) -> None:
    assert first_difference(one, other) == place
    assert first_difference(other, one) == place


def test_the_distance_of_texts() -> None:
    assert distance("the same", "the same") == 0.0
    assert distance("abcdefgh", "12345678") == 1.0
    # Runs of "aaaab": aaaa, aaab; of "aaaaa": aaaa twice. Shared: sqrt(1/2 · 1).
    assert distance("aaaab", "aaaaa") == pytest.approx(math.sqrt(1 - math.sqrt(0.5)))
    assert distance("ab", "abc") == 1.0  # shorter than a run: a run of its own
    near, far = (
        distance("the cat sat on the mat", "the cat sat on a mat"),
        distance("the cat sat on the mat", "dogs bark"),
    )
    assert 0 < near < far <= 1.0


def test_no_text_is_kept_unless_asked_for() -> None:
    secret = "My code is 4711."
    answers = [
        Answered(arm="baseline", number=0, text=secret, ids=(1, 2, 3), tokens=3, finish_reason="stop"),
        Answered(arm="baseline", number=1, text=secret, ids=(1, 2, 3), tokens=3, finish_reason="stop"),
        Answered(arm="speculative", number=0, text="My code is 0815.", ids=(1, 2, 9), tokens=3, finish_reason="stop"),
    ]
    kept = compared(answers, keep_text=False)
    assert "code" not in json.dumps(kept)
    hashes = [answer["hash"] for answer in kept["answers"]]
    assert hashes[0] == hashes[1] != hashes[2]
    assert [answer["characters"] for answer in kept["answers"]] == [16, 16, 16]
    assert kept["pairs"][0] == {"a": 0, "b": 1, "same": True, "token": None, "character": None, "distance": 0.0}
    assert kept["pairs"][1] | {"distance": 0} == {
        "a": 0,
        "b": 2,
        "same": False,
        "token": 2,
        "character": 11,
        "distance": 0,
    }
    assert compared(answers, keep_text=True)["answers"][0]["text"] == secret


def test_a_failed_answer_is_compared_with_nothing() -> None:
    failed = Answered(arm="speculative", number=0, error="HTTP 503")
    kept = compared([Answered(arm="baseline", number=0, text="x"), failed], keep_text=False)
    assert kept["answers"][1]["error"] == "HTTP 503"
    assert kept["answers"][1]["hash"] == ""
    assert kept["pairs"] == [{"a": 0, "b": 1, "same": None, "token": None, "character": None, "distance": None}]
