"""Users who wait for tools are no client that failed to reach its load."""

from __future__ import annotations

import pyarrow as pa
import pytest

from loadtest.analyse.cells import _pauses_by_plan
from loadtest.analyse.table import CellRows, derive
from loadtest.record import REQUEST_SCHEMA, CellRecord, Outcome, Request


def cell(*, pause_s: float, every: int = 1, outcome: str = Outcome.OK.value, users: int = 3) -> CellRows:
    """A cell in which users pause before every `every`-th of their 40 requests of 0.5 s each."""
    requests = []
    for user in range(users):
        now_s = 0.1 * user
        for turn in range(40):
            now_s += pause_s if turn % every == every - 1 else 0.0
            requests.append(Request(cell=0, user=user, turn=turn, due_s=now_s, sent_s=now_s, end_s=now_s + 0.5,
                                    outcome=outcome))  # fmt: skip
            now_s += 0.5
    requests.reverse()  # the order in which they were kept does not matter
    table = pa.Table.from_pylist(
        [{name: getattr(request, name) for name in REQUEST_SCHEMA.names} for request in requests], schema=REQUEST_SCHEMA
    )
    record = CellRecord(cell=0, arm="baseline", level=users, block=0, order=0, state="complete",
                        started_s=0.0, window_open_s=0.0, window_close_s=20.0)  # fmt: skip
    return derive(table, [record]).cell(record)


@pytest.mark.parametrize(
    ("rows", "pauses"),
    [
        (cell(pause_s=0.0), False),
        (cell(pause_s=0.6), True),
        (cell(pause_s=0.6, every=4), True),  # tools on some turns only
        (cell(pause_s=1.0, outcome=Outcome.HTTP_ERROR.value), False),  # a wait after failures
        (None, False),
    ],
)
def test_pauses_that_were_planned(rows: CellRows | None, pauses: bool) -> None:
    assert _pauses_by_plan(rows) is pauses
