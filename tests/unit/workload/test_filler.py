"""Text of a wanted length: exact, of its kind, language, and the same for the same key."""

from __future__ import annotations

import pytest

from loadtest.workload.filler import CARRY_ON, KINDS, kind_of, text_of_blocks, text_of_length
from loadtest.workload.likeness import coincidence

SIZES = (1, 7, 39, 40, 160, 800, 4000, 60_000)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_meets_every_length_with_language(kind: str) -> None:
    for size in SIZES:
        text = text_of_length(kind, size, 1, "4", 0, 17)
        assert max(1, size - 3) <= len(text) <= size
        if size < 40 or size > 1000:
            assert len(text) == size
        assert text == text_of_length(kind, size, 1, "4", 0, 17)
    long = text_of_length(kind, 60_000, 1, "4", 0, 17)
    chance, words = coincidence([long])
    assert words > 5000
    assert chance is not None
    assert chance > 0.003  # prose has about 0.01, words drawn evenly from a thousand 0.001
    assert long != text_of_length(kind, 60_000, 1, "4", 0, 18)


def test_a_long_text_hardly_repeats_itself() -> None:
    text = text_of_length("chat", 60_000, 1)
    lines = [line for line in text.splitlines() if len(line) > 60]
    assert len(set(lines)) > 0.97 * len(lines)


def test_a_longer_text_begins_as_a_shorter_one() -> None:
    short, long = text_of_length("code", 3000, "a"), text_of_length("code", 9000, "a")
    assert long.startswith(short[:2000])


def test_blocks_are_shared_by_number_and_nothing_else() -> None:
    first = text_of_blocks("chat", 4096, (5, 6), 2048, "cell")
    second = text_of_blocks("chat", 6000, (5, 6, 7), 2048, "cell")
    assert (len(first), len(second)) == (4096, 6000)
    assert first[: 4096 - len(CARRY_ON)] == second[: 4096 - len(CARRY_ON)]
    assert first.endswith(CARRY_ON)
    assert text_of_blocks("chat", 4096, (6, 5), 2048, "cell")[:2048] == second[2048:4096]
    assert text_of_blocks("chat", 4096, (5, 6), 2048, "other cell")[:50] != first[:50]
    assert len(text_of_blocks("chat", 5000, (5,), 2048, "cell")) == 5000  # fewer blocks than the length needs
    assert len(text_of_blocks("chat", 9, (5,), 2048, "cell")) == 9


def test_the_kind_of_a_class() -> None:
    assert [kind_of(name) for name in ("code", "agent", "billing")] == ["code", "agent", "chat"]
    assert kind_of("billing", "summarize") == "summarize"
