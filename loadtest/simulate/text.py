"""Pseudo-text: tokens of a prompt, the category it seems to belong to, and answers that depend on the prompt alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np

from loadtest.simulate.draws import gauss, mix, uniform

TOKEN_CHARS = 4  # characters of a prompt token
VOCABULARY = 32_000
EOS_ID = 2
_FIRST_ID = 1000  # of the pieces that answers are made of
_LENGTH, _WORDS, _ASTRAY = 0x1E46, 0x303D5, 0xA57  # purposes of draws


def rendered(messages: Sequence[Any]) -> str:
    """Return a chat as one string, as a chat template would; a longer dialogue continues that of a shorter one."""
    parts = [f"<|{message['role']}|>\n{content_of(message)}<|end|>\n" for message in messages]
    return "".join(parts) + "<|assistant|>\n"


def content_of(message: Any) -> str:
    """Return the text of a message, whose content is a text or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def token_count(text: str) -> int:
    """Return the tokens of a text: one per four characters begun, at least one."""
    return max(1, -(-len(text) // TOKEN_CHARS))


def token_ids(text: str) -> list[int]:
    """Return the ids of a text's tokens; equal pieces have equal ids on every machine."""
    pieces = (text[at : at + TOKEN_CHARS] for at in range(0, max(1, len(text)), TOKEN_CHARS))
    return [3 + crc32(piece.encode("utf-8", "surrogatepass")) % (VOCABULARY - 3) for piece in pieces]


def key_of(prompt: str) -> int:
    """Return the 64-bit number that stands for a prompt: both arms draw its answer from it."""
    return int.from_bytes(blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


_CODE = (
    r"```|\bdef |\bclass |\bSELECT\b|\b(sql|python|javascript|typescript|rust|java|function|script|regex|pytest|bash"
    r"|docker\w*|code|api|endpoint|bug|stack ?trace|compile\w*|generator|query)\b"
)
_TRANSLATION = r"\b(translat\w+|into (english|german|french|spanish|italian|dutch|polish|japanese))\b"
_SUMMARY = r"\b(summar\w+|tl;?dr|key points|in (one|two|three) sentences)\b"
_WRITING = r"\b(write|rewrite|story|poem|letter|e-?mail|essay|speech|blurb|slogan|titles?|version|draft|toast)\b"
_MATHS = (
    r"\b(how (many|much|long|far|old)|percent|average|calculate|equation|probability|solve|total|sum"
    r"|per (hour|day|month|year))\b|[%×÷]|\d+ ?[*/^+=] ?\d+"
)
# Looked for in this order; the first that is found decides.
_CATEGORIES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("code", _CODE), ("translation", _TRANSLATION), ("summary", _SUMMARY), ("writing", _WRITING), ("maths", _MATHS)
    )
)  # fmt: skip


def category_of(text: str) -> str:
    """Guess what kind of prompt a text is: code, translation, summary, writing, maths, else chat."""
    return next((name for name, pattern in _CATEGORIES if pattern.search(text)), "chat")


# Median of the natural length of an answer (tokens), and its spread on the log scale.
_LENGTHS = {"code": (260, 0.6), "translation": (110, 0.5), "summary": (130, 0.4), "writing": (320, 0.5),
            "maths": (200, 0.5), "chat": (160, 0.7)}  # fmt: skip


def natural_tokens(key: int, category: str) -> int:
    """Return how many tokens the answer has before it stops by itself, its end-of-text token included."""
    median, spread = _LENGTHS.get(category, _LENGTHS["chat"])
    return max(2, round(median * math.exp(spread * gauss(key, _LENGTH))))


@lru_cache(maxsize=1 << 14)  # both arms ask for the same
def answer_length(key: int, category: str, max_tokens: int, *, ignore_eos: bool = False) -> tuple[int, str]:
    """Return (tokens, finish reason) of an answer: it stops by itself, or by its limit."""
    natural = natural_tokens(key, category)
    if ignore_eos or natural > max_tokens:
        return max_tokens, "length"
    return natural, "stop"


_TEXT = (
    " the of and to in is that it for as with was on be by this are or an from at which not have but one all were when"
    " we there can more other some what time only new also into could than first two its over such very make most even"
    " work part place case point small number long large hand high year state world still good much before great right"
    " old mean same any end does another well must big follow act why ask change off play spell air away animal house"
    " page letter mother answer found study learn should plant cover food sun four between keep eye never last let"
    " thought city tree cross farm hard start might story saw far sea draw left late run while press close night real"
    " life few north open seem together next white children begin got walk example ease paper group always music those"
    " both mark often until mile river car feet care second book carry took science eat room friend began idea fish"
    " mountain stop once base hear horse cut sure watch color face wood main enough plain girl usual young ready above"
    " ever red list though feel talk bird soon body dog family direct pose leave song measure door product black short"
    " numeral class wind question happen complete ship area half rock order fire south problem piece told knew pass"
    " café naïve Größe Zürich señor façade crème über 東京 数える 日本語 Привет мир → … — “quoted” ‘so’ ½ π ≈ ✓"
)
_PIECES = (*(f" {word}" for word in _TEXT.split()), ",", ",", ".", ".", ":", "\n", "\n\n", "ing", "ed", "s", "ly",
           ' "', '"', "()", " 1", " 20", " 300", "\t- ")  # fmt: skip


@lru_cache(maxsize=1)
def pieces() -> tuple[bytes, ...]:
    """Return the text of every answer token, escaped for the inside of a JSON string; the last one is the empty end."""
    return (*(json.dumps(piece, ensure_ascii=False)[1:-1].encode() for piece in _PIECES), b"")


def answer(key: int, tokens: int, finish: str) -> list[int]:
    """Return the indexes into `pieces()` of an answer's tokens; one that stops by itself ends with the empty piece."""
    start, stride = mix(key, _WORDS), mix(key, _WORDS, 1) | 1
    walk = np.arange(tokens, dtype=np.uint64) * np.uint64(stride) + np.uint64(start)
    chosen: list[int] = ((walk >> np.uint64(33)) % np.uint64(len(_PIECES))).tolist()
    if finish == "stop":
        chosen[-1] = len(_PIECES)
    return chosen


def astray(key: int, tokens: int, finish: str, ratio: float) -> list[int]:
    """Return an answer as `answer` does; of a share `ratio` of the keys it is another one from a drawn token on."""
    told = answer(key, tokens, finish)
    if not ratio or uniform(key, _ASTRAY) >= ratio:
        return told
    place = int(uniform(key, _ASTRAY, 1) * tokens)
    return told[:place] + answer(mix(key, _ASTRAY), tokens, finish)[place:]


def answer_ids(indexes: Sequence[int]) -> list[int]:
    """Return the token ids of answer tokens."""
    return [EOS_ID if index == len(_PIECES) else _FIRST_ID + index for index in indexes]
