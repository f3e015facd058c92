"""What the report cannot write is a sentence, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.json_files import beside, write_json
from loadtest.report.writing import write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "a.md", "one") == tmp_path / "a.md"
    write_whole(tmp_path / "a.md", "two")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.md", "two")]


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    for name in ("report.html", beside(tmp_path / "report.html").name):
        folder = tmp_path / name.replace(".", "-")
        (folder / name).mkdir(parents=True)
        with pytest.raises(UsageError, match=r"report\.html cannot be written: "):
            write_whole(folder / "report.html", "x")
        assert [p.name for p in folder.iterdir()] == [name]


def test_json_in_whose_place_a_folder_stands_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_json(tmp_path / "verdict.json", {})
    assert [p.name for p in tmp_path.iterdir()] == ["verdict.json"]


def test_two_processes_that_write_one_file_do_not_take_each_others_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is in the midst of writing when this one begins and ends."""
    path = tmp_path / "summary.md"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    other = beside(path)
    other.write_text("half")
    monkeypatch.undo()
    write_whole(path, "whole")
    assert (path.read_text(), other.read_text()) == ("whole", "half")
    write_json(path, {})
    assert other.replace(path).read_text() == "half"
