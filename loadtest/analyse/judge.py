"""A run folder in, a judgement out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from loadtest import loads
from loadtest.analyse.gating import RUN, Asked
from loadtest.analyse.outputs import judge_outputs
from loadtest.analyse.pair import judged
from loadtest.analyse.results import Judgement
from loadtest.analyse.several import judged_several
from loadtest.errors import UsageError, nearest
from loadtest.experiment import as_document, from_document, with_slo_file
from loadtest.record import CellRecord, PlannedCell, Scrape, candidates_of
from loadtest.run_folder import read_cells, read_plan, read_requests, read_run, read_scrapes
from loadtest.slo import refuse_strangers
from loadtest.slo_tables import objectives


def judge(folder: Path, asked: Asked = RUN, slo_file: Path | None = None) -> Judgement:
    """Judge the run in a folder, by the objectives of another file where one is given.

    Raises UsageError when the folder holds no run, or one of a newer schema.
    """
    run = read_run(folder)
    if slo_file is not None:
        experiment = with_slo_file(from_document(run["experiment"]), slo_file)
        run = {**run, "experiment": as_document(experiment)}
    plan = read_plan(folder, run)
    found = judge_data(run, read_cells(folder), read_scrapes(folder), read_requests(folder), plan, asked, detailed=True)
    return replace(found, outputs=judge_outputs(folder, run))


def judge_data(
    run: Mapping[str, Any], cells: Sequence[CellRecord], scrapes: Sequence[Scrape], requests_table: pa.Table,
    plan: Sequence[PlannedCell] | None = None, asked: Asked = RUN, detailed: bool = False,
) -> Judgement:  # fmt: skip
    """Judge what a run left: its header, cells, scrapes, requests (REQUEST_SCHEMA) and plan, where it has one.

    `detailed`: with what a reader looks at and nothing is decided by.
    """
    experiment = from_document(run["experiment"])
    refuse_strangers(objectives(experiment.slo.rules), candidates_of(run))
    if asked.candidate and asked.candidate not in candidates_of(run):
        raise UsageError(f"--candidate {asked.candidate}: the run has no candidate of that name."
                         f"{nearest(asked.candidate, candidates_of(run))} Candidates are"
                         f" {', '.join(candidates_of(run)) or 'none'}.")  # fmt: skip
    with loads.spoken(loads.unit_of(experiment.load)):
        judging = judged_several if run.get("candidates") else judged
        found = judging(run, experiment, cells, scrapes, requests_table, plan, asked, detailed=detailed)
        return replace(found, unit=loads.unit())
