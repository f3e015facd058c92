"""What a scenario file imports: the user to derive from, the task decorator, and the built-in dialogues."""

from __future__ import annotations

from locust import between, constant, tag, task

from loadtest.drive.user import LLMUser
from loadtest.workload.sessions import Session, SessionKey, SessionSource, Turn
from loadtest.workload.templates import TemplateSource

__all__ = [
    "LLMUser",
    "Session",
    "SessionKey",
    "SessionSource",
    "Turn",
    "between",
    "constant",
    "dialogues",
    "tag",
    "task",
]


def dialogues(name: str) -> SessionSource:
    """Return the built-in dialogue templates of that name, such as "chat"."""
    return TemplateSource(name)
