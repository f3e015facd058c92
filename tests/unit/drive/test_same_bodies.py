"""Both arms are asked the same, or the run stops in its first block."""

from __future__ import annotations

import pytest

from loadtest.drive.same_bodies import SameBodies
from loadtest.errors import UsageError
from loadtest.record import Request


def asked(arm: str, body: str, *, session: int = 3, turn: int = 1, block: int = 0, level: float = 4.0,
          way: str = "continuous", category: str = "code") -> Request:  # fmt: skip
    return Request(arm=arm, body_hash=body, session=session, turn=turn, block=block, level=level, asked=way,
                   category=category)  # fmt: skip


def test_equal_bodies_pass_and_all_are_kept() -> None:
    kept: list[Request] = []
    same = SameBodies(kept.append)
    requests = [asked(arm, f"{session}-{turn}", session=session, turn=turn)
                for arm in ("baseline", "speculative") for session in range(5) for turn in range(3)]  # fmt: skip
    for request in requests:
        same.keep(request)
    assert kept == requests


def test_the_turn_that_differs_is_named_and_kept() -> None:
    kept: list[Request] = []
    same = SameBodies(kept.append)
    same.keep(asked("baseline", "aa"))
    with pytest.raises(UsageError) as raised:
        same.keep(asked("speculative", "bb"))
    assert str(raised.value) == (
        "The scenario did not ask both servers the same: session 3, turn 2 (`code`), at 4 users in block 1 was one"
        " thing for baseline and another for speculative. Draw all that is sent from self.rng() or self.next_session():"
        " Python's own `random`, the time and `uuid` differ from one arm to the other."
    )
    assert len(kept) == 2


@pytest.mark.parametrize(
    "other",
    [
        asked("speculative", "bb", session=4),
        asked("speculative", "bb", turn=2),
        asked("speculative", "bb", level=8.0),
        asked("speculative", "bb", way="none"),  # differs by how it asks for token counts, and must
        asked("speculative", ""),
        asked("baseline", "bb"),
    ],
)
def test_what_is_not_a_pair_is_not_compared(other: Request) -> None:
    same = SameBodies(lambda _: None)
    same.keep(asked("baseline", "aa"))
    same.keep(other)


def test_only_the_first_block_is_watched() -> None:
    same = SameBodies(lambda _: None)
    same.keep(asked("baseline", "aa", block=2))
    same.keep(asked("baseline", "aa", block=3))
    same.keep(asked("speculative", "bb", block=3))
    with pytest.raises(UsageError):
        same.keep(asked("speculative", "bb", block=2))
