"""Room for the planned load on this machine: each of its connections takes an open file."""

from __future__ import annotations

import resource

from loadtest.errors import UsageError
from loadtest.settings import Load

BESIDE = 128  # files beside the connections: records, logs, pipes, libraries, scrapes


def connections(load: Load) -> int:
    """Return how many connections a load may come to need: one for each user, or for each request in flight."""
    return load.max_in_flight if load.kind == "open" else int(max(load.levels))


def make_room(count: int, limit: tuple[int, int] | None = None) -> int:
    """Raise the soft limit of open files as far as `count` connections need it, and return the one that then holds.

    Child processes inherit it. `limit` stands in for the process's own (soft, hard) in tests. Raises UsageError when
    the hard limit is too low.
    """
    soft, hard = limit or resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + BESIDE
    if _at_least(soft, needed):
        return soft
    if not _at_least(hard, needed):
        raise UsageError(
            f"{count} connections need {needed} open files, and this machine allows a process {hard} (`ulimit -Hn`)."
            f" Raise that limit, or give lower --levels (open load: load.max_in_flight): up to {max(0, hard - BESIDE)}"
            " connections fit, one for each user or request in flight."
        )
    if limit is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return needed


def _at_least(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed
