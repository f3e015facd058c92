"""Records that contradict themselves or each other: nothing damaged is judged in silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadtest.analyse.table import CellRows, Requests
from loadtest.record import CellRecord, PlannedCell

BACKWARDS_S = 0.001  # arrivals of one stream have one clock
CLOCKS_S = 0.010  # arrivals may be stamped by the kernel's clock, the rest by ours
MOST_TOKENS = 1_000_000  # of one answer: no experiment asks for more
NAMED = 6  # cells that a sentence names

Flags = NDArray[np.bool_]


def cell_damage(record: CellRecord, rows: CellRows) -> tuple[str, ...]:
    """Return a sentence for each way in which a cell's record and its requests cannot be true; empty when sound."""
    count = rows.stop - rows.start
    found = [f"The records are damaged: {_order(record)}."] if _order(record) else []
    for what, test in REQUEST_TESTS:
        bad = int(test(record, rows).sum()) if count else 0
        if bad:
            verb = "is" if bad == 1 else "are"
            found.append(f"The records are damaged: {bad} of {count} requests {verb} {what}.")
    return tuple(found)


def _order(record: CellRecord) -> str:
    """Name the first two instants of a cell that do not follow each other."""
    names = ("started_s", "window_open_s", "window_close_s", "drained_s")
    given = [(name, value) for name in names if (value := getattr(record, name)) is not None]
    wrong = [(a, b) for (a, early), (b, late) in pairwise(given) if late < early]
    return f"{wrong[0][1]} is before {wrong[0][0]}" if wrong else ""


def _repeated(record: CellRecord, rows: CellRows) -> Flags:
    keys = [rows.column(name) for name in ("due_s", "turn", "session", "user")]
    order = np.lexsort(keys)
    same = np.ones(len(order) - 1, dtype=bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    return np.asarray(same)


def _misplaced(record: CellRecord, rows: CellRows) -> Flags:
    arm = record.arm
    code = rows.words["arm"].index(arm) if arm in rows.words["arm"] else -1
    place = (rows.column("level") == record.level) & (rows.column("block") == record.block)
    return np.asarray(~(place & (rows.column("arm") == code)))


def _untimed(record: CellRecord, rows: CellRows) -> Flags:
    due, sent, end = (rows.column(name) for name in ("due_s", "sent_s", "end_s"))
    wrong = np.isnan(due) | (sent < due - CLOCKS_S) | (end < due - CLOCKS_S) | (end < sent - CLOCKS_S)
    ok = rows.ok & np.isnan(end)
    last = due + rows.column("e2e_s")
    return np.asarray(wrong | ok | (rows.column("ttft_s") < -CLOCKS_S) | (last > end + CLOCKS_S))


def _backwards(record: CellRecord, rows: CellRows) -> Flags:
    return np.asarray(rows.column("least_gap_s") < -BACKWARDS_S)


def _miscounted(record: CellRecord, rows: CellRows) -> Flags:
    """Tokens beyond any answer, or more in the chunks than the server's own last count (where it gave them)."""
    said, carried = rows.column("output_tokens"), rows.column("tokens")
    words = rows.words["tokens_source"]
    usage = rows.column("tokens_source") == (words.index("usage") if "usage" in words else -1)
    more = rows.ok & usage & (said >= 0) & (carried > said)
    return np.asarray(more | (said > MOST_TOKENS) | (carried > MOST_TOKENS))


REQUEST_TESTS: tuple[tuple[str, Callable[[CellRecord, CellRows], Flags]], ...] = (
    ("recorded twice", _repeated),
    ("of another arm, level or block", _misplaced),
    ("due, sent or ended in an order that cannot be", _untimed),
    ("made of chunks that arrive backwards", _backwards),
    ("of more tokens than can be", _miscounted),
)


def run_damage(cells: Sequence[CellRecord], plan: Sequence[PlannedCell] | None, requests: Requests) -> tuple[str, ...]:
    """Return a sentence for each way in which plan, cells and requests of a complete run contradict each other."""
    recorded = {c.cell: (c.arm, c.level, c.block) for c in cells}
    planned = recorded if plan is None else {c.cell: (c.arm, c.level, c.block) for c in plan}
    missing = sorted(set(planned) - set(recorded))
    other = sorted(number for number, place in recorded.items() if planned.get(number) != place)
    stray = sorted(set(requests.bounds) - set(recorded) - set(missing))
    lacking = f"{len(missing)} of the {len(planned)} cells of plan.jsonl were not recorded ({_cells(missing)})"
    found = (
        (missing, f"the run is said to be complete, and {lacking}"),
        (other, f"{_cells(other)} {'is' if len(other) == 1 else 'are'} not what plan.jsonl says"),
        (stray, f"there are requests of {_cells(stray)} without a line in cells.jsonl"),
    )
    return tuple(f"The records are damaged: {text}." for cause, text in found if cause)


def _cells(numbers: Sequence[int]) -> str:
    named = ", ".join(str(n) for n in numbers[:NAMED]) + (" …" if len(numbers) > NAMED else "")
    return f"cell{'' if len(numbers) == 1 else 's'} {named}"
