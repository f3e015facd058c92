"""A log becomes a scenario and is run against the simulated pair: as it came, and with none of its text left behind."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from processes import Starter, assert_asked_alike

pytestmark = pytest.mark.e2e
SECRET = "The patient Anna Karlsson"
LEFT_BEHIND = (".py", ".toml", ".jsonl")


def a_log(path: Path) -> None:
    """Write dialogues of two turns and completions: a request every 0.25 s on average, some at the same moment."""
    lines: list[dict[str, Any]] = []
    for n in range(120):
        asked = [{"role": "user", "content": f"{SECRET} asks what her {n}th letter of this week was about."}]
        answer = {"role": "assistant", "content": f"{SECRET}'s letter {n} was about a bill."}
        later = [*asked, answer, {"role": "user", "content": f"And who signed number {n}? Answer in a few words."}]
        at_s = 0.6 * n - 0.3 * (n % 3)
        lines.append({"ts": at_s, "session": f"Anna {n}", "messages": asked, "output_tokens": 9, "class": "letters"})
        lines.append(
            {"ts": at_s + 0.5, "session": f"Anna {n}", "messages": later, "output_tokens": 7, "class": "letters"}
        )
        lines.append(
            {"ts": at_s, "prompt": f"{SECRET} was born in {1900 + n}, and", "output_tokens": 5, "class": "notes"}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.nightly
def test_a_log_is_imported_and_run(loadtest: Starter, tmp_path: Path) -> None:
    a_log(tmp_path / "day.jsonl")
    done = loadtest.run("import", tmp_path / "day.jsonl", "-o", tmp_path / "mine")
    assert done.process.returncode == 0, done.text
    assert SECRET not in done.text
    settings = (tmp_path / "mine.toml").read_text()
    (tmp_path / "mine.toml").write_text(
        settings[: settings.index("[traffic]")] + settings[settings.index("[generation]") :]
    )
    run = loadtest.run(
        "run", tmp_path / "mine.py", "--out", loadtest.out, "--simulated", "--rates", "12", "--window", "3s",
        "--blocks", "1",
        "--set", "outputs.prompts=0", "--set", "window.warmup_requests=1", "--set", "load.think_time=0.2",
    )  # fmt: skip
    assert run.process.returncode in (0, 3, 4, 5), run.text
    header = json.loads((run.folder / "run.json").read_text())
    assert header["status"] == "complete"
    told = header["scenario"]["sessions_from"]
    assert (told["kind"], told["holds_text"], told["requests"], told["sessions"]) == ("trace", True, 360, 240)
    rows = pq.read_table(run.folder / "requests.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}
    assert {row["category"] for row in rows} == {"letters", "notes"}
    assert max(row["output_tokens"] for row in rows if row["category"] == "notes") <= 5
    assert_asked_alike(rows, more_than=20)
    assert "Karlsson" not in json.dumps(rows)
    for path in run.folder.iterdir():
        if path.is_file():
            assert b"Karlsson" not in path.read_bytes(), path.name
    for suffix in LEFT_BEHIND:
        path = tmp_path / f"mine{suffix}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
