"""The console of a run: when what it writes to has gone, and when a server's words would act on the terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.report.screen import Screen

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


@pytest.mark.parametrize("words", ["a\x1b[31mb\x07c", "a\x1b]0;title\x07bc", "\x1b[2Jabc\x9b"])
def test_words_of_a_server_do_not_act_on_the_terminal(words: str) -> None:
    file = io.StringIO()
    Screen(file=file, highlight=False).print(words, markup=False, soft_wrap=True)
    assert file.getvalue() == "abc\n"
