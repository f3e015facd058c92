"""benchmarks/gpu.sh: it measures the pair that it finds or starts, keeps everything, and ends what it started.

Where it would call nvidia-smi and vllm, programs of the same names stand in; the vllm one starts a simulated server.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compose_files import project, vllm_words

ROOT = Path(__file__).parents[2]
QUICK = ("--levels", "2", "--set", "load.think_time=0", "--set", "generation.max_tokens=16")
SHORT = (*QUICK, "--blocks", "1", "--window", "1s", "--measure-only")

pytestmark = pytest.mark.e2e


class Script:
    """benchmarks/gpu.sh under way, on ports of its own, with its reports in a folder of its own."""

    def __init__(self, folder: Path, *words: str, programs: Path | None = None) -> None:
        self.out = folder / "out"
        with socket.socket() as one, socket.socket() as other:
            for each in (one, other):
                each.bind(("127.0.0.1", 0))
            self.ports = [one.getsockname()[1], other.getsockname()[1]]
        path = f"{programs}:/usr/bin:/bin" if programs else "/usr/bin:/bin"
        self.process = subprocess.Popen(
            [str(ROOT / "benchmarks" / "gpu.sh"), *words],
            env={"PATH": path, "HOME": str(folder), "PYTHON": sys.executable, "OUT": str(self.out),
                 "PORTS": " ".join(map(str, self.ports))},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def wait(self) -> tuple[int, str]:
        text, _ = self.process.communicate(timeout=120)
        return self.process.returncode, text

    def answers(self) -> list[bool]:
        """Whether something listens on each port."""
        found = []
        for port in self.ports:
            with socket.socket() as probe:
                found.append(probe.connect_ex(("127.0.0.1", port)) == 0)
        return found

    def measured(self) -> list[Path]:
        return list(self.out.glob("gpu-*/*-chat/run.json"))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for the PATH with an nvidia-smi that shows two GPUs, and a vllm that keeps its words."""
    folder = tmp_path / "programs"
    folder.mkdir()
    sources = {
        "nvidia-smi": 'printf "GPU 0: stand-in\\nGPU 1: stand-in\\n"\n',
        "vllm": f"""printf "%s\\n" "$@" > {folder}/words-$CUDA_VISIBLE_DEVICES
            arm=baseline
            for word do
              case $before in --port) port=$word ;; --speculative-config) arm=speculative ;; esac
              before=$word
            done
            exec {sys.executable} -m loadtest.simulate --arm $arm --port $port\n""",
    }
    for name, source in sources.items():
        (folder / name).write_text("#!/bin/sh\n" + source)
        (folder / name).chmod(0o755)
    return folder


def test_the_simulated_pair_is_measured_and_ended(tmp_path: Path) -> None:
    script = Script(tmp_path, "--simulated", *SHORT)
    code, text = script.wait()
    assert code in (0, 5), text  # 5: this machine was too busy for the figures to be trusted
    assert len(script.measured()) == 1
    assert script.answers() == [False, False]
    assert "kept: " in text


@pytest.mark.nightly
def test_without_docker_vllm_gets_the_command_of_the_compose_file(tmp_path: Path, programs: Path) -> None:
    script = Script(tmp_path, *SHORT, programs=programs)
    code, text = script.wait()
    assert code in (0, 5), text
    assert len(script.measured()) == 1
    assert script.answers() == [False, False]
    first, second = ((programs / f"words-{gpu}").read_text().splitlines() for gpu in (0, 1))
    expected = vllm_words(project()["services"]["speculative"], tmp_path)
    for words, port in ((first, script.ports[0]), (second, script.ports[1])):
        at = words.index("--port") + 1
        assert words[at - 3 : at + 1] == ["--host", "127.0.0.1", "--port", str(port)]
        words[at - 2], words[at] = "0.0.0.0", "8000"
    assert second == expected
    assert first == expected[:-2]


@pytest.mark.nightly
def test_a_pair_that_answers_is_measured_and_left_alone(tmp_path: Path) -> None:
    script = Script(tmp_path, "--help")
    assert script.wait()[0] == 0
    pair = [
        subprocess.Popen([sys.executable, "-m", "loadtest.simulate", "--arm", arm, "--port", "0"],
                         stdout=subprocess.PIPE, text=True)
        for arm in ("baseline", "speculative")
    ]  # fmt: skip
    try:
        ports = [json.loads(server.stdout.readline())["port"] for server in pair if server.stdout]
        environment = os.environ | {
            "PYTHON": sys.executable,
            "OUT": str(script.out),
            "PORTS": " ".join(map(str, ports)),
        }
        result = subprocess.run([ROOT / "benchmarks" / "gpu.sh", *SHORT], env=environment, capture_output=True,
                                text=True, check=False, timeout=120)  # fmt: skip
        assert result.returncode in (0, 5), result.stdout + result.stderr
        assert len(script.measured()) == 1
        assert [server.poll() for server in pair] == [None, None]
    finally:
        for server in pair:
            server.terminate()
            server.communicate(timeout=10)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_and_what_was_started(tmp_path: Path, number: signal.Signals) -> None:
    script = Script(tmp_path, "--simulated", *QUICK, "--blocks", "9", "--window", "5s")
    deadline = time.monotonic() + 60
    while not any(file.read_text() for file in script.out.glob("gpu-*/*-chat/cells.jsonl")):
        assert time.monotonic() < deadline
        assert script.process.poll() is None
        time.sleep(0.2)
    script.process.send_signal(number)
    code, text = script.wait()
    assert code == 130, text
    assert script.answers() == [False, False]
    assert len(script.measured()) == 1


def test_without_a_gpu_nothing_is_started(tmp_path: Path) -> None:
    script = Script(tmp_path)
    code, text = script.wait()
    assert code == 2
    assert "no GPU" in text
    assert "--simulated" in text
    assert not script.out.exists()


def test_a_server_that_ends_at_its_start_is_reported_with_its_log(tmp_path: Path, programs: Path) -> None:
    (programs / "vllm").write_text("#!/bin/sh\necho the engine would not start >&2\nexit 1\n")
    script = Script(tmp_path, programs=programs)
    code, text = script.wait()
    assert code == 2
    assert "the engine would not start" in text
    assert "ended before it was ready" in text


def test_an_unknown_override_is_refused(tmp_path: Path) -> None:
    code, text = Script(tmp_path, "--with", "medusa").wait()
    assert code == 2
    assert "there is no compose.medusa.yml" in text
