"""[arms.NAME] of a servers file: one field per key, each with its check and one sentence on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadtest.checks import choice, flag, positive_s, strings, text, whole
from loadtest.servers.kinds import KINDS
from loadtest.settings import key

LONGEST_S = 86400.0


def _words_by_name(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ValueError("a table of strings")
    return dict(value)


def _kind(value: Any) -> str:
    if value != "" and value not in KINDS:
        raise ValueError("one of " + ", ".join(f'"{name}"' for name in KINDS))
    return str(value)


def _path_of_url(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or any(c.isspace() for c in value):
        raise ValueError('a path such as "/health"')
    return value


def _wait_s(value: Any) -> float:
    """Accept a duration that can be waited for: the system's clocks take no more than days."""
    seconds = positive_s(value)
    if seconds > LONGEST_S:
        raise ValueError("a duration above 0, at most a day (86400 s)")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTable:
    """[arms.NAME]: one server; with `start` the run starts and ends it."""

    role: str = key("", choice("baseline", "candidate"), "baseline: does not speculate; candidate: is held against it")
    url: str = key("", text, "where it listens")
    model: str = key("", text, "model name; default: the one the server lists")
    api_key_env: str = key("", text, "name of the environment variable that holds the API key")
    headers_env: dict[str, str] = key({}, _words_by_name, "header → name of the environment variable with its value")
    ca: str = key("", text, "PEM file of certificate authorities, from the servers file's folder")
    insecure: bool = key(False, flag, "do not verify TLS certificates")
    proxy: str = key("", text, "URL of an HTTP proxy to go through; those of the environment are never used")
    kind: str = key("", _kind, "vllm, sglang, llamacpp, openai or simulated; default: it is detected")
    metrics: tuple[str, ...] = key((), strings, 'metrics URLs of every replica, or ["none"]; default: url + /metrics')
    prometheus: str = key("", text, "URL of a Prometheus that holds its metrics, in place of `metrics`")
    prometheus_match: str = key("", text, """label matchers that choose its series there, such as 'job="vllm-a"'""")
    replicas: int = key(1, whole(1, 100_000), "servers behind the URL")
    gpus: int | None = key(None, whole(0, 100_000), "GPUs of all replicas")
    method: str = key("", text, "declared method of speculation")
    k: int | None = key(None, whole(1, 1000), "declared draft tokens per step")
    declared: dict[str, str] = key({}, _words_by_name, "item → value, where a server does not tell it")
    start: tuple[str, ...] = key((), strings, "command that serves in the foreground, as a list of words")
    stop: tuple[str, ...] = key(
        (), strings, "command for what outlives `start`, such as a container; run after its end"
    )
    env: dict[str, str] = key({}, _words_by_name, "environment of the command, on top of this program's own")
    cwd: str = key("", text, "working folder of the command, from the servers file's folder; default: the current one")
    ready_s: float = key(600.0, _wait_s, "time allowed from start to healthy")
    stop_s: float = key(20.0, _wait_s, "time allowed from TERM to its end, then it is killed; and to `stop`")
    health: str = key("/health", _path_of_url, "path that answers 200 once it serves")
