"""The parts that master and workers are made of, each by itself: clocks, dealing, spool, files, phases, words."""

from __future__ import annotations

import hashlib
import math
import re
import resource
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest

from loadtest.drive.arriving import Opened
from loadtest.drive.job import Workers
from loadtest.drive.options import Options
from loadtest.drive.phases import Phase
from loadtest.drive.plan import Cell
from loadtest.drive.resume import whole_cells
from loadtest.drive.timetable import Timetable
from loadtest.drive.workers.dealing import Share
from loadtest.drive.workers.elsewhere import work
from loadtest.drive.workers.files import PART, Fetched, Named, Offered
from loadtest.drive.workers.merged import merged
from loadtest.drive.workers.offset import Clocks, Offset, RoundTrip
from loadtest.drive.workers.outbox import Outbox
from loadtest.drive.workers.peers import Peer
from loadtest.drive.workers.phases import Count, JoinedPhases, ToldPhases, Word
from loadtest.drive.workers.spool import Spool, batches_in, left_in, rows_in
from loadtest.drive.workers.wanted import place_of, refuse_taken, refuse_unreachable, wanted
from loadtest.drive.workers.words import count_from, found_from
from loadtest.errors import UsageError
from loadtest.experiment import override
from loadtest.record import CellRecord, KeptText, Request
from loadtest.settings import Experiment, Window

MS = 1_000_000
ROOT = Path(__file__).parents[3]


def trip(offset_ns: int, there_ns: int, back_ns: int, asked_ns: int = 0, answering_ns: int = 50_000) -> RoundTrip:
    heard = asked_ns + there_ns + offset_ns
    return RoundTrip(asked_ns=asked_ns, heard_ns=heard, answered_ns=heard + answering_ns,
                     came_ns=asked_ns + there_ns + answering_ns + back_ns)  # fmt: skip


def test_a_way_that_is_slower_there_than_back_is_within_the_bound() -> None:
    one = trip(7_000 * MS, there_ns=9 * MS, back_ns=1 * MS)
    assert one.offset_ns == 7_004 * MS  # wrong by half of the difference of both ways
    assert one.bound_ns == 5 * MS
    assert abs(one.offset_ns - 7_000 * MS) <= one.bound_ns


def test_of_many_round_trips_the_quickest_tells_and_its_bound_holds() -> None:
    rng, true_ns, clocks = Random(1), -123_456_789_012, Clocks(same=False)
    for number in range(50):
        there, back = (int(rng.expovariate(1 / (3 * MS))) + 20_000 for _ in range(2))
        clocks.add(trip(true_ns, there, back, asked_ns=number * 100 * MS))
        found = clocks.offset(number * 100 * MS)
        assert found is not None
        assert abs(found.offset_ns - true_ns) <= found.bound_ns
    assert found.bound_ns < 2 * MS  # single ones are 3 ms wrong on average


