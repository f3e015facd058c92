"""The pipeline script: it promotes on pass only, whatever else happens; no load is made here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
SCRIPT = ROOT / "docs" / "ci" / "promote.sh"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with `loadtest` on its PATH, and a promotion that leaves a mark."""
    for name, body in (("loadtest", f'exec {sys.executable} -m loadtest "$@"'), ("promote", "touch promoted")):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    return tmp_path


def pipeline(place: Path, **variables: str) -> tuple[int, bool, str]:
    kept = {k: v for k, v in os.environ.items() if k in ("HOME", "PATH", "PYTHONPATH", "LANG")}
    environment = kept | {"PATH": f"{place / 'bin'}:{kept['PATH']}", "PROMOTE": "promote",
                          "PYTHONPATH": f"{ROOT}:{kept.get('PYTHONPATH', '')}", **variables}  # fmt: skip
    done = subprocess.run(["sh", str(SCRIPT)], cwd=place, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, (place / "promoted").exists(), done.stdout + done.stderr


CASES = [("good", "met", 0), ("good", "missed", 3), ("good", "open", 4), ("good", "open-warn", 0),
         ("good", "open-fail", 3),
         ("good", "no-data", 4), ("failing", "met", 3), ("inactive", "met", 5), ("simulated", "met", 5),
         ("interrupted", "met", 130), ("good", "itl", 2)]  # fmt: skip


@pytest.mark.parametrize(("run", "slo", "code"), CASES)
def test_only_a_pass_promotes(place: Path, run: str, slo: str, code: int) -> None:
    folder = shutil.copytree(GOLDEN / run, place / run)
    found = pipeline(place, RUN=str(folder), SLO=str(GOLDEN / "slo" / f"{slo}.toml"))
    assert found[:2] == (code, code == 0), found[2]


def test_the_cases_hold_every_outcome() -> None:
    expected = json.loads((GOLDEN / "expected.json").read_text())
    assert {case["exit"] for case in expected} == {code for _, _, code in CASES}


@pytest.mark.parametrize("variables", [{}, {"BASELINE_URL": "http://127.0.0.1:9"}, {"SPECULATIVE_URL": "http://127.0.0.1:9"},
                                       {"BASELINE_URL": "", "SPECULATIVE_URL": ""}])  # fmt: skip
def test_an_unset_url_promotes_nothing(place: Path, variables: dict[str, str]) -> None:
    code, promoted, said = pipeline(place, SLO=str(GOLDEN / "slo" / "met.toml"), **variables)
    assert (code, promoted) == (2, False), said


def test_a_server_that_does_not_answer_promotes_nothing(place: Path) -> None:
    urls = {"BASELINE_URL": "http://127.0.0.1:9", "SPECULATIVE_URL": "http://127.0.0.1:19"}
    code, promoted, said = pipeline(place, SLO=str(GOLDEN / "slo" / "met.toml"), **urls)
    assert code != 0, said
    assert not promoted


def test_no_server_named_at_all_is_refused_and_never_simulated(place: Path) -> None:
    words = [str(place / "bin" / "loadtest"), "run", "scenarios/chat.py", "--slo", str(GOLDEN / "slo" / "met.toml")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOADTEST_")} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "no server is named" in done.stderr
    assert not (place / "reports").exists()


def test_a_run_that_was_lost_promotes_nothing(place: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "good", place / "good"))
    (folder / "requests.parquet").write_bytes(b"PAR1")
    code, promoted, said = pipeline(place, RUN=str(folder), SLO=str(GOLDEN / "slo" / "met.toml"))
    assert (code, promoted) == (2, False), said
    assert pipeline(place, RUN=str(place / "nowhere"), SLO=str(GOLDEN / "slo" / "met.toml"))[:2] == (2, False)


def test_the_example_objectives_can_be_read() -> None:
    from loadtest.experiment import with_slo_file
    from loadtest.settings import Experiment
    from loadtest.slo_tables import objectives

    experiment = with_slo_file(Experiment(), ROOT / "docs" / "ci" / "slo.toml")
    assert [slo.ask.value for slo in objectives(experiment.slo.rules)] == [
        "absolute", "absolute", "relative", "benefit", "absolute",
    ]  # fmt: skip
    assert experiment.traffic.loads
