"""The console of a run, when what it writes to has gone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = """
import sys
from loadtest.report.screen import Screen
screen = Screen()
sys.stdin.readline()
screen.print("nobody reads this")
screen.print("nor this")
"""


def _ends_well(stdout: int) -> bool:
    process = subprocess.Popen([sys.executable, "-c", SAYS], stdin=subprocess.PIPE, stdout=stdout,
                               stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    os.close(stdout)
    _, errors = process.communicate(b"\n", timeout=60)
    return (process.returncode, errors) == (0, b"")


def test_a_terminal_that_was_closed_ends_no_run():
    master, slave = pty.openpty()
    os.close(master)
    assert _ends_well(slave)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_under_the_words_ends_no_run():
    assert _ends_well(os.open("/dev/full", os.O_WRONLY))
