"""Are all arms asked the same? Seen while the first block runs, so that nobody waits hours for a run that is void."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from loadtest.errors import UsageError
from loadtest.record import Request
from loadtest.slo import USERS

MOST = 20_000  # requests that wait for their twin; one that finds no room is not compared

Place = tuple[float, int, int]  # level, session, turn


class _First(NamedTuple):
    """The first request at a place, and how many of the other arms are still to come."""

    arm: str
    asked: str
    digest: str
    twins: int


class SameBodies:
    """Passes requests on to where they are kept, and compares the bodies of the first block's pairs."""

    def __init__(self, keep: Callable[[Request], None], unit: str = USERS, arms: int = 2) -> None:
        """Pass every request on to `keep`; `unit` is that of the levels, `arms` how many are asked the same."""
        self._keep, self._unit, self._twins = keep, unit, arms - 1
        self._block: int | None = None
        self._first: dict[Place, _First] = {}  # until its last twin comes

    def keep(self, request: Request) -> None:
        """Keep a request. Raises UsageError when the other arm was sent another body at its place.

        Requests that ask for token counts in different ways differ by that alone, and are not compared.
        """
        self._keep(request)
        if self._block is None:
            self._block = request.block
        if request.block != self._block or not request.body_hash:
            return
        place = (request.level, request.session, request.turn)
        first = self._first.get(place)
        if first is None or request.arm == first.arm:
            if first is not None or len(self._first) < MOST:
                self._first[place] = _First(request.arm, request.asked, request.body_hash, self._twins)
            return
        if first.twins == 1:
            del self._first[place]
        else:
            self._first[place] = first._replace(twins=first.twins - 1)
        if first.asked == request.asked and first.digest != request.body_hash:
            raise UsageError(_sentence(request, first.arm, self._unit))


def _sentence(request: Request, other: str, unit: str) -> str:
    named = f" (`{request.category}`)" if request.category else ""
    return (
        f"The scenario did not ask both servers the same: session {request.session}, turn {request.turn + 1}{named}, at"
        f" {request.level:g} {unit} in block {request.block + 1} was one thing for {other} and another for"
        f" {request.arm}. Draw all that is sent from self.rng() or self.next_session(): Python's own `random`, the"
        " time and `uuid` differ from one arm to the other."
    )
