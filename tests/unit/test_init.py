"""`loadtest init`: the repository's own files, never over what is there; and what the wheel packs of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadtest.cli import main
from loadtest.commands.init import starter

ROOT = Path(__file__).parents[2]


def test_it_writes_the_repositorys_own_files(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["init", str(tmp_path / "mine")])
    assert done.exit_code == 0, done.output
    written = sorted(path for path in (tmp_path / "mine").rglob("*") if path.is_file())
    assert written
    for path in written:
        assert path.read_bytes() == (ROOT / path.relative_to(tmp_path / "mine")).read_bytes()
    names = {str(path.relative_to(tmp_path / "mine")) for path in written}
    assert {"scenarios/chat.py", "scenarios/chat.toml", "scenarios/trace.csv", "servers/README.md",
            "servers/docker-onegpu.toml", "docker-compose.yml", "compose.tp4.yml", ".env"} <= names  # fmt: skip
    assert not [name for name in names if "pycache" in name]


@pytest.mark.parametrize("name", ["scenarios/chat.toml", ".env", "scenarios", "servers/README.md"])
def test_it_overwrites_nothing_and_then_writes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    done = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{tmp_path / name} is there already" in done.output
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / ".env").symlink_to(tmp_path / "elsewhere")
    done = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert done.exit_code == 2
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["init", str(tmp_path / "file" / "deeper")])
    assert done.exit_code == 2
    assert "cannot be written" in done.output


def test_the_wheel_packs_every_file_that_is_written() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    given = packed["force-include"]
    assert {f"loadtest/starter/{name}" for name in given} == set(given.values())
    for name in starter(ROOT):
        assert name in given or name.partition("/")[0] in given, f"{name} is not packed: pyproject.toml, force-include"
    copied = (ROOT / "Dockerfile").read_text().split()
    assert all(name in copied for name in given), "the image is built from the same pyproject.toml"
