"""Judging a run's records and writing everything that is drawn from them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from loadtest.errors import RunError, UsageError, printable

DRAWN = ("verdict.json", "summary.md", "junit.xml", "report.html")  # from what was measured


class Shown(StrEnum):
    """How much a command says on its standard output."""

    ALL = "all"
    QUIET = "quiet"  # the answer in one line
    JSON = "json"  # verdict.json, and nothing else


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --quiet and --json."""
    command = click.option("--json", "as_json", is_flag=True, help="Print verdict.json, and nothing else.")(command)
    return click.option("--quiet", "-q", is_flag=True, help="Print the answer in one line, and nothing else.")(command)


def shown_from(quiet: bool, as_json: bool) -> Shown:
    """Return what the two options ask for."""
    if quiet and as_json:
        raise UsageError("--quiet and --json exclude each other: give one of them.")
    return Shown.JSON if as_json else Shown.QUIET if quiet else Shown.ALL


def screen_for(shown: Shown) -> Any:
    """Return the console that a command speaks on: silent where only its result is asked for."""
    from loadtest.report.screen import Screen

    return Screen(highlight=False, quiet=shown is not Shown.ALL)


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON document in ASCII, so that no terminal and no pipe changes it."""
    from loadtest.report.screen import echo

    echo(json.dumps(data, allow_nan=False))


def report_of_run(folder: Path, screen: Any, shown: Shown = Shown.ALL) -> int:
    """Report a run that has just ended; what could not be written is no fault of the options, and must not pass."""
    try:
        return report_run(folder, screen, shown=shown)
    except UsageError as error:
        raise RunError(str(error)) from error


def _say_result(document: Mapping[str, Any], headline: str, shown: Shown) -> None:
    """Say on a silent screen what was asked for in place of all: the verdict, or the answer in one line."""
    from loadtest.report.screen import echo

    if shown is Shown.JSON:
        print_json(document)
    elif shown is Shown.QUIET:
        echo(printable(headline))


def report_outputs(folder: Path, console: Any, shown: Shown = Shown.ALL) -> int:
    """Judge the answers in a folder, write what they say, print it and return the exit code."""
    from loadtest.analyse.outputs import FILE, judge_outputs
    from loadtest.analyse.verdict import outputs_as_json
    from loadtest.json_files import write_json
    from loadtest.report.outputs import summary
    from loadtest.report.writing import write_whole
    from loadtest.run_folder import read_run

    found = judge_outputs(folder, read_run(folder))
    if found is None:
        raise RunError(f"{folder} holds no {FILE}: the answers were not compared to the end.")
    write_json(folder / "verdict.json", outputs_as_json(found))
    console.print(summary(found), markup=False)
    console.print(f"Folder: {write_whole(folder / 'summary.md', summary(found)).parent}", markup=False, soft_wrap=True)
    _say_result(outputs_as_json(found), found.headline, shown)
    return found.exit_code


def report_run(folder: Path, console: Any, judgement: Any = None, shown: Shown = Shown.ALL) -> int:
    """Write everything that is drawn from a run, print the answer and return the exit code."""
    from loadtest.analyse.judge import judge
    from loadtest.analyse.verdict import as_json
    from loadtest.json_files import write_json
    from loadtest.report import github
    from loadtest.report.junit import write_junit
    from loadtest.report.markdown import write_summary
    from loadtest.report.page import write_page
    from loadtest.report.screen import echo
    from loadtest.report.terminal import print_summary
    from loadtest.run_folder import read_run, read_texts

    header, judgement = read_run(folder) | {"folder": folder.resolve().name}, judgement or judge(folder)
    code = exit_code_of(header, judgement)
    verdict = as_json(_said(judgement, code))
    _remove_drawn(folder)
    summary = write_summary(folder, header, judgement).read_text(encoding="utf-8")
    write_junit(folder, header, judgement)
    page = write_page(folder, header, judgement, read_texts(folder))
    try:  # the last of all: where it lies, nothing else is missing or from another time
        write_json(folder / "verdict.json", verdict)
    except OSError as error:
        raise UsageError(f"{folder / 'verdict.json'} cannot be written: {error.strerror}.") from error
    in_actions = github.in_actions(os.environ)
    before, after = github.quiet_commands() if in_actions else ("", "")
    console.print(before, markup=False, end="\n" if before else "")
    print_summary(console, header, judgement, page)
    console.print(after, markup=False, end="\n" if after else "")
    if unwritten := github.add_summary(os.environ, summary):
        click.echo(f"loadtest: {printable(unwritten)}", err=True)
    for line in github.annotated(judgement) if in_actions and shown is not Shown.JSON else ():
        echo(line)
    _say_result(verdict, (judgement.gate or judgement.decision).headline, shown)
    return code


def _said(judgement: Any, code: int) -> Any:
    """Return the judgement with the exit code of the command, which is another where the run was interrupted."""
    gate = judgement.gate and replace(judgement.gate, exit_code=code)
    return replace(judgement, decision=replace(judgement.decision, exit_code=code), gate=gate)


def _remove_drawn(folder: Path) -> None:
    """Remove what an earlier judgement of the run wrote, so that none of it stands beside what is written now."""
    for name in DRAWN:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{folder / name} cannot be written: {error.strerror}.") from error


def exit_code_of(header: Mapping[str, Any], judgement: Any) -> int:
    """Return the exit code of a run: that of its judgement, unless it was interrupted."""
    from loadtest.report.header import exit_code
    from loadtest.report.view import View

    return exit_code(View(run=header, judgement=judgement))
