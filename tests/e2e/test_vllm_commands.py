"""Every vLLM command that we ship is read by vLLM's own argument parser and speculative configuration.

The parser comes with the CPU build: VLLM_CPU_PYTHON names the python of such an environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compose_files import COMBINATIONS, ROOT, project, vllm_words

MODULE = "vllm.entrypoints.openai.api_server"
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")

Command = dict[str, Any]

pytestmark = pytest.mark.e2e


def served(words: list[str]) -> list[str] | None:
    """Return what follows `vllm serve`, the module of the server, or the CPU environment's `serve`; else None."""
    for place, word in enumerate(words):
        if word == MODULE or word.endswith("/serve") or (word == "serve" and words[place - 1].endswith("vllm")):
            return words[place + 1 :]
    return None


def in_compose(folder: Path) -> Iterator[tuple[str, Command]]:
    for names in COMBINATIONS:
        services = project(names)["services"]
        for name in ("baseline", "speculative"):
            words, variables = vllm_words(services[name], folder), list(services[name]["environment"])
            yield f"compose {'+'.join(names) or 'plain'} {name}", {"words": words[1:], "variables": variables}


def in_text(path: Path) -> Iterator[tuple[str, Command]]:
    for block in BLOCK.findall(path.read_text(encoding="utf-8")):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            words = shlex.split(line, comments=True) if "serve" in line else []
            command = served(words)
            if command is not None:
                variables = [word.split("=")[0] for word in words if ASSIGNMENT.match(word)]
                yield f"{path.name}: {line.strip()}", {"words": command, "variables": variables}


def in_servers_file(path: Path) -> Iterator[tuple[str, Command]]:
    def commands(value: Any) -> Iterator[list[str]]:
        if isinstance(value, dict):
            for inner in value.values():
                yield from commands(inner)
        elif isinstance(value, str):
            yield from commands(shlex.split(value)) if "serve" in value else ()
        elif isinstance(value, list) and all(isinstance(word, str) for word in value):
            command = served(value)
            if command is not None:
                yield command
        elif isinstance(value, list):
            for inner in value:
                yield from commands(inner)

    for number, words in enumerate(commands(tomllib.loads(path.read_text(encoding="utf-8")))):
        yield f"{path.name} command {number}", {"words": words, "variables": []}


def shipped(folder: Path) -> dict[str, Command]:
    """Return every vLLM command of this repository by where it stands."""
    found = dict(in_compose(folder))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        found |= dict(in_text(path))
    for path in sorted((ROOT / "servers").glob("*.toml")):
        found |= dict(in_servers_file(path))
    return found


def parsed(python: Path, commands: list[Command]) -> list[dict[str, Any]]:
    result = subprocess.run(
        [python, "-W", "ignore", str(Path(__file__).parent / "vllm_parser.py")],
        input=json.dumps(commands), env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    answers: list[dict[str, Any]] = json.loads(result.stdout.splitlines()[-1])
    return answers


def test_vllm_accepts_every_command_we_ship_and_refuses_mistakes(vllm_python: Path, tmp_path: Path) -> None:
    commands = shipped(tmp_path)
    mistakes: list[Command] = [
        {"words": ["m", "--max-modle-len", "1"], "variables": []},
        {"words": ["m", "--speculative-config", '{"method":"ngrams","num_speculative_tokens":3}'], "variables": []},
        {"words": ["m", "--speculative-config", '{"method":"ngram","num_speculative_token":3}'], "variables": []},
        {"words": ["m", "--speculative-config", '{"method":"mtp","num_speculative_tokens":0}'], "variables": []},
        {"words": ["m"], "variables": ["VLLM_SERVER_DEVMODE"]},
    ]
    answers = parsed(vllm_python, [*commands.values(), *mistakes])
    refused = {place: a["error"] for place, a in zip(commands, answers, strict=False) if a["error"]}
    assert refused == {}
    assert [a["error"] is not None for a in answers[len(commands) :]] == [True] * len(mistakes)
    for place, said in zip(commands, answers, strict=False):
        if place.startswith("compose"):
            assert (said["speculative"] is not None) == place.endswith(" speculative"), place


def test_commands_are_found_where_they_stand(tmp_path: Path) -> None:
    places = shipped(tmp_path)
    assert sum(place.startswith("compose") for place in places) == 2 * len(COMBINATIONS)
    assert sum(place.startswith("README.md") for place in places) == 2
    readme = [command for place, command in places.items() if place.startswith("README.md")]
    assert readme[0] == {
        "words": ["Qwen/Qwen3-8B", "--port", "8000", "--generation-config", "vllm"],
        "variables": ["VLLM_SERVER_DEV_MODE"],
    }
    for path in (ROOT / "servers").glob("vllm-*.toml"):
        assert any(place.startswith(path.name) for place in places), f"no command was found in {path.name}"
