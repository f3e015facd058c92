"""What a scenario prints does not fill the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadtest.drive import log_bound
from loadtest.drive.log_bound import CUT, bound_log


def test_a_log_that_outgrows_its_bound_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_bound, "MOST_BYTES", 1000)
    with (tmp_path / "driver.log").open("ab", buffering=0) as log:
        log.write(b"x" * 1000)
        bound_log(log.fileno())
        assert (tmp_path / "driver.log").read_bytes() == b"x" * 1000
        log.write(b"y")
        bound_log(log.fileno())
        log.write(b"last words")
    assert (tmp_path / "driver.log").read_bytes() == CUT.encode() + b"last words"


def test_what_is_no_log_of_its_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_bound, "MOST_BYTES", 10)
    with (tmp_path / "theirs").open("wb", buffering=0) as file:
        file.write(b"x" * 100)
        bound_log(file.fileno())
    assert (tmp_path / "theirs").stat().st_size == 100
    reader, writer = os.pipe()
    bound_log(writer)
    os.close(reader)
    os.close(writer)
    bound_log(writer)