def test_a_bound_grows_by_15_microseconds_a_second_and_follows_a_clock_that_drifts() -> None:
    one = trip(0, MS, MS)
    assert one.bound_at(one.came_ns + 10_000 * MS) == one.bound_ns + 150_000
    clocks = Clocks(same=False)
    clocks.add(one)
    used = clocks.offset(one.came_ns)
    assert used is not None
    later = 60_000 * MS
    clocks.add(trip(3 * MS, MS // 10, MS // 10, asked_ns=later))  # 50 ppm fast for a minute
    assert clocks.bound_since(used, later - MS) == 3 * MS + MS // 10
    assert clocks.bound_since(used, later + MS) is None  # nothing was heard since


def test_two_processes_on_one_boot_have_one_clock_unless_round_trips_exclude_it() -> None:
    near, far = Clocks(same=True), Clocks(same=True)
    near.add(trip(0, MS, 2 * MS))
    far.add(trip(5_000 * MS, MS, 2 * MS))  # a time namespace of its own
    assert near.offset(0) == Offset(offset_ns=0, bound_ns=0)
    assert near.bound_since(Offset(offset_ns=0, bound_ns=0), 0) == 0
    found = far.offset(0)
    assert found is not None
    assert abs(found.offset_ns - 5_000 * MS) <= found.bound_ns


def test_a_round_trip_that_contradicts_itself_is_left_out() -> None:
    clocks = Clocks(same=False)
    clocks.add(RoundTrip(asked_ns=10, heard_ns=0, answered_ns=100, came_ns=20))  # answered for longer than it took
    assert clocks.offset(0) is None


@pytest.mark.parametrize(("users", "count"), [(1, 1), (8, 3), (2, 3), (128, 4), (7, 7)])
def test_every_user_is_driven_once_whatever_the_number_of_workers(users: int, count: int) -> None:
    shares = [Share(index=index, count=count) for index in range(count)]
    driven = [share.user(position) for share in shares for position in range(share.users(users))]
    assert sorted(driven) == list(range(users))
    assert all([share.has(user) for share in shares].count(True) == 1 for user in range(users))


def a_request(number: int, cell: int = 0) -> Request:
    return Request(cell=cell, arm="baseline", user=number, session=number, due_s=float(number), chunk_s=[number + 0.5],
                   chunk_tokens=[1], outcome="ok", end_s=number + 1.0)  # fmt: skip


def test_rows_that_get_lost_or_come_twice_arrive_once_and_in_order(tmp_path: Path) -> None:
    now_s, rng = [0.0], Random(3)
    spool, came, number = Spool(tmp_path, lambda: now_s[0]), list[int](), 0
    for step in range(2500):
        now_s[0] += 0.1
        for _ in range(rng.randrange(4) if step < 300 else 0):
            spool.add(a_request(number))
            number += 1
        for part in spool.to_send():
            for _ in range(rng.choice([0, 1, 1, 2])):  # lost, or twice
                rows = rows_in(part["batch"], part["rows"])
                assert rows is not None
                if part["first"] <= len(came) < part["first"] + part["rows"]:
                    came += [row["user"] for row in rows][len(came) - part["first"] :]
        if rng.random() < 0.5:  # the word on it may get lost too
            spool.has(len(came))
    assert came == list(range(number))
    assert number > 300
    spool.has(len(came))
    assert spool.to_send() == []
    spool.close()


def test_what_a_dead_worker_had_not_sent_is_read_from_its_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(10):
        spool.add(a_request(number))
    spool.to_send()  # on disk; the process is gone without a close
    with (tmp_path / "requests.arrows").open("ab") as file:
        file.write(b"\x00\x01half a batch")
    left = left_in(tmp_path, 7)
    assert [request.user for request in left] == [7, 8, 9]
    assert list(left[0].chunk_s) == [7.5]
    assert math.isnan(left[0].sent_s)
    assert left_in(tmp_path / "never there", 0) == []
    spool.close()


def test_rows_that_a_full_disk_does_not_take_are_sent_all_the_same(tmp_path: Path) -> None:
    spool, limits = Spool(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    spool.add(a_request(0))
    assert len(spool.to_send()) == 1
    assert spool.unwritten is None
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "requests.arrows").stat().st_size + 100, limits[1]))
    try:
        for number in range(1, 100):
            spool.add(a_request(number))  # 64 are written at once
        sent = spool.to_send()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert spool.unwritten is not None
    assert [row["user"] for part in sent for row in rows_in(part["batch"], part["rows"]) or ()] == list(range(1, 100))
    assert (spool.rows, spool.all_heard) == (100, False)
    spool.close()
    assert [request.user for request in left_in(tmp_path, 0)] == [0]


def test_a_file_that_lost_its_end_holds_nothing_that_the_master_lacks() -> None:
    outbox = Outbox(lambda: 0.0)
    outbox.put(2, bytes)
    outbox.has(5)  # more came over the line than the file kept
    assert (outbox.heard, outbox.rows) == (2, 2)
    assert outbox.to_send() == []


