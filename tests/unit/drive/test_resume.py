"""Taking up a run again: what stays, what is measured again, and what is refused; no server is started."""

from __future__ import annotations

import errno
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loadtest.drive.header import complete_header, make_header
from loadtest.drive.options import Options
from loadtest.drive.planning import Planning
from loadtest.drive.prepare import prepare
from loadtest.drive.resume import (
    clear_away,
    from_where_it_began,
    holding,
    open_again,
    refuse_others,
    refuse_stale,
    whole_cells,
)
from loadtest.drive.run import go_on
from loadtest.drive.stages import Course
from loadtest.errors import UsageError, unwritable
from loadtest.experiment import override
from loadtest.json_files import LineWriter, write_json
from loadtest.record import CellRecord, Request, Scrape
from loadtest.record_writer import RequestWriter
from loadtest.run_folder import read_cells, read_plan, read_requests, read_run, read_scrapes
from loadtest.servers.identity import Identity
from loadtest.settings import Experiment

IDENTITY = Identity(kind="openai", model="m", version="1.0")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text("# a scenario")
    (tmp_path / "s.toml").write_text("[plan]\nblocks = 2\n[load]\nlevels = [2, 4]\n")
    return tmp_path / "s.py"


class Made:
    """A run's folder as far as it got."""

    def __init__(self, scenario: Path, **options) -> None:
        self.folder = scenario.parent / "run"
        self.folder.mkdir()
        urls = {"baseline": "http://a:1", "speculative": "http://b:1"}
        self.prepared = prepare(Options(scenario=scenario, **(options or urls)), {})
        self.header = make_header(self.prepared, "", datetime.now(UTC), time.perf_counter_ns())
        identities = {arm.name: IDENTITY for arm in self.prepared.arms}
        complete_header(self.header, self.prepared.arms, identities, [])
        self.header["sittings"].append({"state": "running"})
        self.planning = Planning(self.folder, self.prepared.course, self.header, self.keep)
        self.planning.append(self.prepared.course.first())

    def keep(self) -> None:
        write_json(self.folder / "run.json", self.header)

    def measure(self, states: str) -> None:
        """Record the planned cells: c complete, a aborted, i interrupted, k killed (no line), - nothing."""
        cells, scrapes = LineWriter(self.folder / "cells.jsonl"), LineWriter(self.folder / "server.jsonl")
        requests = RequestWriter(self.folder / "requests.arrows")
        names = {"c": "complete", "a": "aborted", "i": "interrupted"}
        for cell, state in zip(self.planning.planned, states, strict=False):
            if state != "-":
                requests.add(Request(cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block, due_s=1.0))
                scrapes.write(Scrape(t_s=1.0, arm=cell.arm, cell=cell.cell, moment="idle_before", values={}))
            if state in names:
                cells.write(CellRecord(cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block,
                                       order=cell.cell, state=names[state], started_s=float(cell.cell)))  # fmt: skip
        for writer in (cells, scrapes, requests):
            writer.close()

    def finish(self, state: str) -> None:
        self.header["status"] = state
        self.planning.conclude(state)
        self.keep()


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        ("cccc----", {0, 1, 2, 3}),
        ("ccccc---", {0, 1, 2, 3}),  # one half of a pair
        ("cccack--", {0, 1, 2, 3}),
        ("cccci---", {0, 1, 2, 3}),
        ("k-------", set()),
        ("cccccccc", {0, 1, 2, 3, 4, 5, 6, 7}),
        ("cccacccc", {0, 1, 2, 3, 4, 5, 6, 7}),  # given up for a reason of its own: it stays
    ],
)
def test_whole_pairs_stay_and_halves_are_measured_again(scenario, states, whole):
    made = Made(scenario)
    made.measure(states)
    run = open_again(made.folder, None, {})
    assert run.whole == whole
    assert [cell.cell for cell in run.missing] == [cell for cell in range(8) if cell not in whole]
    clear_away(run)
    assert {cell.cell for cell in read_cells(made.folder)} == whole
    assert set(read_requests(made.folder).column("cell").to_pylist()) == whole
    assert {scrape.cell for scrape in read_scrapes(made.folder)} == whole


