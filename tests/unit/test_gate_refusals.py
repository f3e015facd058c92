"""`loadtest gate` with a file that asks for nothing, a run against itself, and a gate that ends for another reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from loadtest.cli import main

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@pytest.fixture(autouse=True)
def outside_of_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def gate(folder: Path, *options: str | Path) -> Result:
    return CliRunner().invoke(main, ["gate", str(folder), *map(str, options)])


def copied(name: str, tmp_path: Path, to: str = "run") -> Path:
    return Path(shutil.copytree(GOLDEN / name, tmp_path / to))


@pytest.mark.parametrize("text", ["", "# [[slo]]\n", "slo = []\n", "[gate]\n", "[traffic]\n", "[price]\n"])
def test_a_file_that_asks_for_nothing_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text(text)
    result = gate(copied("good", tmp_path), "--slo", tmp_path / "slo.toml")
    assert result.exit_code == 2, result.output
    assert "slo.toml has no objective" in " ".join(result.output.split())


def test_a_file_that_only_says_how_to_judge_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text('[gate]\ninconclusive = "fail"\n')
    assert gate(copied("good", tmp_path), "--slo", tmp_path / "slo.toml").exit_code == 0


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ('metric = "goodput"\nwithin = { ttft = "1 s" }\nmin = "0 %"', "min is 0 %"),
        ('metric = "goodput_per_s"\nwithin = { ttft = "1 s" }\nmin = "0 requests/s"', "min is 0 requests/s"),
        ('metric = "acceptance_ratio"\nmin = "0 %"', "min is 0 %"),
        ('metric = "output_tokens_per_s"\nmin = "0 tokens/s"', "min is 0 tokens/s"),
        ('metric = "tokens_per_step"\nmin = "0 tokens"', "min is 0 tokens"),
        ('metric = "error_ratio"\nmax = "100 %"', "max is 100 %"),
    ],
)
def test_a_limit_that_every_figure_meets_is_refused(table: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text(f"[[slo]]\n{table}\n")
    result = gate(copied("good", tmp_path), "--slo", tmp_path / "slo.toml")
    said = " ".join(result.output.split())
    assert result.exit_code == 2, said
    assert f"{key}: every figure meets that" in said


def test_digits_of_other_scripts_are_no_number(tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text('[[slo]]\nmetric = "ttft"\nstatistic = "p50"\nmax = "١ s"\n', "utf-8")
    assert gate(copied("good", tmp_path), "--slo", tmp_path / "slo.toml").exit_code == 2


def test_a_run_is_not_held_against_itself(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    (tmp_path / "link").symlink_to(folder)
    for other in (folder, tmp_path / "link"):
        result = gate(folder, "--against", other)
        assert (result.exit_code, "is this very run" in result.output) == (2, True)


def test_a_copy_of_a_run_is_that_run(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "started": "2026-11-30T02:28:32.943+00:00"}))
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert gate(folder, "--against", copy).exit_code == 2
    (copy / "run.json").write_text(json.dumps({**run, "started": "2026-11-29T02:28:32.943+00:00"}))
    assert gate(folder, "--against", copy).exit_code == 0


def test_every_form_shows_a_gate_that_ends_for_the_sake_of_the_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    folder = copied("good", tmp_path)
    slo = GOLDEN / "slo" / "met.toml"
    result = gate(folder, "--slo", slo, "--against", GOLDEN / "interrupted", "--changed", "scenario")
    assert result.exit_code == 5, result.output
    suite = next(ET.parse(folder / "junit.xml").getroot().iter("testsuite"))
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("6", "1", "0")
    case = list(suite.iter("testcase"))[-1]
    assert case.get("name") == "the gate"
    assert "the other run is invalid" in str(case[0].get("message"))
    (line,) = [line for line in result.output.splitlines() if line.startswith("::error title=loadtest gate")]
    assert "the other run is invalid" in line


def test_every_form_says_why_a_run_without_objectives_is_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the decision's sentence, which may well be that speculation pays."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    folder = copied("simulated", tmp_path)
    result = gate(folder)
    assert result.exit_code == 5, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("::error")]
    (case,) = ET.parse(folder / "junit.xml").getroot().iter("error")
    for said in (line, str(case.get("message"))):
        assert "the servers were simulated" in said
        assert "pays" not in said
    assert case.get("type") == "invalid"
