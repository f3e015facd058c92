"""A run, from the choice of servers to records on disk; judging and drawing come after, from the records alone."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtest.drive.header import make_header
from loadtest.drive.job import Job
from loadtest.drive.launch import DriverProcess
from loadtest.drive.plan import make_plan, plan_lines
from loadtest.drive.prepare import Prepared
from loadtest.drive.truth import agreement, calibration_result
from loadtest.errors import Interrupted, LoadtestError, NotComparable, RunError, UsageError
from loadtest.record import finish_requests, read_requests, write_json
from loadtest.servers.control import Arm, Control, resolve_model
from loadtest.servers.identity import Identity, compare, identify
from loadtest.servers.process import ServerProcess, start_simulated

Tell = Callable[[dict[str, Any]], None]
NULL = "null"  # the world, and the arm, of the server that calibrates the client
FREE_BYTES = 100 * 2**20


def measure(prepared: Prepared, tell: Tell) -> Path:
    """Run the whole plan and return the run's folder, whatever state it ended in (run.json says which).

    Raises UsageError, NotComparable or Interrupted when nothing was measured.
    """
    started, origin_ns = datetime.now(UTC), time.perf_counter_ns()
    folder = _make_folder(prepared.options.out, started, prepared.options.scenario.stem)
    try:
        with ExitStack() as stack:
            arms, processes = _servers(prepared, folder, stack)
            return _measure(prepared, tell, folder, arms, processes, started, origin_ns, stack)
    except LoadtestError:
        _remove_if_empty(folder)
        raise
    except KeyboardInterrupt:
        _remove_if_empty(folder)
        raise Interrupted("Stopped before the first request; nothing was measured.") from None


def _make_folder(out: Path, started: datetime, name: str) -> Path:
    for attempt in range(100):
        folder = out / f"{started:%Y%m%dT%H%M%SZ}-{name}{f'-{attempt + 1}' if attempt else ''}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"--out {out} cannot be written: {error.strerror}.") from error
        free = shutil.disk_usage(folder).free
        if free < FREE_BYTES:
            folder.rmdir()
            raise UsageError(f"--out {out} has {free / 2**20:.0f} MiB free; a run needs at least 100 MiB.")
        return folder
    raise UsageError(f"--out {out} already holds 100 runs of this second.")


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder of a run that measured nothing; one that holds requests stays."""
    if not (folder / "requests.parquet").exists():
        shutil.rmtree(folder, ignore_errors=True)


def _servers(prepared: Prepared, folder: Path, stack: ExitStack) -> tuple[tuple[Arm, ...], dict[str, ServerProcess]]:
    processes: dict[str, ServerProcess] = {}

    def start(world: str, arm: str, name: str) -> str:
        process = start_simulated(world, arm, folder, seed=prepared.experiment.plan.seed, name=name)
        stack.callback(process.stop)
        processes[name] = process
        return f"http://127.0.0.1:{process.announced['port']}"

    arms = prepared.arms
    if prepared.world:
        arms = tuple(replace(arm, url=start(prepared.world, arm.name, arm.name)) for arm in arms)
    start(NULL, "baseline", NULL)
    return arms, processes


def _measure(prepared: Prepared, tell: Tell, folder: Path, arms: tuple[Arm, ...], processes: dict[str, ServerProcess],
             started: datetime, origin_ns: int, stack: ExitStack) -> Path:  # fmt: skip
    arms, identities = _introduce(arms)
    comparability = _compare(arms, identities, prepared.options.waive)
    cells = make_plan(prepared.experiment, [arm.name for arm in arms])
    plan = plan_lines(cells)
    (folder / "plan.jsonl").write_text(plan, encoding="utf-8")
    header = make_header(prepared, arms, identities, plan, comparability, started, origin_ns)
    write_json(folder / "run.json", header)
    tell({"event": "ready", "folder": str(folder), "cells": len(cells), "comparability": comparability})
    null_url = f"http://127.0.0.1:{processes[NULL].announced['port']}"
    job = Job(
        folder=folder.resolve(), scenario=prepared.options.scenario.resolve(), experiment=prepared.experiment,
        arms=arms, cells=tuple(cells), prompts=str(prepared.options.prompts) if prepared.options.prompts else None,
        salted={name: identity.kind in ("vllm", "simulated") for name, identity in identities.items()},
        run_id=f"{started:%Y%m%dT%H%M%S}-{prepared.experiment.plan.seed}", origin_ns=origin_ns,
        calibration=Arm(name=NULL, role="null", url=null_url, model=processes[NULL].announced["model"]),
    )  # fmt: skip
    driver = DriverProcess(job)
    stack.callback(driver.close)
    last = driver.follow(_listener(header, tell, folder, processes, origin_ns))
    if last["state"] == "aborted" and last.get("kind") == "usage" and not _has_requests(folder):
        raise UsageError(last["reason"])
    if driver.asked_to_stop:
        last = last | {"state": "interrupted", "reason": "stopped by the user"}
    if not _has_requests(folder):
        if last["state"] == "interrupted":
            raise Interrupted("Stopped before the first request; nothing was measured.")
        raise RunError(f"Nothing was measured: {last.get('reason') or 'no request fell due'}.")
    _finish(header, last, folder, arms, processes, origin_ns)
    if last.get("kind") == "usage":
        raise UsageError(f"{last['reason']} What was measured before is in {folder}.")
    return folder


