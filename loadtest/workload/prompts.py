"""Sessions from a file of prompts, in any of the forms that published prompt sets use."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError
from loadtest.workload.logged import text_of
from loadtest.workload.prompt_files import Misfit, documents_of
from loadtest.workload.prompt_forms import ALLOWED, Prompt, prompt_of
from loadtest.workload.prompt_sets import UNKNOWN_LICENCE, PromptSet, foremost, set_of
from loadtest.workload.seeds import rng
from loadtest.workload.sessions import Session, SessionKey, Turn
from loadtest.workload.thinking import after_answer_s, before_dialogue_s, of_tool_s


class PromptSource:
    """Sessions from a file of prompts; `notes` says in sentences what of the file is not used.

    A follow-up turn is asked only when the file gives the answer that stands before it (`reference`, or an assistant
    message): history is scripted, so that both arms see the same prompt.
    """

    def __init__(self, path: Path | str) -> None:
        """Read the whole file; raises UsageError with the line for anything that cannot be used."""
        self.path = Path(path)
        self.known: PromptSet | None = None
        self._unusable: list[str] = []  # conversations of a set in which some cannot be used, and why
        self.prompts: tuple[Prompt, ...] = tuple(self._read())
        if not self.prompts:
            why = f" ({self._unusable[0]})" if self._unusable else ": every line is blank"
            raise UsageError(f"{self.path} holds no prompts{why}; {ALLOWED}.")

    def _read(self) -> Iterator[Prompt]:
        for place, document in documents_of(self.path):
            try:
                if isinstance(document, Misfit):
                    raise document
                own = set_of(document)
                self.known = foremost(own, self.known)
                yield prompt_of(document, category=(own and own.category) or self.path.stem)
            except ValueError as reason:
                if isinstance(document, dict) and "conversations" in document:
                    self._unusable.append(f"{place}: {reason}")
                    continue
                raise UsageError(f"{self.path}, {place}: {reason}.") from None

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, sorted; prompts without one have that of the set, or the name of the file."""
        return tuple(sorted({prompt.category for prompt in self.prompts}))

    @property
    def repeats_after(self) -> int:
        """Sessions of a cell after which the first prompt comes again."""
        return len(self.prompts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on what was left out, and on text that may not be passed on."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        left_out = sum(prompt.left_out for prompt in self.prompts)
        if left_out:
            lines = sum(prompt.left_out > 0 for prompt in self.prompts)
            turns, them = ("turn", "it") if left_out == 1 else ("turns", "them")
            yield (
                f"{self.path.name}: {left_out} follow-up {turns} in {lines} of {len(self.prompts)} prompts left out,"
                f" because the file gives no answer to stand in the history before {them}."
            )
        repeated = len(self.prompts) - self._different
        if repeated:
            yield (
                f"{self.path.name}: {repeated} of {len(self.prompts)} prompts ask what an earlier one asks, by which"
                " caches and drafts from memory gain."
            )
        if self._unusable:
            whole = len(self._unusable) + len(self.prompts)
            yield f"{self.path.name}: {len(self._unusable)} of {whole} conversations left out; {self._unusable[0]}."
        if self.known and not self.known.passed_on and (not self.known.hashes or self._digest in self.known.hashes):
            licence, _ = self.known.licence_of(self._digest)
            yield f"{self.path.name}: licence {licence}. Its text stays out of records and reports; do not pass it on."

    @cached_property
    def _different(self) -> int:
        return len({(one.system, one.turns, repr([asked.messages for asked in one.requests])) for one in self.prompts})

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def protocol(self) -> dict[str, Any]:
        """Return what a run's protocol says of the prompts: whose they are, and how many of which category."""
        known, digest = self.known, self._digest
        licence, passed_on = known.licence_of(digest) if known else (UNKNOWN_LICENCE, False)
        return {
            "kind": "prompts", "name": known.name if known else self.path.stem,
            "licence": licence, "passed_on": passed_on,
            "known_by": None if known is None else "sha256" if digest in known.hashes else "form",
            "prompts": len(self.prompts), "sha256": digest,
            "categories": dict(sorted(Counter(prompt.category for prompt in self.prompts).items())),
        }  # fmt: skip

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names: a cell walks through all prompts in a seeded order, then again."""
        count = len(self.prompts)
        order = _order(count, key.seed, f"{key.level:g}", key.block)
        prompt = self.prompts[order[key.number % count]]
        return _with_tools(prompt, key) if prompt.requests else _dialogue(prompt, key)


def _dialogue(prompt: Prompt, key: SessionKey) -> Session:
    generator = key.rng("prompt")
    think_s = before_dialogue_s(generator)
    turns = []
    for user, assistant in prompt.turns:
        turns.append(Turn(category=prompt.category, user=user, assistant=assistant, think_s=think_s))
        think_s = after_answer_s(generator, assistant)
    return Session(turns=tuple(turns), system=prompt.system)


def _with_tools(prompt: Prompt, key: SessionKey) -> Session:
    """Return a dialogue whose requests are whole: tools take their time, people read the answer before they go on."""
    generator = key.rng("prompt")
    turns: list[Turn] = []
    for asked in prompt.requests:
        from_tool = asked.messages[-1]["role"] != "user"
        think_s = before_dialogue_s(generator)
        if turns:
            answer = next((text_of(m["content"]) for m in reversed(asked.messages) if m["role"] == "assistant"), "")
            think_s = of_tool_s(generator) if from_tool else after_answer_s(generator, answer)
        turn = Turn(category=prompt.category, user=asked.last or " ", assistant="", think_s=think_s)
        turns.append(replace(turn, from_tool=from_tool, messages=asked.messages, tools=asked.tools))
    return Session(turns=tuple(turns))


@lru_cache(maxsize=16)
def _order(count: int, seed: int, level: str, block: int) -> tuple[int, ...]:
    order = list(range(count))
    rng("prompts", seed, level, block).shuffle(order)
    return tuple(order)
