"""The documentation says what is there: metrics, exit codes, files it links to, blocks that can be run."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import click
import pytest

from loadtest.analyse.detail_results import Detail
from loadtest.analyse.metrics import METRICS
from loadtest.commands.run import run
from loadtest.errors import ExitCode
from loadtest.experiment import from_toml
from loadtest.slo_tables import as_tables

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "servers").glob("*.md")])

TOLD_ELSEWHERE = {
    "--baseline",
    "--simulated",
    "--world",
    "--out",
    "--yes",
    "--quiet",
    "--json",
    "--wait",
    "--bind",
}


def test_every_metric_has_its_row() -> None:
    table = (ROOT / "docs" / "reference.md").read_text().partition("## Exit codes")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\S+) \|$", table, re.MULTILINE))
    assert rows == {metric.name: metric.better or "–" for metric in METRICS}


def test_every_exit_code_has_its_row() -> None:
    table = (ROOT / "docs" / "reference.md").read_text().partition("## Exit codes")[2]
    rows = re.findall(r"^\| (\d+) \|.*\| (yes|no) \|$", table, re.MULTILINE)
    assert rows == [(str(int(code)), "yes" if code == ExitCode.PASS else "no") for code in ExitCode]


def test_every_part_of_a_verdicts_detail_has_its_row() -> None:
    text = (ROOT / "reports" / "README.md").read_text().partition("| in `detail` |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [field.name for field in fields(Detail)]


def test_the_readmes_options_are_those_of_run_and_none_is_left_out() -> None:
    table = (ROOT / "README.md").read_text().partition("| option | meaning |")[2].partition("\n\n")[0]
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    there = {option for parameter in run.params if isinstance(parameter, click.Option) and not parameter.hidden
             for option in parameter.opts if option.startswith("--")}  # fmt: skip
    assert named <= there
    assert there - named == TOLD_ELSEWHERE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name}" in index, f"docs/README.md does not name {page.name}"


def test_the_tutorials_objectives_are_read() -> None:
    [block] = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)
    experiment = from_toml(block, "slo.toml")
    assert experiment.traffic.loads == (4.0, 16.0, 32.0)
    assert as_tables(tomllib.loads(block)["slo"]) == experiment.slo.rules != ()


def test_the_security_page_names_files_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for name in re.findall(r"`((?:tests|\.github)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
