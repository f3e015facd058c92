"""Who drives which users: worker i of N has the users, or arriving sessions, whose number leaves i when divided by N.

A session is named by its user and round alone, and the number of users is that of the level: what is asked does not
depend on how many workers ask it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The share of one worker."""

    index: int
    count: int  # of workers

    def users(self, users: int) -> int:
        """Return how many of a level's users it drives."""
        return len(range(self.index, users, self.count))

    def user(self, position: int) -> int:
        """Return the number of its user at this position."""
        return self.index + position * self.count

    def has(self, number: int) -> bool:
        """Return whether a user or session is its own."""
        return number % self.count == self.index
