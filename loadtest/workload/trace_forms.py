"""Names of what traces and logs hold, and what is peculiar to each published trace."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Field → names of the columns or keys that hold it; "a.b" lies within "a". The first that is there counts.
NAMES: dict[str, tuple[str, ...]] = {
    "ts": ("ts", "timestamp", "time", "arrival", "arrived", "datetime", "createdat", "created", "requesttime",
           "starttime"),
    "input_tokens": ("inputtokens", "prompttokens", "contexttokens", "requesttokens", "inputlength", "promptlength",
                     "numprefilltokens", "usage.prompttokens", "response.usage.prompttokens"),
    "output_tokens": ("outputtokens", "completiontokens", "generatedtokens", "responsetokens", "outputlength",
                      "numdecodetokens", "usage.completiontokens", "response.usage.completiontokens"),
    "session": ("session", "sessionid", "conversation", "conversationid", "chatid", "threadid"),
    "class": ("class", "category"),
    "duration_s": ("durations", "elapsedtime", "latencys"),
    "hash_ids": ("hashids",),
    "block_tokens": ("blocktokens",),
    "messages": ("messages", "request.messages", "body.messages"),
    "prompt": ("prompt", "request.prompt", "body.prompt"),
    "tools": ("tools", "request.tools", "body.tools"),
    "params": ("params", "request", "body"),
    "appended": ("appended",),
    "after": ("after",),
    "ts_ms": ("timestampms", "tsms", "timems"),
}  # fmt: skip
PARAMS = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "stop", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What is peculiar to the files of one publisher."""

    name: str
    columns: frozenset[str]  # a file that has all of these is one
    unit_s: float | None = None  # of a time that is a number; None: told by its size
    block_tokens: int = 0  # tokens of a block that `hash_ids` counts
    text: str = ""  # kind of text by which lengths are met; "" : told by the class or the file's name
    licence: str = "not known to loadtest: it is for you to see to"


FORMS = (
    Form(name="Azure LLM inference trace", columns=frozenset(("timestamp", "contexttokens", "generatedtokens")),
         licence="as published CC-BY 4.0 (Patel et al., Splitwise, ISCA 2024)"),
    Form(name="BurstGPT", columns=frozenset(("timestamp", "model", "requesttokens", "responsetokens", "logtype")),
         unit_s=1.0, text="chat", licence="as published CC-BY 4.0 (Wang et al., BurstGPT, KDD 2025)"),
    Form(name="Mooncake", columns=frozenset(("timestamp", "inputlength", "outputlength", "hashids")), unit_s=0.001,
         block_tokens=512, licence="as published Apache-2.0 (Qin et al., Mooncake, FAST 2025)"),
    Form(name="log", columns=frozenset(("messages",))),
    Form(name="log", columns=frozenset(("prompt",))),
    Form(name="trace", columns=frozenset()),
)  # fmt: skip


def form_of(columns: frozenset[str]) -> Form:
    """Return the form of a file with these columns, by their plain names."""
    return next(form for form in FORMS if form.columns <= columns)


def plain(name: str) -> str:
    """Return the name of a column as it is compared: small letters, digits and the dots between levels."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())
