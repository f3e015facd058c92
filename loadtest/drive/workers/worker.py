"""The process of a worker, which drives its share of every cell that the master tells it.

`python -m loadtest.drive.workers.worker SETTINGS` (JSON); ends when the run is over, or when its stdin is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable

import gevent
import locust  # noqa: F401  # before anything opens a socket: it makes the standard library cooperative

from loadtest.drive.priority import ask_for_priority
from loadtest.drive.without_pandas import keep_pandas_out
from loadtest.drive.workers.duty import Worker
from loadtest.drive.workers.elsewhere import AGAIN
from loadtest.drive.workers.left import deliver_and_say
from loadtest.drive.workers.vigil import Outlived
from loadtest.errors import ExitCode, LoadtestError


def main(arguments: list[str]) -> int:
    """Work for one run; returns the process's exit code. What it does is said on stdout, what went wrong on stderr."""
    settings = json.loads(arguments[0])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", buffering=1)
    os.dup2(2, 1)  # what a scenario prints must not mix with that
    local = settings["local"]
    say: Callable[[str], None] = (lambda text: None) if local else (lambda text: print(text, file=out))
    ask_for_priority()
    keep_pandas_out()
    if settings.get("only_left"):
        return ExitCode.INVALID if deliver_and_say(settings, say) else ExitCode.PASS
    try:
        worker = Worker(settings, say)
    except LoadtestError as error:
        return _wrong(error)
    return _work(worker, say, local=local)


def _work(worker: Worker, say: Callable[[str], None], *, local: bool) -> int:
    task = gevent.spawn(_worked, worker, say)
    loop = gevent.get_hub().loop
    watchers = [loop.signal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    for watcher in watchers:  # workers of the run's own machine are the master's to end, which has the signal too
        watcher.start((lambda: None) if local else (lambda: task.kill(block=False)))
    gone = loop.io(0, 1)
    gone.start(lambda: os.read(0, 4096) or os._exit(ExitCode.INVALID))
    with worker.holding():
        found = task.get()
        gone.stop()
        stopped = isinstance(found, gevent.GreenletExit)
        code, why = (int(ExitCode.INTERRUPTED), "it was stopped") if stopped else found
        with contextlib.suppress(OSError):
            worker.close(why)
    return int(code)


def _worked(worker: Worker, say: Callable[[str], None]) -> tuple[int, str]:
    """Return the exit code of a worker's run and what went wrong."""
    try:
        worker.work()
    except Outlived as error:
        say(str(error))
        return AGAIN, str(error)
    except LoadtestError as error:
        return _wrong(error), str(error)
    return int(ExitCode.PASS), ""


def _wrong(error: LoadtestError) -> int:
    print(error, file=sys.stderr, flush=True)  # noqa: T201  # the process that started this one shows it
    return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
