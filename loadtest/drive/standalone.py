"""A scenario under plain `locust`: no plan and no records; each request fires Locust events instead."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from loadtest.drive.client import Clock, Endpoint
from loadtest.drive.context import CellContext, Target
from loadtest.drive.phases import Phases
from loadtest.drive.plan import Cell
from loadtest.errors import UsageError
from loadtest.experiment import load_experiment
from loadtest.record import Outcome, Request
from loadtest.servers.address import clean_url, proxy_url
from loadtest.servers.control import Arm, Control, resolve_model
from loadtest.workload.given import given_source

CONTEXT = "loadtest_cell"  # the attribute of Locust's environment that holds the cell
MANY_USERS = 1 << 20  # numbers sessions apart when the count of users is not known beforehand


def context_of(environment: Any, user_class: type) -> CellContext:
    """Return the cell of an environment: the driver's, or one made on first use under plain Locust."""
    cell: CellContext | None = getattr(environment, CONTEXT, None)
    if cell is None:
        cell = _open(environment, user_class)
        setattr(environment, CONTEXT, cell)
    return cell


def _open(environment: Any, user_class: type) -> CellContext:
    host = environment.host or getattr(user_class, "host", None)
    if not host:
        raise UsageError("No server is named: give --host URL.")
    path = getattr(sys.modules.get(user_class.__module__), "__file__", None) or "scenario.py"
    experiment = load_experiment(Path(path))
    settings = experiment.servers
    arm = Arm(name="server", role="single", url=clean_url(host, "--host"), model=settings.model,
              api_key_env=settings.api_key_env, insecure=settings.insecure,
              proxy=proxy_url(settings.proxy, "servers.proxy"))  # fmt: skip
    control = Control(arm)
    control.reach()
    model = resolve_model(control, settings.model)
    control.close()
    clock = Clock(time.perf_counter_ns())
    endpoint = Endpoint(arm.url, arm.headers(), experiment.limits, verify=not arm.insecure, proxy=arm.proxy)
    context = CellContext(
        experiment=experiment, target=Target(name="server", endpoint=endpoint, model=model),
        cell=Cell(cell=0, block=0, level=1, arm="server"), clock=clock, stagger_s=0.0, salt=f"locust-{time.time_ns()}",
        phases=Phases(experiment.window, 1, 0.0, 0.0), source=given_source(None, experiment),
        keep=lambda request: _fire(environment, request),
    )  # fmt: skip
    context.users = MANY_USERS
    return context


def _fire(environment: Any, request: Request) -> None:
    if request.outcome == Outcome.CANCELLED:  # Locust stopped the user: nothing failed
        return
    failed = RuntimeError(f"{request.outcome}: {request.error}") if request.outcome != Outcome.OK else None
    chunks = request.chunk_s
    figures = {"e2e": (chunks[-1] if chunks else request.end_s) - request.due_s}
    if chunks and failed is None:
        figures["ttft"] = chunks[0] - request.due_s
        later = sum(request.chunk_tokens[1:])
        if later:
            figures["tpot"] = (chunks[-1] - chunks[0]) / later
    for name in ("ttft", "tpot", "e2e"):
        if name in figures:
            environment.events.request.fire(
                request_type=request.category or "LLM", name=name, response_time=figures[name] * 1000,
                response_length=max(0, request.output_tokens), exception=failed, context={}, response=None,
            )  # fmt: skip