def _introduce(arms: Sequence[Arm]) -> tuple[tuple[Arm, ...], dict[str, Identity]]:
    """Ask every server what it is and settle the model; raises UsageError for one that does not answer."""
    known: list[Arm] = []
    identities: dict[str, Identity] = {}
    for arm in arms:
        control = Control(arm)
        try:
            control.reach()
            model = resolve_model(control, arm.model)
            identities[arm.name] = identify(control, model)
            known.append(replace(arm, model=model))
        finally:
            control.close()
    return tuple(known), identities


def _compare(arms: Sequence[Arm], identities: dict[str, Identity], waived: tuple[str, ...]) -> list[dict[str, Any]]:
    if len(arms) < 2:
        return []
    rows = compare(identities[arms[0].name], identities[arms[1].name])
    violations = [row for row in rows if row["kind"] == "violation"]
    for row in violations:
        if row["item"] in waived:
            row["waived"] = True
    broken = [row for row in violations if not row.get("waived")]
    if broken:
        lines = "\n".join(
            f"  {r['item']}: {r['baseline']} on the baseline, {r['candidate']} on the candidate" for r in broken
        )
        raise NotComparable(
            f"The servers differ in more than speculation, so that no difference could be laid to it:\n{lines}\n"
            "Start both alike but for the speculative configuration, or waive an item by name: --waive ITEM."
        )
    return rows


def _listener(
    header: dict[str, Any], tell: Tell, folder: Path, processes: dict[str, ServerProcess], origin_ns: int
) -> Tell:
    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "note":
            header["notes"].append(event["text"])
        if event["event"] == "calibration_end":
            header["calibration"] = calibration_result(folder, event, folder / f"truth-{NULL}.jsonl", origin_ns)
            write_json(folder / "run.json", header)
            processes.pop(NULL).stop()
        tell(event)

    return listen


def _has_requests(folder: Path) -> bool:
    files = (folder / "requests.parquet", folder / "requests.arrows")
    return any(path.exists() for path in files) and read_requests(folder).num_rows > 0


def _finish(header: dict[str, Any], last: dict[str, Any], folder: Path, arms: Sequence[Arm],
            processes: dict[str, ServerProcess], origin_ns: int) -> None:  # fmt: skip
    """Complete run.json and turn the stream of requests into its final form."""
    header["status"], header["reason"] = last["state"], last.get("reason", "")
    header["ended"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    if header["simulated"]:
        requests = read_requests(folder)
        truth: dict[str, Any] = {}
        for arm in arms:
            own = requests.filter([value == arm.name for value in requests.column("arm").to_pylist()])
            truth[arm.name] = asdict(agreement(own, folder / f"truth-{arm.name}.jsonl", origin_ns))
            header["simulated"]["late_ratio"][arm.name] = _late_ratio(arm)
        header["simulated"]["truth"] = truth
    write_json(folder / "run.json", header)
    finish_requests(folder)
    for name in ("job.json", f"server-{NULL}.log", f"truth-{NULL}.jsonl"):
        (folder / name).unlink(missing_ok=True)


def _late_ratio(arm: Arm) -> float | None:
    control = Control(arm)
    data = control.json("/simulate/truth")
    control.close()
    return data["late_steps"] / data["steps"] if data and data.get("steps") else None


@contextmanager
def stopping_on_interrupt() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that one path stops everything."""

    def raise_interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, raise_interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