def test_what_is_left_begins_anywhere_in_a_batch(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(9):
        spool.add(a_request(number))
        if number % 4 == 3:
            spool.to_send()
    spool.close()
    assert [batch.num_rows for batch in batches_in(tmp_path)] == [4, 4, 1]
    for row in range(11):
        assert [request.user for request in left_in(tmp_path, row)] == list(range(row, 9))


def test_a_worker_whose_first_session_arrives_after_the_window_is_not_taken_for_one_that_sends_nothing() -> None:
    times = Timetable(sessions_per_s=0.1, opens_s=1.0, window_s=10.0, cut=False)
    opened = Opened(override(Experiment(), "load", kind="open"), 0.1, 0, times, None)
    closes_s = 111.0
    assert not opened.sends_by(closes_s)  # none came
    opened.let_in(3, 111.2)  # its user is made a little before that, when nothing can have been sent
    assert opened.next == (3, 111.2)
    assert not opened.sends_by(closes_s)
    opened.let_in(7, 140.0)
    assert not opened.sends_by(closes_s)
    early = Opened(override(Experiment(), "load", kind="open"), 0.1, 0, times, None)
    early.let_in(0, 105.0)
    early.let_in(4, 110.9)
    assert early.sends_by(closes_s)  # without a request by then it sends none


@pytest.mark.parametrize("data", [b"", b"not a batch", "text", None])
def test_a_batch_that_is_none_is_not_taken(data: object) -> None:
    assert rows_in(data, 1) is None


def test_a_file_comes_in_parts_and_is_held_against_its_hash(tmp_path: Path) -> None:
    there, here = tmp_path / "there" / "prompts.jsonl", tmp_path / "here"
    there.parent.mkdir()
    there.write_bytes(Random(1).randbytes(2 * PART + 10))
    offered, fetched = Offered([there]), Fetched(here)
    named = Named(**asdict(offered.named[0]))
    contents = there.read_bytes()
    assert named.sha256 == hashlib.sha256(contents).hexdigest()
    there.rename(there.with_name("moved"))  # as on another machine
    offered._paths[named.sha256] = there.with_name("moved")
    wanted_parts = 0
    while (want := fetched.take(named)) is not None:
        wanted_parts += 1
        part = offered.part(want)
        assert part is not None
        fetched.came(part)
        fetched.came(part)  # twice does no harm
    assert wanted_parts == 3
    assert fetched.take(named) is None
    assert fetched._coming == {}  # the next cell asks for it again: neither twice over the line nor twice in memory
    assert fetched.local(str(there)).read_bytes() == contents
    assert fetched.local(str(there)).name == "prompts.jsonl"


def test_no_file_is_handed_out_that_was_not_offered_and_none_taken_that_was_changed(tmp_path: Path) -> None:
    secret, scenario = tmp_path / "secret", tmp_path / "chat.py"
    secret.write_text("key")
    scenario.write_text("pass")
    offered = Offered([scenario])
    assert offered.part({"sha256": hashlib.sha256(b"key").hexdigest(), "start": 0}) is None
    assert offered.part({"sha256": str(secret), "start": 0}) is None
    named = Named(path="/nowhere/chat.py", sha256=offered.named[0].sha256, size=4)
    fetched = Fetched(tmp_path / "here")
    fetched.take(named)
    fetched.came({"sha256": named.sha256, "start": 0, "data": b"evil"})
    with pytest.raises(UsageError, match=r"/nowhere/chat\.py is not what it was when the run began"):
        fetched.take(named)


def test_a_place_of_the_masters_that_cannot_be_looked_at_here_holds_no_file(tmp_path: Path) -> None:
    data = b"pass"  # such as /root, which is_file() raises for
    named = Named(path=f"/tmp/{'x' * 300}/chat.py", sha256=hashlib.sha256(data).hexdigest(), size=4)
    fetched = Fetched(tmp_path)
    assert fetched.take(named) == {"sha256": named.sha256, "start": 0}
    fetched.came({"sha256": named.sha256, "start": 0, "data": data})
    assert fetched.take(named) is None
    assert fetched.local(named.path).read_bytes() == data


WINDOW = Window(min_s=3.0, max_s=10.0, min_requests=4, warmup_requests=1.0)


def test_windows_open_and_close_on_the_masters_word_and_count_what_came_before_it_was_heard() -> None:
    told = ToldPhases(WINDOW, 10.0, 1.0)
    for due_s in (10.2, 11.4, 12.1):
        told.due(due_s)
    told.ended(10.2, 12.0)
    assert told.tick(12.2) is Phase.WARMUP
    assert told.tick(50.0) is Phase.WARMUP  # however long it takes
    told.hear(Word(opens_s=12.0))
    assert told.count(over=False) == Count(issued=3, in_flight=2, due_in_window=1, open_in_window=1,
                                           heard=Word(opens_s=12.0))  # fmt: skip
    assert told.tick(50.0) is Phase.WINDOW
    assert told.window_open_s == 12.0
    told.due(15.0)
    told.hear(Word(opens_s=12.0, closes_s=15.0))
    assert (told.count(over=False).due_in_window, told.tick(50.0)) == (1, Phase.HOLD)
    told.ended(12.1, 50.0)
    assert told.count(over=False).open_in_window == 0
    assert told.tick(51.0) is Phase.HOLD  # until the master has heard it of all
    told.hear(Word(opens_s=12.0, closes_s=15.0, drain=True))
    assert told.tick(51.0) is Phase.DRAIN
    told.ended(11.4, 51.0)
    told.ended(15.0, 51.0)
    assert told.tick(51.1) is Phase.OVER


def test_the_master_goes_on_when_all_workers_have_heard_it_and_none_is_at_work() -> None:
    counts, said = [Count(), Count()], list[Word]()
    joined = JoinedPhases(WINDOW, 4, 0.0, 1.0, None, lambda: counts, said.append)
    counts[0] = Count(issued=3, in_flight=2)
    assert joined.tick(1.5) is Phase.WARMUP
    assert (joined.issued, joined.in_flight) == (3, 2)
    joined.ended(0.5, 1.0)
    assert joined.tick(1.6) is Phase.WINDOW
    assert said[-1] == Word(opens_s=1.6)
    counts[:] = [Count(issued=9, in_flight=1, due_in_window=5, heard=Word(opens_s=1.6))] * 2
    assert joined.tick(4.6) is Phase.HOLD  # enough were due, and the shortest window has passed
    word = said[-1]
    assert word == Word(opens_s=1.6, closes_s=4.6)
    assert joined.tick(4.7) is Phase.HOLD  # neither has counted by it
    counts[:] = [Count(heard=word, in_flight=1), Count(heard=Word(opens_s=1.6), in_flight=1)]
    assert joined.tick(4.8) is Phase.HOLD
    counts[:] = [Count(heard=word, in_flight=1), Count(heard=word, in_flight=1, open_in_window=1)]
    assert joined.tick(4.9) is Phase.HOLD
    counts[:] = [Count(heard=word, in_flight=1), Count(heard=word, in_flight=1)]
    assert joined.tick(5.0) is Phase.DRAIN
    assert said[-1].drain
    counts[:] = [Count(heard=word), Count(heard=word, over=True)]
    assert joined.tick(5.1) is Phase.DRAIN  # one has not told yet what it found
    counts[:] = [Count(heard=word, over=True)] * 2
    assert joined.tick(5.2) is Phase.OVER


def record(**given: object) -> CellRecord:
    fields = {"cell": 0, "arm": "a", "level": 4.0, "block": 0, "order": 0, "state": "complete", "started_s": 0.0}
    return CellRecord(**{**fields, **given})  # type: ignore[arg-type]


def test_the_worst_worker_stands_for_the_client_and_requests_in_flight_add_up() -> None:
    own = record(client_cpu_ratio=0.1, hub_lag_p99_s=0.001, in_flight_mean=3.2, clock_steps=0.0)
    rows = [
        (Peer(node="1", name="w1"), {"cell": asdict(record(client_cpu_ratio=0.2, hub_lag_p99_s=0.002, models=["m"],
         in_flight_mean=1.5, clock_steps=0.0)), "users": 2, "offset_s": 0.5, "bound_s": 0.001, "word_late_s": 0.01}),
        (Peer(node="2", name="w2"), {"cell": asdict(record(client_cpu_ratio=0.9, hub_lag_p99_s=0.0, models=["n"],
         in_flight_mean=2.0, clock_steps=1.0)), "users": 2, "offset_s": -3.0, "bound_s": None, "word_late_s": 0.02}),
    ]  # fmt: skip
    whole = merged(own, rows, {"w3": "it left"})
    assert (whole.client_cpu_ratio, whole.hub_lag_p99_s, whole.in_flight_mean) == (0.9, 0.002, 3.5)
    assert (whole.clock_steps, whole.models, whole.workers_lost) == (1.0, ["m", "n"], ["w3"])
    assert whole.workers == {"w1": 2.0, "w2": 2.0}
    assert whole.worker_cpu_ratio == {"master": 0.1, "w1": 0.2, "w2": 0.9}
    assert whole.clock_offset_s == {"w1": 0.5, "w2": -3.0}
    assert whole.clock_bound_s == {"w1": 0.001}
    assert whole.word_late_s == {"w1": 0.01, "w2": 0.02}


@pytest.mark.parametrize(("state", "lost", "unable", "expected"), [
    ("aborted", ["w"], [], "interrupted"), ("aborted", [], ["w"], "interrupted"), ("aborted", [], [], "aborted"),
    ("complete", ["w"], [], "interrupted"), ("complete", [], ["w"], "complete"),
    ("not_carried", ["w"], [], "interrupted"), ("not_carried", [], [], "not_carried"),
    ("interrupted", ["w"], [], "interrupted"),
])  # fmt: skip
def test_a_cell_that_workers_broke_off_is_measured_again_by_a_resume_and_one_that_the_arm_broke_off_is_not(
    state: str, lost: list[str], unable: list[str], expected: str
) -> None:
    found = merged(record(state=state), [], dict.fromkeys(lost, "it left"), unable)
    assert (found.state, found.workers_lost) == (expected, lost)
    assert found.reason == ("w was lost: it left" if lost and state == "complete" else "")
    planned = [Cell(cell=0, block=0, level=4.0, arm="a")]
    stays = whole_cells(planned, [found], restarts=False)
    assert stays == (frozenset() if expected == "interrupted" else frozenset({0}))


HEARD = """
import sys, msgpack
from loadtest.drive.workers.messages import _heard
good = msgpack.dumps(["ping", {"asked_ns": 1}, "x"])
bad = [b"", b"\\xc1", b"GET / HTTP/1.1", good[:-1], msgpack.dumps(["join", 1, "x"]), msgpack.dumps([1, {}, "x"]),
       msgpack.dumps({"a": 1}), b"\\x80\\x04cos\\nsystem\\n."]
assert _heard(good, "node") == ("node", "ping", {"asked_ns": 1})
assert [_heard(data, "node") for data in bad] == [None] * len(bad)
assert "dill" not in sys.modules and "cloudpickle" not in sys.modules
"""


AGAIN = """
import gc, os
import locust
from loadtest.drive.workers.messages import Line
from loadtest.errors import UsageError

line = Line("127.0.0.1", 9, "x")
gc.disable()  # as in a worker that drives
before = [len(os.listdir("/proc/self/" + of)) for of in ("fd", "task")]
for _ in range(20):
    line.again()
    line.receive(0.001)
after = [len(os.listdir("/proc/self/" + of)) for of in ("fd", "task")]
# The socket of an attempt to connect comes and goes in ZeroMQ's own time; a leak is one or more for each of the 20.
assert all(now - then < 10 for now, then in zip(after, before)), (before, after)
try:
    Line("no host", 9, "x")
except UsageError as error:
    assert "no master at no host:9" in str(error), error
else:
    raise SystemExit("taken")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_line_that_is_connected_anew_leaves_no_open_files_and_no_threads() -> None:
    done = subprocess.run([sys.executable, "-c", AGAIN], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_bytes_that_are_no_message_are_none() -> None:
    done = subprocess.run([sys.executable, "-c", HEARD], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


STRANGER = """
import sys, time, gevent, msgpack
import zmq.green as zmq
from pathlib import Path
from loadtest import __version__
from loadtest.drive.job import Job
from loadtest.drive.workers import master as module
from loadtest.drive.workers.master import Master
from loadtest.drive.workers.messages import Hub
from loadtest.drive.workers.left import report
from loadtest.record import Request
from loadtest.settings import Experiment

MOST_PEERS = module.MOST_PEERS = 20
scenario = Path(sys.argv[1])
job = Job(folder=scenario.parent, scenario=scenario, experiment=Experiment(), arms=(), cells=(), prompts=None,
          salted={}, simulated={}, run_id="x", origin_ns=0, calibration=None)
master = Master(job, Hub("127.0.0.1", 0), print)
context = zmq.Context()

def line(name):
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, name)
    socket.connect(f"tcp://127.0.0.1:{master.port}")
    return socket

