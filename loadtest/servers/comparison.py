"""Do two servers differ in more than speculation? One row per item: equal, expected, a consequence, or a violation."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.servers.arm import Arm
from loadtest.servers.identity import BY_ANSWERS, Identity
from loadtest.servers.kinds import KINDS, OPENAI, Kind
from loadtest.servers.told import EXTRACTING, LABELS

Row = dict[str, Any]
SPECULATION, CONTEXT, SETTINGS = "speculation", "context length", "settings (/server_info)"
COUNTERS = "counters (/metrics)"
TARGET_CONTEXT = "speculative_config.draft_model_config.spec_target_max_model_len"
WRONG = {
    "both": "both speculate; start the baseline without a speculative configuration",
    "none": "none speculates; start the candidate with a speculative configuration",
    "swapped": "the arms are swapped: the baseline speculates and the candidate does not",
}
# What an item that is unknown costs the verdict.
COSTS = {
    "version": "two versions may differ in speed.",
    "model": "another model is another amount of work.",
    "tokenizer (tokens of a probe text)": "other tokens are other amounts of work.",
    "chat template": "another template makes other prompts.",
    CONTEXT: "a shorter context may cut or refuse long prompts.",
    SPECULATION: "what was compared is open; a gate does not take a declaration unless [gate] accept says so.",
    SETTINGS: "limits, caches and hardware may differ, so that no difference can be laid to speculation for certain.",
    COUNTERS: "τ, step times, acceptance, queues and idleness are unknown: that it pays can be said, why cannot.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two servers and what is declared of them."""

    baseline: Identity
    candidate: Identity
    declared_baseline: Mapping[str, str]
    declared_candidate: Mapping[str, str]

    @property
    def kind(self) -> Kind:
        """The kind whose settings are compared."""
        return KINDS.get(self.baseline.kind, OPENAI)


def compare(baseline: Identity, candidate: Identity, arms: tuple[Arm, Arm] | None = None) -> list[Row]:
    """Return the comparability table: one row per item, with its source and the kind of its difference.

    source: verified (read from both) · declared · unknown. kind: equal · expected (speculation itself) · consequence
    (what the server changed because of it) · violation · unknown (one side does not tell; `note` says what that costs).
    """
    declared = tuple(arm.declared for arm in arms) if arms else ({}, {})
    pair = Pair(baseline=baseline, candidate=candidate, declared_baseline=declared[0], declared_candidate=declared[1])
    rows = [
        _row("kind of server", baseline.kind, candidate.kind),
        _row("version", baseline.version, candidate.version),
        _model(baseline, candidate),
        _row("tokenizer (tokens of a probe text)", baseline.probe_tokens, candidate.probe_tokens),
        _template(baseline, candidate),
        _row(CONTEXT, baseline.max_model_len, candidate.max_model_len, differs=_context(pair)),
        _speculation(baseline, candidate),
        _counters(baseline, candidate),
    ]
    rows = [_with_declared(row, pair) for row in rows] + list(_settings(pair)) + list(_declared(pair, rows))
    return [row | {"note": COSTS[row["item"]]} if row["kind"] == "unknown" and row["item"] in COSTS else row
            for row in rows]  # fmt: skip


def _model(baseline: Identity, candidate: Identity) -> Row:
    """Compare what the models' names stand for, or else the names: an entrance may not tell the former."""
    if baseline.model_root and candidate.model_root:
        return _row("model", baseline.model_root, candidate.model_root)
    return _row("model", baseline.model, candidate.model)


def _template(baseline: Identity, candidate: Identity) -> Row:
    """Compare what a dialogue becomes, or else how many tokens an answer counted for it."""
    if baseline.template is None or candidate.template is None:
        return _row("chat template", baseline.prompt_tokens, candidate.prompt_tokens)
    return _row("chat template", baseline.template, candidate.template)


def _context(pair: Pair) -> str:
    """Return what a difference in context length is: a consequence only where the draft's own context explains it."""
    mine, other = pair.baseline.max_model_len, pair.candidate.max_model_len
    shorter = mine is not None and other is not None and other < mine
    return "consequence" if shorter and str(pair.candidate.config.get(TARGET_CONTEXT)) == str(mine) else "violation"


