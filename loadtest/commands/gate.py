"""`loadtest gate`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from loadtest.commands.options import PATH
from loadtest.commands.reporting import output_options, report_run, screen_for, shown_from
from loadtest.errors import UsageError


@click.command()
@click.argument("folder", type=PATH)
@click.option("--slo", type=PATH, metavar="FILE", help="Objectives to judge by, in place of the run's own.")
@click.option("--against", type=PATH, metavar="RUN", help="Another run that this one must not be worse than.")
@click.option("--changed", default="", metavar="NAME,…", help="What differs from that run on purpose, such as model.")
@click.option("--candidate", default="", metavar="NAME", help="Of several candidates, the one that is to be judged.")
@click.option("--allow-simulated", is_flag=True, help="Judge a run on simulated servers; else it is invalid.")
@output_options
def gate(
    folder: Path, slo: Path | None, against: Path | None, changed: str, candidate: str, allow_simulated: bool,
    quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Judge a run's records and say so by the exit code: only 0 lets a rollout go on. No server is needed."""
    from loadtest.analyse.gating import Asked
    from loadtest.analyse.judge import judge

    shown = shown_from(quiet, as_json)
    if changed and against is None:
        raise UsageError("--changed says what differs from the run of --against RUN; give that run as well.")
    asked = Asked(gate=True, allow_simulated=allow_simulated, candidate=candidate)
    judgement = judge(folder, asked, slo)
    if against is not None:
        judgement = _against(folder, judgement, against, changed, asked, slo)
    sys.exit(report_run(folder, screen_for(shown), judgement, shown))


def _against(folder: Path, judgement: Any, against: Path, changed: str, asked: Any, slo: Path | None) -> Any:
    """Return the judgement with what the comparison with another run says."""
    from loadtest.analyse.judge import judge
    from loadtest.analyse.regression import refuse_unnamed, with_regressions
    from loadtest.experiment import from_document, with_slo_file
    from loadtest.run_folder import read_run
    from loadtest.servers.identity import IGNORED

    run, other = read_run(folder), read_run(against)
    if folder.samefile(against) or (run.get("started") and run.get("started") == other.get("started")):
        raise UsageError(f"--against {against} is this very run, which is never worse than itself: give another one.")
    if judgement.pairs:
        raise UsageError(f"{folder} has several candidates, and --against compares one pair with another: gate on the"
                         " objectives of one candidate instead (--candidate NAME), or measure it alone.")  # fmt: skip
    there = judge(against, replace(asked, candidate=""))
    if there.pairs:
        raise UsageError(f"--against {against} has several candidates; give a run of one.")
    names = [name.strip() for name in changed.split(",") if name.strip()]
    notes = refuse_unnamed(run, other, names, IGNORED)
    experiment = from_document(run["experiment"])
    experiment = experiment if slo is None else with_slo_file(experiment, slo)
    return with_regressions(judgement, there, experiment.decision.metric, experiment.gate.regression_margin, notes)
