"""`python -m loadtest`, and the program `loadtest`: Ctrl-C ends it with a sentence also while it is still loading."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130  # errors.ExitCode, which is not loaded yet


def main() -> None:
    """Run the command line."""
    try:
        from loadtest.cli import main as command_line
    except KeyboardInterrupt:
        sys.stderr.write("loadtest: stopped.\n")
        sys.exit(INTERRUPTED)
    try:
        command_line()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # all is said: none may change the exit code now
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