def say(socket, kind, data):
    socket.send(msgpack.dumps([kind, data, "x"]))

def hear(socket, *kinds):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if socket.poll(100):
            kind, data = msgpack.loads(socket.recv(), strict_map_key=False)[:2]
            if kind in kinds:
                return kind, data
    raise SystemExit(f"no {kinds} was heard")

stranger = line(b"stranger")
joins = {"version": __version__, "name": "\\x1b[2J\\u202ea\\nname" + "x" * 1_000_000, "host": "y" * 1_000_000,
         "pid": True}
say(stranger, "join", joins)
(named,) = hear(stranger, "welcome")[1]["files"]
(peer,) = master.peers.values()
assert peer.name == "a name" + "x" * 54, peer.name[:80]
assert peer.said == {"host": "y" * 200}, str(peer.said)[:300]
for start in (-1, 2**63 - 1, 2**63, 1e308, "0", None):
    say(stranger, "want", {"sha256": named["sha256"], "start": start})
say(stranger, "report", report(offset_s="x", bound_s=[1]))
say(stranger, "report", report(offset_s=float("nan")))
for found in ({"cell": 5}, {"error": "", "cell": {"state": "complete"}, "users": 1, "agreement": None, "texts": [],
              "word_late_s": None, "offset_s": None, "bound_s": None},
              {"error": "", "cell": None, "users": "x", "agreement": None, "texts": [], "word_late_s": None,
               "offset_s": None, "bound_s": None}):
    master._begins = {"stranger": type("Begin", (), {"attempt": 1, "message": lambda self: {}, "plan_sha256": ""})()}
    say(stranger, "report", report(attempt=1, record=found))
