"""The job: what the parent hands to the driver, as one JSON file; keys of servers stay in the environment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtest.drive.plan import Cell
from loadtest.experiment import as_document, from_document
from loadtest.servers.control import Arm, arm_from
from loadtest.settings import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers that make a run's load, in place of the driver itself."""

    count: int
    local: bool  # processes that the driver starts; else they are awaited
    host: str = "127.0.0.1"  # where they are listened for
    port: int = 0  # 0: any that is free
    wait_s: float = 60.0  # longest wait until all are ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything the driver needs."""

    folder: Path
    scenario: Path
    experiment: Experiment
    arms: tuple[Arm, ...]
    cells: tuple[Cell, ...]
    prompts: str | None
    salted: dict[str, bool]  # arm → whether its server takes a cache_salt
    simulated: dict[str, bool]  # arm → whether its server is a simulated one
    run_id: str
    origin_ns: int  # CLOCK_MONOTONIC at the run's start
    calibration: Arm | None  # the null server that proves the client; None: not calibrated
    top: float = 1.0  # highest level that the plan may come to
    coarse_blocks: int = 0  # first blocks, of a first stage with windows of its own
    open: bool = False  # the driver asks for further cells when these have ended
    sitting: int = 1  # how often the run was begun or taken up again
    total: int = 0  # cells of the whole plan, as far as it can be told
    asking: dict[str, Any] | None = None  # which requests ask for token counts, where it was settled before
    outputs: int = 0  # prompts by which the arms' answers are compared before the first cell
    workers: Workers | None = None
    started: tuple[str, ...] = ()  # arms that the parent starts, and alone can tell from another program at their port
    restarts: bool = False  # the driver asks for each start of an arm, since only one runs at a time

    def write(self, path: Path) -> None:
        """Write the job as JSON."""
        data: dict[str, Any] = {
            "folder": str(self.folder), "scenario": str(self.scenario), "experiment": as_document(self.experiment),
            "arms": [asdict(arm) for arm in self.arms], "cells": [asdict(cell) for cell in self.cells],
            "prompts": self.prompts, "salted": self.salted, "simulated": self.simulated,
            "run_id": self.run_id, "origin_ns": self.origin_ns, "top": self.top, "open": self.open,
            "coarse_blocks": self.coarse_blocks,
            "sitting": self.sitting, "total": self.total, "asking": self.asking,
            "calibration": asdict(self.calibration) if self.calibration else None, "restarts": self.restarts,
            "outputs": self.outputs, "workers": asdict(self.workers) if self.workers else None,
            "started": self.started,
        }  # fmt: skip
        path.write_text(json.dumps(data), encoding="utf-8")


def read_job(path: Path) -> Job:
    """Read what `Job.write` wrote."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return Job(
        folder=Path(data["folder"]), scenario=Path(data["scenario"]), experiment=from_document(data["experiment"]),
        arms=tuple(arm_from(arm) for arm in data["arms"]), cells=tuple(Cell(**cell) for cell in data["cells"]),
        prompts=data["prompts"], salted=data["salted"], simulated=data["simulated"],
        run_id=data["run_id"], origin_ns=data["origin_ns"], top=data["top"], open=data["open"],
        coarse_blocks=data["coarse_blocks"],
        sitting=data["sitting"], total=data["total"], asking=data["asking"],
        calibration=arm_from(data["calibration"]) if data["calibration"] else None, restarts=data["restarts"],
        outputs=data["outputs"], started=tuple(data["started"]),
        workers=Workers(**data["workers"]) if data["workers"] else None,
    )  # fmt: skip
