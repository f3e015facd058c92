"""What a server says it is: its model, its settings, its tokenizer and template, and whether it speculates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from loadtest.servers.control import Control
from loadtest.servers.counters import family_names
from loadtest.servers.kinds import KINDS, OPENAI, SIMULATED, VLLM, Kind, detect, remembers
from loadtest.servers.told import EXTRACTING, Told, named, whole
from loadtest.servers.told import flatten as flatten

PROBE_TEXT = 'How many tokens is this? Größe, naïve, 数える: 12,345.67 {"key": [1, 2]}'
PROBE_DIALOGUE = (
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": PROBE_TEXT},
    {"role": "assistant", "content": "Some."}, {"role": "user", "content": "Thanks."},
)  # fmt: skip
IGNORED = VLLM.ignored  # settings that differ between any two processes
# How it is known that a server speculates, or does not; the surest first.
BY_SETTINGS, BY_COUNTERS, BY_ANSWERS = "settings", "counters", "answers to an idle server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One server as it introduced itself; what it does not tell is None or empty."""

    kind: str  # vllm · sglang · llamacpp · openai · simulated
    model: str
    model_root: str | None = None
    max_model_len: int | None = None
    version: str | None = None
    probe_tokens: int | None = None  # tokens of a fixed text: equal tokenizers agree
    template: str | None = None  # digest of what a fixed dialogue becomes: equal chat templates agree
    speculates: bool | None = None
    shown_by: str = ""  # how that is known
    method: str | None = None
    num_speculative_tokens: int | None = None
    drafter: str | None = None
    modes: tuple[str, ...] = ()  # such as "faked acceptance"
    remembers: bool = False  # the drafter learns from earlier requests
    config: dict[str, Any] = field(default_factory=dict)  # flattened settings
    config_from: str = ""  # where they were read
    simulated_world: str | None = None
    prompt_tokens: int | None = None  # of a fixed dialogue, as an answer counted them
    tried: int = 0  # small requests that tried which optional fields it takes
    refused: tuple[str, ...] = ()  # optional fields of a request that it does not take
    rate_limits: dict[str, float] = field(default_factory=dict)  # of a gateway, per minute: requests · tokens
    at_once: bool = False  # its streams came in one piece: something holds them back
    counters: str = ""  # why its counters cannot be read; empty: they can


def identify(control: Control, model: str) -> Identity:
    """Ask a server what it is: models, version, tokenizer and template, settings, counters."""
    row = control.purged(next((row for row in control.models() if row.get("id") == model), {}))
    values, positions, _, error = control.scrape()
    kind = KINDS[control.arm.kind or detect(str(row.get("owned_by") or ""), values)]
    told = Told() if control.arm.shared else kind.read(control, model)
    kind = SIMULATED if told.simulated_world else VLLM if kind is OPENAI and told.config else kind
    speculates, shown_by = _speculates(kind, told, {} if error else values)
    return Identity(
        kind=kind.name, model=model, model_root=named(row.get("root")) or told.model_root,
        max_model_len=whole(row.get("max_model_len")) or told.max_model_len, version=told.version,
        probe_tokens=_probe(control, kind, model), template=_template(control, kind, model) or told.template,
        speculates=speculates, shown_by=shown_by, method=told.method, drafter=told.drafter, modes=told.modes,
        num_speculative_tokens=told.k if told.k is not None else len(positions) or None,
        remembers=remembers(kind.name, told.method or control.arm.method), config=told.config,
        config_from=told.config_from, simulated_world=told.simulated_world,
        counters=error or ("" if family_names("\n".join(values)) else "no known counters"),
    )  # fmt: skip


def _speculates(kind: Kind, told: Told, values: Mapping[str, float]) -> tuple[bool | None, str]:
    """Return (whether it speculates, how that is known): drafts that were counted, the settings, a telling counter.

    That a counter is missing says least: a gateway may let only some through, or a version name it otherwise.
    """
    extracts = EXTRACTING in told.modes  # is counted as if it drafted
    if values.get(kind.drafts, 0) > 0 and not extracts:
        return True, BY_COUNTERS
    if told.speculates is not None:
        return told.speculates, BY_SETTINGS
    known = bool(kind.prefix) and any(name.startswith(kind.prefix) for name in values)
    return (kind.drafts in values, BY_COUNTERS) if known and kind.drafts_show_it else (None, "")


def _probe(control: Control, kind: Kind, model: str) -> int | None:
    for path, key in kind.tokenizes:
        said = control.json(path, body={"model": model, key: PROBE_TEXT}) or {}
        tokens = said.get("tokens")
        count = whole(said.get("count"))
        if count is not None or isinstance(tokens, list):
            return count if count is not None else len(tokens or ())
    return None


def _template(control: Control, kind: Kind, model: str) -> str | None:
    """Return a digest of the tokens, or else the prompt, that a fixed dialogue becomes."""
    for path in kind.templates:
        said = control.json(path, body={"model": model, "messages": list(PROBE_DIALOGUE)}) or {}
        made = said.get("tokens") or said.get("prompt")
        if made:
            return blake2b(json.dumps(made).encode(), digest_size=8).hexdigest()
    return None
