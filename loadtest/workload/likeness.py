"""Do prompts read like language? One figure that tells prose from words drawn at random, and keeps no text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from loadtest.workload.sessions import SessionKey, SessionSource

# A run of letters and digits is a word; of scripts that put no spaces between words each character counts as one.
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯฀-๿]|[^\W_぀-ヿ㐀-鿿가-힯฀-๿]+")
MOST_WORDS = 200_000


def coincidence(texts: Iterable[str]) -> tuple[float | None, int]:
    """Return (the chance that two words drawn from different places of the texts are the same, number of words).

    Friedman's index of coincidence (1922), of words: Σ c(c − 1) ÷ (n(n − 1)). Equal texts count once. In prose the
    commonest words alone make it about 0.01; over words drawn evenly from V it is 1/V. None below two words.
    """
    counts: Counter[str] = Counter()
    total = 0
    for text in dict.fromkeys(texts):
        words = _WORD.findall(text.lower())[: MOST_WORDS - total]
        counts.update(words)
        total += len(words)
        if total >= MOST_WORDS:
            break
    if total < 2:
        return None, total
    return sum(count * (count - 1) for count in counts.values()) / (total * (total - 1)), total


def likeness_of(source: SessionSource, seed: int, sessions: int = 100) -> dict[str, Any]:
    """Return the figures on what users ask in some sessions of a source, for the header of a run."""
    keys = (SessionKey(seed=seed, level=0.0, block=0, number=number) for number in range(sessions))
    chance, words = coincidence(" ".join(turn.user for turn in source.session(key).turns) for key in keys)
    return {"sessions": sessions, "words": words, "coincidence": chance}
