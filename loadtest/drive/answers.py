"""Answers to one prompt, and how far apart they are; figures are kept, text is not."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from typing import Any

GRAM = 4  # characters: long enough to tell words apart, short enough to meet again in a short answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a server answered once; an answer that failed has its `error`, in words."""

    arm: str
    number: int  # counts the answers of this arm to this prompt, from 0
    text: str = ""
    ids: tuple[int, ...] | None = None  # token ids, where the server gives them
    tokens: int | None = None
    finish_reason: str = ""
    error: str = ""


def read_answer(arm: str, number: int, data: Mapping[str, Any]) -> Answered:
    """Return the answer in a whole (not streamed) chat completion; raises ValueError for anything else."""
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise ValueError("an answer without exactly one choice")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ValueError("a choice without a message")
    parts = [message.get("reasoning") or message.get("reasoning_content"), message.get("content")]
    parts += [json.dumps(calls, sort_keys=True)] if (calls := message.get("tool_calls")) else []
    usage = data.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    ids = choice.get("token_ids")
    return Answered(
        arm=arm, number=number, text="\n".join(str(part) for part in parts if part),
        ids=tuple(ids) if isinstance(ids, list) and all(isinstance(one, int) for one in ids) else None,
        tokens=tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None,
        finish_reason=str(choice.get("finish_reason") or ""),
    )  # fmt: skip


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> int | None:
    """Return the first place, from 0, at which two sequences differ; None where they are equal."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return None if len(one) == len(other) else min(len(one), len(other))


def distance(one: str, other: str) -> float:
    """Return the Hellinger distance of two texts' frequencies of runs of four characters, 0 (alike) to 1 (apart).

    It is a Euclidean distance, of square roots of frequencies, so that energy statistics may be made of it
    (Székely and Rizzo 2013).
    """
    if one == other:
        return 0.0
    grams = [Counter(text[at : at + GRAM] for at in range(max(1, len(text) - GRAM + 1))) for text in (one, other)]
    totals = [sum(gram.values()) for gram in grams]
    shared = sum(math.sqrt(count * grams[1][gram]) for gram, count in grams[0].items() if gram in grams[1])
    return math.sqrt(max(0.0, 1.0 - shared / math.sqrt(totals[0] * totals[1])))


def compared(answers: Sequence[Answered], *, keep_text: bool) -> dict[str, Any]:
    """Return what is kept of the answers to one prompt: each by hash and counts, each pair by its differences."""
    return {"answers": [_kept(answer, keep_text=keep_text) for answer in answers],
            "pairs": [{"a": a, "b": b} | _difference(answers[a], answers[b])
                      for a, b in combinations(range(len(answers)), 2)]}  # fmt: skip


def _kept(answer: Answered, *, keep_text: bool) -> dict[str, Any]:
    digest = blake2b(answer.text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    row = {"arm": answer.arm, "number": answer.number, "hash": "" if answer.error else digest,
           "tokens": answer.tokens, "characters": len(answer.text), "finish_reason": answer.finish_reason,
           "error": answer.error}  # fmt: skip
    return row | ({"text": answer.text} if keep_text else {})


def _difference(one: Answered, other: Answered) -> dict[str, Any]:
    if one.error or other.error:
        return {"same": None, "token": None, "character": None, "distance": None}
    token = first_difference(one.ids, other.ids) if one.ids is not None and other.ids is not None else None
    place = first_difference(one.text, other.text)
    return {"same": place is None, "token": token, "character": place, "distance": distance(one.text, other.text)}