scenario.unlink()
say(stranger, "want", {"sha256": named["sha256"], "start": 0})
say(stranger, "ping", {"asked_ns": 7})
assert hear(stranger, "pong", "part")[1]["asked_ns"] == 7
assert peer.clock == {"offset_s": None, "bound_s": None} and peer.record is None, (peer.clock, peer.record)
assert peer.trouble.startswith("what it found of its cell makes no sense"), peer.trouble  # and the cell does not wait
for number in range(MOST_PEERS):
    line(b"%d" % number).send(msgpack.dumps(["join", {"version": __version__, "name": "w"}, "x"]))
    gevent.sleep(0)
last = line(b"last")
deadline = time.monotonic() + 30
while len(master.peers) < MOST_PEERS and time.monotonic() < deadline:
    gevent.sleep(0.05)
say(last, "join", {"version": __version__, "name": "w"})
assert "joined the run already" in hear(last, "welcome", "refused")[1]["why"]
assert len(master.peers) == MOST_PEERS
assert len({peer.name for peer in master.peers.values()}) == MOST_PEERS
kept = []
master.keep = kept.append
say(last, "ping", {"asked_ns": 1})
say(stranger, "leave", {"why": "\x1b[2J\u202egone" + "z" * 100_000})
while not peer.gone and time.monotonic() < deadline:
    gevent.sleep(0.01)