def _settings(pair: Pair) -> Iterator[Row]:
    """Yield a row for every setting that differs, and one that says how many are equal.

    Where a side told only the labels of its metrics, what both told is compared and the rest is unknown; of two kinds
    of server nothing can be compared.
    """
    mine, other, kind = pair.baseline.config, pair.candidate.config, pair.kind
    sources = [identity.config_from for identity in (pair.baseline, pair.candidate)]
    alike = pair.baseline.kind == pair.candidate.kind
    whole = bool(mine and other) and LABELS not in sources and alike
    keys = mine.keys() | other.keys()
    if not whole:
        keys = mine.keys() & other.keys() if alike else set()
        mine, other = ({key: _shown(told[key]) for key in keys} for told in (mine, other))
    for key in sorted(keys):
        if mine.get(key) != other.get(key) and not matches(key, kind.ignored):
            yield _row(key, mine.get(key), other.get(key), differs=_difference(key, pair), show_none=True)
    if whole:
        same = sum(1 for key in mine if mine[key] == other.get(key, object()))
        yield _row("settings that are equal (/server_info)", same, same)
        return
    told = [source or "not told" for source in sources]
    yield _row(SETTINGS, None, None) | {"baseline": told[0], "candidate": told[1]}


def _difference(key: str, pair: Pair) -> str:
    kind = pair.kind
    if matches(key, kind.expected):
        return "expected"
    explained = matches(key, kind.consequences) or kind.explains(key, pair.baseline.config, pair.candidate.config)
    if explained or (key.endswith(("max_model_len", "max_seq_len")) and _context(pair) == "consequence"):
        return "consequence"
    return "violation"


def matches(key: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a setting's name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def _row(item: str, mine: Any, other: Any, differs: str = "violation", *, show_none: bool = False) -> Row:
    unknown = (mine is None or other is None) and not show_none
    kind = "unknown" if unknown else "equal" if mine == other else differs
    return {"item": item, "baseline": _shown(mine), "candidate": _shown(other),
            "source": "unknown" if unknown else "verified", "kind": kind}  # fmt: skip


def _speculation(baseline: Identity, candidate: Identity) -> Row:
    states = (baseline.speculates, candidate.speculates)
    swapped = states == (True, False)
    # That a candidate's answers came one token at a time proves no more than that nothing was accepted.
    unproven = candidate.speculates is False and candidate.shown_by == BY_ANSWERS
    unknown = None in states or (unproven and not baseline.speculates)
    kind = "unknown" if unknown else "expected" if states == (False, True) else "violation"
    row = {"item": SPECULATION, "baseline": _how(baseline), "candidate": _how(candidate),
           "source": "unknown" if unknown else "verified", "kind": kind}  # fmt: skip
    said = WRONG["swapped" if swapped else "both" if baseline.speculates else "none"]
    return row | {"note": said} if kind == "violation" else row


def _how(identity: Identity) -> str:
    if identity.speculates is None:
        return "?"
    if not identity.speculates:
        return EXTRACTING if EXTRACTING in identity.modes else "off"
    k = identity.num_speculative_tokens
    parts = [identity.method or "method not told", f"k = {k}" if k else "", *identity.modes]
    parts += ["drafts from earlier requests too"] if identity.remembers else []
    return f"on ({', '.join(part for part in parts if part)})"


def _counters(baseline: Identity, candidate: Identity) -> Row:
    """Say whether the counters of both can be read; that they cannot is unknown, and never a violation."""
    told = [identity.counters or "read" for identity in (baseline, candidate)]
    kind = "equal" if told == ["read", "read"] else "unknown"
    return {"item": COUNTERS, "baseline": told[0], "candidate": told[1],
            "source": "verified" if kind == "equal" else "unknown", "kind": kind}  # fmt: skip


def _with_declared(row: Row, pair: Pair) -> Row:
    """Take what was declared of an item for the side, or sides, that do not tell it."""
    mine, other = pair.declared_baseline.get(row["item"]), pair.declared_candidate.get(row["item"])
    if row["kind"] != "unknown" or row["item"] in (SPECULATION, COUNTERS) or (mine is None and other is None):
        return row
    mine = mine if row["baseline"] == _shown(None) and mine is not None else row["baseline"]
    other = other if row["candidate"] == _shown(None) and other is not None else row["candidate"]
    if _shown(None) in (mine, other):
        return row | {"baseline": mine, "candidate": other}
    return row | {"baseline": mine, "candidate": other, "source": "declared",
                  "kind": "equal" if mine == other else "violation"}  # fmt: skip


def _declared(pair: Pair, rows: list[Row]) -> Iterator[Row]:
    """Yield a row for every further fact that was declared, such as the GPUs."""
    known = {row["item"] for row in rows} | pair.baseline.config.keys() | pair.candidate.config.keys()
    for item in sorted(pair.declared_baseline.keys() | pair.declared_candidate.keys()):
        if item not in known:
            row = _row(item, pair.declared_baseline.get(item), pair.declared_candidate.get(item))
            yield row | ({"source": "declared"} if row["kind"] != "unknown" else {})


def _shown(value: Any) -> str:
    text = "–" if value in (None, "None") else str(value)
    return text if len(text) <= 120 else text[:117] + "…"
