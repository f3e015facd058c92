"""Which cells of a run are judged, and how sure its intervals are: two stages, and looks at a run that goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loadtest.analyse.stats import CONFIDENCE, shared
from loadtest.analyse.validity import Mark
from loadtest.record import CellRecord, PlannedCell

COARSE = Mark(sentence="First stage: it chose the levels and is not judged.")
HELD_BACK = Mark(sentence="After the last look: judged at the next one.")


def judged_cells(run: Mapping[str, Any], cells: Sequence[CellRecord]) -> list[CellRecord]:
    """Return the cells that are judged: all, unless the run says from which block to which."""
    return [cell for cell in cells if unjudged(run, cell) is None]


def unjudged(run: Mapping[str, Any], cell: CellRecord) -> Mark | None:
    """Return why a cell of a sound run is not judged, or None."""
    blocks = run.get("judged_blocks")
    if not blocks:
        return None
    first, stop = blocks
    return COARSE if cell.block < first else HELD_BACK if cell.block >= stop else None


def begun(
    run: Mapping[str, Any], cells: Sequence[CellRecord], plan: Sequence[PlannedCell] | None, requests: pa.Table
) -> tuple[Sequence[PlannedCell] | None, pa.Table]:
    """Return plan and requests without what was begun after the last look and not ended: it is judged at the next."""
    if not run.get("look") or not run.get("judged_blocks"):
        return plan, requests
    stop, recorded = run["judged_blocks"][1], {cell.cell for cell in cells}
    if plan is not None:
        plan = [cell for cell in plan if cell.block < stop or cell.cell in recorded]
    own = pc.is_in(requests.column("cell"), pa.array(sorted(recorded), pa.int32()))
    return plan, requests.filter(pc.or_(own, pc.less(requests.column("block"), stop)))


def confidence(run: Mapping[str, Any]) -> float:
    """Return the confidence of a run's intervals: 0.95, and more at a later look; of several candidates, of all."""
    return float((run.get("look") or {}).get("confidence") or CONFIDENCE)


def of_candidate(run: Mapping[str, Any]) -> float:
    """Return the confidence of one candidate's intervals against the baseline, such that those of all hold together."""
    return shared(confidence(run), candidates_in(run))


def candidates_in(run: Mapping[str, Any]) -> int:
    """Return how many candidates the run compares with its baseline, at least 1."""
    return max(1, len(run.get("candidates") or ()))


def many_starts(run: Mapping[str, Any]) -> bool:
    """Return whether the servers were started anew for every block, so that a start is a source of variation."""
    starts = run.get("starts", 1)
    return isinstance(starts, int) and starts > 1
