"""GitHub Actions: the job's summary and annotations; whatever a server said cannot become a command of the runner."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadtest.analyse.gate_results import Gate, GateOutcome
from loadtest.analyse.results import Judgement
from loadtest.report import gate as gate_report
from loadtest.report import words

ANNOTATIONS = 10  # the runner shows no more of a kind and step


def in_actions(environment: Mapping[str, str]) -> bool:
    """Return whether this is a step of GitHub Actions."""
    return environment.get("GITHUB_ACTIONS") == "true"


def add_summary(environment: Mapping[str, str], summary: str) -> str:
    """Append the answer to the job's summary; return what went wrong, or nothing. It never changes an outcome."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return ""
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary + "\n")
    except OSError as error:
        return f"The job summary {path} cannot be written: {error.strerror}."
    return ""


def annotated(judgement: Judgement) -> Iterator[str]:
    """Yield one workflow command per objective that is not met; without objectives, one for the decision."""
    gate = judgement.gate
    if gate is None or not (gate.objectives or gate.regressions):
        if judgement.decision.exit_code:
            yield command("error", "loadtest", (gate or judgement.decision).headline)
        return
    found = [line for line in _of(gate) if line]
    if gate.outcome not in gate.outcomes:  # such as another run that is not to be judged
        yield command("error", "loadtest gate", gate.headline)
    yield from found[:ANNOTATIONS]


def _of(gate: Gate) -> Iterator[str]:
    outcomes = [r.outcome for r in gate.objectives] + [r.outcome for r in gate.regressions]
    judged = [True] * len(gate.objectives) + [r.judged for r in gate.regressions]
    for outcome, counts, line in zip(outcomes, judged, gate_report.lines(gate), strict=True):
        if counts and outcome is not GateOutcome.PASS:
            warns = outcome is GateOutcome.INCONCLUSIVE and gate.inconclusive == "warn"
            yield command("warning" if warns else "error", "loadtest gate", line)


def command(level: str, title: str, message: str) -> str:
    """Return a workflow command with its text escaped as the runner unescapes it: % first, then line ends and signs."""
    return f"::{level} title={_property(words.plain(title, 100))}::{_data(words.plain(message, 900))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def quiet_commands() -> tuple[str, str]:
    """Return what ends and resumes the runner's reading of commands, around output that holds foreign text."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}", f"::{token}::"