assert peer.gone == "gone" + "z" * (len(peer.gone) - 4) and 1000 < len(peer.gone) <= 2000, peer.gone[:80]
for _ in range(2):
    master.lose(peer.name, "killed", lambda peer: [Request(user=1), Request(user=2)][peer.rows :])
assert [request.user for request in kept] == [1, 2]  # though it had taken its leave
assert peer.gone.startswith("gone")
import os
os._exit(0)
"""


ALONE = """
import resource, sys, time
from pathlib import Path
import locust
from loadtest.drive.workers.duty import Worker
from loadtest.drive.workers.spool import batches_in
from loadtest.errors import RunError, UsageError
from loadtest.record import Request

where = Path(sys.argv[1])
settings = {"host": "127.0.0.1", "port": 9, "name": "w", "spool": str(where), "wait_s": 60.0, "local": True}

# What was measured is in the file, though nobody is heard.
worker = Worker(settings, print)
worker._contact._heard_s -= 5.0
worker._spool.add(Request(cell=0))
worker._report()
assert [batch.num_rows for batch in batches_in(worker._folder)] == [1]

# A full disk is told.
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
worker._spool.add(Request(cell=0))
worker._report()
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
assert "cannot be written" in worker._trouble, worker._trouble

# A cell that the master has given up is not begun.
state = {"rows": 0, "over": False, "attempt": 4, "begin": {}}
worker._hear(state)
assert worker._begin == state
worker._hear({"rows": 0, "over": False, "attempt": 0})
assert worker._begin is None

