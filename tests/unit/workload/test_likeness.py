"""Prose and words drawn at random are told apart by one figure."""

from __future__ import annotations

import random

import pytest

from loadtest.analyse.run_validity import COINCIDENCE, FEW_WORDS
from loadtest.workload.likeness import coincidence, likeness_of
from loadtest.workload.templates import TemplateSource

# From the Gettysburg Address (Lincoln, 1863) and the first chapter of "Der Prozess" (Kafka, 1925): public domain.
ENGLISH = (
    "Four score and seven years ago our fathers brought forth on this continent a new nation conceived in liberty and"
    " dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war testing"
    " whether that nation or any nation so conceived and so dedicated can long endure. We are met on a great"
    " battlefield of that war. We have come to dedicate a portion of that field as a final resting place for those who"
    " here gave their lives that that nation might live. It is altogether fitting and proper that we should do this."
)
GERMAN = (
    "Jemand musste Josef K. verleumdet haben, denn ohne dass er etwas Böses getan hätte, wurde er eines Morgens"
    " verhaftet. Die Köchin der Frau Grubach, seiner Zimmervermieterin, die ihm jeden Tag gegen acht Uhr früh das"
    " Frühstück brachte, kam diesmal nicht. Das war noch niemals geschehen. K. wartete noch ein Weilchen, sah von"
    " seinem Kopfkissen aus die alte Frau, die ihm gegenüber wohnte und die ihn mit einer an ihr ganz ungewöhnlichen"
    " Neugierde beobachtete, dann aber, gleichzeitig befremdet und hungrig, läutete er."
)
JAPANESE = "私はその人を常に先生と呼んでいた。だからここでもただ先生と書くだけで本名は打ち明けない。" * 1


def test_the_figure_is_the_chance_of_two_equal_words() -> None:
    assert coincidence(["a a b"]) == (1 / 3, 3)
    assert coincidence(["a b", "c d"]) == (0.0, 4)
    assert coincidence(["A a", "A a"]) == (1.0, 2)  # the same text counts once
    assert coincidence(["word"]) == (None, 1)
    assert coincidence([]) == (None, 0)


@pytest.mark.parametrize("text", [ENGLISH, GERMAN, JAPANESE], ids=["english", "german", "japanese"])
def test_prose_is_above_the_limit(text: str) -> None:
    chance, _ = coincidence([text])
    assert chance is not None
    assert chance > 4 * COINCIDENCE


@pytest.mark.parametrize("vocabulary", [2_000, 30_000])
def test_words_drawn_evenly_are_below_the_limit(vocabulary: int) -> None:
    rng = random.Random(1)
    texts = [" ".join(f"w{rng.randrange(vocabulary)}" for _ in range(100)) for _ in range(20)]
    chance, words = coincidence(texts)
    assert chance is not None
    assert words == 2000 > FEW_WORDS
    assert chance < 0.8 * COINCIDENCE
    assert chance == pytest.approx(1 / vocabulary, rel=0.5)


def test_the_built_in_dialogues_read_like_language() -> None:
    figures = likeness_of(TemplateSource("chat"), seed=1, sessions=40)
    assert figures["sessions"] == 40
    assert figures["words"] > FEW_WORDS
    assert figures["coincidence"] > 4 * COINCIDENCE
