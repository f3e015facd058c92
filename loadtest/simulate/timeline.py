"""What happens at each step, by step number: context tokens to be read (known ahead) and end times (known after)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loadtest.simulate.draws import Floats


class Timeline:
    """Two arrays over a sliding range of step numbers; what lies before the oldest request is forgotten."""

    def __init__(self, size: int = 1 << 14) -> None:
        """Begin at step 0 with room for `size` steps."""
        self.base = 0  # step number of index 0
        self.kv_tokens: Floats = np.zeros(size)
        self.ends_s: Floats = np.zeros(size)

    def reserve(self, last_step: int, oldest: Callable[[], int]) -> None:
        """Make room up to `last_step`, keeping everything from the step that `oldest` returns on."""
        if last_step - self.base < self.kv_tokens.size:
            return
        oldest_step = oldest()
        kept = slice(oldest_step - self.base, None)
        size = self.kv_tokens.size
        while last_step - oldest_step >= size // 2:
            size *= 2
        for name in ("kv_tokens", "ends_s"):
            old = getattr(self, name)[kept]
            new = np.zeros(size)
            new[: old.size] = old
            setattr(self, name, new)
        self.base = oldest_step

    def times_s(self, first_step: int, stop_step: int) -> list[float]:
        """Return the end times of the steps in [first_step, stop_step)."""
        times: list[float] = self.ends_s[first_step - self.base : stop_step - self.base].tolist()
        return times
