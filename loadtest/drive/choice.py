"""Which arms take part: those of a servers file or of the URLs, and what `--arms` makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

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
    """Return the arms that `--arms` names (with commas, the baseline first), or all of the pool. Raises UsageError."""
    wanted = [name.strip() for name in names.split(",")] if names is not None else list(pool)
    for name in wanted:
        if name not in pool:
            raise UsageError(f"--arms names {name!r}, which is no arm here.{nearest(name, pool)}"
                             f" There are {', '.join(pool)}.")  # fmt: skip
    if len(wanted) == 1:
        only = pool[wanted[0]]
        return Choice(arms=(replace(only, role="single"),), origins={only.name: only.name})
    if len(wanted) > 2:
        return _several([pool[name] for name in wanted])
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


def _several(arms: Sequence[Arm]) -> Choice:
    """Return a baseline and several candidates. Raises UsageError for what cannot be compared in one run."""
    names, roles = [arm.name for arm in arms], [arm.role for arm in arms]
    listed = ",".join(names)
    if roles.count("baseline") > 1:
        several = [name for name, role in zip(names, roles, strict=True) if role == "baseline"]
        raise UsageError(
            f"--arms {listed}: a run of several candidates has one baseline, and these are {len(several)}."
            f" An A/A takes two and no candidate: --arms {','.join(several[:2])}."
        )
    if roles[0] != "baseline" or any(role != "candidate" for role in roles[1:]):
        raise UsageError(f"--arms {listed}: the first must be a baseline, the others candidates; their roles are"
                         f" {', '.join(roles)}.")  # fmt: skip
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--arms {listed}: {twice} is named twice; a candidate takes part once.")
    return Choice(arms=tuple(arms), origins={name: name for name in names})


def refuse_one_place(choice: Choice) -> None:
    """Raise UsageError when two servers of a comparison are one and the same."""
    for first, second in _one_place(choice):
        both = first.url if first.url == second.url else f"one server, {first.url} and {second.url}"
        told_apart = first.model != second.model and first.model and second.model
        if told_apart or first.headers_env != second.headers_env or first.api_key_env != second.api_key_env:
            continue
        who = "Both arms" if len(choice.arms) == 2 else f"{first.name} and {second.name}"
        raise UsageError(f"{who} are {both}; a comparison needs two servers. (Behind one URL they are told apart by a"
                         " model or a header of their own, in a servers file.)")  # fmt: skip


def _one_place(choice: Choice) -> list[tuple[Arm, Arm]]:
    """Return the pairs of arms that are behind one URL; in an A/A they are meant to be."""
    pairs = combinations(choice.arms, 2)
    return [] if choice.aa else [(a, b) for a, b in pairs if a.url and b.url and same_place(a.url, b.url)]


def _kept_apart(choice: Choice) -> Choice:
    """Return the choice with arms behind one URL marked: what it tells without naming the model is of all of them.

    Counters that cannot be told apart, by their own metrics URLs or by a model's name, are not read.
    """
    arms = {arm.name: arm for arm in choice.arms}
    for first, second in _one_place(choice):
        sources = [(arm.metrics, arm.prometheus, arm.prometheus_match) for arm in (first, second)]
        if sources[0] != sources[1]:
            continue
        for arm in (first, second):
            metrics = (NO_COUNTERS,) if first.model == second.model else arms[arm.name].metrics
            arms[arm.name] = replace(arms[arm.name], shared=True, metrics=metrics)
    return replace(choice, arms=tuple(arms.values()))


def choose_from_file(file: ServersFile, names: str | None) -> Choice:
    """Return the arms of a servers file that take part, and how they are started. Raises UsageError."""
    choice = choose(file.arms, names if names is not None else _default(file))
    starts = {arm: file.starts[origin] for arm, origin in choice.origins.items() if origin in file.starts}
    if not starts or len(choice.arms) == 1:
        refuse_one_place(choice)
        return replace(_kept_apart(choice), starts=starts)
    if file.machine == "own":
        alike = [a for a, b in combinations(choice.arms, 2) if same_place(a.url, b.url)]
        if alike:
            raise UsageError(f'{file.path}: machine = "own" keeps both arms up, and both would listen at'
                             f" {alike[0].url}. Write a second baseline table with a URL of its own, and name"
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
    if len(by_role["baseline"]) != 1 or not by_role["candidate"]:
        raise UsageError(f"{file.path} has the arms {', '.join(f'{a.name} ({a.role})' for a in file.arms.values())};"
                         " say which to compare: --arms BASELINE,CANDIDATE.")  # fmt: skip
    return ",".join([*by_role["baseline"], *by_role["candidate"]])


def with_options(file: ServersFile, urls: Mapping[str, str | None], written: Servers, given: Servers) -> ServersFile:
    """Return the file with options in place: `--baseline`, `--speculative` and `--set servers.…` go before its tables.

    `urls` are by name or role; `written` are the scenario's own settings, which stand behind the tables.
    """
    arms: dict[str, Arm] = {}
    for name, arm in file.arms.items():
        option = "--baseline" if arm.role == "baseline" else "--speculative"
        given_url = urls.get(name) or urls.get(arm.role)
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
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"
