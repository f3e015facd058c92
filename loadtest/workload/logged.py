"""A request as it was logged: its messages or prompt, held to what can be sent again; nothing of it is ever shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
KEPT = ("role", "content", "name", "tool_calls", "tool_call_id")  # of a message; the rest is of some server's own


class LeftOut(Exception):
    """A row that cannot be used: `reason` is counted, `seen` is shown for the first one."""

    def __init__(self, reason: str, seen: str = "") -> None:
        """Take the reason, in words that hold for every such row."""
        super().__init__(reason)
        self.reason, self.seen = reason, seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one logged request asked: messages, or a prompt for a completion, and its tools."""

    messages: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    prompt: str = field(default="", repr=False)
    tools: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    mended: str = ""  # what had to be mended, in words that hold for every such row

    @property
    def characters(self) -> int:
        """Characters of the text that is sent."""
        return len(self.prompt) + sum(len(text_of(message.get("content"))) for message in self.messages)

    @property
    def last(self) -> str:
        """What was asked last."""
        return self.prompt or text_of(self.messages[-1].get("content"))


def text_of(content: object) -> str:
    """Return the text of a message's content: a text, or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part.get("text") or "" for part in parts if isinstance(part, Mapping))


def asked_of(messages: object, prompt: object, tools: object) -> Asked:
    """Return a logged request. Raises LeftOut for what cannot be sent again as it was."""
    kept = tuple(tool for tool in tools if isinstance(tool, Mapping)) if isinstance(tools, list) else ()
    if messages is None:
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if not isinstance(prompt, str) or not prompt.strip():
            raise LeftOut("`prompt` holds no text")
        return Asked(prompt=_unicode(prompt))
    if not isinstance(messages, list) or not messages:
        raise LeftOut("`messages` is no list of messages")
    found = [_message(message) for message in messages]
    asked = list(found)
    while asked and asked[-1]["role"] == "assistant":
        asked.pop()
    if not any(text_of(message.get("content")).strip() for message in asked if message["role"] == "user"):
        raise LeftOut("`messages` holds no text with the role `user` to be answered")
    mended = "the answer at the end of `messages` left out" if len(asked) < len(found) else ""
    return Asked(messages=tuple(asked), tools=kept, mended=mended)


def _message(message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise LeftOut("a message without a role of " + ", ".join(ROLES))
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
            raise LeftOut("a message with a part that is not text (only text is sent)")
        _unicode(text_of(content))
    elif content is not None and not isinstance(content, str):
        raise LeftOut("a message whose content is neither a text nor a list of parts")
    elif content is None and not message.get("tool_calls"):
        raise LeftOut("a message without content")
    else:
        _unicode(content or "")
    # Content stays a text beside a call: some chat templates cannot take null.
    return {name: message[name] for name in KEPT if message.get(name) is not None} | (
        {"content": ""} if content is None else {}
    )


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LeftOut("text with half a character (a lone surrogate), which cannot be sent") from None
    return text
