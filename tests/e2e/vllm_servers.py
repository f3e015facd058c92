"""Servers of a real vLLM, its CPU build with tiny models, in process groups of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import free_port

READY_S = 240.0
SHORT = ("--window", "5s", "--blocks", "2", "--set", "load.think_time=0", "--set", "generation.max_tokens=48", "--set",
         "servers.token_counts=all", "--set", "outputs.prompts=6")  # fmt: skip


class Vllm:
    """One server in a process group of its own."""

    def __init__(self, python: Path, model: Path, log: Path, speculative: dict[str, Any] | None = None, *,
                 context: int = 4096) -> None:  # fmt: skip
        self.port, self.log = free_port(), log
        words = ["--model", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(self.port),
                 "--max-model-len", str(context), "--enforce-eager", "--generation-config", "vllm"]  # fmt: skip
        if speculative:
            words += ["--speculative-config", json.dumps(speculative)]
        environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1"}
        with log.open("wb") as out:
            self.process = subprocess.Popen([python.parents[1] / "serve", *words], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, start_new_session=True, env=environment)  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                tail = self.log.read_text(errors="replace")[-2000:]
                assert self.process.poll() is None, f"vLLM ended: {tail}"
                assert time.monotonic() < deadline, f"vLLM is not ready after {READY_S} s: {tail}"
                time.sleep(0.5)

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def up(*servers: Vllm) -> Iterator[tuple[Vllm, ...]]:
    """Yield servers once all are ready; in the end stop them."""
    try:
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.stop()


def assert_counted_alike(verdict: dict[str, Any]) -> None:
    """Fail unless client and server counted the same tokens and requests in every cell, and some."""
    assert verdict["cells"]
    for cell in verdict["cells"]:
        assert cell["tokens_client"] == cell["tokens_server"] > 0, cell
        assert cell["requests_client"] == cell["requests_server"] > 0, cell
