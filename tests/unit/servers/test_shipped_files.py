"""The servers files that we ship: both arms are started alike but for speculation, and say which method they have."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from loadtest.servers.control import Arm
from loadtest.servers.file import ServersFile, Start, read_servers

FOLDER = Path(__file__).parents[3] / "servers"
METHODS = {
    "vllm": {"draft_model", "ngram", "suffix", "eagle", "eagle3", "mtp"},
    "sglang": {"eagle", "eagle3", "ngram", "standalone"},
}
MODELS = [path for path in sorted(FOLDER.glob("*.toml")) if path.name.startswith(("vllm-", "sglang-"))]


def pair(path: Path) -> tuple[ServersFile, tuple[Arm, Start], tuple[Arm, Start]]:
    file = read_servers(path, {})
    arms = {arm.role: (arm, file.starts[name]) for name, arm in file.arms.items()}
    return file, arms["baseline"], arms["candidate"]


def configured(words: tuple[str, ...]) -> tuple[str, int]:
    """Return the method, and the draft tokens of a step, as the server's own options say."""
    if "--speculative-config" in words:
        config = json.loads(words[words.index("--speculative-config") + 1])
        return config["method"], config["num_speculative_tokens"]
    given = dict(itertools.pairwise(words))
    return given["--speculative-algorithm"].lower(), int(given["--speculative-num-draft-tokens"]) - 1


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_arms_differ_in_speculation_alone(path: Path) -> None:
    file, (baseline, plain), (candidate, fast) = pair(path)
    assert fast.command[: len(plain.command)] == plain.command
    assert all(word.startswith("--speculative") for word in fast.command[len(plain.command) :: 2])
    assert not any("speculative" in word for word in plain.command)
    assert (plain.env, plain.health, plain.ready_s) == (fast.env, fast.health, fast.ready_s)
    assert (baseline.method, baseline.url) == ("", candidate.url)
    assert (candidate.method, candidate.k) == configured(fast.command)
    assert f"loadtest run scenarios/chat.py --servers servers/{path.name}" in path.read_text()
    assert file.machine == "shared"
    assert "127.0.0.1" in plain.command


@pytest.mark.parametrize("server", METHODS)
def test_every_method_has_a_file(server: str) -> None:
    pairs = [pair(path)[2][0] for path in MODELS if path.name.startswith(f"{server}-") and "cpu" not in path.name]
    assert {arm.method for arm in pairs} == METHODS[server]


def test_the_positive_control_is_the_only_one_that_fakes_acceptance() -> None:
    faking = [path.name for path in MODELS if '"rejection_sample_method":"synthetic"' in path.read_text()]
    assert faking == ["vllm-synthetic.toml"]
