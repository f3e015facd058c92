"""What the client adds by itself: a short cell against the built-in null server, before any other cell."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from loadtest.drive.priority import ask_for_priority
from loadtest.experiment import override
from loadtest.record import CellRecord
from loadtest.settings import Experiment, Load, Window

MOST_USERS = 256  # beyond it the null server itself would be the limit
MOST_IN_FLIGHT = 1024  # of an open load: what the null server holds is no judgement of the servers
MOST_RATE = 500.0  # sessions or requests/s, each of about half a second
WINDOW_S = 2.0
TOKENS = 24  # of an answer
WARMUP_S = 10.0  # longest warm-up


def calibration_level(load: Load, top: float) -> float:
    """Return the load of the calibration: that of the top level, as far as the null server carries it."""
    return min(MOST_USERS if load.kind == "closed" else MOST_RATE, top)


def calibration_experiment(experiment: Experiment) -> Experiment:
    """Return the experiment with the short answers, windows and pauses of the calibration."""
    length_s = min(WINDOW_S, max(1.0, experiment.window.min_s))  # no longer than what it is to vouch for
    window = Window(min_s=length_s, max_s=length_s, min_requests=1, warmup_requests=0.5, warmup_max_s=WARMUP_S)
    experiment = override(experiment, "generation", max_tokens=TOKENS)
    experiment = override(experiment, "load", think_time=0.0, shape="steady", max_in_flight=MOST_IN_FLIGHT)
    return override(experiment, "window", **asdict(window))


def calibration_event(users: float, record: CellRecord) -> dict[str, Any]:
    """Return the event that tells the parent of a calibration's end, with the client's evidence."""
    return {
        "event": "calibration_end", "users": users, "state": record.state, "reason": record.reason,
        "lateness_p99_s": record.lateness_p99_s, "client_cpu_ratio": record.client_cpu_ratio,
        "hub_lag_p99_s": record.hub_lag_p99_s, "coalesced_ratio": record.coalesced_ratio,
        "window_open_s": record.window_open_s, "window_close_s": record.window_close_s,
        "scheduling": ask_for_priority(),
    }  # fmt: skip
