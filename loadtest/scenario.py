"""What a scenario file imports: the user to derive from, the task decorator, and the built-in dialogues."""

from __future__ import annotations

from locust import between, constant, tag, task

from loadtest.drive.user import LLMUser
from loadtest.workload.sessions import Session, SessionKey, SessionSource, Turn
from loadtest.workload.shared import SharedSource
from loadtest.workload.templates import SeveralSources, TemplateSource

__all__ = [
    "LLMUser",
    "Session",
    "SessionKey",
    "SessionSource",
    "Turn",
    "between",
    "constant",
    "dialogues",
    "shared_documents",
    "tag",
    "task",
]


def dialogues(*names: str) -> SessionSource:
    """Return the built-in dialogue templates of that name, such as "chat"; of several names, from each in turn."""
    sources = [TemplateSource(name) for name in names or ("chat",)]
    return sources[0] if len(sources) == 1 else SeveralSources(sources)


def shared_documents(name: str, documents: int = 8) -> SessionSource:
    """Return built-in sessions that ask of shared documents, such as "rag": `documents` sets of them in a cell."""
    return SharedSource(name, documents)
