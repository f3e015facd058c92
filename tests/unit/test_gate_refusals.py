"""`loadtest gate` with a file that asks for nothing, a run against itself, and a gate that ends for another reason."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from loadtest.cli import main
from loadtest.errors import nearest

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


def edited(folder: Path, **changes: Any) -> Path:
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, **changes}))
    return folder


def test_every_form_says_that_the_last_sitting_of_a_judged_run_was_interrupted(tmp_path: Path) -> None:
    folder = edited(copied("good", tmp_path), sittings=[{"state": "complete"}, {"state": "interrupted"}])
    for options in (("--slo", GOLDEN / "slo" / "met.toml"), ()):
        result = gate(folder, *options)
        assert result.exit_code == 130, result.output
        assert "Exit code: 130 " in result.output
        assert "Exit code 130 " in (folder / "summary.md").read_text()
        verdict = json.loads((folder / "verdict.json").read_text())
        assert (verdict["decision"]["exit_code"], verdict["gate"]["exit_code"]) == (130, 130)
        assert len(list(ET.parse(folder / "junit.xml").getroot().iter("error"))) == 1


@pytest.mark.parametrize("name", ["verdict.json", "summary.md", "junit.xml", "report.html"])
def test_no_verdict_stands_beside_a_file_that_could_not_be_written(tmp_path: Path, name: str) -> None:
    folder, met = copied("good", tmp_path), ("--slo", GOLDEN / "slo" / "met.toml")
    assert gate(folder, *met).exit_code == 0
    (folder / name).unlink()
    (folder / name / "kept").mkdir(parents=True)
    result = gate(folder, *met)
    assert result.exit_code == 2, result.output
    assert f"{folder / name} cannot be written: " in result.output
    assert not (folder / "verdict.json").is_file()
    assert (folder / name / "kept").is_dir()


@pytest.mark.parametrize("options", [("--json",), ("--quiet",), ()])
def test_a_full_standard_output_changes_no_exit_code(tmp_path: Path, options: tuple[str, ...]) -> None:
    folder = copied("good", tmp_path)
    command = [sys.executable, "-m", "loadtest", "gate", str(folder), "--slo", str(GOLDEN / "slo" / "missed.toml")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, *options], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads((folder / "verdict.json").read_text())["gate"]["exit_code"] == 3


def test_a_number_too_great_to_be_added_is_refused(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    lines = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    (folder / "cells.jsonl").write_text("".join(json.dumps({**line, "in_flight_mean": 1e308}) + "\n" for line in lines))
    result = gate(folder, "--slo", GOLDEN / "slo" / "met.toml")
    assert result.exit_code != 0
    assert not isinstance(result.exception, OverflowError)
    assert result.exit_code in (2, 5), result.output


@pytest.mark.parametrize(("schema", "said"), [(0, "its `schema` is 0, and the first was 1"), (99, "use a newer one")])
def test_a_schema_that_is_not_known_is_told_which_way(tmp_path: Path, schema: int, said: str) -> None:
    result = gate(edited(copied("good", tmp_path), schema=schema))
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_names_with_characters_that_xml_lacks_leave_junit_readable(tmp_path: Path) -> None:
    folder = edited(copied("good", tmp_path), scenario={"name": "a\uffff]]>\ufffe<\ud800"})
    assert gate(folder).exit_code == 0
    (suite,) = ET.parse(folder / "junit.xml").getroot().iter("testsuite")
    assert suite.get("name") == "loadtest a\ufffd]]>\ufffd<\ufffd"


@pytest.mark.parametrize("gpus", [10**400, "2", True])
def test_gpus_that_are_no_count_are_refused_by_name(gpus: object, tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    arms = json.loads((folder / "run.json").read_text())["arms"]
    result = gate(edited(folder, arms=[{**arm, "gpus": gpus} for arm in arms]))
    assert (result.exit_code, "`gpus` a whole number" in " ".join(result.output.split())) == (2, True), result.output


def test_a_candidate_that_never_pays_passes_against_no_other_run(tmp_path: Path) -> None:
    folder, other = copied("slower", tmp_path), edited(copied("slower", tmp_path, "other"), started="yesterday")
    result = gate(folder, "--against", other)
    assert result.exit_code == 3, result.output
    assert json.loads((folder / "verdict.json").read_text())["gate"]["outcome"] == "fail"
    assert len(list(ET.parse(folder / "junit.xml").getroot().iter("failure"))) == 1
    (tmp_path / "slo.toml").write_text('[[slo]]\nmetric = "error_ratio"\nmax = "50 %"\n')
    assert gate(folder, "--against", other, "--slo", tmp_path / "slo.toml").exit_code == 0  # that alone is asked


def test_objectives_are_not_met_by_faked_acceptance_whoever_judges(tmp_path: Path) -> None:
    folder = copied("good", tmp_path)
    arms = json.loads((folder / "run.json").read_text())["arms"]
    told = {"config": {"speculative_config": "x"}, "modes": ["faked acceptance"]}
    edited(folder, arms=[{**arm, "identity": told if arm["role"] == "candidate" else {}} for arm in arms])
    slo = str(GOLDEN / "slo" / "met.toml")
    for command in (["report", str(folder), "--slo", slo], ["gate", str(folder), "--slo", slo]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 5, result.output
        assert "acceptance was faked" in " ".join(result.output.split())


def test_a_category_of_requests_that_have_none_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text('[[slo]]\nmetric = "error_ratio"\nmax = "1 %"\ncategory = "chta"\n')
    result = gate(copied("good", tmp_path), "--slo", tmp_path / "slo.toml")
    said = " ".join(result.output.split())
    assert result.exit_code == 4, said
    assert "no request is of the category 'chta'. This run's requests have no categories" in said


def test_a_margin_that_was_meant_in_per_cent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text("[gate]\nregression_margin = 3\n")
    result = gate(copied("good", tmp_path), "--slo", tmp_path / "slo.toml")
    assert (result.exit_code, "regression_margin is 3" in result.output) == (2, True)


def test_no_name_is_looked_for_near_one_that_nobody_would_write() -> None:
    assert nearest("a" * 10_000_000, ["a" * 100]) == ""
    assert nearest("modle", ["model"]) == " Did you mean `model`?"
