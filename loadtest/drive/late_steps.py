"""How many steps of simulated servers ended late: a run with too many of them measured this machine, not the model."""

from __future__ import annotations

from loadtest.servers.control import Arm, Control


class LateSteps:
    """Counts the steps of simulated servers while they are measured, over all their starts."""

    def __init__(self) -> None:
        """Know no server yet."""
        self._open: dict[str, tuple[Arm, int, int]] = {}
        self._steps: dict[str, int] = {}
        self._late: dict[str, int] = {}
        self._untold: set[str] = set()

    def open(self, arm: Arm) -> None:
        """Begin with a server that is up: what it did before does not count."""
        self._steps.setdefault(arm.name, 0)
        self._late.setdefault(arm.name, 0)
        self._open[arm.name] = (arm, *(_told(arm) or (0, 0)))

    def close(self) -> None:
        """Count what the servers did since they were opened; they may end now."""
        while self._open:
            name, (arm, steps, late) = self._open.popitem()
            told = _told(arm)
            if told is None:
                self._untold.add(name)
                continue
            self._steps[name] += told[0] - steps
            self._late[name] += told[1] - late

    def ratios(self) -> dict[str, float | None]:
        """Return late steps ÷ steps by arm; None for one that did not tell, or took no step."""
        return {
            name: None if name in self._untold or not steps else self._late[name] / steps
            for name, steps in self._steps.items()
        }


def _told(arm: Arm) -> tuple[int, int] | None:
    control = Control(arm)
    try:
        data = control.json("/simulate/truth")
    finally:
        control.close()
    if not isinstance(data, dict):
        return None
    steps, late = data.get("steps"), data.get("late_steps")
    return (steps, late) if isinstance(steps, int) and isinstance(late, int) else None
