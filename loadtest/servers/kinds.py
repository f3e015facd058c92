"""The kinds of server: one entry each says how it introduces itself, counts, drafts, caches and idles.

Adding a kind is adding an entry; the order is that of detection, the last one takes what no other knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadtest.servers import llamacpp, sglang, vllm
from loadtest.servers.told import Told

if TYPE_CHECKING:
    from loadtest.servers.control import Control

Explains = Callable[[str, Mapping[str, Any], Mapping[str, Any]], bool]


def _tells_nothing(control: Control, model: str) -> Told:
    return Told()


def _explains_nothing(item: str, baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of server. Metric names are exact names of the exposition; patterns are those of fnmatch."""

    name: str
    title: str
    owner: str = ""  # `owned_by` in its list of models
    prefix: str = ""  # of its metric families; empty: it has none that are known
    read: Callable[[Control, str], Told] = _tells_nothing  # asks its own endpoints what it is
    counts: tuple[str, ...] = ("none",)  # ways to have the tokens of each chunk told, the best first
    running: str = ""  # gauges of requests in work, and of those that wait
    waiting: str = ""
    preemptions: str = ""  # counter of requests that lost their place in memory
    drafts: str = ""  # counter of drafts
    drafts_show_it: bool = False  # that counter exists only where speculation is configured
    per_position: str = ""  # counter of accepted tokens by draft slot
    salts: bool | None = None  # heeds a cache_salt, which keeps a cell's prefixes apart; None: it is to be tried
    reset: str = ""  # path that empties its prefix cache
    tokenizes: tuple[tuple[str, str], ...] = ()  # (path, key of the text) that counts the tokens of a text
    templates: tuple[str, ...] = ()  # paths that turn a dialogue into tokens or a prompt
    remembering: tuple[str, ...] = ()  # methods whose drafter learns from earlier requests
    expected: tuple[str, ...] = ()  # settings that are speculation itself
    consequences: tuple[str, ...] = ()  # settings that the server changes by itself when it speculates
    explains: Explains = _explains_nothing  # whether it changed one more by itself, from (item, baseline, candidate)
    ignored: tuple[str, ...] = ()  # settings that differ between any two processes
    known_fields: bool = False  # every optional field that is sent is known to it: none needs to be tried first


VLLM = Kind(
    name="vllm", title="vLLM", owner="vllm", prefix="vllm:", read=vllm.read, counts=("continuous", "ids", "none"),
    running="vllm:num_requests_running", waiting="vllm:num_requests_waiting",
    preemptions="vllm:num_preemptions_total",
    drafts="vllm:spec_decode_num_drafts_total", drafts_show_it=True,
    per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
    salts=True, reset="/reset_prefix_cache", tokenizes=(("/tokenize", "prompt"),), templates=("/tokenize",),
    remembering=("suffix",), known_fields=True,
    expected=("speculative_config*", "observability_config.per_request_spec_decode_metrics"),
    consequences=(
        "*num_gpu_blocks*", "*kv_cache_size_tokens", "*kv_cache_max_concurrency", "*cudagraph_capture_sizes*",
        "*max_cudagraph_capture_size", "*max_num_scheduled_tokens", "*max_num_active_seqs", "*fast_moe_cold_start*",
        "*async_scheduling", "*cudagraph_mode", "*compile_ranges*", "*bs_to_padded_graph_size*",
        "env.VLLM_USE_V2_MODEL_RUNNER", "*cache_hit_alignment_tokens", "*spec_target_max_model_len",
        "*disable_nccl_for_dp_synchronization",  # follows from asynchronous scheduling
        "compilation_config",  # before 0.12 one text, with the sizes of the captured graphs in it
    ),
    ignored=(
        "*instance_id*", "*port*", "*_path*", "*cache_dir*", "*hash*", "*rank*ip", "*master_ip", "env.*PORT*",
        "env.*CACHE*", "*time*", "env.VLLM_HOST_IP", "*engine_id*", "*traced_files*", "*served_model_name*",
        "*local_cache_dir*", "env.VLLM_*SHM*NAME",
    ),
)  # fmt: skip
SIMULATED = Kind(
    **{name: getattr(VLLM, name) for name in Kind.__dataclass_fields__ if name not in ("name", "title", "owner")},
    name="simulated", title="built-in simulated server",
)  # fmt: skip
SGLANG = Kind(
    name="sglang", title="SGLang", owner="sglang", prefix="sglang:", read=sglang.read, counts=("continuous", "none"),
    running="sglang:num_running_reqs", waiting="sglang:num_queue_reqs", drafts="sglang:spec_verify_calls_total",
    preemptions="sglang:num_retracted_requests_total",
    reset="/flush_cache", tokenizes=(("/tokenize", "prompt"),), remembering=("ngram",),
    expected=("speculative_*",), explains=sglang.explains,
    consequences=(
        "max_total_num_tokens", "max_total_tokens", "mem_fraction_static", "cuda_graph_max_bs*", "cuda_graph_bs*",
        "disable_overlap_schedule", "enable_mixed_chunk", "page_size", "launched_with_max_running_requests",
    ),
    ignored=("random_seed", "host", "*port", "*nccl_init*", "served_model_name", "log_*", "*dist_init_addr"),
)  # fmt: skip
LLAMACPP = Kind(
    name="llamacpp", title="llama.cpp", owner="llamacpp", prefix="llamacpp:", read=llamacpp.read,
    counts=("timings", "none"),
    running="llamacpp:requests_processing", waiting="llamacpp:requests_deferred",
    drafts="llamacpp:spec_decode_num_drafts_total",
    per_position="llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
    salts=False, tokenizes=(("/tokenize", "content"),), templates=("/apply-template",),
    remembering=("ngram-mod",),  # one pool for all slots (its docs/speculative.md)
)  # fmt: skip
OPENAI = Kind(  # a vLLM behind a gateway that rewrites the list of models may still tell its settings
    name="openai", title="OpenAI-compatible server", read=vllm.read, counts=("continuous", "ids", "none"),
    tokenizes=VLLM.tokenizes, templates=VLLM.templates, remembering=VLLM.remembering,
)  # fmt: skip
KINDS: dict[str, Kind] = {kind.name: kind for kind in (SIMULATED, VLLM, SGLANG, LLAMACPP, OPENAI)}


def detect(owner: str, families: Iterable[str]) -> str:
    """Return the kind of a server by who owns its model, else by the names of its metrics.

    Where the metrics are another kind's alone these count: an entrance may write the list of models itself.
    """
    seen = tuple(families)
    counted = [kind.name for kind in KINDS.values() if kind is not SIMULATED and kind.prefix
               and any(name.startswith(kind.prefix) for name in seen)]  # fmt: skip
    named = next((kind.name for kind in KINDS.values() if kind.owner and kind.owner == owner), "")
    if named and (named in counted or not counted):
        return named
    return counted[0] if counted else OPENAI.name


def prefixes() -> tuple[str, ...]:
    """Return how the metric families of all kinds begin."""
    return tuple(dict.fromkeys(kind.prefix for kind in KINDS.values() if kind.prefix))


def remembers(kind: str, method: str | None) -> bool:
    """Return whether a drafter learns from earlier requests, so that acceptance may rise as a run goes on."""
    found = KINDS.get(kind)
    methods = (method or "").lower().split("+")  # of llama.cpp there may be several
    return found is not None and any(each in found.remembering for each in methods)
