"""What is released works where its source is not: built, installed in an environment of its own, begun from nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT = shutil.ignore_patterns(
    "__pycache__", ".*_cache", ".git", ".hypothesis", "reports", ".venv", "venv", "dist", "build"
)


def said(words: list[str], cwd: Path, **more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOADTEST_"))}
    done = subprocess.run(words, cwd=cwd, env=environment | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_wheel_and_sdist_work_without_their_source(tmp_path: Path) -> None:
    source, dist = tmp_path / "source", tmp_path / "dist"
    shutil.copytree(ROOT, source, ignore=LEFT)
    (source / "reports").mkdir()
    shutil.copy(ROOT / "reports" / "README.md", source / "reports")
    said([sys.executable, "-m", "build", "--outdir", str(dist), str(source)], tmp_path)  # the wheel from the sdist
    shutil.rmtree(source)
    assert sorted(path.name.partition("-0")[2] for path in dist.iterdir()) == [".1.0-py3-none-any.whl", ".1.0.tar.gz"]

    for built in dist.iterdir():
        place = tmp_path / built.suffix.lstrip(".")
        venv.create(place / "venv", with_pip=True)
        bin_ = place / "venv" / "bin"
        said([str(bin_ / "pip"), "install", "-q", str(built)], place)
        loadtest = str(bin_ / "loadtest")
        assert said([loadtest, "--version"], place) == "loadtest 0.1.0\n"
        said([loadtest, "init", "mine"], place)
        mine = place / "mine"
        for scenario in sorted((ROOT / "scenarios").glob("*.py")):
            said([loadtest, "plan", f"scenarios/{scenario.name}", "--simulated"], mine)
        options = ["--simulated", "--levels", "2,4", "--blocks", "2", "--window", "3s", "--measure-only"]
        said([loadtest, "run", "scenarios/chat.py", *options], mine)
        [run] = (mine / "reports").iterdir()
        assert json.loads((run / "verdict.json").read_text())["decision"]["exit_code"] == 0
        assert (run / "report.html").stat().st_size > 1_000_000
        found = said([loadtest], mine, _LOADTEST_COMPLETE="bash_complete", COMP_WORDS="loadtest re", COMP_CWORD="1")
        assert found == "plain,report\n"
