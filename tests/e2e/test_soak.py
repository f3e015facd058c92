"""A long cell of many streams: memory and open files stay flat, and stamps are as exact at its end as at first."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import CHAT, Command, assert_nothing_left, processes_that_mention

from loadtest.drive.truth import Agreement, agreement

pytestmark = pytest.mark.e2e
USERS = 256
SETTLED = 0.25  # share of the looks after which nothing grows any more
GROWTH_MB, DRIFT_S = 6.0, 0.001


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(120, marks=pytest.mark.timeout(400)),
        pytest.param(1800, marks=[pytest.mark.nightly, pytest.mark.timeout(2400)]),
    ],
)
def test_a_long_run_stays_flat(loadtest, servers, tmp_path, seconds):
    log = tmp_path / "truth.jsonl"
    server = servers("baseline", "null", log)
    command = loadtest("run", CHAT, "--out", loadtest.out, "--server", server.url, "--levels", USERS, "--blocks", "1",
                       "--window", f"{seconds}s", "--set", "load.think_time=0", "--set", "generation.max_tokens=100",
                       "--set", "generation.ignore_eos=true", "--set", "servers.token_counts=all", "--set",
                       "window.warmup_max_s=10")  # fmt: skip
    looks = _watched(command)
    assert command.wait(60) in (0, 4), command.text
    settled = looks[int(SETTLED * len(looks)) :]
    assert len(settled) > 20
    third = len(settled) // 3
    early, late = (sorted(mb for mb, _ in part)[third // 2] for part in (settled[:third], settled[-third:]))
    assert late - early < GROWTH_MB, looks
    assert max(files for _, files in settled) - min(files for _, files in settled[third:]) < 16, looks
    _assert_exact(command.folder, log)
    assert_nothing_left(command)


def _watched(command: Command) -> list[tuple[float, int]]:
    """Return resident megabytes and open files of the driver, twice a second while it has its cell."""
    looks: list[tuple[float, int]] = []
    while command.process.poll() is None:
        for pid in processes_that_mention("loadtest.drive.driver", str(command.out)):
            folder = Path(f"/proc/{pid}")
            try:
                status = (folder / "status").read_text()
                files = len(list((folder / "fd").iterdir()))
            except OSError:
                continue
            line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
            if files > USERS:  # all users have their connection
                looks.append((int(line.split()[1]) / 1000, files))
        time.sleep(0.5)
    return looks


def _assert_exact(folder: Path, log: Path) -> None:
    origin_ns = json.loads((folder / "run.json").read_text())["clock"]["origin_monotonic_ns"]
    table = pq.read_table(folder / "requests.parquet").sort_by("due_s")
    fifth = table.num_rows // 5
    assert fifth > 100

    def errors(part: Agreement) -> tuple[float, float]:
        assert (part.missing, part.tokens_differ) == (0, 0)
        assert part.first_error_p50_s is not None
        assert part.last_error_p50_s is not None
        return part.first_error_p50_s, part.last_error_p50_s

    first = errors(agreement(table.slice(0, fifth), log, origin_ns))
    last = errors(agreement(table.slice(table.num_rows - fifth), log, origin_ns))
    assert all(abs(after - before) < DRIFT_S for before, after in zip(first, last, strict=True)), (first, last)
