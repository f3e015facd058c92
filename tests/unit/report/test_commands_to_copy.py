"""The commands that a page gives to go on: filled in from the run, and taken by the program's own parser."""

import dataclasses
import shlex
import subprocess

import pytest
import report_cases as cases
import report_example as example
from parsed import Parsed

from loadtest import loads
from loadtest.analyse.findings import TailRatio
from loadtest.analyse.results import Answer, Finding
from loadtest.checks import positive_s
from loadtest.cli import Commands, main
from loadtest.drive.budget import parse_budget
from loadtest.report import again, next_steps
from loadtest.report.markdown import summary
from loadtest.report.page import page
from loadtest.report.view import View

NAME = "20261129T210000Z-chat"
COMMAND = "loadtest run 'my scenarios/chat.py' --servers s.toml --levels 1,8 --window=8s --out /data/runs/ --smoke"
RUN = {"command": COMMAND, "folder": NAME, "scenario": {"name": "chat", "path": "my scenarios/chat.py"}}
CHANGES = ({}, {"simulated": {"world": "default"}}, {"status": "interrupted"}, {"starts": 4}, {"smoke": True})


def parsed(command):
    """Return the options that the program itself reads from a command; it ends with a usage error otherwise."""
    program, name, *rest = shlex.split(command)
    assert program == "loadtest"
    assert isinstance(main, Commands)
    found = main.get_command(None, name)
    return found.make_context(name, rest).params


def every_step():
    for name in cases.CASES:
        run, judgement = cases.case(name)
        for changes in CHANGES:
            with loads.spoken(judgement.unit):
                yield from next_steps.next_steps(View(run=run | RUN | changes, judgement=judgement))
    full = example.full()
    open_one = dataclasses.replace(
        full.decision, answer=Answer.CANNOT_TELL, would_settle="About 4 more blocks.", more_blocks=4
    )
    lacking = [dataclasses.replace(g, finding=Finding.NO_DATA, sentence="it needs 14") for g in full.decision.guards]
    few = TailRatio(metric="e2e", level=8.0, statistic="p95", requests=265, requests_needed=373)
    run = example.run(experiment={"plan": {"blocks": 6}}) | RUN
    for decision, tails in ((open_one, ()), (dataclasses.replace(open_one, guards=tuple(lacking)), ()),
                            (full.decision, (few,))):  # fmt: skip
        findings = dataclasses.replace(full.findings, tails=tails)
        yield from next_steps.of_answer(
            View(run=run, judgement=dataclasses.replace(full, decision=decision, findings=findings))
        )


def test_every_command_that_comes_next_is_filled_in_and_understood():
    commands = {step.command for step in every_step() if step.command}
    assert {command.split()[1] for command in commands} == {"run", "gate"}
    options = [parsed(command) for command in sorted(commands)]
    assert len(options) > 12
    for command, found in zip(sorted(commands), options, strict=True):
        assert not {"RUN", "TIME", "FILE", "URL", "SCENARIO"} & set(shlex.split(command)), command
        if found.get("window"):
            assert positive_s(found["window"]) > 0
        if found.get("budget"):
            assert parse_budget(found["budget"]) > 0
    assert {str(found["resume"]) for found in options if found.get("resume")} == {f"/data/runs/{NAME}"}
    assert {str(found["folder"]) for found in options if "folder" in found} == {f"/data/runs/{NAME}"}
    assert {str(found["scenario"]) for found in options if found.get("scenario")} == {"my scenarios/chat.py"}
    anew = [found for found in options if str(found.get("servers")) == "s.toml"]
    assert {found["levels"] for found in anew} >= {"64,128,256", "4,6,8,11,16", "1,8"}
    assert {found["smoke"] for found in anew} == {True, False}  # measured whole: without --smoke


def test_an_option_that_is_set_anew_stands_once():
    command = again.anew({"command": COMMAND}, {"--window": "20s", "--levels": "8,11,16"})
    assert command == (
        "loadtest run 'my scenarios/chat.py' --servers s.toml --out /data/runs/ --smoke --window 20s --levels 8,11,16"
    )


@pytest.mark.parametrize("command", ["", "loadtest run 'a", "locust -f x.py", "loadtest run --resume reports/x"])
def test_a_command_that_cannot_be_taken_over_leaves_the_scenario_alone(command):
    run = {"command": command, "scenario": {"path": "chat.py"}}
    assert again.anew(run, {"--window": "20s"}) == "loadtest run chat.py --window 20s"


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("", f"reports/{NAME}"),
        ("loadtest run a.py --out=x", f"x/{NAME}"),
        ("loadtest run a.py --out x/y/", f"x/y/{NAME}"),
    ],
)
def test_the_runs_folder_is_the_one_that_it_was_written_to(command, folder):
    assert again.folder({"command": command, "folder": NAME}) == folder
    assert again.folder({"command": command}) == "RUN"  # drawn from a header alone


def test_between_two_loads_there_are_whole_users_or_none():
    with loads.spoken("users"):
        assert again.between(1.0, 2.0) == []
        assert again.between(2.0, 4.0) == [3.0]
        assert again.between(16.0, 32.0) == [19.0, 23.0, 27.0]
    with loads.spoken("requests/s"):
        assert again.between(1.0, 2.0) == [1.19, 1.41, 1.68]
        assert again.loads_option((2.0, 1.0)) == {"--rates": "1,2"}


def test_a_command_stands_on_lines_that_a_shell_joins_again():
    command = "loadtest run 'my scenarios/chat.py' --resume reports/20261129T210000Z-chat --budget +116m"
    said = "loadtest run 'my scenarios/chat.py' \\\n  --resume reports/20261129T210000Z-chat \\\n  --budget +116m"
    assert again.lines(command) == said
    wide = "loadtest run 'my scenarios/chat.py' --resume reports/20261129T210000Z-chat \\\n  --budget +116m"
    assert again.lines(command, 80) == wide
    assert again.lines("a --levels 8,32 --blocks 2 --window 4s") == "a --levels 8,32 --blocks 2 \\\n  --window 4s"
    assert shlex.split(said.replace("\\\n", "")) == shlex.split(command)
    done = subprocess.run(
        ["sh", "-c", f"set -- {said}; printf '%s\\n' \"$@\""], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == shlex.split(command)
    assert again.lines("loadtest gate reports/x") == "loadtest gate reports/x"
    assert again.lines("loadtest run 'a") == "loadtest run 'a"


def test_the_page_shows_each_command_on_its_lines_and_the_summary_in_one():
    run, judgement = example.run() | RUN | {"simulated": {"world": "default"}}, example.full()
    top = Parsed(page(run, judgement)).text("answer").replace("\u00a0", " ")
    for step in next_steps.next_steps(View(run=run, judgement=judgement)):
        assert step.text.split(":")[0] in top
        assert " ".join(again.lines(step.command).split()) in top
        assert not step.command or f": `{step.command}`" in summary(run, judgement)
