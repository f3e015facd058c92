"""What interrupts a command, from its first moment to its last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from loadtest.drive.interrupts import stopping_on_interrupt

STILL_LOADING = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "loadtest.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from loadtest.__main__ import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_takes_one_path(number):
    with stopping_on_interrupt(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_a_hang_up_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_on_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


HELD = """
import os, signal, sys
from loadtest.drive.interrupts import hold_interrupts, stopping_on_interrupt
with stopping_on_interrupt():
    hold_interrupts()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), number)
sys.exit(4)
"""
LATE = """
import atexit, os, signal, sys
atexit.register(lambda: [os.kill(os.getpid(), number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)])
from loadtest.__main__ import main
sys.argv = ["loadtest", "--no-such-option"]
main()
"""


@pytest.mark.parametrize(("program", "code"), [(HELD, 4), (LATE, 2)])
def test_an_interrupt_after_the_answer_changes_no_exit_code(program, code):
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == code


def test_ctrl_c_while_the_program_is_loading_is_said_in_a_sentence():
    done = subprocess.run([sys.executable, "-c", STILL_LOADING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "loadtest: stopped.\n")
