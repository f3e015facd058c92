"""Settings of all tests; and by lying here it puts this folder on the path, for `compose_files`.

Examples are the same at every run, so that a failure speaks of the change at hand; nightly, with
`--hypothesis-profile search`, new ones are looked for.

With `-n 2` the tests that start no servers share the cores, and come first; those of `e2e` measure, and so have the
machine to themselves, one after the other.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

E2E = "tests/e2e/"

# How long an example takes says nothing on a busy machine.
settings.register_profile("shared machine", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("shared machine")


class OneAfterTheOther(LoadScopeScheduling):
    """Gives all tests of `e2e` to one worker, and every other test to the one that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return E2E if nodeid.startswith(E2E) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneAfterTheOther:
    config.option.loadscopereorder = False
    return OneAfterTheOther(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.nodeid.startswith(E2E))  # stable
