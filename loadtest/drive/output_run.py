"""`compare-outputs`: find or start both servers, ask them the same, leave a folder behind; no load is made."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from loadtest.drive.folder import make_folder
from loadtest.drive.header import complete_header, make_header
from loadtest.drive.interrupts import hold_interrupts
from loadtest.drive.outputs import DEFAULT_PROMPTS, Asked, Collector, asked_of
from loadtest.drive.pair import comparability, refuse_violations, takes_salt
from loadtest.drive.prepare import Prepared
from loadtest.drive.turns import Managed
from loadtest.errors import RunError, UsageError, unwritable
from loadtest.json_files import write_json
from loadtest.servers.control import Arm, Control, no_longer_answers
from loadtest.servers.identity import Identity
from loadtest.servers.process import start_simulated
from loadtest.workload.given import given_source

LOADING_S = 120.0  # of a scenario file

Tell = Callable[[dict[str, Any]], None]


def compare(prepared: Prepared, tell: Tell) -> Path:
    """Ask both arms the same prompts and return the folder with run.json and outputs.jsonl.

    Raises UsageError where there are no two arms or no prompts, NotComparable where they are no pair.
    """
    if len(prepared.arms) != 2:
        raise UsageError("compare-outputs compares two servers; give --baseline and --speculative, or a servers file.")
    given = prepared.experiment.outputs.prompts
    count = DEFAULT_PROMPTS if given is None else given
    if not count:
        raise UsageError("outputs.prompts is 0, so that there is nothing to compare; set it to 1 or more.")
    asked = _asked(prepared, count)
    started = datetime.now(UTC)
    folder = make_folder(prepared.options.out, started, f"{prepared.options.scenario.stem}-outputs")
    header = make_header(prepared, "", started, 0) | {"outputs_only": True, "plan_sha256": None}
    collector = Collector(asked, [arm.name for arm in prepared.arms], prepared.experiment, folder,
                          f"{started:%Y%m%dT%H%M%S}", tell)  # fmt: skip
    try:
        with ExitStack() as stack:
            met = _ask_all(prepared, folder, stack, collector, tell)
            hold_interrupts()  # what was answered is there; servers end, and it is written down
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or not prepared.choice.starts:  # else a server's log tells why
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise unwritable(folder, error) from error
        raise
    identities = {arm.name: identity for arm, identity in met}
    complete_header(header, [arm for arm, _ in met], identities, _comparability(prepared, met))
    header["status"], header["ended"] = "complete", datetime.now(UTC).isoformat(timespec="milliseconds")
    write_json(folder / "run.json", header)
    return folder


def _ask_all(prepared: Prepared, folder: Path, stack: ExitStack, collector: Collector, tell: Tell) -> list[
    tuple[Arm, Identity]
]:  # fmt: skip
    """Bring every arm up, one at a time where only one can run, and put the prompts to it."""
    managed = Managed(prepared.choice.starts, folder, tell)
    stack.enter_context(managed.over(prepared.arms))
    met: list[tuple[Arm, Identity]] = []
    for more, arm in enumerate(prepared.arms):
        if prepared.world:
            arm = replace(arm, url=_simulated(prepared, folder, stack, arm.name, more))
        elif arm.name in prepared.choice.starts:
            if prepared.choice.restarts:
                managed.stop()
            managed.start(arm, 1, 1)
        known, identity = managed.meet(arm, prepared.experiment.generation)
        refuse_violations(_comparability(prepared, [*met, (known, identity)]), prepared.options.waive)
        control = Control(known)
        try:
            collector.collect(control, known, salted=takes_salt(identity), gone=partial(_gone, managed))
        finally:
            control.close()
        met.append((known, identity))
    return met


def _gone(managed: Managed, control: Control) -> RunError | None:
    """Return what to raise when a server was not there, or not the one that was started, to the end of its answers."""
    lost = managed.lost(control.arm.name)
    return RunError(f"The answers are not compared. {lost}") if lost else no_longer_answers(control)


def _comparability(prepared: Prepared, met: Sequence[tuple[Arm, Identity]]) -> list[dict[str, Any]]:
    """Return the comparability table once both arms are known: other models give other answers."""
    if len(met) < 2:
        return []
    identities = {arm.name: identity for arm, identity in met}
    return comparability([arm for arm, _ in met], identities, prepared.options.waive, aa=prepared.choice.aa)


def _simulated(prepared: Prepared, folder: Path, stack: ExitStack, name: str, more: int) -> str:
    seed = prepared.experiment.plan.seed + (more if prepared.choice.aa else 0)
    origin = prepared.choice.origins[name]
    process = start_simulated(str(prepared.world), origin, folder, seed=seed, name=name)
    stack.callback(process.stop)
    return f"http://127.0.0.1:{process.announced['port']}"


def _asked(prepared: Prepared, count: int) -> tuple[Asked, ...]:
    """Return the prompts: of --prompts or a trace, else of the scenario, which a process of its own reads."""
    seed, options = prepared.experiment.plan.seed, prepared.options
    if given := given_source(options.prompts, prepared.experiment):
        return asked_of(given, seed, count)
    command = [sys.executable, "-P", "-m", "loadtest.drive.outputs", str(options.scenario), str(seed), str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOADING_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{options.scenario} was not read within {LOADING_S:g} s.") from error
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2] or f"code {done.returncode}"
        raise UsageError(said)
    rows = json.loads(done.stdout.strip().rpartition("\n")[2])  # a scenario may print before it
    return tuple(Asked(name=row["name"], category=row["category"], messages=tuple(row["messages"])) for row in rows)
