"""What a scenario gives to the calls of its user, taken or refused in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loadtest.drive.scenario_calls import messages_of, pause_of, prompt_of, tokens_of


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(2, 2.0), (0.5, 0.5), (-3.0, 0.0), (0, 0.0), (np.float32(1.5), 1.5), (86_400, 86_400.0), (-math.inf, 0.0)],
)
def test_a_pause_is_a_number_of_seconds_and_none_below_0(given: Any, seconds: float) -> None:
    assert pause_of(given, "think() was given") == seconds


@pytest.mark.parametrize("given", [math.nan, math.inf, 86_401, 10**400, "2s", "2", None, [1.0], 1j])
def test_what_is_no_pause_is_refused(given: Any) -> None:
    with pytest.raises(
        ValueError, match=r"think\(\) was given .*; a pause must be a number of seconds, at most 86,400"
    ):
        pause_of(given, "think() was given")


MESSAGE = {"role": "user", "content": "Hello"}


def test_messages_are_a_list_of_at_least_one() -> None:
    assert messages_of([MESSAGE]) == [MESSAGE]
    assert messages_of(iter([MESSAGE, MESSAGE])) == [MESSAGE, MESSAGE]


@pytest.mark.parametrize(
    "given", [[], (), "Hello", b"Hello", MESSAGE, None, 3, ["Hello"], [MESSAGE, None], "x" * 10**6]
)
def test_what_are_no_messages_is_refused_and_shown_in_part(given: Any) -> None:
    with pytest.raises(ValueError, match="a list of at least one message") as refused:
        messages_of(given)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("given", ["", None, b"Hello", ["Hello"], 3])
def test_a_prompt_is_a_text(given: Any) -> None:
    assert prompt_of("Hello") == "Hello"
    with pytest.raises(ValueError, match=r"complete\(\) was given .*; it must be a text"):
        prompt_of(given)


def test_a_limit_is_a_whole_number_above_0() -> None:
    assert [tokens_of(limit) for limit in (1, 10**9, np.int64(7))] == [1, 10**9, 7]
    assert type(tokens_of(np.int64(7))) is int  # what JSON can hold


@pytest.mark.parametrize("given", [0, -5, 2.5, "8", True, math.nan])
def test_what_is_no_limit_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="it must be a whole number of 1 or more"):
        tokens_of(given)
