"""From options to an experiment: which servers, which settings; nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loadtest.checks import levels, positive_s, shown, users_or_rates, whole
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
from loadtest.drive.noise_run import read_noise_run
from loadtest.drive.plan import Cell, make_plan, make_start_plan
from loadtest.drive.slo_check import refuse_silent_simulation, refuse_unjudgeable
from loadtest.drive.stages import Course
from loadtest.errors import UsageError
from loadtest.experiment import load_experiment, override, with_assignments, with_slo_file
from loadtest.servers.address import clean_url, proxy_url
from loadtest.servers.control import Arm, answers
from loadtest.servers.file import ServersFile, read_servers
from loadtest.servers.process import refuse_unknown_world
from loadtest.settings import Experiment
from loadtest.workload.given import given_source, notes_of

BASELINE_VARIABLE = "LOADTEST_BASELINE_URL"
SPECULATIVE_VARIABLE = "LOADTEST_SPECULATIVE_URL"
COMPOSE_URLS = {"baseline": "http://127.0.0.1:8010", "speculative": "http://127.0.0.1:8011"}  # docker-compose.yml
SMOKE_WINDOW_S = 10.0
REQUEST_S, SIMULATED_REQUEST_S = 1.0, 0.5  # how long a request is taken to last before anything was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said."""

    scenario: Path
    baseline: str | None = None
    speculative: str | None = None
    server: str | None = None
    servers: Path | None = None
    arms: str | None = None
    prompts: Path | None = None
    levels: str | None = None
    rates: str | None = None
    arrivals: str | None = None
    window: str | None = None
    blocks: int | None = None
    budget: str | None = None
    assignments: tuple[str, ...] = ()
    simulated: bool = False
    world: str | None = None
    slo: Path | None = None
    smoke: bool = False
    measure_only: bool = False
    waive: tuple[str, ...] = ()
    aa: Path | None = None
    out: Path = Path("reports")
    command: str = ""


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
    aa_run: dict[str, Any] | None = None  # the noise of an A/A run that claims are held against
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
    prepared = replace(prepared, sessions_from=given.protocol() if given else None,
                       notes=notes_of(given, prepared.experiment))  # fmt: skip
    if not (options.smoke or options.measure_only):  # these judge nothing
        named = prepared.world is None or options.simulated or options.world is not None
        refuse_silent_simulation(prepared.experiment, named=named)
        refuse_unjudgeable(prepared.experiment, compared=len(prepared.arms) == 2 and not prepared.choice.aa)
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
        priced=setting == "measure" or (setting == "auto" and not prepared.world),
    )  # fmt: skip


def _stages(prepared: Prepared) -> str:
    """Return in how many stages it is measured: a ladder that was given is kept, and one level chooses nothing."""
    options, experiment, choice = prepared.options, prepared.experiment, prepared.choice
    compares = len(choice.arms) == 2 and not choice.aa and not options.smoke and len(experiment.load.levels) > 2
    given = (
        options.levels is not None
        or options.rates is not None
        or any(_setting(a) == "load.levels" for a in options.assignments)
    )
    given = given or bool(experiment.slo.rules or experiment.traffic.loads)  # they name the loads to be measured
    asked = experiment.plan.stages == "two" or (experiment.plan.stages == "auto" and not prepared.world and not given)
    return "two" if asked and compares else "one"


def _setting(assignment: str) -> str:
    return assignment.partition("=")[0].strip()


def _prepare(options: Options, environment: Mapping[str, str]) -> Prepared:
    _refuse_empty({"--baseline": options.baseline, "--speculative": options.speculative, "--server": options.server,
                   "--world": options.world})  # fmt: skip
    _check_scenario(options.scenario)
    if options.prompts is not None and not options.prompts.is_file():
        raise UsageError(f"--prompts {options.prompts} is not a file.")
    experiment = load_experiment(options.scenario)
    if options.slo is not None:
        experiment = with_slo_file(experiment, options.slo)
    if options.servers is not None:
        return _prepare_file(options, experiment, options.servers, environment)
    urls, found = _choose(options, experiment, environment)
    experiment = _settle(experiment, options, simulated=not urls)
    world = None
    if not urls:
        world = experiment.demo.preset
        found = f"No server is named: the built-in simulated pair is used (world `{world}`)."
        urls = {"baseline": "", "speculative": ""}
    choice = choose({name: _arm(name, url, experiment) for name, url in urls.items()}, options.arms)
    refuse_one_place(choice)
    return Prepared(experiment=experiment, arms=choice.arms, world=world, found=_found(found, choice), choice=choice,
                    urls=urls if world is None else {}, options=options)  # fmt: skip


