"""Published prompt sets that are known, with their licences, so that a run's protocol says whose text was sent.

A set is known by the hash of its file as published. Its form alone says only what a file looks like: anybody's own
prompts may stand in it. None is part of this package, and no text of any set comes into records or reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN_LICENCE = "not known to loadtest: it is for you to see to"


def _is_spec_bench(row: Mapping[str, Any]) -> bool:
    return {"question_id", "category", "turns"} <= set(row) and row["category"] in (
        "translation", "summarization", "qa", "math_reasoning", "rag",
    )  # fmt: skip


def _is_mt_bench(row: Mapping[str, Any]) -> bool:
    return {"question_id", "category", "turns"} <= set(row) and not _is_spec_bench(row)


def _begins(name: str, start: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: str(row.get(name, "")).startswith(start)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """A published set of prompts."""

    name: str
    licence: str
    is_one: Callable[[Mapping[str, Any]], bool]  # whether a row looks like one of the set
    hashes: tuple[str, ...] = ()  # SHA-256 of its file as published
    category: str = ""  # of its prompts, where they name none
    passed_on: bool = True  # whether its text may be passed on under that licence

    def licence_of(self, digest: str) -> tuple[str, bool]:
        """Return the licence of a file that looks like this set, and whether its text may be passed on under it."""
        if digest in self.hashes:
            return self.licence, self.passed_on
        return f"{UNKNOWN_LICENCE}; it has the form of {self.name.removesuffix(' form')} ({self.licence})", False


SETS = (
    PromptSet(
        name="Spec-Bench", is_one=_is_spec_bench, passed_on=False,
        licence="repository Apache-2.0, over texts of several owners (news, Wikipedia, WMT, GSM8K, MT-Bench)",
        hashes=("4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04",),
    ),
    PromptSet(
        name="MT-Bench", licence="Apache-2.0", is_one=_is_mt_bench,
        hashes=("119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",),
    ),
    PromptSet(name="HumanEval", licence="MIT", is_one=_begins("task_id", "HumanEval/"), category="code"),
    PromptSet(
        name="MBPP", licence="CC-BY 4.0 (Austin et al. 2021)",
        is_one=lambda row: isinstance(row.get("task_id"), int) and isinstance(row.get("text"), str),
    ),
    PromptSet(
        name="GSM8K", licence="MIT", category="maths",
        is_one=lambda row: isinstance(row.get("question"), str) and "####" in str(row.get("answer", "")),
        hashes=("3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",),
    ),
    PromptSet(name="EditEval", licence="MIT", is_one=_begins("task_id", "EditEval/"), category="code_edit"),
    PromptSet(
        name="ShareGPT form", passed_on=False, is_one=lambda row: isinstance(row.get("conversations"), list),
        licence="unclear: the best known set of this form is dialogues that people pasted from a service",
    ),
)  # fmt: skip


def set_of(row: Mapping[str, Any]) -> PromptSet | None:
    """Return the set that a row of a file looks like."""
    return next((one for one in SETS if one.is_one(row)), None)


def foremost(found: PromptSet | None, before: PromptSet | None) -> PromptSet | None:
    """Return the set of a file by its next row and those before: what holds others, as Spec-Bench does, comes first."""
    return before if found is None or (before and SETS.index(before) < SETS.index(found)) else found
