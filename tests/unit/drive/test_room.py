"""Open files for the planned users: the soft limit is raised, a hard one that is too low is refused."""

from __future__ import annotations

import resource

import pytest

from loadtest.drive.room import make_room
from loadtest.errors import UsageError


@pytest.mark.parametrize(
    ("users", "limit", "holds"),
    [
        (100, (1024, 4096), 1024),
        (896, (1024, 4096), 1024),
        (897, (1024, 4096), 1025),
        (3968, (1024, 4096), 4096),
        (16384, (1024, resource.RLIM_INFINITY), 16512),
        (16384, (resource.RLIM_INFINITY, resource.RLIM_INFINITY), resource.RLIM_INFINITY),
    ],
)
def test_the_soft_limit_follows_the_users(users: int, limit: tuple[int, int], holds: int) -> None:
    assert make_room(users, limit) == holds


def test_a_hard_limit_that_is_too_low_is_refused_with_what_fits() -> None:
    with pytest.raises(UsageError) as refused:
        make_room(3969, (1024, 4096))
    assert "3969 connections need 4097 open files, and this machine allows a process 4096" in str(refused.value)
    assert "up to 3968 connections fit" in str(refused.value)


def test_the_limit_of_this_process_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 700:
        pytest.skip("this machine allows fewer than 700 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, before[1]))
    try:
        assert make_room(500) == 628
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (628, before[1])
        assert make_room(10) == 628
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
