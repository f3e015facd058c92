"""Which arms take part: those of a servers file or of the URLs, and what `--arms` makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from loadtest.errors import UsageError, nearest
from loadtest.servers.address import clean_url, proxy_url, same_place
from loadtest.servers.arm import NO_COUNTERS, Arm
from loadtest.servers.file import ServersFile, Start
from loadtest.settings import Servers

SECOND = "-2"  # what tells the second arm of an A/A from the first
LEAST_PAIRS = 4  # of starts, unless --blocks says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The arms of a run, baseline first."""

    arms: tuple[Arm, ...]
    origins: Mapping[str, str]  # arm → the name that it was chosen by; both the same in an A/A of one server
    aa: bool = False  # both arms are a baseline: what differs is noise
    restarts: bool = False  # only one arm runs at a time; a block is one start of each
    starts: Mapping[str, Start] = field(default_factory=dict)  # of the arms that the run starts


def choose(pool: Mapping[str, Arm], names: str | None) -> Choice:
    """Return the arms that `--arms` names (one or two, with a comma), or all of the pool. Raises UsageError."""
    wanted = [name.strip() for name in names.split(",")] if names is not None else list(pool)
    for name in wanted:
        if name not in pool:
            raise UsageError(f"--arms names {name!r}, which is no arm here.{nearest(name, pool)}"
                             f" There are {', '.join(pool)}.")  # fmt: skip
    if len(wanted) == 1:
        only = pool[wanted[0]]
        return Choice(arms=(replace(only, role="single"),), origins={only.name: only.name})
    if len(wanted) != 2:
        raise UsageError(f"{len(wanted)} arms are named ({', '.join(wanted)}); a run takes one or two:"
                         " --arms BASELINE,CANDIDATE.")  # fmt: skip
    first, second = (pool[name] for name in wanted)
    aa = first is second or first.role == second.role == "baseline"
    if not aa and (first.role, second.role) != ("baseline", "candidate"):
        raise UsageError(f"--arms {','.join(wanted)}: the first must be a baseline, the second a candidate;"
                         f" their roles are {first.role} and {second.role}.")  # fmt: skip
    if first is second:
        second = replace(second, name=second.name + SECOND)
    return Choice(
        arms=(replace(first, role="baseline"), replace(second, role="candidate")),
        origins={first.name: wanted[0], second.name: wanted[1]},
        aa=aa,
    )


def refuse_one_place(choice: Choice) -> None:
    """Raise UsageError when the two servers of a comparison are one and the same."""
    if not _one_place(choice):
        return
    first, second = choice.arms
    both = first.url if first.url == second.url else f"one server, {first.url} and {second.url}"
    told_apart = first.model != second.model and first.model and second.model
    if told_apart or first.headers_env != second.headers_env or first.api_key_env != second.api_key_env:
        return
    raise UsageError(f"Both arms are {both}; a comparison needs two servers. (Behind one URL they are told apart by a"
                     " model or a header of their own, in a servers file.)")  # fmt: skip


def _one_place(choice: Choice) -> bool:
    urls = [arm.url for arm in choice.arms]
    return len(urls) == 2 and all(urls) and not choice.aa and same_place(*urls)


def _kept_apart(choice: Choice) -> Choice:
    """Return the choice with arms behind one URL marked: what it tells without naming the model is of both.

    Counters that cannot be told apart, by their own metrics URLs or by a model's name, are not read.
    """
    if not _one_place(choice):
        return choice
    first, second = choice.arms
    sources = [(arm.metrics, arm.prometheus, arm.prometheus_match) for arm in choice.arms]
    shared = sources[0] == sources[1]
    metrics = (NO_COUNTERS,) if shared and first.model == second.model else None
    return replace(choice, arms=tuple(replace(arm, shared=shared, metrics=metrics or arm.metrics)
                                      for arm in choice.arms))  # fmt: skip


def choose_from_file(file: ServersFile, names: str | None) -> Choice:
    """Return the arms of a servers file that take part, and how they are started. Raises UsageError."""
    choice = choose(file.arms, names if names is not None else _default(file))
    starts = {arm: file.starts[origin] for arm, origin in choice.origins.items() if origin in file.starts}
    if not starts or len(choice.arms) == 1:
        refuse_one_place(choice)
        return replace(_kept_apart(choice), starts=starts)
    if file.machine == "own":
        if same_place(choice.arms[0].url, choice.arms[1].url):
            raise UsageError(f'{file.path}: machine = "own" keeps both arms up, and both would listen at'
                             f" {choice.arms[0].url}. Write a second baseline table with a URL of its own, and name"
                             ' both: --arms baseline,baseline-2; or set machine = "shared".')  # fmt: skip
        return replace(choice, starts=starts)
    idle = [arm.name for arm in choice.arms if arm.name not in starts]
    if idle:
        raise UsageError(f"{file.path}: arms.{idle[0]} has no `start`; on a shared machine only one arm runs at a time,"
                         ' so that both must be started by the file. Add it, or set machine = "own".')  # fmt: skip
    return replace(choice, starts=starts, restarts=True)


def _default(file: ServersFile) -> str | None:
    if len(file.arms) == 1:
        return None
    by_role = {role: [a.name for a in file.arms.values() if a.role == role] for role in ("baseline", "candidate")}
    if any(len(found) != 1 for found in by_role.values()):
        raise UsageError(f"{file.path} has the arms {', '.join(f'{a.name} ({a.role})' for a in file.arms.values())};"
                         " say which to compare: --arms BASELINE,CANDIDATE.")  # fmt: skip
    return ",".join(found[0] for found in by_role.values())


def with_options(file: ServersFile, urls: Mapping[str, str | None], written: Servers, given: Servers) -> ServersFile:
    """Return the file with options in place: `--baseline`, `--speculative` and `--set servers.…` go before its tables.

    `urls` are by role; `written` are the scenario's own settings, which stand behind the tables.
    """
    arms: dict[str, Arm] = {}
    for name, arm in file.arms.items():
        option = "--baseline" if arm.role == "baseline" else "--speculative"
        given_url = urls.get(arm.role)
        url = clean_url(given_url, option) if given_url else ""
        if url and name in file.starts:
            raise UsageError(
                f"{option} {url}: arms.{name} is started by {file.path} at {arm.url}; leave one of them out."
            )
        arms[name] = replace(
            arm,
            url=url or arm.url,
            model=given.model or arm.model or written.model,
            api_key_env=given.api_key_env or arm.api_key_env or written.api_key_env,
            insecure=given.insecure or arm.insecure or written.insecure,
            proxy=proxy_url(given.proxy, "servers.proxy") or arm.proxy or proxy_url(written.proxy, "servers.proxy"),
        )
    return replace(file, arms=arms)


def described(choice: Choice) -> str:
    """Name the arms in a sentence's part: 'baseline at http://… (started by this run) and …'."""
    parts = [f"{arm.name} at {arm.url}{' (started by this run)' if arm.name in choice.starts else ''}"
             for arm in choice.arms]  # fmt: skip
    return " and ".join(parts)
