"""Naming an A/A run: what is taken from it, and what is refused before any load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.drive.noise_run import read_noise_run
from loadtest.errors import UsageError
from loadtest.experiment import as_document, override
from loadtest.reading import check_header
from loadtest.settings import Experiment

NOISE = {"effects": {"e2e": 0.02, "ttft": None}, "slower": {"8": 0.01}, "median": {"8": 1.0}}


def written(folder: Path, *, noise: Any = NOISE, answer: str = "measured", verdict: bool = True, **run: Any) -> Path:
    header = {"schema": 1, "status": "complete", "baseline": "a", "candidate": "a-2", "aa": True,
              "experiment": as_document(Experiment()), **run}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(header))
    if verdict:
        decision = {"answer": answer, "headline": "No cell is valid."}
        (folder / "verdict.json").write_text(json.dumps({"decision": decision, "findings": {"noise": noise}}))
    return folder


def test_its_noise_and_fingerprint_are_taken(tmp_path: Path) -> None:
    folder = written(tmp_path)
    found = read_noise_run(folder, Experiment())
    digest = hashlib.sha256((folder / "run.json").read_bytes()).hexdigest()
    assert found == {"path": str(folder), "sha256": digest, "noise": NOISE, "differs": []}
    check_header({"status": "complete", "baseline": "a", "experiment": {}, "aa_run": found}, "run.json")


def test_settings_that_change_the_noise_are_named_and_the_seed_is_not(tmp_path: Path) -> None:
    ours = override(override(Experiment(), "window", min_s=5.0), "plan", seed=77, blocks=9)
    assert read_noise_run(written(tmp_path), ours)["differs"] == ["window.min_s", "plan.blocks"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"aa": False}, "is no A/A run: make one with --arms baseline,baseline"),
        ({"status": "interrupted"}, r"is not complete \(status: interrupted\)"),
        ({"verdict": False}, r"holds no verdict\.json\. Judge it with `loadtest report"),
        ({"answer": "invalid"}, r"is an invalid run: No cell is valid\."),
        ({"noise": None}, "says nothing of the noise"),
        ({"noise": {"effects": {"e2e": "much"}, "slower": {}, "median": {}}}, "says nothing of the noise"),
    ],
)
def test_what_is_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_noise_run(written(tmp_path, **given), Experiment())


def test_a_header_with_a_damaged_noise_is_refused() -> None:
    header = {"status": "complete", "baseline": "a", "experiment": {}, "aa_run": {"noise": {"effects": {"e2e": "x"}}}}
    with pytest.raises(UsageError, match="aa_run"):
        check_header(header, "run.json")
