"""How llama.cpp's server introduces itself: /props, and /slots for whether it drafts.

What /props says of speculation is not to be trusted (it may say "none" while the server drafts); /slots is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from loadtest.servers.fetch import NoAnswer
from loadtest.servers.told import Told, named, table, text, whole

if TYPE_CHECKING:
    from loadtest.servers.control import Control

SETTINGS = ("total_slots", "model_ftype", "model_path")


def read(control: Control, model: str) -> Told:
    """Return what a llama.cpp server says of itself."""
    props = control.purged(control.json("/props") or {})
    slots = [table(slot) for slot in _list(control, "/slots")]
    drafting = [slot.get("speculative") for slot in slots if isinstance(slot.get("speculative"), bool)]
    generation = table(props.get("default_generation_settings"))
    context = whole(generation.get("n_ctx"))
    template = text(props.get("chat_template"))
    config = {name: props[name] for name in SETTINGS if name in props}
    config |= {"n_ctx": context} if context is not None else {}
    config |= {"chat_template": _digest(template)} if template else {}
    return Told(
        config=config, config_from="/props" if config else "",
        speculates=any(drafting) if drafting else None, method=_method(slots) if any(drafting) else None,
        version=named(props.get("build_info")), model_root=named(props.get("model_path")), max_model_len=context,
        template=_digest(template) if template else None,
    )  # fmt: skip


def _list(control: Control, path: str) -> list[Any]:
    try:
        answer = control.fetch(path)
        rows = json.loads(answer.body) if answer.status == 200 else []
    except (NoAnswer, ValueError, RecursionError):
        return []
    return rows if isinstance(rows, list) else []


def _method(slots: list[Mapping[str, Any]]) -> str | None:
    """Return the methods of drafting that a slot was last used with, as `ngram-simple`."""
    for slot in slots:
        types = named(table(slot.get("params")).get("speculative.types"))
        names = [name for name in (types or "").split(",") if name not in ("", "none")]
        if names:
            return "+".join(names)
    return None


def _digest(words: str) -> str:
    return blake2b(words.encode(), digest_size=8).hexdigest()
