"""What a server says of one answer beside its text: how it speculated, and counts of any shape."""

from __future__ import annotations

from typing import Any

from loadtest.record import Request

COUNT_LIMIT = 2**31  # counts are stored in 32 bits
# Where servers put the figures on one answer's speculation: a key, a key below it, and the record's fields by name.
_FIGURES: dict[str, tuple[str, dict[str, str]]] = {
    "metrics": ("speculative_decoding", {"spec_drafts": "num_spec_steps", "spec_drafted": "num_draft_tokens",
                                         "spec_accepted": "num_accepted_draft_tokens"}),  # vLLM
    "sglext": ("spec_tokens_details", {"spec_drafts": "spec_verify_ct", "spec_drafted": "spec_num_proposed_drafts",
                                       "spec_accepted": "spec_num_correct_drafts"}),  # SGLang
    "timings": ("", {"spec_drafted": "draft_n", "spec_accepted": "draft_n_accepted"}),  # llama.cpp
}  # fmt: skip


def take_figures(record: Request, said: dict[str, Any]) -> None:
    """Read what the server says on this answer's speculation: on its last event, or the one before."""
    for key in _FIGURES.keys() & said.keys():
        below, names = _FIGURES[key]
        figures = mapping(mapping(said[key]).get(below) if below else said[key])
        for field, name in names.items():
            if name in figures:
                setattr(record, field, count_of(figures, name))


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, an empty one for anything else."""
    return value if type(value) is dict else {}


def count_of(values: dict[str, Any], name: str) -> int:
    """Return a count, -1 for anything else."""
    value = values.get(name)
    return value if type(value) is int and 0 <= value < COUNT_LIMIT else -1
