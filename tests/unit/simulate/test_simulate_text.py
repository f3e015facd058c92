"""Pseudo-text: reproducible, and equal for equal prompts."""

from __future__ import annotations

import json
import math
import statistics

import pytest

from loadtest.simulate import text
from loadtest.simulate.draws import mix
from loadtest.simulate.prefixes import PrefixCache


def test_tokens_are_pieces_of_four_characters() -> None:
    assert [text.token_count(words) for words in ("", "a", "abcd", "abcde", "数える" * 4)] == [1, 1, 1, 2, 3]
    assert len(text.token_ids("abcde")) == 2
    assert text.token_ids("abcdabcd") == [text.token_ids("abcd")[0]] * 2
    assert text.token_ids("abcdx")[0] == text.token_ids("abcd")[0] == 3 + 0xED82CD11 % 31_997  # its CRC-32
    assert all(3 <= token < text.VOCABULARY for token in text.token_ids("Größe, naïve \ud800 and so on"))


def test_a_longer_dialogue_continues_the_shorter_one() -> None:
    short = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    parts = [{"type": "text", "text": "And?"}]
    long = [*short, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": parts}]
    assert text.rendered(long).startswith(text.rendered(short))
    assert "And?" in text.rendered(long)
    assert text.key_of(text.rendered(long)) != text.key_of(text.rendered(short))


@pytest.mark.parametrize(
    ("prompt", "category"),
    [("Write a Python function that sorts rows.", "code"), ("Translate this into German: good morning", "translation"),
     ("Summarise the following report.", "summary"), ("How many apples are left if 3 of 12 are eaten?", "maths"),
     ("Please write a letter to my landlord.", "writing"), ("My friend is coming over this weekend!", "chat")],
)  # fmt: skip
def test_the_kind_of_prompt_is_guessed(prompt: str, category: str) -> None:
    assert text.category_of(prompt) == category


def test_answers_stop_by_themselves_or_by_their_limit() -> None:
    lengths = [text.natural_tokens(mix(number), "chat") for number in range(3000)]
    assert statistics.median(lengths) == pytest.approx(160, rel=0.05)
    assert statistics.stdev(math.log(length) for length in lengths) == pytest.approx(0.7, abs=0.05)
    key = next(mix(number) for number in range(3000) if 70 < lengths[number] < 90)
    natural = text.natural_tokens(key, "chat")
    assert text.answer_length(key, "chat", 64) == (64, "length")
    assert text.answer_length(key, "chat", 500) == (natural, "stop")
    assert text.answer_length(key, "chat", 500, ignore_eos=True) == (500, "length")


def test_an_answer_depends_on_the_prompt_alone() -> None:
    short, long = text.answer(5, 20, "length"), text.answer(5, 40, "stop")
    assert long[:20] == short
    assert text.answer(6, 20, "length") != short
    assert text.answer_ids(long)[-1] == text.EOS_ID
    words, begun = (json.loads(b'"' + b"".join(text.pieces()[n] for n in part) + b'"') for part in (long, short))
    assert words.startswith(begun)
    assert text.pieces()[-1] == b""
    assert any(piece.decode() != piece.decode().encode("ascii", "ignore").decode() for piece in text.pieces())


def test_the_prefix_cache_knows_whole_blocks_of_a_salt() -> None:
    cache = PrefixCache(10_000)
    prompt = "".join(f"word {number} " for number in range(40))
    assert cache.take("a", prompt) == 0
    whole = len(prompt) // 64 * 16
    assert cache.take("a", prompt) == whole
    assert cache.take("a", prompt + "and a longer end") == whole
    assert cache.take("b", prompt) == 0
    changed = "X" + prompt[1:]
    assert cache.take("a", changed) == 0  # a block is known only behind the same blocks
    cache.clear()
    assert cache.take("a", prompt) == 0


def test_the_prefix_cache_forgets_the_oldest() -> None:
    cache = PrefixCache(160)
    prompt = "x" * 64 * 4
    cache.take("old", prompt)
    cache.take("new", prompt)
    cache.take("old", prompt)
    cache.take("third", prompt)
    assert len(cache) == 10
    assert cache.take("old", prompt) == 64
