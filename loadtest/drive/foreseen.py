"""What the sessions of a scenario are like, told by a process of its own before a run: it is anyone's code.

`python -m loadtest.drive.foreseen` reads a question as JSON on stdin and answers as JSON on stdout. Nothing is sent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

from loadtest.drive.timetable import Habits, habits_of
from loadtest.errors import LoadtestError, UsageError
from loadtest.experiment import as_document, from_document
from loadtest.settings import Experiment, Plan

PATIENCE_S = 30.0


def foreseen(scenario: Path, experiment: Experiment) -> Habits | None:
    """Return what the sessions of an open load are like; None where the scenario does not come to an end.

    Raises UsageError for whatever is wrong with the scenario.
    """
    asked = Experiment(load=replace(experiment.load, levels=(1.0,)), plan=Plan(seed=experiment.plan.seed))
    return _asked(json.dumps({"scenario": str(scenario), "experiment": as_document(asked)}))


@lru_cache(maxsize=4)
def _asked(question: str) -> Habits | None:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "loadtest.drive.foreseen"], input=question.encode(), capture_output=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):  # the run itself says what is wrong with it
        return None
    if "refused" in answer:
        raise UsageError(answer["refused"])
    return Habits(**answer)


def main() -> None:
    """Answer the question on stdin."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a scenario prints must not mix with the answer
    question = json.loads(sys.stdin.buffer.read())
    from loadtest.drive.loading import load_user_class  # Locust makes the standard library cooperative

    experiment = from_document(question["experiment"])
    try:
        user = load_user_class(Path(question["scenario"]), experiment.load)
        answer = asdict(habits_of(user.source, experiment))
    except LoadtestError as error:
        answer = {"refused": str(error)}
    out.write(json.dumps(answer))
    out.flush()
    os._exit(0)  # threads that a scenario began end with it


if __name__ == "__main__":
    main()
