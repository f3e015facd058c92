"""The compose files: valid in every combination, two servers that differ in speculation alone, nothing left open."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_files import COMBINATIONS, ROOT, document, environment_file, override, project, vllm_words
from compose_spec import PyCompose

from loadtest.servers.file import read_servers

OVERRIDES = sorted(path.name.split(".")[1] for path in ROOT.glob("compose.*.yml"))
SERVERS = ("baseline", "speculative")
SIMULATED = ("sim-baseline", "sim-speculative")
NAMED = [pytest.param(names, id="+".join(names) or "plain") for names in COMBINATIONS]


def services(*overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = project(overrides)["services"]
    return found


def validate(composed: dict[str, Any]) -> None:
    """Raise ValueError for what the compose specification does not allow."""
    PyCompose.from_yaml(yaml.safe_dump(composed, sort_keys=False)).validate()


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_the_combinations_cover_every_override_file() -> None:
    assert sorted({name for names in COMBINATIONS for name in names}) == OVERRIDES


@pytest.mark.parametrize("names", NAMED)
def test_a_combination_is_valid_compose(names: tuple[str, ...]) -> None:
    validate(project(names))


@pytest.mark.parametrize("name", OVERRIDES)
def test_an_override_is_valid_alone_and_changes_maps_only(name: str) -> None:
    validate(document(override(name)))
    for service in document(override(name))["services"].values():
        assert service.keys() <= {"environment", "depends_on"}
        assert all(isinstance(value, dict) for value in service.values())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"healthcheck": {"start_period": "soon"}}, "start_period"),
        ({"ports": ["127.0.0.1:many:8000"]}, "ports"),
        ({"depends_on": {"baseline": {"condition": "healthy"}}}, "condition"),
        ({"enviroment": {}}, "enviroment"),
    ],
)
def test_the_validator_refuses_a_mistake(change: dict[str, Any], word: str) -> None:
    changed = project()
    changed["services"]["speculative"] |= change
    with pytest.raises(ValueError, match=word):
        validate(changed)


@pytest.mark.parametrize("names", NAMED)
def test_the_servers_differ_in_speculation_and_place_alone(names: tuple[str, ...]) -> None:
    baseline, speculative = (services(*names)[name] for name in SERVERS)
    assert baseline["environment"].pop("SPEC_CONFIG") == ""
    assert json.loads(speculative["environment"].pop("SPEC_CONFIG"))["num_speculative_tokens"] >= 1
    for server in (baseline, speculative):
        del server["environment"]["CUDA_VISIBLE_DEVICES"], server["ports"], server["volumes"]
        server.pop("depends_on", None)
    assert speculative == baseline


@pytest.mark.parametrize("names", NAMED)
def test_the_commands_differ_in_the_speculative_configuration_alone(names: tuple[str, ...], tmp_path: Path) -> None:
    baseline, speculative = (vllm_words(services(*names)[name], tmp_path) for name in SERVERS)
    assert speculative[: len(baseline)] == baseline
    flag, value = speculative[len(baseline) :]
    assert flag == "--speculative-config"
    assert json.loads(value)["method"]
    assert baseline[0] == "serve"


def test_the_plain_command(tmp_path: Path) -> None:
    words = vllm_words(services()["speculative"], tmp_path)
    assert words[:2] == ["serve", "Qwen/Qwen3-8B"]
    assert option(words, "--generation-config") == "vllm"
    assert option(words, "--max-num-seqs") == "256"
    assert option(words, "--max-num-batched-tokens") == "8192"
    assert json.loads(option(words, "--speculative-config")) == {
        "method": "eagle3",
        "model": "RedHatAI/Qwen3-8B-speculator.eagle3",
        "num_speculative_tokens": 3,
    }


@pytest.mark.parametrize(
    ("name", "method", "tokens"),
    [("eagle3", "eagle3", 3), ("ngram", "ngram", 4), ("draft", "draft_model", 5), ("mtp", "mtp", 1)],
)
def test_an_override_of_the_method(name: str, method: str, tokens: int) -> None:
    config = json.loads(services(name)["speculative"]["environment"]["SPEC_CONFIG"])
    assert (config["method"], config["num_speculative_tokens"]) == (method, tokens)


def test_tensor_parallel_takes_eight_gpus_once_each(tmp_path: Path) -> None:
    both = services("tp4")
    gpus = [both[name]["environment"]["CUDA_VISIBLE_DEVICES"].split(",") for name in SERVERS]
    assert sorted(gpus[0] + gpus[1]) == list("01234567")
    assert {option(vllm_words(both[name], tmp_path), "--tensor-parallel-size") for name in SERVERS} == {"4"}


def test_servers_on_one_gpu_start_one_after_the_other_and_fit() -> None:
    both = services("onegpu")
    baseline, speculative = (both[name]["environment"] for name in SERVERS)
    assert baseline["CUDA_VISIBLE_DEVICES"] == speculative["CUDA_VISIBLE_DEVICES"]
    assert float(baseline["GPU_MEMORY_UTILIZATION"]) + float(speculative["GPU_MEMORY_UTILIZATION"]) <= 0.92
    assert both["speculative"]["depends_on"] == {"baseline": {"condition": "service_healthy"}}
    assert "depends_on" not in services()["speculative"]


def test_isolated_pins_the_consequences_on_both(tmp_path: Path) -> None:
    both = services("isolated")
    for name in SERVERS:
        words = vllm_words(both[name], tmp_path)
        assert "--no-async-scheduling" in words
        assert option(words, "--num-gpu-blocks-override") == "6144"
        assert both[name]["environment"]["VLLM_USE_V2_MODEL_RUNNER"] == "1"
        assert "--no-async-scheduling" not in vllm_words(services()[name], tmp_path)


def test_flags_of_ones_own_reach_both_servers(tmp_path: Path) -> None:
    variables = environment_file() | {"PINS": "--attention-backend FLASH_ATTN"}
    for names in ((), ("isolated",)):
        for name in SERVERS:
            words = vllm_words(project(names, variables)["services"][name], tmp_path)
            assert option(words, "--attention-backend") == "FLASH_ATTN"


def test_every_port_is_on_the_loopback_interface() -> None:
    published = {name: service.get("ports", []) for name, service in services().items()}
    assert published == {
        "baseline": ["127.0.0.1:8010:8000"],
        "speculative": ["127.0.0.1:8011:8000"],
        "sim-baseline": ["127.0.0.1:8010:8000"],
        "sim-speculative": ["127.0.0.1:8011:8000"],
        "loadtest": [],
    }


def test_what_comes_up_with_which_profile() -> None:
    assert environment_file()["COMPOSE_PROFILES"] == "gpu"
    profiles = {name: service["profiles"] for name, service in services().items()}
    assert profiles == {
        "baseline": ["gpu"],
        "speculative": ["gpu"],
        "sim-baseline": ["sim"],
        "sim-speculative": ["sim"],
        "loadtest": ["loadtest"],
    }


def test_a_server_has_time_to_start_and_is_never_restarted() -> None:
    both = services()
    for name in (*SERVERS, *SIMULATED):
        assert "http://127.0.0.1:8000/health" in both[name]["healthcheck"]["test"][-1]
        assert both[name]["restart"] == "no"
    assert both["baseline"]["healthcheck"]["start_period"] == "30m"


def test_caches_are_the_servers_own() -> None:
    both = services()
    own = [both[name]["volumes"][0] for name in SERVERS]
    assert own == ["baseline-cache:/root/.cache", "speculative-cache:/root/.cache"]


def test_the_load_waits_for_whichever_pair_there_is() -> None:
    load = services()["loadtest"]
    assert load["depends_on"] == {
        name: {"condition": "service_healthy", "required": False} for name in (*SERVERS, *SIMULATED)
    }
    assert load["volumes"] == ["./reports:/app/reports"]
    aliases = [services()[name]["networks"]["default"]["aliases"] for name in SIMULATED]
    assert aliases == [["baseline"], ["speculative"]]


def test_no_file_holds_a_secret() -> None:
    secret = re.compile(r"TOKEN$|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
    assert [name for name in environment_file() if secret.search(name)] == []
    for names in COMBINATIONS:
        for service in services(*names).values():
            held = {name: value for name, value in service.get("environment", {}).items() if secret.search(name)}
            assert set(held.values()) <= {None}, "a null value is taken from the shell that starts the services"
    files = [ROOT / ".env", ROOT / "Dockerfile", ROOT / "docker-compose.yml", *map(override, OVERRIDES)]
    for file in files:
        assert not re.search(r"\b(hf_|sk-|ghp_)\w{16,}|://\w+:\w+@", file.read_text()), file


def test_every_variable_of_the_environment_file_is_used_and_every_needed_one_is_there() -> None:
    text = "".join(path.read_text() for path in (ROOT / "docker-compose.yml", *map(override, OVERRIDES)))
    used = set(re.findall(r"\$\{(\w+)", text)) - {"SPEC_CONFIG:+"}
    needed = set(re.findall(r"\$\{(\w+):\?", text))
    given = environment_file().keys() - {"COMPOSE_PROFILES"}
    assert given <= used
    assert needed <= given
    with pytest.raises(KeyError, match="MODEL: set it in"):
        project((), environment_file() | {"MODEL": ""})


def test_images_are_pinned() -> None:
    assert environment_file()["IMAGE"] == "vllm/vllm-openai:v0.33.0"
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert bases == ["python:3.13-slim-bookworm"]


def test_the_image_is_not_root_and_gets_what_it_copies() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "USER loadtest" in lines[: lines.index('ENTRYPOINT ["loadtest"]')]
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(let_in)
    assert all((ROOT / word).exists() for word in copied)


def test_the_servers_file_for_one_gpu_starts_and_ends_these_services() -> None:
    file = read_servers(ROOT / "servers" / "docker-onegpu.toml", {})
    for name, arm in file.arms.items():
        start, service = file.starts[name], services()[name]
        assert service["ports"] == [f"{arm.url.removeprefix('http://')}:8000"]
        assert start.command[-1] == start.stop[-1] == name
        assert "up" in start.command
        assert {"rm", "--stop", "--force"} <= set(start.stop)
        assert start.cwd is not None
        assert (start.cwd / "docker-compose.yml").samefile(ROOT / "docker-compose.yml")
        assert start.env == {f"{'SPEC' if name == 'speculative' else 'BASELINE'}_GPUS": "0"}


def test_docker_compose_reads_the_files_as_we_do() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("Docker Compose is not installed; with it, its own reading of the files is compared with ours.")
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "DOCKER_CONFIG")}
    for names in COMBINATIONS:
        files = [word for name in names for word in ("-f", override(name).name)]
        command = [
            docker,
            "compose",
            "-f",
            "docker-compose.yml",
            *files,
            "--profile",
            "*",
            "config",
            "--format",
            "json",
        ]
        result = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False, timeout=30)
        assert result.returncode == 0, result.stderr
        theirs, ours = json.loads(result.stdout)["services"], services(*names)
        assert theirs.keys() == ours.keys()
        for name, service in ours.items():
            assert theirs[name].get("environment", {}) == service.get("environment", {})
            assert theirs[name].get("depends_on", {}).keys() == service.get("depends_on", {}).keys()
        for name in SERVERS:
            assert [word.replace("$$", "$") for word in theirs[name]["command"]] == ours[name]["command"]
