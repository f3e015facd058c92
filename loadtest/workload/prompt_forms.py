"""One prompt in any of the forms that published prompt sets and logs of chats use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.workload.logged import Asked, LeftOut, asked_of

ALLOWED = (
    "each line must be a JSON object with `turns` (a list of texts), `messages` (as in an OpenAI request),"
    " `conversations` (as in ShareGPT), `prompt`, `question`, `instruction` (with an optional `input`) or `text`"
)
SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
            "bard": "assistant", "assistant": "assistant", "system": "system"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One line of the file: what the user asks, with the scripted answers between."""

    category: str
    turns: tuple[tuple[str, str], ...]  # (user, assistant); the last answer is ""
    system: str = ""
    left_out: int = 0  # follow-up turns without a known answer before them
    requests: tuple[Asked, ...] = ()  # of a dialogue with tools: each request whole, in place of `turns`


def prompt_of(document: Mapping[str, Any], category: str) -> Prompt:
    """Return a prompt; one without a category gets this one. Raises ValueError with what is wrong."""
    named = document.get("category")
    if named is not None and (not isinstance(named, str) or not named.strip()):
        raise ValueError(f"`category` is {kind_of(named)}; it must be a text that is not blank")
    category = named if isinstance(named, str) else category
    if "turns" in document:
        return _from_turns(document["turns"], document.get("reference"), category)
    if "messages" in document:
        if _has_tools(document):
            return _from_tools(document["messages"], document.get("tools"), category)
        return _from_messages(document["messages"], category)
    if "conversations" in document:
        return _from_conversations(document["conversations"], category)
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
        raise ValueError(f"`input` is {kind_of(given)}; it must be a text")
    return f"{text}\n\n{given}" if given else text


def _from_turns(turns: Any, reference: Any, category: str) -> Prompt:
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"`turns` is {kind_of(turns)}; it must be a list of at least one text")
    asked = [_text(turn, f"turns[{index}]") for index, turn in enumerate(turns)]
    known = reference if isinstance(reference, list) else []
    answers = [answer if isinstance(answer, str) else "" for answer in known] + [""] * len(asked)
    return _scripted(list(zip(asked, answers, strict=False)), category, "")


def _from_messages(messages: Any, category: str) -> Prompt:
    """Read the messages of an OpenAI request: each user message is a turn, each assistant message the answer to it."""
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"`messages` is {kind_of(messages)}; it must be a list of at least one message")
    system: list[str] = []
    asked: list[tuple[str, str]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise ValueError(f"`{where}` is {kind_of(message)}; it must be an object with `role` and `content`")
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


def _has_tools(document: Mapping[str, Any]) -> bool:
    messages = document["messages"] if isinstance(document["messages"], list) else []
    calls = any(isinstance(m, dict) and (m.get("tool_calls") or m.get("role") == "tool") for m in messages)
    return calls and any(isinstance(m, dict) and m.get("role") == "user" for m in messages)


def _from_tools(messages: list[Any], tools: Any, category: str) -> Prompt:
    """Read a dialogue with tools: every answer in it was a request, which is sent again with the history before it."""
    ends = [
        at for at, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "assistant"
    ]
    if not ends or ends[-1] < len(messages) - 1:
        ends.append(len(messages))
    try:
        requests = tuple(asked_of(messages[:end], None, tools) for end in ends if end)
    except LeftOut as why:
        raise ValueError(why.reason) from None
    return Prompt(category=category, turns=(), requests=requests)


def _from_conversations(conversations: Any, category: str) -> Prompt:
    """Read a dialogue of ShareGPT; what a model says before the first question is left out."""
    if not isinstance(conversations, list) or not conversations:
        raise ValueError(f"`conversations` is {kind_of(conversations)}; it must be a list of at least one message")
    messages: list[dict[str, Any]] = []
    for index, said in enumerate(conversations):
        speaker = said.get("from") if isinstance(said, dict) else None
        if not isinstance(speaker, str) or speaker not in SPEAKERS:
            raise ValueError(f"`conversations[{index}]` has no `from` of {', '.join(SPEAKERS)}")
        role = SPEAKERS[speaker]
        if role == "assistant" and not any(message["role"] == "user" for message in messages):
            continue
        messages.append({"role": role, "content": said.get("value")})
    if not messages:
        raise ValueError("`conversations` holds nothing that a person said")
    return _from_messages(messages, category)


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
        raise ValueError(f"`{where}` is {kind_of(value)}; it must be a text")
    if not value.strip():
        raise ValueError(f"`{where}` is blank; it must hold a text")
    return value


_KINDS = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string"}


def kind_of(value: Any) -> str:
    """Return what JSON calls a value, with its article."""
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return _KINDS.get(type(value), "an object") if value != "" else "an empty string"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"


def shown(text: str) -> str:
    """Return the beginning of a text as a message shows it."""
    return _cut(repr(text.strip()[:60]))
