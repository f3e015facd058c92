"""The driver's part in comparing answers: prompts from the scenario itself, asked before the first cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtest.drive.cell import scenario_error
from loadtest.drive.job import Job
from loadtest.drive.outputs import Collector, Tell, asked_of
from loadtest.workload.likeness import likeness_of
from loadtest.workload.sessions import SessionSource

NO_SOURCE = "The answers of both servers were not compared: the scenario names no source of prompts."


def collector_for(job: Job, source: SessionSource | None, tell: Tell, stopped: Callable[[], bool]) -> Collector:
    """Return the collector of a run; without a source of prompts it asks nothing, and says so where it was to.

    Raises UsageError when a source of the scenario's own raises.
    """
    asked = _guarded(lambda: asked_of(source, job.experiment.plan.seed, job.outputs)) if job.outputs and source else ()
    if job.outputs and not asked:
        tell({"event": "note", "text": NO_SOURCE})
    return Collector(asked, [arm.name for arm in job.arms], job.experiment, job.folder, job.run_id, tell, stopped)


def tell_likeness(job: Job, source: SessionSource | None, tell: Tell) -> None:
    """Tell whether the prompts read like language; nothing where the scenario names no source of them."""
    if source is not None:
        tell({"event": "prompts", **_guarded(lambda: likeness_of(source, job.experiment.plan.seed))})


def _guarded(draw: Callable[[], Any]) -> Any:
    try:
        return draw()
    except Exception as error:  # a source of the scenario's own may raise anything
        raise scenario_error(error, error.__traceback__) from error
