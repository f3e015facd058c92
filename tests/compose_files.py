"""The compose files as Docker Compose reads them: variables put in, override files on top, a service's command run.

Only what our files use is here. The overrides hold nothing but maps, and maps are merged key by key; a test holds them
to that, and where Docker Compose is installed another one compares the results with its own.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
METHODS = ("", "eagle3", "draft", "ngram", "mtp")
PLACES = ("", "tp4", "onegpu")
PINNED = ("", "isolated")
COMBINATIONS = [tuple(word for word in words if word) for words in product(METHODS, PLACES, PINNED)]
VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\})")


def environment_file() -> dict[str, str]:
    """Return the variables of .env."""
    lines = (ROOT / ".env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def override(name: str) -> Path:
    """Return the path of an override file."""
    return ROOT / f"compose.{name}.yml"


@functools.cache
def document(path: Path) -> dict[str, Any]:
    """Return a compose file as it stands; anchors are resolved, variables are not."""
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def project(overrides: Iterable[str] = (), variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return docker-compose.yml with overrides laid on top, in order, and variables put in (default: those of .env)."""
    values = environment_file() if variables is None else variables
    merged: dict[str, Any] = {}
    for path in (ROOT / "docker-compose.yml", *map(override, overrides)):
        merged = _laid(merged, interpolated(document(path), values))
    return merged


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a value of a compose file with ${NAME}, ${NAME:-default}, ${NAME:?message} and $$ resolved."""
    if isinstance(value, dict):
        return {key: interpolated(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolated(inner, variables) for inner in value]
    if not isinstance(value, str):
        return value

    def resolved(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        given = variables.get(match["name"], "")
        if not given and match["kind"] == "?":
            raise KeyError(f"{match['name']}: {match['rest']}")
        return given or (match["rest"] if match["kind"] == "-" else "")

    return VARIABLE.sub(resolved, value)


def _laid(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _laid(below[key], value) if key in below else value for key, value in above.items()}


def vllm_words(service: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the words that reach vLLM: the service's own shell runs, with a stand-in for `vllm` that prints them."""
    stand_in = folder / "vllm"
    if not stand_in.exists():
        stand_in.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
        stand_in.chmod(0o755)
    environment = {name: str(value) for name, value in service["environment"].items() if value is not None}
    result = subprocess.run(
        [*service["entrypoint"], *service["command"]],
        env=environment | {"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True, check=True, timeout=10,
    )  # fmt: skip
    return result.stdout.split("\0")[:-1]
