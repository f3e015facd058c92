"""Loads that a server did not carry: cells that were given up because of it, and not of the client.

Such a cell has no figures. What is left of its level comes from the blocks in which the server happened to cope: there
nothing is compared and no objective is met, and where no block is left, every limit was missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from loadtest.analyse.rules import Mark, Unknown
from loadtest.analyse.run_facts import RunFacts
from loadtest.loads import unit
from loadtest.record import NOT_CARRIED, CellRecord

Uncarried = Mapping[tuple[str, float], int]  # (arm, level) → cells

NEVER = "its server carried the load in no block"


def uncarried(cells: Sequence[CellRecord]) -> Uncarried:
    """Return how many cells of an arm at a level were given up because its server did not carry the load."""
    return Counter((c.arm, c.level) for c in cells if c.state == NOT_CARRIED)


def partly(lost: int, left: int) -> str:
    """Return why what is left of a level shows nothing."""
    return f"its server did not carry the load in {lost} of {lost + left} blocks, and the others are its better ones"


def load_not_carried(facts: RunFacts) -> Mark | Unknown | None:
    """A level at which a server gave in, in some block or in all."""
    if not facts.cells:
        return Unknown(missing="cells")
    lost = uncarried(facts.cells)
    if not lost:
        return None
    found = []
    for (arm, level), count in sorted(lost.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        every = sum(c.arm == arm and c.level == level for c in facts.cells)
        found.append(f"{arm} at {level:g} {unit()} in {count} of {every} blocks")
    return Mark(
        sentence=f"The load was not carried: {'; '.join(found)} (limit: carried in every block). Nothing is compared at"
        " such a level, and no objective is met there."
    )
