"""What a server says it is, and whether two servers differ in more than speculation."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.servers.control import Control

PROBE_TEXT = 'How many tokens is this? Größe, naïve, 数える: 12,345.67 {"key": [1, 2]}'
_PLACE = re.compile(r" at 0x[0-9a-f]+")  # another one in every process
LARGEST = 2**53  # beyond it a figure is none
SPEC_DRAFTS = "vllm:spec_decode_num_drafts_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One server as it introduced itself; what it does not tell is None or empty."""

    kind: str  # vllm · simulated · openai
    model: str
    model_root: str | None = None
    max_model_len: int | None = None
    version: str | None = None
    probe_tokens: int | None = None  # tokens of a fixed text: equal tokenizers agree
    speculates: bool | None = None
    method: str | None = None
    num_speculative_tokens: int | None = None
    config: dict[str, Any] = field(default_factory=dict)  # flattened /server_info
    simulated_world: str | None = None


def identify(control: Control, model: str) -> Identity:
    """Ask a server what it is: models, version, tokenizer probe, configuration, counters."""
    row = control.purged(next((row for row in control.models() if row.get("id") == model), {}))
    info = control.purged(control.json("/server_info?config_format=json") or {})
    values, positions, _, error = control.scrape()
    vllm = _table(info.get("vllm_config"))  # before 0.12 one string, which tells nothing that could be compared
    config = flatten(vllm) | {f"env.{key}": value for key, value in flatten(_table(info.get("vllm_env"))).items()}
    world = config.get("env.LOADTEST_SIMULATED")
    speculative = vllm.get("speculative_config")
    version = control.purged(control.json("/version") or {}).get("version")
    counters = None if error or not values else SPEC_DRAFTS in values
    k = _int(speculative.get("num_speculative_tokens")) if isinstance(speculative, Mapping) else None
    return Identity(
        kind="simulated" if world else "vllm" if values else "openai",
        model=model, model_root=_text(row.get("root")), max_model_len=_int(row.get("max_model_len")),
        version=_text(version), probe_tokens=_probe(control, model), speculates=counters,
        method=_text(speculative.get("method")) if isinstance(speculative, Mapping) else None,
        num_speculative_tokens=k if k is not None else len(positions) or None,
        config=config, simulated_world=_text(world),
    )  # fmt: skip


def _probe(control: Control, model: str) -> int | None:
    return _int((control.json("/tokenize", body={"model": model, "prompt": PROBE_TEXT}) or {}).get("count"))


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST else None


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table of dotted keys; a function in it goes by its name, not by where it lies."""
    if not isinstance(value, Mapping):
        value = _PLACE.sub("", value) if isinstance(value, str) else value
        return {prefix: value} if prefix else {}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat


# What speculation changes by being switched on, and what a server then changes by itself .
EXPECTED = ("speculative_config*", "observability_config.per_request_spec_decode_metrics")
CONSEQUENCES = (
    "*num_gpu_blocks*", "*kv_cache_size_tokens", "*kv_cache_max_concurrency", "*cudagraph_capture_sizes*",
    "*max_cudagraph_capture_size", "*max_num_scheduled_tokens", "*max_num_active_seqs", "*fast_moe_cold_start*",
    "*async_scheduling", "*max_model_len", "*cudagraph_mode", "*compile_ranges*", "*bs_to_padded_graph_size*",
    "env.VLLM_USE_V2_MODEL_RUNNER", "*cache_hit_alignment_tokens", "*spec_target_max_model_len",
    "*disable_nccl_for_dp_synchronization",  # follows from asynchronous scheduling
)  # fmt: skip
# Differ between any two processes.
IGNORED = (
    "*instance_id*", "*port*", "*_path*", "*cache_dir*", "*hash*", "*rank*ip", "*master_ip", "env.*PORT*",
    "env.*CACHE*", "*time*", "env.VLLM_HOST_IP", "*engine_id*", "*traced_files*", "*served_model_name*",
    "*local_cache_dir*", "env.VLLM_*SHM*NAME",
)  # fmt: skip


def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def compare(baseline: Identity, candidate: Identity) -> list[dict[str, Any]]:
    """Return the comparability table: one row per item, with its source and the kind of its difference.

    kind: equal · expected (speculation itself) · consequence (what the server changed because of it) · violation ·
    unknown (one side does not tell).
    """
    rows = [
        _row("kind of server", baseline.kind, candidate.kind),
        _row("version", baseline.version, candidate.version),
        _row("model", baseline.model_root or baseline.model, candidate.model_root or candidate.model),
        _row("tokenizer (tokens of a probe text)", baseline.probe_tokens, candidate.probe_tokens),
        _row("context length", baseline.max_model_len, candidate.max_model_len, differs="consequence"),
        _speculation(baseline, candidate),
    ]
    for key in sorted(baseline.config.keys() | candidate.config.keys()):
        mine, other = baseline.config.get(key), candidate.config.get(key)
        if mine == other or _matches(key, IGNORED):
            continue
        kind = "expected" if _matches(key, EXPECTED) else "consequence" if _matches(key, CONSEQUENCES) else "violation"
        rows.append(_row(key, mine, other, differs=kind, show_none=True))
    if baseline.config and candidate.config:
        same = sum(1 for key in baseline.config if baseline.config[key] == candidate.config.get(key, object()))
        rows.append(_row("settings that are equal (/server_info)", same, same))
    else:
        rows.append(_row("settings (/server_info)", None, None))
    return rows


def _row(item: str, mine: Any, other: Any, differs: str = "violation", *, show_none: bool = False) -> dict[str, Any]:
    unknown = (mine is None or other is None) and not show_none
    kind = "unknown" if unknown else "equal" if mine == other else differs
    return {"item": item, "baseline": _shown(mine), "candidate": _shown(other),
            "source": "unknown" if unknown else "verified", "kind": kind}  # fmt: skip


def _speculation(baseline: Identity, candidate: Identity) -> dict[str, Any]:
    def words(identity: Identity) -> str:
        if identity.speculates is None:
            return "?"
        if not identity.speculates:
            return "off"
        k = identity.num_speculative_tokens
        return f"on ({identity.method or 'method not told'}{f', k = {k}' if k else ''})"

    states = (baseline.speculates, candidate.speculates)
    kind = "unknown" if None in states else "expected" if states == (False, True) else "violation"
    return {"item": "speculation", "baseline": words(baseline), "candidate": words(candidate),
            "source": "unknown" if None in states else "verified", "kind": kind}  # fmt: skip


def _shown(value: Any) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= 120 else text[:117] + "…"
