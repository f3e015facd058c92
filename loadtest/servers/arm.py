"""One server under test, as it was named: where it is, how it is spoken to, and what is declared of it."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.errors import UsageError, server_named
from loadtest.servers.headers import refuse_unsendable

ARM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
NO_COUNTERS = "none"  # in place of metrics URLs: its counters are not read


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One server under test, as it was named."""

    name: str  # baseline · speculative · server, or the name of a table in a servers file
    role: str  # baseline · candidate · single
    url: str  # scheme://host:port[/base], without a trailing slash or /v1
    model: str = ""
    api_key_env: str = ""
    insecure: bool = False
    proxy: str = ""  # URL of an HTTP proxy to go through
    headers_env: dict[str, str] = field(default_factory=dict)  # header → environment variable with its value
    ca: str = ""  # PEM file of certificate authorities
    metrics: tuple[str, ...] = ()  # metrics URLs of every replica; empty: url + /metrics; NO_COUNTERS: none
    replicas: int = 1
    gpus: int | None = None
    method: str = ""  # declared method of speculation
    k: int | None = None  # declared draft tokens per step
    kind: str = ""  # vllm · sglang · llamacpp · openai · simulated; empty: it is to be detected
    prometheus: str = ""  # URL of a Prometheus that holds its metrics, in place of `metrics`
    prometheus_match: str = ""  # label matchers that choose its series, such as job="vllm-a"
    declared: dict[str, str] = field(default_factory=dict)  # item → value, where a server does not tell it
    shared: bool = False  # another arm has the same URL: what that URL tells without naming the model is of both
    counts: tuple[str, ...] = ()  # ways to ask for the tokens of each chunk; empty: every one that is known

    def headers(self) -> dict[str, str]:
        """Return the headers that carry the key and what else was asked for, read from the environment now.

        Raises UsageError for a variable that is not set, or whose value cannot be sent; the value is not shown.
        """
        headers = {name: _variable(variable, f"the header {name}") for name, variable in self.headers_env.items()}
        sources = dict(self.headers_env)
        if self.api_key_env:
            headers["Authorization"] = f"Bearer {_variable(self.api_key_env, 'api_key_env')}"
            sources["Authorization"] = self.api_key_env
        for name, value in headers.items():
            refuse_unsendable(name, value.removeprefix("Bearer "), f"The value of {sources[name]} in the environment")
        return headers

    @property
    def where(self) -> str:
        """How a sentence calls it, with its URL."""
        return f"{server_named(self.name)} at {self.url}"

    def verification(self) -> bool | ssl.SSLContext:
        """Return how the control plane checks TLS certificates. Raises UsageError for an unreadable CA file."""
        if self.insecure or not self.ca:
            return not self.insecure
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.load_default_certs()
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"The CA file {self.ca} cannot be read as PEM certificates: {error}.") from error
        return context


def _variable(name: str, purpose: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise UsageError(f"{name}, named for {purpose}, is not set in the environment.")
    return value


def arm_from(data: Mapping[str, Any]) -> Arm:
    """Return the arm that `dataclasses.asdict` turned into plain data."""
    return Arm(**{**data, "metrics": tuple(data["metrics"]), "counts": tuple(data.get("counts", ()))})
