"""Ending early: only what has certainly failed, at looks set beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gate_facts import PLAIN, failing
from made_run import BASE, Made, header

from loadtest.analyse.early import certain_failure, look, look_blocks
from loadtest.analyse.gating import Asked
from loadtest.analyse.judge import judge_data
from loadtest.drive.early_end import Looks
from loadtest.drive.plan import Cell
from loadtest.errors import UsageError
from loadtest.experiment import as_document, from_toml
from loadtest.json_files import LineWriter, write_json
from loadtest.record import GIVEN_UP, Request
from loadtest.record_writer import RequestWriter

SLO = '[load]\nthink_time = 0\n[[slo]]\nmetric = "tpot"\nstatistic = "mean"\nat = "16 users"\nmax = "{} ms"\n'
SURE = Asked(allow_simulated=True, confidence=0.998)


@pytest.mark.parametrize(
    ("blocks", "looks"), [(1, ()), (2, ()), (3, (2,)), (4, (2, 3)), (6, (2, 4)), (9, (3, 6)), (12, (4, 8))]
)
def test_looks_are_set_by_the_number_of_blocks_alone(blocks: int, looks: tuple[int, ...]) -> None:
    assert look_blocks(blocks) == looks


def run_of(limit_ms: float, **changes: Any) -> dict[str, Any]:
    return header(experiment=as_document(from_toml(SLO.format(limit_ms), "x.toml")), **changes)


@pytest.mark.parametrize(("limit_ms", "stops"), [(18.5, False), (17.4, False), (13.0, True)])
def test_only_what_is_far_beyond_its_limit_stops(limit_ms: float, stops: bool) -> None:
    # 17.6 ms at 16 users; after two blocks of the six
    found = certain_failure(judge_data(run_of(limit_ms), *PLAIN.having(blocks=2).build()[1:], None, SURE))
    assert bool(found) == stops
    if stops:
        assert found == "tpot mean ≤ 13 ms at 16 users has certainly failed (α = 0.001)"


def test_a_look_is_not_wrong_at_the_limit() -> None:
    made = Made(levels=(4.0, 16.0), requests=20, chunks=4, noise=0.02, counters=False, arms=(BASE,))
    truth = 20.0 * (1 + 16 / 50)  # ms between chunks; noise has a mean of 1 within 0.02 %
    run = run_of(truth, candidate=None)
    wrong = 0
    for seed in range(60):
        wrong += bool(certain_failure(judge_data(run, *made.having(blocks=2, seed=seed).build()[1:], None, SURE)))
    assert wrong <= 1  # binomial: two or more in 60 at α = 0.001 would happen once in 500 times


def test_a_hopeless_error_rate_stops_without_any_objective() -> None:
    def half(row: Request) -> Request:
        return failing(row, 1) if row.session % 4 else row

    data = PLAIN.having(blocks=2, edit_request=half).build()[1:]
    run = header(experiment=as_document(from_toml("[load]\nthink_time = 0\n", "x.toml")))
    assert "requests to speculative failed" in certain_failure(judge_data(run, *data, None, SURE))
    some = PLAIN.having(blocks=2, edit_request=lambda row: failing(row, 3)).build()[1:]
    assert certain_failure(judge_data(run, *some, None, SURE)) == ""


def folder_of(made: Made, run: dict[str, Any], folder: Path) -> Path:
    _, cells, scrapes, table = made.build()
    write_json(folder / "run.json", run)
    for name, rows in (("cells.jsonl", cells), ("server.jsonl", scrapes)):
        lines = LineWriter(folder / name)
        for row in rows:
            lines.write(row)
        lines.close()
    writer = RequestWriter(folder / "requests.arrows")
    for row in table.to_pylist():
        writer.add(Request(**row))
    writer.flush()
    whole = (folder / "requests.arrows").read_bytes()
    writer.close()
    (folder / "requests.arrows").write_bytes(whole)  # as of a run that goes on: the end of the stream is not there yet
    return folder


def test_a_run_that_goes_on_is_looked_at_by_its_whole_blocks(tmp_path: Path) -> None:
    def failing_later(row: Request) -> Request:
        return failing(row, 1) if row.block >= 2 else row

    folder = folder_of(PLAIN.having(blocks=6, edit_request=failing_later), run_of(18.5, status="running"), tmp_path)
    assert look(folder, 2) == ""  # what is under way beyond two blocks is not looked at
    assert "requests to speculative failed" in look(folder, 6)


def test_a_run_that_was_ended_early_fails_and_never_passes() -> None:
    data = PLAIN.having(blocks=2).build()[1:]
    reason = "tpot mean ≤ 16 ms at 16 users has certainly failed (α = 0.001)"
    for limit_ms, code in ((16.0, 3), (18.5, 5)):
        for asked in (Asked(), Asked(gate=True)):
            judgement = judge_data(run_of(limit_ms, status=GIVEN_UP, reason=reason), *data, None, asked)
            assert judgement.gate is not None
            assert judgement.decision.exit_code == code
    late = {"world": "default", "late_ratio": {BASE: 0.5}}
    busy = judge_data(run_of(18.5, status=GIVEN_UP, reason=reason, simulated=late), *data)
    assert busy.gate is not None
    assert "late in 50.0 %" in busy.gate.headline  # what is wrong with the run comes first
    bare = header(experiment=as_document(from_toml("", "x.toml")), status=GIVEN_UP, reason=reason)
    judgement = judge_data(bare, *data, None, Asked(gate=True))
    assert judgement.decision.exit_code == 5
    assert judgement.gate is not None
    assert "ended early" in judgement.gate.headline


def events(blocks: int) -> list[dict[str, Any]]:
    return [{"event": "cell_end", "block": block} for block in range(blocks) for _ in range(4)]


def cells(blocks: int) -> list[Cell]:
    return [Cell(cell=4 * b + i, block=b, level=1.0, arm="x") for b in range(blocks) for i in range(4)]


def test_looks_come_after_whole_blocks_and_end_a_run_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def judge(folder: Path, blocks: int) -> str:
        asked.append(blocks)
        return "hopeless" if blocks == 4 else ""

    looks = Looks(judge=judge, after=(2, 4))
    looks.plan(cells(6))
    ends = [looks.ended(tmp_path, event) for event in events(6)]
    assert asked == [2, 4]
    assert [i for i, end in enumerate(ends) if end] == [15]  # the sixteenth cell ends the fourth block
    assert looks.reason == "hopeless"


def test_a_look_that_cannot_read_the_records_yet_stops_nothing(tmp_path: Path) -> None:
    def judge(folder: Path, blocks: int) -> str:
        raise UsageError("cells.jsonl cannot be read")

    looks = Looks(judge=judge, after=(2,))
    looks.plan(cells(3))
    assert not any(looks.ended(tmp_path, event) for event in events(3))
