"""Sessions from a file of prompts: one JSON object per line, in any of the forms that published prompt sets use."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from loadtest.errors import UsageError
from loadtest.workload.seeds import rng
from loadtest.workload.sessions import Session, SessionKey, Turn
from loadtest.workload.thinking import after_answer_s, before_dialogue_s

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
ALLOWED = (
    "each line must be a JSON object with `turns` (a list of texts), `messages` (as in an OpenAI request), `prompt`,"
    " `question`, `instruction` (with an optional `input`) or `text`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One line of the file: what the user asks, with the scripted answers between."""

    category: str
    turns: tuple[tuple[str, str], ...]  # (user, assistant); the last answer is ""
    system: str = ""
    left_out: int = 0  # follow-up turns without a known answer before them


class PromptSource:
    """Sessions from a JSONL file; `notes` says in sentences what of the file is not used.

    A follow-up turn is asked only when the file gives the answer that stands before it (`reference`, or an assistant
    message): history is scripted, so that both arms see the same prompt.
    """

    def __init__(self, path: Path | str) -> None:
        """Read the whole file; raises UsageError with the line for anything that cannot be used."""
        self.path = Path(path)
        self.prompts: tuple[Prompt, ...] = tuple(_read(self.path))
        if not self.prompts:
            raise UsageError(f"{self.path} holds no prompts: every line is blank; {ALLOWED}.")

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, sorted; lines without one have the name of the file."""
        return tuple(sorted({prompt.category for prompt in self.prompts}))

    @property
    def repeats_after(self) -> int:
        """Sessions of a cell after which the first prompt comes again."""
        return len(self.prompts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on what was left out."""
        left_out = sum(prompt.left_out for prompt in self.prompts)
        if not left_out:
            return ()
        lines = sum(prompt.left_out > 0 for prompt in self.prompts)
        turns, them = ("turn", "it") if left_out == 1 else ("turns", "them")
        sentence = (
            f"{self.path.name}: {left_out} follow-up {turns} in {lines} of {len(self.prompts)} prompts left out,"
            f" because the file gives no answer to stand in the history before {them}."
        )
        return (sentence,)

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names: a cell walks through all prompts in a seeded order, then again."""
        count = len(self.prompts)
        order = _order(count, key.seed, f"{key.level:g}", key.block)
        prompt = self.prompts[order[key.number % count]]
        generator = key.rng("prompt")
        think_s = before_dialogue_s(generator)
        turns = []
        for user, assistant in prompt.turns:
            turns.append(Turn(category=prompt.category, user=user, assistant=assistant, think_s=think_s))
            think_s = after_answer_s(generator, assistant)
        return Session(turns=tuple(turns), system=prompt.system)


@lru_cache(maxsize=16)
def _order(count: int, seed: int, level: str, block: int) -> tuple[int, ...]:
    order = list(range(count))
    rng("prompts", seed, level, block).shuffle(order)
    return tuple(order)


def _read(path: Path) -> Iterator[Prompt]:
    for number, line in _lines(path):
        try:
            yield _prompt(_document(line), category=path.stem)
        except ValueError as reason:
            raise UsageError(f"{path}, line {number}: {reason}.") from None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers, reading one at a time."""
    try:
        if not path.is_file():
            state = "is a directory" if path.is_dir() else "is no file" if path.exists() else "does not exist"
            raise UsageError(f"{path} {state}; give a JSONL file of prompts.")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UsageError(f"{path} has {size:,} bytes; at most {MAX_FILE_BYTES:,} are read: use a part of it.")
        if size == 0:
            raise UsageError(f"{path} is empty; {ALLOWED}.")
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise UsageError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes, the limit.")
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip():
                    yield number, line
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def _document(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(f"byte {error.start + 1} (0x{byte:02x}) is not UTF-8; save the file as UTF-8") from None
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        whole = "; a file that is one JSON array must be split into lines" if text.lstrip()[:1] == "[" else ""
        raise ValueError(f"not JSON ({error.msg} at column {error.colno}): {_shown(text)}{whole}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{_kind(document)} where an object is needed: {_shown(text)}; {ALLOWED}")
    return document


def _prompt(document: Mapping[str, Any], category: str) -> Prompt:
    named = document.get("category")
    if named is not None and (not isinstance(named, str) or not named.strip()):
        raise ValueError(f"`category` is {_kind(named)}; it must be a text that is not blank")
    category = named if isinstance(named, str) else category
    if "turns" in document:
        return _from_turns(document["turns"], document.get("reference"), category)
    if "messages" in document:
        return _from_messages(document["messages"], category)
    return Prompt(category=category, turns=((_single(document), ""),))


def _single(document: Mapping[str, Any]) -> str:
    """Return the text of a form that holds one turn."""
    field = next((name for name in ("prompt", "question", "instruction", "text") if name in document), None)
    if field is None:
        seen = ", ".join(f"`{_cut(name)}`" for name in list(document)[:8]) or "none"
        raise ValueError(f"no usable field (seen: {seen}); {ALLOWED}")
    text = _text(document[field], field)
    given = document.get("input") if field == "instruction" else None
    if given is not None and not isinstance(given, str):
        raise ValueError(f"`input` is {_kind(given)}; it must be a text")
    return f"{text}\n\n{given}" if given else text


def _from_turns(turns: Any, reference: Any, category: str) -> Prompt:
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"`turns` is {_kind(turns)}; it must be a list of at least one text")
    asked = [_text(turn, f"turns[{index}]") for index, turn in enumerate(turns)]
    known = reference if isinstance(reference, list) else []
    answers = [answer if isinstance(answer, str) else "" for answer in known] + [""] * len(asked)
    return _scripted(list(zip(asked, answers, strict=False)), category, "")


