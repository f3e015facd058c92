"""The users of a cell within this process, as Locust's own: all at once, or as sessions that arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from locust.env import Environment

from loadtest.drive.arriving import Arriving
from loadtest.drive.context import CellContext
from loadtest.drive.standalone import CONTEXT
from loadtest.record import CellRecord

Failed = Callable[[BaseException], None]


class Users(Protocol):
    """Who makes the load of one cell."""

    def start(self, failed: Failed) -> None:
        """Begin; `failed` is told of an error in the scenario's own code."""

    def trouble(self) -> str:
        """Return why the cell is to be given up; nothing while all is well."""

    def stop(self) -> None:
        """End whatever is still under way."""

    def whole(self, record: CellRecord) -> CellRecord:
        """Return the cell's record with what they know of it."""


class OwnUsers:
    """Users in this process; `users` of a closed load."""

    def __init__(self, context: CellContext, user_class: type, users: int) -> None:
        """Prepare; nobody is there before `start`."""
        self._context, self._user_class, self._users = context, user_class, users
        self._arriving: Arriving | None = None
        self._runner: Any = None

    def start(self, failed: Failed) -> None:
        """Let the users of a closed load start at their times, or the sessions of an open one arrive."""
        environment = Environment(user_classes=[self._user_class], host=self._context.target.endpoint.url)
        setattr(environment, CONTEXT, self._context)
        environment.events.user_error.add_listener(  # type: ignore[no-untyped-call]  # Locust types in part
            lambda user_instance, exception, tb: failed(exception)
        )
        self._runner = environment.create_local_runner()
        if self._context.opened is not None:
            self._arriving = Arriving(self._context, self._user_class, environment, failed)
        elif self._users:
            self._runner.start(self._users, spawn_rate=max(1, self._users))
            if self._runner.spawning_greenlet is not None:
                self._runner.spawning_greenlet.link_exception(lambda greenlet: failed(greenlet.exception))

    def trouble(self) -> str:
        """Return nothing: what goes wrong is told as an error of the scenario."""
        return ""

    def stop(self) -> None:
        """End whatever is still under way."""
        if self._arriving is not None:
            self._arriving.stop()
        self._runner.quit()

    def whole(self, record: CellRecord) -> CellRecord:
        """Return the record: this process saw all of it."""
        return record
