"""Is a server still there, and still the one that was started? Asked when something of it has been measured."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from loadtest.drive.orders import Orders
from loadtest.errors import RunError
from loadtest.servers.control import Control, no_longer_answers


class Presence:
    """Asks the server, and the parent where it was the parent that started it: another program may answer by now."""

    def __init__(self, started: Collection[str], tell: Callable[[dict[str, Any]], None], orders: Orders) -> None:
        """`started` are the arms that the parent started; `tell` asks it, and it answers through `orders`."""
        self._started, self._tell, self._orders = started, tell, orders

    def gone(self, control: Control) -> RunError | None:
        """Return what to raise when a server has gone, or another program answers in its place, else None."""
        arm = control.arm
        gone = no_longer_answers(control)
        if arm.name not in self._started:
            return gone
        self._tell({"event": "still_there", "arm": arm.name})  # also of one that has gone: the parent knows how
        answer = self._orders.answer()
        if gone is not None:
            return gone
        if answer is None:
            return RunError(f"The run was stopped before it was known whether {arm.where} is what was started.")
        said = f"T{arm.where[1:]} is no longer as it was started, or another program may have answered."
        return RunError(said) if answer["lost"] else None
