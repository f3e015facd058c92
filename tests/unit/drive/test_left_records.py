"""What workers left is delivered over real lines: by masters that know them, that do not, and that are silent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

HEAD = """
import contextlib, os, sys, time
from pathlib import Path
import gevent
import locust
from loadtest.drive.job import Job
from loadtest.drive.workers import left
from loadtest.drive.workers.contact import Contact
from loadtest.drive.workers.left import claimed, deliver_left
from loadtest.drive.workers.master import Master
from loadtest.drive.workers.messages import Hub
from loadtest.drive.workers.spool import Spool
from loadtest.errors import UsageError
from loadtest.record import Request
from loadtest.settings import Experiment

where, kept = Path(sys.argv[1]), []
(where / "x.py").write_text("pass")

def master(run_id, port=0):
    job = Job(folder=where, scenario=where / "x.py", experiment=Experiment(), arms=(), cells=(), prompts=None,
              salted={}, simulated={}, run_id=run_id, origin_ns=0, calibration=None)
    return Master(job, Hub("127.0.0.1", port), lambda request: kept.append(request.session))

def left_behind(spool, node, sessions):
    one = Spool(spool / node)
    for session in sessions:
        one.add(Request(cell=0, session=session))
        one.flush()
    one.close()

def open_files():
    return len(os.listdir("/proc/self/fd"))
"""

KNOWN = """
# One that two of them joined, and two did not; one had sent a part, one holds nothing, one is at work.
spool = where / "spool"
first = master("first")
joined = [Contact("127.0.0.1", first.port, node, lambda state: None) for node in ("some", "none")]
for contact in joined:
    contact.join("w", 10.0)
    contact.close()
first.peers["some"].rows = 150
left_behind(spool, "some", range(200))
left_behind(spool, "none", range(1000, 1003))
left_behind(spool, "other", range(5))
left_behind(spool, "others", range(6))
left_behind(spool, "empty", ())
left_behind(spool, "busy", range(7))
before = open_files()
left.DELIVER_S = 20.0
with claimed(spool / "busy"):
    began_s = time.monotonic()
    said, stays = deliver_left("127.0.0.1", first.port, spool, "it died")
assert time.monotonic() - began_s < 5, time.monotonic() - began_s  # what is refused is not waited for
assert sorted(kept) == [*range(150, 200), 1000, 1001, 1002], kept
assert said == (
    "Delivered what 2 workers that ended had not sent (of 203 requests the master has each). What 2 workers measured"
    f" for another master (11 requests) stays in {spool}: where that run is resumed, it measures anew what its master"
    " lacked, and this can be removed."
), said
assert stays == 11, stays
assert sorted(path.name for path in spool.iterdir()) == ["busy", "other", "others"]
assert [first.peers[node].gone for node in ("some", "none")] == ["it died"] * 2
until_s = time.monotonic() + 10
while open_files() > before and time.monotonic() < until_s:
    gevent.sleep(0.05)
assert open_files() <= before, [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")][before:]
assert deliver_left("127.0.0.1", first.port, where / "nothing", "it died") == ("", 0)
"""

SILENT = """
# Nobody answers: all are given up together.
silent, left.DELIVER_S, began_s = where / "silent", 0.3, time.monotonic()
for number in range(20):
    left_behind(silent, f"node{number}", [number] * 2)
said, stays = deliver_left("127.0.0.1", 9, silent, "it died")
assert time.monotonic() - began_s < 8, time.monotonic() - began_s
assert said == f"No master said that it has 40 requests of 20 workers that ended; they are in {silent}.", said
assert len(list(silent.iterdir())) == 20 and stays == 40

# A worker whose master ended finds out that another is in its place, and does not take it for its own.
heard, first = [], master("first")
contact = Contact("127.0.0.1", first.port, "node", heard.append)
contact.join("w", 10.0)
assert contact.stranger == ""
first.close(0.0)
until_s, second = time.monotonic() + 20, None
while second is None:  # the port is free once the line's own threads have let go of it
    gevent.sleep(0.05)
    with contextlib.suppress(UsageError):
        second = master("second", first.port)
while not contact.stranger and time.monotonic() < until_s:
    gevent.sleep(0.05)
assert contact.stranger == "second", contact.stranger
heard.clear()
silent_s = contact.silent_s
gevent.sleep(0.3)
assert heard == [] and contact.silent_s > silent_s + 0.2
contact.close()
second.close(0.0)
"""


def run(script: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HEAD + script, str(folder)], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_is_left_goes_to_the_master_that_it_is_for_and_to_no_other(tmp_path: Path) -> None:
    run(KNOWN, tmp_path)


@pytest.mark.nightly
def test_a_silence_is_waited_for_once_and_another_master_is_not_taken_for_the_own(tmp_path: Path) -> None:
    run(SILENT, tmp_path)
