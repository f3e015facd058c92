"""The control plane of one server: health, models, identity, counters; never the measured path."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from loadtest.errors import RunError, UsageError
from loadtest.servers.counters import parse_exposition

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One server under test, as it was named."""

    name: str  # baseline · speculative · server, or the name of a table in a servers file
    role: str  # baseline · candidate · single
    url: str  # scheme://host:port[/base], without a trailing slash or /v1
    model: str = ""
    api_key_env: str = ""
    insecure: bool = False
    headers_env: dict[str, str] = field(default_factory=dict)  # header → environment variable with its value
    ca: str = ""  # PEM file of certificate authorities
    metrics: tuple[str, ...] = ()  # metrics URLs of every replica; empty: url + /metrics
    replicas: int = 1
    gpus: int | None = None
    method: str = ""  # declared method of speculation
    k: int | None = None  # declared draft tokens per step

    def headers(self) -> dict[str, str]:
        """Return the headers that carry the key and what else was asked for, read from the environment now."""
        headers = {name: _variable(variable, f"the header {name}") for name, variable in self.headers_env.items()}
        if self.api_key_env:
            headers["Authorization"] = f"Bearer {_variable(self.api_key_env, 'api_key_env')}"
        return headers

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
    return Arm(**{**data, "metrics": tuple(data["metrics"])})


def clean_url(word: str, option: str) -> str:
    """Return a server's URL in its plain form, or refuse it with a sentence that names `option`."""
    parts = urlsplit(word if "//" in word else f"http://{word}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise UsageError(f"{option} is {word!r}; write a URL such as http://127.0.0.1:8000.")
    if parts.username or parts.password:
        raise UsageError(f"{option} carries a user or password; give a key by servers.api_key_env instead.")
    if parts.query or parts.fragment:
        raise UsageError(f"{option} is {word!r}; a URL of a server has no ? or # part.")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


@dataclass(slots=True)
class Control:
    """HTTP client of one arm's control plane. Redirects are not followed, proxies not used."""

    arm: Arm
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        """Open the client."""
        self.client = httpx.Client(
            base_url=self.arm.url, headers=self.arm.headers(), timeout=TIMEOUT_S, trust_env=False,
            verify=self.arm.verification(), follow_redirects=False,
        )  # fmt: skip

    def close(self) -> None:
        """Close its connections."""
        self.client.close()

    def get(self, path: str) -> httpx.Response | None:
        """Return the response to GET `path`, or None when the server cannot be reached."""
        try:
            return self.client.get(path)
        except httpx.HTTPError:
            return None

    def json(self, path: str) -> dict[str, Any] | None:
        """Return the JSON object at `path`; None when there is none."""
        response = self.get(path)
        if response is None or response.status_code != 200:
            return None
        try:
            data = response.json()
        except ValueError:
            return None
        return data if isinstance(data, dict) else None

    def reach(self) -> None:
        """Raise UsageError unless the server answers at all, with what was seen and what to do."""
        try:
            response = self.client.get("/v1/models")
        except httpx.HTTPError as error:
            raise UsageError(
                f"The {self.arm.name} server at {self.arm.url} does not answer ({_plain(error)})."
                " Is it running, and is the URL right? Servers that are still loading a model do not listen yet."
            ) from error
        if response.status_code in (401, 403):
            raise UsageError(
                f"The {self.arm.name} server at {self.arm.url} refuses the key (HTTP {response.status_code})."
                " Name the environment variable that holds it: --set servers.api_key_env=NAME."
            )
        if 300 <= response.status_code < 400:
            raise UsageError(
                f"The {self.arm.name} server at {self.arm.url} redirects to {response.headers.get('location', '?')!r};"
                " redirects are not followed. Give the final URL."
            )

    def models(self) -> list[dict[str, Any]]:
        """Return the rows of /v1/models; empty when the server has no such list."""
        data = self.json("/v1/models")
        rows = data.get("data") if data else None
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def scrape(self) -> tuple[dict[str, float], list[float], float, str]:
        """Return (values, accepted by slot, seconds it took, what went wrong) of /metrics, replicas added up."""
        began = time.perf_counter()
        texts: list[str] = []
        values: dict[str, float] = {}
        positions: list[float] = []
        error = ""
        try:
            for url in self.arm.metrics or ("/metrics",):
                response = self.client.get(url)
                if response.status_code != 200:
                    raise ValueError(f"HTTP {response.status_code}")
                texts.append(response.text)
            values, positions = parse_exposition("\n".join(texts))
        except (httpx.HTTPError, ValueError) as failure:
            error = _plain(failure)
        return values, positions, time.perf_counter() - began, error


def answers(url: str) -> bool:
    """Return whether an OpenAI-compatible server answers at `url`, at once."""
    try:
        response = httpx.get(f"{url}/v1/models", timeout=1.0, trust_env=False)
    except httpx.HTTPError:
        return False
    return response.status_code in (200, 401, 403)


def _plain(error: Exception) -> str:
    return str(error) or type(error).__name__


def resolve_model(control: Control, wanted: str) -> str:
    """Return the model to ask for: the wanted one if the server lists it, else the only one listed."""
    listed = [str(row.get("id", "")) for row in control.models()]
    where = f"the {control.arm.name} server at {control.arm.url}"
    if wanted:
        if listed and wanted not in listed:
            raise UsageError(f"The model {wanted!r} is unknown to {where}; it serves {', '.join(map(repr, listed))}.")
        return wanted
    if len(listed) == 1:
        return listed[0]
    if not listed:
        raise UsageError(f"{where[0].upper() + where[1:]} lists no model; name it with --set servers.model=NAME.")
    raise UsageError(f"{where[0].upper() + where[1:]} serves {', '.join(map(repr, listed))};"
                     " name the one to test with --set servers.model=NAME.")  # fmt: skip


def must_stay_alive(control: Control) -> None:
    """Raise RunError when the server has gone."""
    if control.get("/v1/models") is None:
        raise RunError(f"The {control.arm.name} server at {control.arm.url} no longer answers.")