def test_it_goes_on_where_it_was_begun(scenario, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Made(Path("s.py"), baseline="http://a:1", speculative="http://b:1")
    made.measure("cc------")
    made.finish("interrupted")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(UsageError, match=r"with the scenario s\.py, which is not there"):
        open_again(Path("../run"), None, {})
    folder = from_where_it_began(Path("../run"))
    assert (Path.cwd(), folder) == (tmp_path, tmp_path / "run")
    assert open_again(folder, None, {}).whole == {0, 1}
    assert from_where_it_began(Path("run")) == Path("run")  # nothing to be done


def test_where_arms_take_turns_a_pair_of_starts_is_whole_or_not():
    experiment = override(override(Experiment(), "load", levels=(2.0, 4.0)), "plan", blocks=2)
    planned = Course(experiment=experiment, arms=("a", "b"), restarts=True).first()
    records = [CellRecord(cell=c.cell, arm=c.arm, level=c.level, block=c.block, order=c.cell, state="complete",
                          started_s=0.0) for c in planned[:7]]  # fmt: skip
    assert whole_cells(planned, records, restarts=True) == {0, 1, 2, 3}
    assert whole_cells(planned, records, restarts=False) == {0, 1, 2, 3, 4, 6}


def test_a_kill_between_the_steps_of_clearing_away_leaves_the_same(scenario):
    made = Made(scenario)
    made.measure("ccccck--")
    lines = {name: (made.folder / name).read_bytes() for name in ("cells.jsonl", "server.jsonl")}
    clear_away(open_again(made.folder, None, {}))
    for name, data in lines.items():  # as if the requests alone had been cleared
        (made.folder / name).write_bytes(data)
    again = open_again(made.folder, None, {})
    assert again.whole == {0, 1, 2, 3}
    clear_away(again)
    assert {cell.cell for cell in read_cells(made.folder)} == {0, 1, 2, 3}


def test_a_line_that_a_kill_cut_does_not_spoil_the_next_one(scenario):
    made = Made(scenario)
    made.measure("cccc")
    with (made.folder / "cells.jsonl").open("a") as file:
        file.write('{"cell":4,"arm":"base')
    clear_away(open_again(made.folder, None, {}))
    with (made.folder / "cells.jsonl").open("a") as file:
        file.write("{}\n")
    assert (made.folder / "cells.jsonl").read_text().splitlines()[-1] == "{}"


def test_the_same_plan_seed_and_experiment_go_on(scenario):
    made = Made(scenario, baseline="http://a:1", speculative="http://b:1", levels="2,4,8", window="7s")
    made.measure("cc")
    scenario.with_suffix(".toml").write_text("[plan]\nblocks = 9\nseed = 5\n")
    run = open_again(made.folder, None, {"LOADTEST_BASELINE_URL": "http://elsewhere:1"})
    assert run.prepared.experiment == made.prepared.experiment
    assert [arm.url for arm in run.prepared.arms] == ["http://a:1", "http://b:1"]
    assert list(run.planned) == made.planning.planned
    assert "2 of 12 planned cells are there" in " ".join(run.announcement())


def test_with_a_budget_blocks_that_were_not_begun_are_planned_anew(scenario):
    made = Made(scenario)
    made.measure("ccccck--")
    run = open_again(made.folder, "+20m", {})
    assert run.course.by_block
    assert run.prepared.budget_s == 1200
    assert {cell.block for cell in run.planned} == {0}
    assert [*run.planned, *run.course.more(run.planned, [], None).cells] == made.planning.planned


def test_a_finished_run_goes_on_to_the_next_look_and_no_further_than_the_last(scenario):
    made = Made(scenario)
    made.measure("c" * 8)
    made.finish("complete")
    header = read_run(made.folder)
    assert header["look"] == {"number": 1, "of": 3, "blocks": 2, "confidence": 0.95}
    assert header["judged_blocks"] == [0, 2]
    run = open_again(made.folder, None, {})
    assert run.extends
    assert run.missing == []
    assert {cell.block for cell in run.course.more(run.planned, [], None).cells} == {2, 3}
    write_json(made.folder / "run.json", header | {"look": header["look"] | {"number": 3}})
    with pytest.raises(UsageError, match=r"at look 3 of 3.*--blocks 6"):
        open_again(made.folder, None, {})


def test_a_run_that_was_broken_off_goes_on_to_its_first_look(scenario):
    made = Made(scenario)
    made.measure("cccc")
    made.finish("interrupted")
    assert "look" not in read_run(made.folder)
    run = open_again(made.folder, None, {})
    assert not run.extends
    assert len(run.missing) == 4


def test_a_run_that_goes_on_is_judged_as_before_until_its_next_look(scenario):
    made = Made(scenario)
    made.measure("c" * 8)
    made.finish("complete")
    run = open_again(made.folder, "+1h", {})
    planning = Planning(made.folder, run.course, run.header, made.keep, run.planned)
    planning.append(run.course.more(run.planned, [], None).cells[:4])
    planning.conclude("interrupted")
    assert run.header["look"]["blocks"] == 2
    assert run.header["judged_blocks"] == [0, 2]
    assert "judged by its first 2" in run.header["notes"][-1]
    planning.append(run.course.more(planning.planned, [], None).cells)
    planning.conclude("complete")
    assert run.header["look"] == {"number": 2, "of": 3, "blocks": 4, "confidence": 0.985}
    assert run.header["judged_blocks"] == [0, 4]
    assert "Look 2 of 3" in run.header["notes"][-1]


def test_the_plan_on_disk_is_the_one_of_the_header_at_every_moment(scenario):
    made = Made(scenario)
    before = read_run(made.folder)
    grown = replace(made.prepared.course, looks=2).more(made.planning.planned, [], None).cells
    made.planning.append(grown)
    assert len(read_plan(made.folder, read_run(made.folder))) == 16
    assert len(read_plan(made.folder, before)) == 8  # a kill before the header was written


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder, scenario: scenario.write_text("# another"), "is not what .*run was measured with"),
        (lambda folder, scenario: scenario.unlink(), "is not there any more"),
        (lambda folder, scenario: (folder / "plan.jsonl").write_text(""), "is not the plan of this run"),
        (lambda folder, scenario: (folder / "run.json").unlink(), "holds no run.json"),
        (lambda folder, scenario: _change(folder, options=None), "did not note how to go on"),
        (lambda folder, scenario: _change(folder, smoke=True), "smoke run"),
    ],
)
def test_a_run_that_cannot_be_gone_on_with_is_refused(scenario, spoil, said):
    made = Made(scenario)
    made.measure("cc")
    spoil(made.folder, scenario)
    with pytest.raises(UsageError, match=said):
        open_again(made.folder, None, {})


