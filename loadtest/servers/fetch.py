"""One request of the control plane, bounded in time and size whatever the server does."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

LARGEST_BYTES = 64 * 2**20
DEEPEST = 64  # tables and lists within each other; no server's answer needs more


class NoAnswer(Exception):
    """A server could not be asked, or did not answer whole; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int
    kind: str  # media type, without parameters
    location: str  # where a redirect leads
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def object(self) -> dict[str, Any] | None:
        """Return the JSON object that an answer with status 200 holds; None when it holds none that could be kept."""
        return self.document() if self.status == 200 else None

    def document(self) -> dict[str, Any] | None:
        """Return the JSON object of an answer with any status; None when it holds none that could be kept."""
        try:
            data = _plain(json.loads(self.body), DEEPEST)
        except (ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) else None


def _plain(value: Any, deeper: int) -> Any:
    """Return JSON data without lone surrogates and NaN, which could not be written. Raises ValueError when too deep."""
    if deeper < 0:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_plain(name, 0): _plain(inner, deeper - 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, deeper - 1) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fetch(client: httpx.Client, path: str, limit_s: float, body: Mapping[str, Any] | None = None) -> Answer:
    """GET `path`, or POST `body` to it as JSON. Raises NoAnswer, at the latest after `limit_s` seconds.

    The exchange has a thread of its own: a client's limits hold for one read, so that a server could draw an answer out
    byte by byte, and looking up a host has no limit at all.
    """
    outcome: list[Answer | Exception] = []

    def work() -> None:
        try:
            outcome.append(_exchange(client, path, limit_s, body))
        except Exception as error:  # noqa: BLE001  # raised by the caller
            outcome.append(error)

    thread = threading.Thread(target=work, name="control-plane", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not outcome:
        raise NoAnswer(f"no whole answer within {limit_s:g} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _exchange(client: httpx.Client, path: str, limit_s: float, body: Mapping[str, Any] | None) -> Answer:
    deadline_s, parts, size = time.monotonic() + limit_s, [], 0
    method = "GET" if body is None else "POST"
    try:
        with client.stream(method, path, json=body, timeout=limit_s) as response:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > LARGEST_BYTES:
                    raise NoAnswer(f"an answer of more than {LARGEST_BYTES // 2**20} MiB")
                if time.monotonic() > deadline_s:
                    raise NoAnswer(f"no whole answer within {limit_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
        raise NoAnswer(str(error) or type(error).__name__) from error
    return Answer(
        status=response.status_code, kind=response.headers.get("content-type", "").split(";")[0].strip(),
        location=response.headers.get("location", ""), body=b"".join(parts),
    )  # fmt: skip