def _from_messages(messages: Any, category: str) -> Prompt:
    """Read the messages of an OpenAI request: each user message is a turn, each assistant message the answer to it."""
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"`messages` is {_kind(messages)}; it must be a list of at least one message")
    system: list[str] = []
    asked: list[tuple[str, str]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise ValueError(f"`{where}` is {_kind(message)}; it must be an object with `role` and `content`")
        role, text = message.get("role"), _content(message.get("content"), f"{where}.content")
        if role in ("system", "developer") and not asked:
            system.append(text)
        elif role == "user":
            asked.append((text, ""))
        elif role == "assistant" and asked and not asked[-1][1]:
            asked[-1] = (asked[-1][0], text)
        else:
            raise ValueError(
                f"`{where}` has the role {_cut(repr(role))} here; allowed are `system` or `developer` before the first"
                " `user`, `user`, and one `assistant` after a `user`"
            )
    if not asked:
        raise ValueError("`messages` holds no message with the role `user`")
    return _scripted(asked, category, "\n\n".join(system))


def _scripted(turns: Sequence[tuple[str, str]], category: str, system: str) -> Prompt:
    """Keep the turns up to the first that has no known answer; that one is the last."""
    last = next((index for index, (_, answer) in enumerate(turns) if not answer.strip()), len(turns) - 1)
    kept = (*turns[:last], (turns[last][0], ""))
    return Prompt(category=category, turns=kept, system=system, left_out=len(turns) - len(kept))


def _content(content: Any, where: str) -> str:
    """Return the text of a message: a string, or a list of parts of which all are text."""
    if not isinstance(content, list):
        return _text(content, where)
    texts = []
    for index, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ValueError(f"`{where}[{index}]` is not a part of the type `text`; only text is sent")
        texts.append(_text(part.get("text"), f"{where}[{index}].text"))
    return _text("\n".join(texts), where)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{where}` is {_kind(value)}; it must be a text")
    if not value.strip():
        raise ValueError(f"`{where}` is blank; it must hold a text")
    return value


_KINDS = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string"}


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return _KINDS.get(type(value), "an object") if value != "" else "an empty string"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"


def _shown(text: str) -> str:
    return _cut(repr(text.strip()[:60]))
