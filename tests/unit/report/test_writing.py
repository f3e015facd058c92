"""What the report cannot write is a sentence, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.report.writing import write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "a.md", "one") == tmp_path / "a.md"
    write_whole(tmp_path / "a.md", "two")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.md", "two")]


@pytest.mark.parametrize("name", ["report.html", "report.html.part"])
def test_a_folder_in_its_place_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=r"report\.html cannot be written: "):
        write_whole(tmp_path / "report.html", "x")
    assert [p.name for p in tmp_path.iterdir()] == [name]
