"""Sessions that somebody gives in place of a scenario's own: a file of prompts, or a trace."""

from __future__ import annotations

import math
from pathlib import Path

from loadtest.errors import UsageError
from loadtest.settings import Experiment
from loadtest.workload.prompts import PromptSource
from loadtest.workload.replay import TraceSource, open_trace


def given_source(prompts: Path | str | None, experiment: Experiment) -> PromptSource | TraceSource | None:
    """Return the sessions of `--prompts FILE` or of [trace]; None without either. Raises UsageError."""
    if prompts and experiment.trace.file:
        raise UsageError(
            f"--prompts {prompts} and trace.file ({experiment.trace.file}) both say what is asked; leave one out."
        )
    if prompts:
        return PromptSource(Path(prompts))
    return open_trace(experiment.trace, experiment.plan.seed) if experiment.trace.file else None


def notes_of(source: PromptSource | TraceSource | None, experiment: Experiment) -> tuple[str, ...]:
    """Return sentences on sessions that were given: what was done to them, and whether a cell needs more of them."""
    if source is None:
        return ()
    turns = source.requests / source.sessions if isinstance(source, TraceSource) else 1.0
    load, window = experiment.load, experiment.window
    if load.kind == "closed":
        needed = max(max(load.levels), window.min_requests / turns)
    else:
        needed = max(load.levels) * window.max_s / (turns if load.per == "requests" else 1.0)
    if source.repeats_after >= needed:
        return source.notes
    few = (
        f"{source.path.name} holds {source.repeats_after:,} sessions, and a cell may need {math.ceil(needed):,}: they"
        " come again within it, which caches and drafts from memory gain by. Cells in which many do are marked."
    )
    return (*source.notes, few)
