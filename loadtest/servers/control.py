"""The control plane of one server: health, models, identity, counters; never the measured path."""

from __future__ import annotations

import os
import time
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

    name: str  # baseline · speculative · server
    role: str  # baseline · candidate · single
    url: str  # scheme://host:port[/base], without a trailing slash or /v1
    model: str = ""
    api_key_env: str = ""
    insecure: bool = False

    def headers(self) -> dict[str, str]:
        """Return the headers that carry the key, read from the environment at this moment."""
        if not self.api_key_env:
            return {}
        key = os.environ.get(self.api_key_env, "")
        if not key:
            raise UsageError(f"servers.api_key_env names {self.api_key_env}, which is not set in the environment.")
        return {"Authorization": f"Bearer {key}"}


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
            verify=not self.arm.insecure, follow_redirects=False,
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
        """Return (values, accepted by slot, seconds it took, what went wrong) of /metrics."""
        began = time.perf_counter()
        values: dict[str, float] = {}
        positions: list[float] = []
        error = ""
        try:
            response = self.client.get("/metrics")
            if response.status_code == 200:
                values, positions = parse_exposition(response.text)
            else:
                error = f"HTTP {response.status_code}"
        except (httpx.HTTPError, ValueError) as failure:
            error = _plain(failure)
        return values, positions, time.perf_counter() - began, error


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
