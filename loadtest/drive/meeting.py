"""The arms of a run as far as they have introduced themselves, and how each candidate compares with the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loadtest.drive.choice import Choice
from loadtest.drive.pair import comparability
from loadtest.drive.preflight import agreed
from loadtest.drive.rate_limits import refuse_above_limits
from loadtest.servers.arm import Arm
from loadtest.servers.identity import Identity
from loadtest.settings import Experiment

Tell = Callable[[dict[str, Any]], None]
Row = dict[str, Any]


class Meeting:
    """Who has been met. `arms` hold what each has told of itself, in the order of the choice."""

    def __init__(self, choice: Choice, waived: Sequence[str], identities: Mapping[str, Identity] | None = None) -> None:
        """Know the arms by name; `identities` are those of a run that is gone on with."""
        self._choice, self._waived = choice, waived
        self.arms = {arm.name: arm for arm in choice.arms}
        self.identities = dict(identities or {})
        self._rows: dict[str, list[Row]] = {}  # candidate → its comparability table

    @property
    def rows(self) -> list[Row]:
        """The comparability tables so far; of several candidates each row names its own (`arm`)."""
        return [row for arm in self._choice.arms for row in self._rows.get(arm.name, ())]

    def met(self, arm: Arm, identity: Identity, tell: Tell) -> None:
        """Note what an arm is, and compare what can be compared now; `tell` is given each table once."""
        self.arms[arm.name], self.identities[arm.name] = arm, identity
        baseline, *others = [self.arms[one.name] for one in self._choice.arms]
        for other in others:
            known = baseline.name in self.identities and other.name in self.identities
            if not known or arm.name not in (baseline.name, other.name):
                continue
            rows = comparability((baseline, other), self.identities, self._waived, aa=self._choice.aa)
            named = {"arm": other.name} if len(others) > 1 else {}
            first = other.name not in self._rows
            self._rows[other.name] = [row | named for row in rows]
            if first:
                tell({"event": "compared", "rows": self._rows[other.name], **named})

    def agree(self, experiment: Experiment) -> None:
        """Settle how all arms are asked. Raises UsageError where a rate limit stands in the way of the plan."""
        arms = list(self.arms.values())
        self.arms = agreed(arms, self.identities, experiment.generation)
        refuse_above_limits(arms, self.identities, experiment.load)
