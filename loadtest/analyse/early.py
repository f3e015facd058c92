"""May a run end early? Only where it has certainly failed: at two looks that are set beforehand, α = 0.001 at each.

What fails here fails at the end as well, since its wider interval already leaves out the limit; nothing ever passes
early.
"""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from loadtest.analyse.gate_results import GateOutcome
from loadtest.analyse.gating import Asked
from loadtest.analyse.judge import judge_data
from loadtest.analyse.looks import candidates_in
from loadtest.analyse.results import Judgement
from loadtest.analyse.shares import exact_interval
from loadtest.run_folder import read_cells, read_requests, read_run, read_scrapes

ALPHA = 0.001  # one-sided, of a look
LOOKS = (1 / 3, 2 / 3)  # of the blocks
HOPELESS = 0.5  # share of failed requests above which nothing can be learnt any more
LEAST = 50  # requests before an error ratio is called hopeless


def look_blocks(blocks: int) -> tuple[int, ...]:
    """Return after how many whole blocks a run of so many is looked at; never before the second, never at the end."""
    looks = {math.ceil(share * blocks - 1e-9) for share in LOOKS}
    return tuple(sorted(look for look in looks if 2 <= look < blocks))


def look(folder: Path, blocks: int) -> str:
    """Return why the run in a folder, of which so many blocks have ended, cannot pass any more; empty when it may."""
    run = {**read_run(folder), "status": "complete", "reason": "", "judged_blocks": None}
    cells = [cell for cell in read_cells(folder) if cell.block < blocks]
    own = pa.array(sorted(cell.cell for cell in cells), pa.int32())
    requests = read_requests(folder)
    requests = requests.filter(pc.is_in(requests.column("cell"), own))
    # One of several loads, or of several candidates, fails more easily by chance.
    confidence = 1 - 2 * ALPHA / (max(1, len({c.level for c in cells})) * candidates_in(run))
    asked = Asked(allow_simulated=True, confidence=confidence)
    return certain_failure(judge_data(run, cells, read_scrapes(folder), requests, None, asked))


def certain_failure(judgement: Judgement) -> str:
    """Return what a judgement with the confidence of a look says against going on, in a sentence's part."""
    if judgement.pairs:  # it goes on as long as one candidate may pass
        found = [certain_failure(pair) for pair in judgement.pairs]
        return found[0] if all(found) else ""
    for arm in judgement.arms:
        rows = [row for row in judgement.arm_levels if row.arm == arm]
        due, failed = sum(row.requests for row in rows), sum(row.failed for row in rows)
        if due >= LEAST and exact_interval(failed, due, 1 - 2 * ALPHA)[0] > HOPELESS:
            return f"{failed} of {due} requests to {arm} failed"
    results = judgement.gate.objectives if judgement.gate else ()
    failed_slo = next((r for r in results if r.outcome is GateOutcome.FAIL), None)
    return f"{failed_slo.sentence} has certainly failed (α = {ALPHA:g})" if failed_slo else ""
