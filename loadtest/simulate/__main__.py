"""`python -m loadtest.simulate`: one simulated server behind HTTP, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from pathlib import Path

import orjson
from aiohttp import web

from loadtest.simulate.engine import Engine
from loadtest.simulate.realtime import Pacer
from loadtest.simulate.server import KEEP_ALIVE_S, SimulatedServer, start_seed
from loadtest.simulate.worlds import WORLDS, world


def _ask_for_priority() -> None:
    """Ask to be served first, where that is permitted: a late step falsifies the model."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not on this system
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
        return
    with contextlib.suppress(OSError):
        os.nice(-10 - os.nice(0))


def parsed(words: list[str]) -> argparse.Namespace:
    """Return the options; wrong ones end the program with code 2."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.simulate", description=__doc__)
    parser.add_argument("--world", default="default", help=", ".join(WORLDS))
    parser.add_argument("--arm", choices=("baseline", "speculative"), default="baseline")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    parser.add_argument("--seed", type=int, default=1, help="luck of this start's drafts and answers")
    parser.add_argument("--model", default="simulated-8b", help="name of the model it serves")
    parser.add_argument("--log", type=Path, help="file to which every finished answer is appended as a JSON line")
    parser.add_argument("--watch-stdin", action="store_true", help="end when standard input does")
    options = parser.parse_args(words)
    try:
        world(options.world)
    except ValueError as error:
        parser.error(str(error))
    if not 0 <= options.port <= 65535:
        parser.error(f"--port {options.port} is no port; it must be from 0 to 65535")
    return options


async def serve(options: argparse.Namespace) -> None:
    """Serve until a signal, or until standard input ends."""
    arm = world(options.world).arm(options.arm)
    seed = start_seed(options.seed, options.arm)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("ab", buffering=0)) if options.log else None
        engine = Engine(arm, seed)
        pacer = Pacer(engine, log)
        server = SimulatedServer(arm, pacer, engine, world=options.world, model=options.model, seed=seed)
        runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True,
                               keepalive_timeout=KEEP_ALIVE_S, shutdown_timeout=0.1)  # fmt: skip
        await runner.setup()
        site = web.TCPSite(runner, options.host, options.port, backlog=4096)
        await site.start()
        port = runner.addresses[0][1]
        stop = _stopping(watch_stdin=options.watch_stdin)
        pacing = asyncio.create_task(pacer.run())
        pacing.add_done_callback(lambda _: stop.set())
        gc.collect()
        gc.freeze()
        gc.disable()  # collected when idle
        ready = {"ready": True, "port": port, "model": options.model, "world": options.world, "arm": options.arm}
        sys.stdout.buffer.write(orjson.dumps(ready) + b"\n")
        sys.stdout.buffer.flush()
        await stop.wait()
        await runner.cleanup()
        if pacing.done():
            pacing.result()  # shows why it ended
        pacing.cancel()


def _stopping(*, watch_stdin: bool) -> asyncio.Event:
    """Return an event that SIGTERM, SIGINT and, if watched, the end of standard input set."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # not through a buffer, whose lock would hold up the exit
            pass
        with contextlib.suppress(RuntimeError):  # the loop may have ended first
            loop.call_soon_threadsafe(stop.set)

    if watch_stdin:
        threading.Thread(target=watch, daemon=True).start()
    return stop


def _refused(options: argparse.Namespace, error: OSError) -> int:
    sys.stderr.write(f"error: it cannot listen at {options.host}:{options.port}, or not write its log ({error})\n")
    return 2


def main() -> None:
    """Run the server."""
    options = parsed(sys.argv[1:])
    _ask_for_priority()
    try:
        asyncio.run(serve(options))
    except OSError as error:  # the port is taken, the host is not of this machine, the log cannot be written
        sys.exit(_refused(options, error))


if __name__ == "__main__":
    main()
