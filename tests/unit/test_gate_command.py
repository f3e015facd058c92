"""`loadtest gate` on the golden runs: outcome, exit code and files; regression and GitHub from the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import fastjsonschema
import pytest
from click.testing import CliRunner, Result

from loadtest.cli import main

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
SCHEMA = Path(__file__).parents[2] / "docs" / "verdict.schema.json"
EXPECTED: list[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())


@pytest.fixture(autouse=True)
def outside_of_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / name, tmp_path / name))


def gate(folder: Path, slo: str = "", *options: str) -> Result:
    words = ["gate", str(folder), *(["--slo", str(GOLDEN / "slo" / f"{slo}.toml")] if slo else []), *options]
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize(
    "case", EXPECTED, ids=lambda c: f"{c['run']}-{c['slo'] or 'decision'}{len(c.get('options', ()))}"
)
def test_a_golden_run(case: dict[str, Any], tmp_path: Path) -> None:
    folder = copied(case["run"], tmp_path)
    result = gate(folder, case["slo"], *case.get("options", ()))
    assert result.exit_code == case["exit"], result.output
    if case["exit"] == 2:
        assert not (folder / "verdict.json").exists()
        return
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["gate"]["outcome"] == case["outcome"]
    assert [row["outcome"] for row in verdict["gate"]["objectives"]] == case["objectives"]
    assert verdict["gate"]["exit_code"] == verdict["decision"]["exit_code"]
    assert case["exit"] in (verdict["gate"]["exit_code"], 130)
    assert f"Exit code: {case['exit']} " in result.output
    fastjsonschema.compile(json.loads(SCHEMA.read_text()))(verdict)
    suite = next(ET.parse(folder / "junit.xml").getroot().iter("testsuite"))
    bad = int(str(suite.get("failures"))) + int(str(suite.get("errors")))
    assert bool(bad) == (case["exit"] != 0)
    assert len((folder / "summary.md").read_text()) < 65_536


def test_every_golden_run_is_expected_to_say_something() -> None:
    assert {case["run"] for case in EXPECTED} == {
        path.name for path in GOLDEN.iterdir() if (path / "run.json").exists()
    }
    assert {case["exit"] for case in EXPECTED} == {0, 2, 3, 4, 5, 130}


def test_nothing_on_the_way_changes_the_records(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    gate(folder, "met")
    assert {name: (folder / name).read_bytes() for name in before} == before


@pytest.mark.parametrize(
    ("run", "options", "code", "said"),
    [
        ("good", (), 0, "failed requests, against the other run"),
        ("slower", (), 3, "Gate: failed"),
        ("good", ("--changed", "model"), 0, "model was named as changed and is the same in both runs"),
        ("good", ("--changed", "modle"), 2, "Did you mean `model`?"),
        ("interrupted", (), 130, "The run was interrupted"),
    ],
)
def test_against_another_run(run: str, options: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    result = gate(copied(run, tmp_path), "", "--against", str(GOLDEN / "good"), *options)
    assert result.exit_code == code, result.output
    assert said in " ".join(result.output.split())


def test_a_difference_that_is_not_named_refuses(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    run = json.loads((folder / "run.json").read_text())
    for arm in run["arms"]:
        arm["version"] = "0.33"
    (folder / "run.json").write_text(json.dumps(run))
    refused = gate(folder, "", "--against", str(GOLDEN / "good"))
    assert refused.exit_code == 5
    assert "--changed version" in refused.output
    assert gate(folder, "", "--against", str(GOLDEN / "good"), "--changed", "vllm_version").exit_code == 0


def test_changed_needs_another_run(tmp_path: Path) -> None:
    assert gate(copied("good", tmp_path), "", "--changed", "model").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["gate"],
        ["gate", "nowhere"],
        ["gate", str(GOLDEN / "good"), "--slo", "nowhere.toml"],
        ["gate", str(GOLDEN / "good"), "--slo", ""],
    ],
)
def test_wrong_words_are_usage(words: list[str]) -> None:
    assert CliRunner().invoke(main, words).exit_code == 2


def test_in_github_actions_the_summary_and_annotations_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    result = gate(copied("good", tmp_path), "missed")
    assert result.exit_code == 3
    lines = result.output.splitlines()
    stop = next(i for i, line in enumerate(lines) if line.startswith("::stop-commands::"))
    token = lines[stop].removeprefix("::stop-commands::")
    resume = lines.index(f"::{token}::")
    annotation = next(i for i, line in enumerate(lines) if line.startswith("::error title=loadtest gate::fail"))
    assert stop < resume < annotation
    assert "| fail | ttft p90 ≤ 40 ms up to 16 users |" in (tmp_path / "summary").read_text()


def test_report_takes_objectives_too(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    assert CliRunner().invoke(main, ["report", str(folder)]).exit_code == 0
    slo = str(GOLDEN / "slo" / "missed.toml")
    assert CliRunner().invoke(main, ["report", str(folder), "--slo", slo]).exit_code == 3
    simulated = copied("simulated", tmp_path)
    assert CliRunner().invoke(main, ["report", str(simulated), "--slo", slo.replace("missed", "met")]).exit_code == 0


def test_a_folder_that_cannot_be_written_passes_nothing(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    (folder / "junit.xml").mkdir()
    result = gate(folder, "met")
    assert result.exit_code != 0
    assert "speculation" not in result.output


def test_a_terminal_without_the_signs_shows_others_and_ends_as_always(tmp_path: Path) -> None:
    case = next(c for c in EXPECTED if c["run"] == "failing" and not c.get("options"))
    command = [sys.executable, "-m", "loadtest", "gate", str(copied("failing", tmp_path)),
               *(["--slo", str(GOLDEN / "slo" / f"{case['slo']}.toml")] if case["slo"] else [])]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120,
                          env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})  # fmt: skip
    assert done.returncode == case["exit"], done.stderr
    assert "Traceback" not in done.stderr
    assert f"Exit code: {case['exit']}" in done.stdout
