"""The examples of every `--help` do what they show, and the shell completes commands and options."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from loadtest.cli import main
from loadtest.commands.examples import EXAMPLES

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
LINES = [line for lines in EXAMPLES.values() for line in lines]
COMMANDS = sorted(main.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_examples_as_they_are_written(name: str) -> None:
    assert name in EXAMPLES, f"loadtest/commands/examples.py has no example of `loadtest {name}`"
    shown = CliRunner().invoke(main, [name, "--help"], terminal_width=80)
    assert shown.exit_code == 0
    for line in EXAMPLES[name]:
        assert f"\n  {line}\n" in shown.output.replace("\n    ", "\n  ")
        assert shlex.split(line)[:2] == ["loadtest", name]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `loadtest init` leaves it, with two runs and objectives in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "LOADTEST_BASELINE_URL", "LOADTEST_SPECULATIVE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert CliRunner().invoke(main, ["init"]).exit_code == 0
    for name, run in (("RUN", "good"), ("OTHER", "slower")):
        shutil.copytree(GOLDEN / run, tmp_path / "reports" / name)
    shutil.copy(sorted((GOLDEN / "slo").glob("*.toml"))[0], tmp_path / "slo.toml")
    return tmp_path


@pytest.mark.parametrize("line", LINES)
def test_an_example_runs(line: str, started: Path) -> None:
    """What needs servers is parsed whole and, where it describes an experiment, planned; all else is done."""
    words = shlex.split(line)[1:]
    name = words[0]
    if words == ["init"]:
        (started / "fresh").mkdir()
        os.chdir(started / "fresh")
    if name == "run":
        main.commands["run"].make_context("run", words[1:])  # raises for an option that does not exist
        words[0] = "plan"
    if name in ("check", "compare-outputs", "worker") or line.endswith("--port 8000"):
        main.commands[name].make_context(name, words[1:])
        return
    done = CliRunner().invoke(main, words)
    assert isinstance(done.exception, SystemExit | None)
    judged = {"report": (0, 3, 4), "gate": (0, 3, 4, 5)}
    assert done.exit_code in judged.get(name, (0,)), done.output


def test_an_option_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(click.NoSuchOption):
        main.commands["run"].make_context("run", ["scenarios/chat.py", "--level", "1", "--no-such-thing"])


@pytest.mark.parametrize(
    ("words", "begun", "found"),
    [([], "re", {"report"}), (["run"], "--base", {"--baseline"}), ([], "comp", {"compare-outputs"})],
)
def test_the_shell_completes(words: list[str], begun: str, found: set[str]) -> None:
    completions = ShellComplete(main, {}, "loadtest", "_LOADTEST_COMPLETE").get_completions(words, begun)
    assert {item.value for item in completions} == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_of_each_shell_is_there(shell: str) -> None:
    text = (ROOT / "docs" / "completion.md").read_text()
    assert re.search(rf"_LOADTEST_COMPLETE={shell}_source loadtest", text)
