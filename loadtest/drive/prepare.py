"""From options to an experiment: which servers, which settings; nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loadtest.drive.budget import Terms, fit, parse_budget
from loadtest.drive.choice import (
    LEAST_PAIRS,
    Choice,
    choose,
    choose_from_file,
    described,
    refuse_one_place,
    with_options,
)
from loadtest.drive.finding import find_servers, refuse_empty
from loadtest.drive.foreseen import foreseen
from loadtest.drive.job import Workers
from loadtest.drive.noise_run import read_noise_run
from loadtest.drive.options import SPECULATIVE, Options, is_set, section
from loadtest.drive.plan import Cell, make_plan, make_start_plan
from loadtest.drive.settling import settle
from loadtest.drive.slo_check import refuse_silent_simulation, refuse_unjudgeable
from loadtest.drive.stages import Course
from loadtest.drive.timetable import Habits, habits_of
from loadtest.drive.workers.wanted import refuse_unreachable, wanted
from loadtest.errors import UsageError, nearest
from loadtest.experiment import load_experiment, override, with_assignments, with_slo_file
from loadtest.servers.address import clean_url, proxy_url
from loadtest.servers.control import Arm
from loadtest.servers.file import ServersFile, read_servers
from loadtest.settings import Experiment
from loadtest.slo import refuse_strangers
from loadtest.slo_tables import objectives
from loadtest.workload.given import given_source, notes_of

UNNAMED = ("baseline", "server", SPECULATIVE)  # arms that an option of their name gives
REQUEST_S, SIMULATED_REQUEST_S = 1.0, 0.5  # how long a request is taken to last before anything was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An experiment and the arms it is run on; a simulated pair has no URLs yet."""

    experiment: Experiment
    arms: tuple[Arm, ...]
    world: str | None  # of the simulated pair; None for real servers
    found: str  # where the servers came from, in a sentence
    choice: Choice
    file: ServersFile | None = None
    urls: Mapping[str, str] = field(default_factory=dict)  # of the servers that were named, chosen or not
    budget_s: float | None = None
    fitted: str = ""  # what was left out to fit the budget, in a sentence
    sessions_from: dict[str, Any] | None = None  # prompts or trace in place of the scenario's own sessions
    notes: tuple[str, ...] = ()  # on those
    habits: Habits | None = None  # of those, in an open load
    aa_run: dict[str, Any] | None = None  # the noise of an A/A run that claims are held against
    workers: Workers | None = None  # that make the load in place of the driver
    options: Options = field(repr=False)

    @property
    def course(self) -> Course:
        """How the cells come about."""
        return Course(experiment=self.experiment, arms=tuple(arm.name for arm in self.arms),
                      restarts=self.choice.restarts, by_block=self.budget_s is not None)  # fmt: skip

    def cells(self) -> list[Cell]:
        """Return the plan: arms interleaved level by level, or start by start where only one can run at a time.

        Where a first stage chooses the levels: that stage, if it climbs to the highest level.
        """
        if self.course.staged:
            return self.course.climb()
        names = [arm.name for arm in self.arms]
        return make_start_plan(self.experiment, names) if self.choice.restarts else make_plan(self.experiment, names)


def prepare(options: Options, environment: Mapping[str, str] = os.environ) -> Prepared:
    """Check the options, the scenario's settings and the choice of servers. Raises UsageError."""
    prepared = _prepare(options, environment)
    given = given_source(options.prompts, prepared.experiment)  # what cannot be used of it is said before any load
    opened = given is not None and prepared.experiment.load.kind == "open"
    prepared = replace(prepared, sessions_from=given.protocol() if given else None,
                       habits=habits_of(given, prepared.experiment) if opened else None,
                       notes=notes_of(given, prepared.experiment), workers=wanted(options))  # fmt: skip
    refuse_unreachable(prepared.workers, (arm.url for arm in prepared.arms))
    if not (options.smoke or options.measure_only):  # these judge nothing
        named = prepared.world is None or options.simulated or options.world is not None
        refuse_silent_simulation(prepared.experiment, named=named)
        refuse_unjudgeable(prepared.experiment, compared=len(prepared.arms) > 1 and not prepared.choice.aa)
        candidates = [arm.name for arm in prepared.arms if arm.role == "candidate"]
        refuse_strangers(objectives(prepared.experiment.slo.rules), candidates)
    experiment = override(prepared.experiment, "plan", stages=_stages(prepared))
    aa_run = read_noise_run(options.aa, experiment) if options.aa is not None else None
    prepared = replace(prepared, experiment=experiment, aa_run=aa_run)
    if options.budget is None:
        return prepared
    budget_s = parse_budget(options.budget)
    if options.smoke:
        raise UsageError("--smoke has a length of its own; leave out --budget.")
    fitted = fit(experiment, budget_s, terms_of(prepared))
    return replace(prepared, experiment=fitted.experiment, budget_s=budget_s, fitted=fitted.said)


def terms_of(prepared: Prepared) -> Terms:
    """Return what the duration of a run depends on besides its experiment."""
    choice, setting = prepared.choice, prepared.experiment.servers.token_counts
    return Terms(
        arms=len(prepared.arms), request_s=SIMULATED_REQUEST_S if prepared.world else REQUEST_S,
        restarts=choice.restarts, starts=0 if choice.restarts else len(choice.starts),
        priced=setting == "measure" or (setting == "auto" and not prepared.world), habits=_habits(prepared),
    )  # fmt: skip


def _habits(prepared: Prepared) -> Habits | None:
    """Return what the sessions of an open load are like; of those of a scenario's own, it is asked."""
    if prepared.experiment.load.kind == "closed":
        return None
    return prepared.habits or foreseen(prepared.options.scenario, prepared.experiment)


