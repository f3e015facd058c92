"""Finding the servers: options, environment, the scenario's settings, docker-compose.yml, else the simulated pair."""

from __future__ import annotations

from collections.abc import Mapping

from loadtest.drive.options import SPECULATIVE, Options, section, setting
from loadtest.errors import UsageError
from loadtest.experiment import with_assignments
from loadtest.servers.control import answers
from loadtest.settings import Experiment

BASELINE_VARIABLE = "LOADTEST_BASELINE_URL"
SPECULATIVE_VARIABLE = "LOADTEST_SPECULATIVE_URL"
COMPOSE_URLS = {"baseline": "http://127.0.0.1:8010", "speculative": "http://127.0.0.1:8011"}  # docker-compose.yml


def find_servers(
    options: Options, experiment: Experiment, environment: Mapping[str, str]
) -> tuple[dict[str, str], str]:
    """Return (arm → URL, sentence); no URLs mean the simulated pair."""
    candidates = options.candidates()
    named: dict[str, str | None] = {"baseline": options.baseline, **(candidates or {SPECULATIVE: None})}
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
            refuse_empty({names[name != "baseline"]: url for name, url in urls.items()})
        given = {name: url for name, url in urls.items() if url}
        if given and ("baseline" not in given or len(given) == 1):
            have, lack = names if "baseline" in given else reversed(names)
            raise UsageError(
                f"{have} is given and {lack} is not; a comparison needs both (one server alone: --server)."
            )
        if given:
            return given, f"Servers from {origin}: {_said(given)}."
    if all(answers(url) for url in COMPOSE_URLS.values()):
        found = " and ".join(COMPOSE_URLS.values())
        return dict(COMPOSE_URLS), f"Servers of docker-compose.yml answer on this machine: {found}."
    return {}, ""


def _said(urls: Mapping[str, str]) -> str:
    """Return the URLs in a sentence's part, candidates by their names where there are several."""
    baseline, *others = urls.items()
    if len(others) == 1:
        return f"{baseline[1]} and {others[0][1]}"
    named = [f"{name} at {url}" for name, url in others]
    return f"{baseline[1]}, {', '.join(named[:-1])} and {named[-1]}"


def _assigned(options: Options) -> dict[str, str]:
    """Return the URLs of `--set servers.…`, by arm."""
    words = [a for a in options.assignments if section(a) == "servers"]
    keys = {setting(a).partition(".")[2] for a in words}
    servers = with_assignments(Experiment(), words).servers
    urls = {"baseline": servers.baseline, "speculative": servers.speculative}
    return {name: url for name, url in urls.items() if name in keys}


def refuse_empty(words: Mapping[str, str | None]) -> None:
    """Raise UsageError for a word that is there and empty: else the simulated pair would be judged instead."""
    for named, word in words.items():
        if word is not None and not word.strip():
            raise UsageError(f"{named} is empty; give it a value, or leave it out. Is a variable of the shell not set?")