# A worker that cannot report ends: one that only answers pings would hold its cell up for ever.
worker._contact.welcome = {"run_id": "r", "name": "w", "same_clock": True, "files": []}
worker._record = {"error": chr(0xD800)}  # no message can hold it
began_s = time.monotonic()
try:
    worker.work()
except RunError as error:
    assert "cannot report" in str(error), error
assert time.monotonic() - began_s < 8
worker.close()

(where / "taken").write_text("")
try:
    Worker(settings | {"spool": str(where / "taken")}, print)
except UsageError as error:
    assert f"--spool {where / 'taken'} cannot be written" in str(error), error
else:
    raise SystemExit("a file was taken for a folder")
"""


def test_a_worker_whose_master_is_silent_keeps_what_it_measured_and_one_that_cannot_report_ends(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_stranger_who_knows_the_words_does_not_deafen_the_master(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("pass")
    done = subprocess.run([sys.executable, "-c", STRANGER, str(tmp_path / "x.py")], cwd=ROOT, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_nothing_that_speaks_over_the_line_can_load_a_pickle() -> None:
    for path in (ROOT / "loadtest" / "drive" / "workers").glob("*.py"):
        assert not re.search(r"pickle|marshal|recv_pyobj|send_pyobj|\beval\(|\bexec\(", path.read_text()), path


@pytest.mark.parametrize("data", [{}, {"heard": {"opens_s": "now"}}, {"heard": {}, "issued": -1},
                                  {"heard": {}, "in_flight": "9"}, {"heard": {}, "more": 1}])  # fmt: skip
def test_a_count_that_is_none_is_refused(data: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        count_from(data)


def found(**given: object) -> dict[str, object]:
    nothing = {"error": "", "cell": None, "users": 1, "agreement": None, "texts": [], "word_late_s": None,
               "offset_s": None, "bound_s": None}  # fmt: skip
    return nothing | given


def test_the_text_of_a_failed_request_comes_first_and_is_taken() -> None:
    text = asdict(KeptText(cell=0, arm="a", session=1, turn=0, prompt="p", answer=""))
    texts = [(-math.inf, 2.0, text), (-1.5, 2.0, text), (math.inf, 3.0, text)]  # as `Texts` ranks them
    assert found_from(found(texts=texts))["texts"] == texts
    for rank in (math.nan, "1", None, True):
        with pytest.raises(ValueError, match=str(rank)):
            found_from(found(texts=[(rank, 2.0, text)]))


@pytest.mark.parametrize(("word", "place"), [
    ("10.0.0.7:6000", ("10.0.0.7", 6000)), ("master", ("master", 5557)), ("[::1]:9", ("::1", 9)),
    ("::1", ("::1", 5557)),
])  # fmt: skip
def test_a_place_is_a_host_and_a_port(word: str, place: tuple[str, int]) -> None:
    assert place_of(word, "--bind") == place


@pytest.mark.parametrize(
    "word", ["", ":5557", "host:x", "host:70000", "http://host:1", "host:-1", "host:" + "9" * 5000]
)
def test_a_place_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="write HOST:PORT"):
        place_of(word, "--bind")


def test_a_worker_is_told_a_port(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--master is 'host:0'"):
        work("host:0", None, tmp_path, None, print)


def test_a_place_that_is_taken_is_refused_before_any_server_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        workers = Workers(count=1, local=False, host="127.0.0.1", port=port)
        with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port} \(Address already in use\); give another --bind"):
            refuse_taken(workers)
    refuse_taken(workers)
    refuse_taken(replace(workers, host="eth-of-no-machine"))  # may be an interface to those who listen
    refuse_taken(Workers(count=1, local=True))
    refuse_taken(None)


def test_more_workers_than_cores_can_bear_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = wanted(Options(scenario=Path("x.py"), workers=8))
    assert found is not None
    assert found.count == 8
    with pytest.raises(UsageError, match="--workers is 9, and this machine has 2 cores, which take at most 8 workers"):
        wanted(Options(scenario=Path("x.py"), workers=9))
    assert wanted(Options(scenario=Path("x.py"), expect_workers=9)) is not None


def test_workers_are_awaited_on_this_machine_alone_unless_it_is_said() -> None:
    found = wanted(Options(scenario=Path("x.py"), expect_workers=4, wait="90s"))
    assert found is not None
    assert (found.host, found.port, found.wait_s, found.local) == ("127.0.0.1", 5557, 90.0, False)
    assert wanted(Options(scenario=Path("x.py"))) is None


@pytest.mark.parametrize(("host", "url", "refused"), [
    ("0.0.0.0", "http://127.0.0.1:8000", True), ("10.0.0.2", "", True), ("::", "http://localhost:1", True),
    ("0.0.0.0", "http://10.0.0.9:8000", False), ("127.0.0.1", "http://127.0.0.1:8000", False),
    ("localhost", "", False),
])  # fmt: skip
def test_servers_on_the_masters_own_loopback_are_no_servers_to_workers_elsewhere(
    host: str, url: str, refused: bool
) -> None:
    workers = Workers(count=2, local=False, host=host)
    if refused:
        with pytest.raises(UsageError, match="on the loopback of this one"):
            refuse_unreachable(workers, [url])
    else:
        refuse_unreachable(workers, [url])


@pytest.mark.parametrize(("given", "said"), [
    ({"workers": 0}, "--workers is 0"), ({"expect_workers": -1}, "--expect-workers is -1"),
    ({"workers": 2, "expect_workers": 2}, "give one"), ({"workers": 2, "wait": "5m"}, "--wait is on workers"),
    ({"bind": "0.0.0.0:1"}, "--bind is on workers"), ({"expect_workers": 1, "wait": "soon"}, "--wait is 'soon'"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        wanted(Options(scenario=Path("x.py"), **given))  # type: ignore[arg-type]
