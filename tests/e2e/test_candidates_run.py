"""Several candidates from the command line: checked, run, cut short, gone on with, gated and drawn beside a pair."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from processes import CHAT, assert_ended

from loadtest.servers.process import start_simulated

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]
WORLDS = {"baseline": "default", "eagle3": "eagle3", "never": "never"}
SHORT = (
    "--levels", "2,8", "--window", "2s", "--blocks", "4", "--set", "generation.max_tokens=32",
    "--set", "load.think_time=0", "--set", "servers.token_counts=all", "--waive", "env.LOADTEST_SIMULATED",
)  # fmt: skip
FASTER = '[[slo]]\nmetric = "e2e"\nstatistic = "mean"\nbetter_by = "5 %"\nat = "2 users"\n'


@pytest.fixture
def named(tmp_path: Path):
    """The options that name three simulated servers, one without speculation."""
    servers = {
        name: start_simulated(world, "baseline" if name == "baseline" else "speculative", tmp_path, seed=1, name=name)
        for name, world in WORLDS.items()
    }
    urls = {name: f"http://127.0.0.1:{server.announced['port']}" for name, server in servers.items()}
    yield ["--baseline", urls.pop("baseline"), *(w for n, url in urls.items() for w in ("--speculative", f"{n}={url}"))]
    for server in servers.values():
        server.stop()


def test_a_run_of_two_candidates_is_checked_broken_off_gone_on_with_and_gated(loadtest, named, tmp_path):
    check = loadtest.run("check", *named)
    assert check.process.returncode == 5
    assert "eagle3 against the baseline:" in check.text
    assert "never against the baseline:" in check.text
    command = loadtest("run", CHAT, "--out", loadtest.out, *named, *SHORT)
    folder = command.until_requests(cells=4, timeout_s=150)
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 130
    last = loadtest.run("run", "--resume", folder, timeout_s=300)
    assert_ended(last)
    run, verdict = (json.loads((folder / name).read_text()) for name in ("run.json", "verdict.json"))
    assert (run["schema"], run["candidate"], run["candidates"]) == (2, None, ["eagle3", "never"])
    assert {row["arm"] for row in run["comparability"]} == {"eagle3", "never"}
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    assert len({(c["arm"], c["level"], c["block"]) for c in cells}) == len(cells) == 3 * 2 * 4
    assert [pair["arms"] for pair in verdict["pairs"]] == [["baseline", "eagle3"], ["baseline", "never"]]
    assert (folder / "report.html").read_text().count('<h2 id="pair-') == 2
    if last.process.returncode == 5:  # this machine was too busy
        return
    assert [pair["decision"]["answer"] for pair in verdict["pairs"]] == ["pays_everywhere", "never_pays"]
    assert verdict["decision"]["headline"].startswith("eagle3 pays at every tested load (2 to 8 users)")
    slo = tmp_path / "slo.toml"
    slo.write_text(FASTER)
    gate = ("gate", folder, "--slo", slo, "--allow-simulated")
    for more, code in (((), 3), (("--candidate", "eagle3"), 0), (("--candidate", "x"), 2)):
        assert loadtest.run(*gate, *more).process.returncode == code