def _stages(prepared: Prepared) -> str:
    """Return in how many stages it is measured: a ladder that was given is kept, and one level chooses nothing."""
    options, experiment, choice = prepared.options, prepared.experiment, prepared.choice
    if experiment.plan.stages == "two" and len(choice.arms) > 2:
        raise UsageError('plan.stages is "two", and a first stage chooses its levels by one candidate; there are'
                         f" {len(choice.arms) - 1}. Leave it out, and give the levels: --levels 1,8,32.")  # fmt: skip
    compares = len(choice.arms) == 2 and not choice.aa and not options.smoke and len(experiment.load.levels) > 2
    given = options.levels is not None or options.rates is not None or is_set(options, "load.levels")
    given = given or bool(experiment.slo.rules or experiment.traffic.loads)  # they name the loads to be measured
    asked = experiment.plan.stages == "two" or (experiment.plan.stages == "auto" and not prepared.world and not given)
    return "two" if asked and compares else "one"


def _prepare(options: Options, environment: Mapping[str, str]) -> Prepared:
    empty = next((url for url in options.candidates().values() if not url.strip()), None)
    refuse_empty({"--baseline": options.baseline, "--speculative": empty, "--server": options.server,
                   "--world": options.world})  # fmt: skip
    _check_scenario(options.scenario)
    if options.prompts is not None and not options.prompts.is_file():
        raise UsageError(f"--prompts {options.prompts} is not a file.")
    experiment = load_experiment(options.scenario)
    if options.slo is not None:
        experiment = with_slo_file(experiment, options.slo)
    if options.servers is not None:
        return _prepare_file(options, experiment, options.servers, environment)
    urls, found = find_servers(options, experiment, environment)
    expected = experiment.traffic.loads
    experiment = settle(experiment, options, simulated=not urls)
    world = None
    if not urls:
        world = experiment.demo.preset
        found = f"No server is named: the built-in simulated pair is used (world `{world}`)."
        if expected and not experiment.traffic.loads:
            found += " [traffic] lies outside the levels of [demo] and is not weighed."
        urls = {"baseline": "", "speculative": ""}
    choice = choose({name: _arm(name, url, experiment) for name, url in urls.items()}, options.arms)
    refuse_one_place(choice)
    return Prepared(experiment=experiment, arms=choice.arms, world=world, found=_found(found, choice), choice=choice,
                    urls=urls if world is None else {}, options=options)  # fmt: skip


def _arm(name: str, url: str, experiment: Experiment) -> Arm:
    settings = experiment.servers
    return Arm(
        name=name,
        role={"baseline": "baseline", "server": "single"}.get(name, "candidate"),
        url=clean_url(url, f"--{name}" if name in UNNAMED else f"--speculative {name}=…") if url else "",
        model=settings.model,
        api_key_env=settings.api_key_env,
        kind=settings.kind,
        insecure=settings.insecure,
        proxy=proxy_url(settings.proxy, "servers.proxy"),
    )


def _found(found: str, choice: Choice) -> str:
    if not choice.aa:
        return found
    return f"{found} A/A: both arms are {choice.origins[choice.arms[0].name]}; what differs between them is noise."


def _prepare_file(options: Options, experiment: Experiment, path: Path, environment: Mapping[str, str]) -> Prepared:
    """Take the arms from a servers file; options go before it, the scenario's own settings stand behind it."""
    if options.server or options.simulated or options.world:
        raise UsageError("--servers names the arms in a file; leave out --server, --simulated and --world.")
    written = experiment.servers
    experiment = settle(experiment, options, simulated=False)
    given = with_assignments(Experiment(), [a for a in options.assignments if section(a) == "servers"]).servers
    file = read_servers(path, environment)
    file = with_options(file, _overriding(file, options), written, given)
    choice = choose_from_file(file, options.arms)
    blocks_given = options.blocks is not None or any(a.startswith("plan.blocks") for a in options.assignments)
    if choice.restarts and not blocks_given and not options.smoke:
        experiment = override(experiment, "plan", blocks=max(LEAST_PAIRS, experiment.plan.blocks))
    found = _found(f"Servers from {path}: {described(choice)}.", choice)
    return Prepared(experiment=experiment, arms=choice.arms, world=None, found=found, choice=choice, file=file,
                    options=options)  # fmt: skip


def _overriding(file: ServersFile, options: Options) -> dict[str, str | None]:
    """Return the URLs that options give for arms of a file, by role, or by name for one of several candidates.

    Raises UsageError for a candidate that the file does not have, or does not tell from others.
    """
    found: dict[str, str | None] = {"baseline": options.baseline}
    there = [name for name, arm in file.arms.items() if arm.role == "candidate"]
    for name, url in options.candidates().items():
        if name == SPECULATIVE and name not in there:
            if len(there) > 1:
                raise UsageError(f"--speculative {url}: {file.path} has several candidates ({', '.join(there)}); say"
                                 " which one listens there: --speculative NAME=URL.")  # fmt: skip
            found["candidate"] = url
        elif name in there:
            found[name] = url
        else:
            raise UsageError(f"--speculative {name}=…: {file.path} has no candidate of that name."
                             f"{nearest(name, there)} There are {', '.join(there) or 'none'}.")  # fmt: skip
    return found


def _check_scenario(path: Path) -> None:
    if path.suffix != ".py":
        raise UsageError(f"{path} is not a scenario; give a Python file such as scenarios/chat.py.")
    if not path.is_file():
        siblings = sorted(str(other) for other in path.parent.glob("*.py")) if path.parent.is_dir() else []
        there = f" There are {', '.join(siblings)}." if siblings else ""
        raise UsageError(f"{path} is not a file.{there}")
