"""The options laid over a scenario's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from loadtest.checks import MAX_LEVEL, MAX_LEVELS, levels, positive_s, shown, users_or_rates, whole
from loadtest.drive.options import Options, is_set, section, setting
from loadtest.errors import UsageError
from loadtest.experiment import override, with_assignments
from loadtest.loads import unit_of
from loadtest.servers.process import refuse_unknown_world
from loadtest.settings import Experiment, Traffic

SMOKE_WINDOW_S = 10.0
LEAST_SESSIONS = 0.01  # in a window: one session may bring many requests


def settle(experiment: Experiment, options: Options, *, simulated: bool) -> Experiment:
    """Return the experiment with everything that the options set; the demo's own where no server is named.

    Raises UsageError.
    """
    experiment = with_assignments(experiment, [a for a in options.assignments if section(a) == "demo"])
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
        experiment = _without_distant_traffic(experiment, options)
    experiment = with_assignments(experiment, [a for a in options.assignments if section(a) != "demo"])
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
    if not options.smoke:  # whose windows are its own
        _refuse_empty_windows(experiment)
    return experiment


def _refuse_empty_windows(experiment: Experiment) -> None:
    """Raise UsageError for a rate so low that no window can be expected to hold a request."""
    load, window = experiment.load, experiment.window
    brought = load.levels[0] * window.max_s
    if load.kind == "open" and brought < (1.0 if load.per == "requests" else LEAST_SESSIONS):
        raise UsageError(
            f"{load.levels[0]:g} {unit_of(load)} bring {brought:.2g} {load.per} in a window of {window.max_s:g} s, the"
            " longest there is: nothing would be measured. Raise the rate (--rates, load.levels), or lengthen the"
            " windows (--window, window.max_s)."
        )


def _without_distant_traffic(experiment: Experiment, options: Options) -> Experiment:
    """Return the experiment without a [traffic] outside the trial's own levels, where nothing is judged by it.

    The trial shows how things work on a model; at the loads of a quiet service its short windows would hold nothing.
    """
    chosen = options.levels is not None or options.rates is not None or is_set(options, "load.levels")
    judged = bool(experiment.slo.rules) or options.slo is not None
    traffic, ladder = experiment.traffic, experiment.load.levels
    held = traffic.unit != unit_of(experiment.load) or all(ladder[0] <= load <= ladder[-1] for load in traffic.loads)
    if chosen or judged or held:
        return experiment
    return replace(experiment, traffic=Traffic())


def _of_kind(experiment: Experiment, options: Options) -> Experiment:
    """Return the experiment with the kind and the arrivals that the options ask for. Raises UsageError."""
    words = [a for a in options.assignments if setting(a) in ("load.kind", "load.levels")]
    kind = with_assignments(experiment, words).load.kind
    if options.rates is not None and options.levels is not None:
        raise UsageError("--levels gives users and --rates requests/s; leave one of them out.")
    if options.levels is not None and kind == "open":
        raise UsageError("--levels gives users, and load.kind is open: give --rates, or --set load.kind=closed.")
    if options.rates is not None and is_set(options, "load.kind") and kind == "closed":
        raise UsageError("--rates makes an open load, and load.kind is set to closed; leave one of them out.")
    if options.arrivals is not None:
        if kind == "closed" and options.rates is None:
            raise UsageError("--arrivals says how sessions of an open load arrive; give its rates too: --rates 1,2,4.")
        experiment = with_assignments(experiment, [f"load.arrivals={options.arrivals}"])
    return override(experiment, "load", kind="open" if options.rates is not None else kind)


def _rate_list(word: str) -> tuple[float, ...]:
    try:
        return users_or_rates([float(part) for part in word.split(",")])
    except ValueError:
        raise ValueError(
            f"at most {MAX_LEVELS} different numbers of requests/s above 0, and at most {MAX_LEVEL}, such as 0.5,1,2"
        ) from None


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
