"""`loadtest check` on the built-in pair: a good pair, one that is swapped, and one server alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.servers.process import start_simulated

pytestmark = pytest.mark.e2e


def check(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtest", "check", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_pair_is_comparable_one_way_round_only(tmp_path: Path) -> None:
    servers = [start_simulated("default", role, tmp_path, seed=1, name=role) for role in ("baseline", "speculative")]
    try:
        plain, fast = (f"http://127.0.0.1:{server.announced['port']}" for server in servers)
        good = check("--baseline", plain, "--speculative", fast)
        swapped = check("--baseline", fast, "--speculative", plain)
        alone = check("--server", fast)
    finally:
        for server in servers:
            server.stop()
    assert (good.returncode, swapped.returncode, alone.returncode) == (0, 5, 0), good.stderr + swapped.stderr
    assert "expected     speculation: off | on (eagle, k = 5) (verified)" in good.stdout
    assert "violation    speculation: on (eagle, k = 5) | off (verified): the arms are swapped" in swapped.stdout
    assert "server: built-in simulated server 0.32.0 at" in alone.stdout
    assert "Comparable?" not in alone.stdout
