"""When a worker sends what it measured, and when again: after cuts, and over lines that carry no rows."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from loadtest.drive.workers.outbox import AT_ONCE, LONGEST_S, Outbox
from loadtest.drive.workers.spool import Spool, rows_in
from loadtest.record import Request

ROOT = Path(__file__).parents[3]
TICK_S = 0.1  # between two reports of a worker


def sendings(outbox: Outbox, now_s: list[float], length_s: float, heard: int | None = None) -> list[float]:
    """Return when something was sent; `heard` is what the master says all the while, None where it says nothing."""
    found, until_s = [], now_s[0] + length_s
    while now_s[0] < until_s:
        now_s[0] += TICK_S
        if heard is not None:
            outbox.has(heard)
        if outbox.to_send():
            found.append(now_s[0])
    return found


def filled(batches: int = 3) -> tuple[Outbox, list[float]]:
    now_s = [100.0]
    outbox = Outbox(lambda: now_s[0], "w")
    for _ in range(batches):
        outbox.put(10, lambda: b"rows")
    return outbox, now_s


def test_what_a_master_does_not_take_is_sent_again_at_waits_that_double_up_to_the_longest() -> None:
    outbox, now_s = filled()
    sent_s = sendings(outbox, now_s, 300.0, heard=0)
    waits_s = [after - before for before, after in pairwise(sent_s)]
    for wait_s, doubled_s in zip(waits_s, (1.0, 2.0, 4.0, 8.0, *[LONGEST_S] * 50), strict=False):
        assert 0.75 * doubled_s - TICK_S <= wait_s <= 1.25 * doubled_s + 2 * TICK_S
    assert 15 < len(sent_s) < 30  # in five minutes; once a second it were 300 times
    assert len({round(wait_s, 1) for wait_s in waits_s[5:]}) > 5  # spread, so that workers do not send in step


def test_what_follows_a_gap_waits_and_is_sent_once_the_master_has_what_came_before() -> None:
    outbox, now_s = filled()
    assert len(outbox.to_send()) == 3
    sendings(outbox, now_s, 4.0, heard=0)  # again, twice
    outbox.put(10, lambda: b"more")
    assert outbox.to_send() == []
    outbox.has(30)
    assert [(part["first"], part["batch"]) for part in outbox.to_send()] == [(30, b"more")]
    outbox.has(40)
    assert sendings(outbox, now_s, 60.0, heard=40) == []
    outbox.put(5, lambda: b"last")
    assert [part["first"] for part in outbox.to_send()] == [40]  # at once: nothing is in doubt any more


def test_after_a_cut_it_is_sent_again_within_a_good_second_however_long_the_waits_had_become() -> None:
    outbox, now_s = filled()
    sendings(outbox, now_s, 60.0, heard=0)
    now_s[0] += 30.0  # not a word, and nothing is sent meanwhile
    outbox.has(10)
    assert [part["first"] for part in outbox.to_send()] in ([], [10])
    outbox, now_s = filled()
    sendings(outbox, now_s, 60.0, heard=0)
    now_s[0] += 30.0
    (first_s, *_) = sendings(outbox, now_s, 5.0, heard=0)
    assert first_s - (now_s[0] - 5.0) <= 1.25 + 2 * TICK_S


def test_at_the_end_of_a_run_it_is_sent_again_at_once() -> None:
    outbox, now_s = filled()
    sendings(outbox, now_s, 60.0, heard=0)
    outbox.hurry()
    now_s[0] += TICK_S
    assert len(outbox.to_send()) == 3
    assert outbox.to_send() == []


def test_no_more_than_a_window_is_on_its_way_and_all_of_a_backlog_arrives_in_order() -> None:
    outbox, now_s = filled(5 * AT_ONCE)
    came, most = 0, 0
    for _ in range(1000):
        now_s[0] += TICK_S
        parts = outbox.to_send()
        most = max(most, len(parts))
        for part in parts:
            assert part["first"] == came
            came += part["rows"]
        outbox.has(came)
    assert (came, most) == (50 * AT_ONCE, AT_ONCE)


def test_a_backlog_is_kept_in_the_file_and_not_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add(Request(cell=0, session=-1))
    spool.flush()  # what Arrow loads for it is no backlog
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    for number in range(600):
        times_s = [number + 0.001 * place for place in range(800)]
        spool.add(Request(cell=0, session=number, chunk_s=times_s, chunk_tokens=[1] * 800))
        if number % 10 == 9:
            spool.flush()
    held = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert (tmp_path / "requests.arrows").stat().st_size > 5_000_000
    assert held < 500_000
    sessions: list[int] = []
    while parts := spool.to_send():
        for part in parts:
            rows = rows_in(part["batch"], part["rows"])
            assert rows is not None
            sessions += [row["session"] for row in rows]
        spool.has(len(sessions))
    assert sessions == list(range(-1, 600))
    spool.close()


SCRIPT = """
import sys, time
from pathlib import Path
import gevent
import locust
from loadtest.drive.job import Job
from loadtest.drive.workers.contact import Contact
from loadtest.drive.workers.left import report
from loadtest.drive.workers.master import Master
from loadtest.drive.workers.messages import REPORT, Hub
from loadtest.drive.workers.spool import Spool
from loadtest.record import Request
from loadtest.settings import Experiment

where, kept, came = Path(sys.argv[1]), [], []
(where / "x.py").write_text("pass")

class Deaf(Master):
    deaf = True

    def _rows(self, peer, part):
        came.append((time.monotonic(), part["first"]))
        if not self.deaf:
            super()._rows(peer, part)

job = Job(folder=where, scenario=where / "x.py", experiment=Experiment(), arms=(), cells=(), prompts=None,
          salted={}, simulated={}, run_id="r", origin_ns=0, calibration=None)
master = Deaf(job, Hub("127.0.0.1", 0), lambda request: kept.append(request.session))
spool = Spool(where / "spool")
contact = Contact("127.0.0.1", master.port, "node", lambda state: spool.has(int(state["rows"])))
contact.join("w", 10.0)
for session in range(500):
    spool.add(Request(cell=0, session=session))
    if session % 100 == 99:
        spool.flush()

def go_on(length_s):
    until_s = time.monotonic() + length_s
    while time.monotonic() < until_s and not spool.all_heard:
        contact.send(REPORT, report(parts=spool.to_send(), rows=spool.rows))
        gevent.sleep(0.1)

go_on(9.0)
sendings = sum(first == 0 for _, first in came)
assert 3 <= sendings <= 5, came  # at 0, 1, 3 and 7 s, more or less
assert kept == []
master.deaf = False
go_on(15.0)
assert kept == list(range(500)), len(kept)
spool.close()
"""


@pytest.mark.nightly
def test_over_a_real_line_that_carries_no_rows_it_is_sent_less_and_less_often_and_arrives_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