def _arm(name: str, url: str, experiment: Experiment) -> Arm:
    settings = experiment.servers
    return Arm(
        name=name,
        role={"baseline": "baseline", "speculative": "candidate"}.get(name, "single"),
        url=clean_url(url, f"--{name}") if url else "",
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
    experiment = _settle(experiment, options, simulated=False)
    given = with_assignments(Experiment(), [a for a in options.assignments if _section(a) == "servers"]).servers
    urls = {"baseline": options.baseline, "candidate": options.speculative}
    file = with_options(read_servers(path, environment), urls, written, given)
    choice = choose_from_file(file, options.arms)
    blocks_given = options.blocks is not None or any(a.startswith("plan.blocks") for a in options.assignments)
    if choice.restarts and not blocks_given and not options.smoke:
        experiment = override(experiment, "plan", blocks=max(LEAST_PAIRS, experiment.plan.blocks))
    found = _found(f"Servers from {path}: {described(choice)}.", choice)
    return Prepared(experiment=experiment, arms=choice.arms, world=None, found=found, choice=choice, file=file,
                    options=options)  # fmt: skip


def _refuse_empty(words: Mapping[str, str | None]) -> None:
    """Raise UsageError for a word that is there and empty: else the simulated pair would be judged instead."""
    for named, word in words.items():
        if word is not None and not word.strip():
            raise UsageError(f"{named} is empty; give it a value, or leave it out. Is a variable of the shell not set?")


def _section(assignment: str) -> str:
    return assignment.partition("=")[0].partition(".")[0].strip()


def _check_scenario(path: Path) -> None:
    if path.suffix != ".py":
        raise UsageError(f"{path} is not a scenario; give a Python file such as scenarios/chat.py.")
    if not path.is_file():
        siblings = sorted(str(other) for other in path.parent.glob("*.py")) if path.parent.is_dir() else []
        there = f" There are {', '.join(siblings)}." if siblings else ""
        raise UsageError(f"{path} is not a file.{there}")


def _choose(options: Options, experiment: Experiment, environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return (arm → URL, sentence); no URLs mean the simulated pair."""
    named = {"baseline": options.baseline, "speculative": options.speculative}
    if options.server and any(named.values()):
        raise UsageError("--server tests one server alone; leave it out when --baseline and --speculative are given.")
    if options.simulated or options.world:
        if options.server or any(named.values()):
            raise UsageError("--simulated and --world use the built-in pair; leave out the URLs, or leave these out.")
        return {}, ""
    if options.server:
        return {"server": options.server}, f"One server, {options.server}: nothing is compared."
    variables = {
        "baseline": environment.get(BASELINE_VARIABLE),
        "speculative": environment.get(SPECULATIVE_VARIABLE),
    }
    assigned = _assigned(options)
    written = {"baseline": experiment.servers.baseline, "speculative": experiment.servers.speculative}
    for urls, origin, names in (
        (named, "the command line", ("--baseline", "--speculative")),
        (assigned, "the command line", ("--set servers.baseline", "--set servers.speculative")),
        (variables, "the environment", (BASELINE_VARIABLE, SPECULATIVE_VARIABLE)),
        (written, f"{options.scenario.stem}.toml", ("servers.baseline", "servers.speculative")),
    ):
        if urls is not written:
            _refuse_empty(dict(zip(names, (urls.get("baseline"), urls.get("speculative")), strict=True)))
        given = {name: url for name, url in urls.items() if url}
        if len(given) == 1:
            have, lack = names if "baseline" in given else reversed(names)
            raise UsageError(
                f"{have} is given and {lack} is not; a comparison needs both (one server alone: --server)."
            )
        if given:
            return given, f"Servers from {origin}: {given['baseline']} and {given['speculative']}."
    if all(answers(url) for url in COMPOSE_URLS.values()):
        found = " and ".join(COMPOSE_URLS.values())
        return dict(COMPOSE_URLS), f"Servers of docker-compose.yml answer on this machine: {found}."
    return {}, ""


def _assigned(options: Options) -> dict[str, str]:
    """Return the URLs of `--set servers.…`, by arm."""
    words = [a for a in options.assignments if _section(a) == "servers"]
    keys = {a.partition("=")[0].strip().partition(".")[2] for a in words}
    servers = with_assignments(Experiment(), words).servers
    urls = {"baseline": servers.baseline, "speculative": servers.speculative}
    return {name: url for name, url in urls.items() if name in keys}


def _settle(experiment: Experiment, options: Options, *, simulated: bool) -> Experiment:
    experiment = with_assignments(experiment, [a for a in options.assignments if _section(a) == "demo"])
    experiment = override(experiment, "demo", preset=options.world)
    refuse_unknown_world(experiment.demo.preset, "--world" if options.world else "demo.preset")
    experiment = _of_kind(experiment, options)
    if simulated:
        demo = experiment.demo
        ladder = demo.rates if experiment.load.kind == "open" else demo.levels
        experiment = override(experiment, "load", levels=ladder, think_time=demo.think_time)
        experiment = override(experiment, "window", min_s=demo.window_s, max_s=demo.window_s, min_requests=1)
        experiment = override(experiment, "plan", blocks=demo.blocks)
        experiment = override(experiment, "generation", max_tokens=demo.max_tokens)
    experiment = with_assignments(experiment, [a for a in options.assignments if _section(a) != "demo"])
    if options.smoke:
        ladder = experiment.load.levels
        experiment = override(experiment, "load", levels=tuple(sorted({ladder[0], ladder[-1]})))
        experiment = override(experiment, "window", min_s=SMOKE_WINDOW_S, max_s=SMOKE_WINDOW_S, min_requests=1)
        experiment = override(experiment, "plan", blocks=1)
        if experiment.servers.token_counts == "auto":  # its price would take longer than the run
            experiment = override(experiment, "servers", token_counts="all")
    if options.levels is not None:
        experiment = override(experiment, "load", levels=_parsed("--levels", options.levels, _level_list))
    if options.rates is not None:
        experiment = override(experiment, "load", levels=_parsed("--rates", options.rates, _rate_list))
    if options.window is not None:
        window_s = _parsed("--window", options.window, positive_s)
        experiment = override(experiment, "window", min_s=window_s, max_s=window_s)
    if options.blocks is not None:
        experiment = override(experiment, "plan", blocks=_parsed("--blocks", options.blocks, whole(1, 1000)))
    return experiment


def _of_kind(experiment: Experiment, options: Options) -> Experiment:
    """Return the experiment with the kind and the arrivals that the options ask for. Raises UsageError."""
    words = [a for a in options.assignments if _setting(a) in ("load.kind", "load.levels")]
    kind = with_assignments(experiment, words).load.kind
    if options.rates is not None and options.levels is not None:
        raise UsageError("--levels gives users and --rates requests/s; leave one of them out.")
    if options.levels is not None and kind == "open":
        raise UsageError("--levels gives users, and load.kind is open: give --rates, or --set load.kind=closed.")
    if options.rates is not None and _setting_of(options, "load.kind") and kind == "closed":
        raise UsageError("--rates makes an open load, and load.kind is set to closed; leave one of them out.")
    if options.arrivals is not None:
        if kind == "closed" and options.rates is None:
            raise UsageError("--arrivals says how sessions of an open load arrive; give its rates too: --rates 1,2,4.")
        experiment = with_assignments(experiment, [f"load.arrivals={options.arrivals}"])
    return override(experiment, "load", kind="open" if options.rates is not None else kind)


def _setting_of(options: Options, name: str) -> bool:
    return any(_setting(a) == name for a in options.assignments)


def _rate_list(word: str) -> tuple[float, ...]:
    try:
        return users_or_rates([float(part) for part in word.split(",")])
    except ValueError:
        raise ValueError("at most 64 different numbers of requests/s above 0, such as 0.5,1,2") from None


def _level_list(word: str) -> tuple[float, ...]:
    try:
        return levels([int(part) for part in word.split(",")])
    except ValueError as error:
        allowed = str(error) if "list" in str(error) else "whole numbers"
        raise ValueError(f"numbers of users with commas between them, such as 1,8,32 ({allowed})") from None


def _parsed(option: str, value: object, check: Callable[[Any], Any]) -> Any:
    try:
        return check(value)
    except ValueError as allowed:
        raise UsageError(f"{option} is {shown(value)}; it must be {allowed}.") from None