def _change(folder: Path, **values) -> None:
    data = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(data | values))


def test_other_servers_are_refused_by_what_differs(scenario):
    made = Made(scenario)
    made.measure("cc")
    run = open_again(made.folder, None, {})
    refuse_others(run, "baseline", IDENTITY)
    with pytest.raises(UsageError, match=r"version: 1\.0 at first, now 2\.0"):
        refuse_others(run, "baseline", replace(IDENTITY, version="2.0"))


def test_a_folder_is_held_by_one_run_at_a_time(scenario):
    made = Made(scenario)
    with holding(made.folder), pytest.raises(UsageError, match="measured by another process"), holding(made.folder):
        pass
    with holding(made.folder):
        pass


def test_a_folder_that_was_moved_meanwhile_is_told_from_one_that_cannot_be_written(tmp_path):
    error = OSError(errno.EROFS, "Read-only file system")
    assert str(unwritable(tmp_path, error)).endswith("Read-only file system. What was written before is there.")
    assert str(unwritable(tmp_path / "gone", error)).endswith("The folder was moved or removed meanwhile.")


def test_a_run_that_another_process_went_on_with_meanwhile_is_refused(scenario):
    made = Made(scenario)
    made.measure("cc")
    run = open_again(made.folder, None, {})
    refuse_stale(run)
    _change(made.folder, status="complete")
    with pytest.raises(UsageError, match="gone on with by another process"):
        go_on(run, print)


def test_the_clock_goes_on_and_after_a_boot_by_the_wall_clock(scenario):
    made = Made(scenario)
    made.measure("cc")
    run = open_again(made.folder, None, {})
    assert run.origin_ns() == made.header["clock"]["origin_monotonic_ns"]
    run.header["clock"]["boot"] = "another"
    run.header["started"] = "2020-01-01T00:00:00+00:00"
    assert (time.perf_counter_ns() - run.origin_ns()) / 1e9 > 5 * 365 * 86400
    run.header["started"] = "2999-01-01T00:00:00+00:00"  # a clock that went back: later than what was recorded
    assert 1.9 < (time.perf_counter_ns() - run.origin_ns()) / 1e9 < 60


def test_a_simulated_pair_and_an_a_a_are_named_again(scenario):
    made = Made(scenario, simulated=True)
    made.measure("cc")
    assert open_again(made.folder, None, {}).prepared.world == "default"


def test_an_a_a_of_one_server_is_named_again(scenario):
    made = Made(scenario, baseline="http://a:1", speculative="http://b:1", arms="baseline,baseline")
    made.measure("cc")
    run = open_again(made.folder, None, {})
    assert [arm.name for arm in run.prepared.arms] == ["baseline", "baseline-2"]
    assert run.prepared.choice.aa
