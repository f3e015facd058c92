"""What the simulated server says it is: /server_info in vLLM's layout, equal in both arms but for speculation."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from loadtest.simulate.engine import BLOCK_TOKENS
from loadtest.simulate.models import ArmModel

VERSION = "0.32.0"  # of the vLLM whose wire form is spoken


def cache_config(arm: ArmModel) -> dict[str, Any]:
    """Return the configuration of the KV cache."""
    return {
        "block_size": BLOCK_TOKENS, "cache_dtype": "auto", "enable_prefix_caching": True,
        "gpu_memory_utilization": 0.92, "is_attention_free": False, "kv_cache_size_tokens": arm.kv_limit_tokens,
        "kv_cache_max_concurrency": round(arm.kv_limit_tokens / arm.max_model_len, 2),
        "num_cpu_blocks": None, "num_gpu_blocks": arm.kv_limit_tokens // BLOCK_TOKENS, "num_gpu_blocks_override": None,
        "prefix_caching_hash_algo": "sha256", "sliding_window": None,
    }  # fmt: skip


def server_info(arm: ArmModel, *, world: str, model: str, seed: int) -> dict[str, Any]:
    """Return /server_info?config_format=json; `vllm_env.LOADTEST_SIMULATED` names the world."""
    speculative = None
    if arm.declared_k:
        speculative = {"method": "eagle", "model": f"{model}-eagle", "num_speculative_tokens": arm.declared_k,
                       "draft_tensor_parallel_size": 1}  # fmt: skip
    return {
        "vllm_config": {
            "model_config": {
                "model": model, "tokenizer": model, "served_model_name": model, "dtype": "torch.bfloat16", "seed": seed,
                "max_model_len": arm.max_model_len, "quantization": None, "enforce_eager": False, "revision": None,
            },
            "cache_config": cache_config(arm),
            "parallel_config": {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1},
            "scheduler_config": {
                "max_num_batched_tokens": arm.max_batched_tokens, "max_num_seqs": arm.max_seqs, "policy": "fcfs",
                "enable_chunked_prefill": True, "async_scheduling": False, "stream_interval": 1,
            },
            "device_config": {"device": "simulated"},
            "speculative_config": speculative,
        },
        "vllm_env": {"LOADTEST_SIMULATED": world},
        "system_env": {},
    }  # fmt: skip


def fingerprint(arm: ArmModel) -> str:
    """Return the `system_fingerprint` of an arm's answers; like vLLM's it differs between the arms."""
    return f"vllm-{VERSION}-{blake2b(repr(arm).encode(), digest_size=4).hexdigest()}"
