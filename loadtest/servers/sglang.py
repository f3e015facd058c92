"""How SGLang introduces itself: its resolved arguments, open at /server_info (older: /get_server_info)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from loadtest.record import LOSSY
from loadtest.servers.told import Told, flatten, named, whole

if TYPE_CHECKING:
    from loadtest.servers.control import Control

PATHS = ("/server_info", "/get_server_info")
# Not settings: how it was called, what it is doing, and keys.
_NO_SETTINGS = ("internal_states", "launch_command", "scheduler_info", "status", "version", "api_key", "admin_api_key")
PINNED = "launched_with_max_running_requests"
LOWERED_TO = 48
THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


def read(control: Control, model: str) -> Told:
    """Return what an SGLang server says of itself."""
    info: dict[str, Any] = {}
    for path in PATHS:
        info = control.purged(control.json(path) or {})
        if info:
            break
    settings = {name: value for name, value in info.items() if name not in _NO_SETTINGS}
    algorithm = named(settings.get("speculative_algorithm"))
    speculates = None if "speculative_algorithm" not in settings else algorithm is not None
    pinned = "--max-running-requests" in str(info.get("launch_command", "--max-running-requests"))
    return Told(
        config=flatten(settings) | ({} if not info else {PINNED: pinned}),
        config_from=PATHS[0] if info else "", speculates=speculates, method=algorithm.lower() if algorithm else None,
        k=_drafted(settings) if speculates else None,
        drafter=named(settings.get("speculative_draft_model_path")) if speculates else None,
        modes=tuple(_modes(settings)) if speculates else (), version=named(info.get("version")),
        model_root=named(settings.get("model_path")), max_model_len=whole(settings.get("context_length")),
    )  # fmt: skip


def _drafted(settings: Mapping[str, Any]) -> int | None:
    """Return the draft tokens of a step; SGLang's own figure counts the tree's root with them."""
    tokens = whole(settings.get("speculative_num_draft_tokens"))
    return tokens - 1 if tokens and tokens > 1 else whole(settings.get("speculative_num_steps"))


def _modes(settings: Mapping[str, Any]) -> Iterator[str]:
    thresholds = [settings.get(name) for name in THRESHOLDS]
    if any(isinstance(value, int | float) and value < 1 for value in thresholds):
        yield LOSSY


def explains(item: str, baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> bool:
    """Return whether SGLang itself changed a setting because speculation was switched on.

    It lowers an unset limit on running requests to 48 then, which no argument of the user's says.
    """
    if item != "max_running_requests":
        return False
    return candidate.get(PINNED) is False and candidate.get(item) == LOWERED_TO
