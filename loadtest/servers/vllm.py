"""How vLLM introduces itself, from 0.9 to 0.33: /server_info as JSON or as one text, and the labels of /metrics.

Where /server_info is shut (it needs VLLM_SERVER_DEV_MODE=1) the labels of `vllm:cache_config_info` are the only
settings that are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from loadtest.record import FAKED, LOSSY
from loadtest.servers.told import EXTRACTING, LABELS, Told, flatten, named, table, text, whole

if TYPE_CHECKING:
    from loadtest.servers.control import Control

INFO_PATH = "/server_info?config_format=json"
INFO_LIMIT_S = 60.0  # it looks through the machine's packages first, which takes seconds on a busy one
CACHE_INFO = "vllm:cache_config_info"
# Of system_env: what decides speed or answers, and is no list of everything that is installed.
SYSTEM = ("nvidia_gpu_models", "nvidia_driver_version", "cuda_runtime_version", "torch_version", "hip_runtime_version")
_CPU_MODEL = re.compile(r"^Model name:\s*(.+)$", re.MULTILINE)
_METHOD = re.compile(r"method=['\"]([\w.]+)['\"]")
_K = re.compile(r"num_spec(?:ulative)?_tokens=(\d+)")
_MODEL = re.compile(r"\bmodel=['\"]([^'\"]+)['\"]")
_OPENING, _CLOSING = "([{", ")]}"


def read(control: Control, model: str) -> Told:
    """Return what a vLLM (or a simulated server, which speaks its form) says of itself."""
    info = control.purged(control.json(INFO_PATH, limit_s=INFO_LIMIT_S) or {})
    environment = {f"env.{key}": value for key, value in flatten(table(info.get("vllm_env"))).items()}
    system = _system(table(info.get("system_env")))
    config, speculative = _config(info.get("vllm_config"))
    config = config | environment | system
    source = "/server_info" if config else LABELS
    config = config or cache_labels(control.exposition())
    world = text(environment.get("env.LOADTEST_SIMULATED"))
    told = _speculation(speculative)
    version = named(control.purged(control.json("/version") or {}).get("version"))
    return Told(config=config, config_from=source if config else "", version=version, simulated_world=world, **told)


def _config(value: Any) -> tuple[dict[str, Any], Any]:
    """Return (flat settings, what stands for the speculative configuration; ... where that is not told)."""
    if isinstance(value, Mapping):
        return flatten(value), value.get("speculative_config", ...)
    if isinstance(value, str):  # before 0.12, and without config_format
        settings = dict(_items(value))
        return settings, settings.get("speculative_config", ...)
    return {}, ...


def _items(words: str) -> Iterator[tuple[str, str]]:
    """Yield the `name=value` items of vLLM's one-text configuration; commas within brackets and quotes part nothing."""
    depth, quote, start = 0, "", 0
    for i, c in enumerate(words + ","):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in _OPENING:
            depth += 1
        elif c in _CLOSING:
            depth -= 1
        elif c == "," and depth == 0:
            name, equals, value = words[start:i].strip().partition("=")
            if equals and name.isidentifier():
                yield name, value.strip("'\"")
            start = i + 1


def _speculation(value: Any) -> dict[str, Any]:
    if value is ...:
        return {}
    if value in (None, "None", ""):
        return {"speculates": False}
    settings: Mapping[str, Any] = table(value)
    if isinstance(value, str):
        found = {
            "method": _METHOD.search(value),
            "model": _MODEL.search(value),
            "num_speculative_tokens": _K.search(value),
        }
        settings = {name: match[1] for name, match in found.items() if match}
        settings |= (
            {"num_speculative_tokens": int(settings["num_speculative_tokens"])}
            if found["num_speculative_tokens"]
            else {}
        )
    if not settings:
        return {}
    method, drafter = named(settings.get("method")), named(settings.get("model"))
    modes = tuple(_modes(settings, method))
    return {
        "speculates": EXTRACTING not in modes, "method": method, "k": whole(settings.get("num_speculative_tokens")),
        "drafter": drafter if drafter != method else None, "modes": modes,
    }  # fmt: skip


def _modes(settings: Mapping[str, Any], method: str | None) -> Iterator[str]:
    """Yield what is unusual: acceptance that is faked or lossy, and a method that drafts nothing."""
    rejection = settings.get("rejection_sample_method")
    faked = any(settings.get(f"synthetic_acceptance_{name}") is not None for name in ("length", "rates", "rate"))
    if rejection == "synthetic" or faked:
        yield FAKED
    if rejection == "fly" or settings.get("acceptance_method") == "typical_acceptance_sampler":
        yield LOSSY
    if method == "extract_hidden_states":
        yield EXTRACTING


def _system(environment: Mapping[str, Any]) -> dict[str, Any]:
    found = {f"system.{name}": environment[name] for name in SYSTEM if name in environment}
    cpu = _CPU_MODEL.search(str(environment.get("cpu_info", "")))
    return found | ({"system.cpu_model": cpu[1].strip()} if cpu else {})


def cache_labels(exposition: str) -> dict[str, Any]:
    """Return the settings of the KV cache that /metrics carries as labels, empty where it has none."""
    lines = [line for line in exposition.split("\n") if line.startswith(CACHE_INFO + "{")]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except ValueError:
        return {}
    samples = [sample for family in families for sample in family.samples]
    labels = samples[0].labels if samples else {}  # of the first engine: all have the same
    return {f"cache_config.{name}": value for name, value in labels.items() if name not in ("engine", "model_name")}
