"""Who may read what a run writes."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

from loadtest.drive.folder import make_folder, remove_if_empty


def test_a_runs_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = make_folder(tmp_path / "reports", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "chat")
    finally:
        os.umask(before)
    assert folder.name == "20260102T030405Z-chat"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o755


def test_a_folder_within_one_that_measured_nothing_goes_too(tmp_path: Path) -> None:
    log = tmp_path / "server-baseline.log"
    log.write_text("why")
    (tmp_path / "spool" / "worker-1").mkdir(parents=True)
    (tmp_path / "run.json").write_text("{}")
    assert remove_if_empty(tmp_path, [log])
    assert list(tmp_path.iterdir()) == [log]


def test_a_folder_that_was_taken_away_meanwhile_is_no_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert remove_if_empty(gone, [gone / "server-baseline-1.log"])
    assert remove_if_empty(gone)
