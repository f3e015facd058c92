"""Hold the stream client of `loadtest run` against a server that writes down what it truly did.

    python -m benchmarks.client              every figure, about 12 minutes
    python -m benchmarks.client --quick      a sanity pass, under a minute
    python -m benchmarks.client --only cpu --only gaps --json figures.json

Builds the server from benchmarks/ground_truth with `cc`, runs it on one core and the client on another, and prints each
figure beside its target. Leave the machine otherwise idle: a run whose processes had to wait for their cores is made
again, and marked when it was no better. Exit code 1: some record disagreed with the server's log, a request failed, or
a run did not end; 2: nothing could be measured. A missed target is not an error: it may be the machine's.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from benchmarks.client.bench import Bench, RunFailed
from benchmarks.client.figures import FIGURES, Line
from benchmarks.client.ground import NoServer, build
from benchmarks.client.machine import cores, described, scheduling
from loadtest.json_files import write_json

FULL = 1_000_000


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    known = "; ".join(f"{figure.name}: {figure.says}" for figure in FIGURES)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help=f"this figure; may be repeated. {known}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs, no search: coarse figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write lines, runs and machine as JSON")
    parser.add_argument("--priority", choices=("rt", "none"), default="rt",
                        help="rt: the real-time class, as `loadtest run` asks for; none: as this process")  # fmt: skip
    parser.add_argument("--cores", metavar="SERVER,CLIENT", help="default: the first two that this process may use")
    parser.add_argument("--long", type=int, metavar="REQUESTS", nargs="?", const=FULL, default=0,
                        help=f"requests of the long memory run: a minute's; alone {FULL:,}, 50 minutes")  # fmt: skip
    return parser.parse_args()


def main() -> int:
    given = options()
    if sys.platform != "linux":
        return _refused("This benchmark needs Linux: its server stands on epoll and on the kernel's time stamps.")
    names = [figure.name for figure in FIGURES]
    if unknown := [name for name in given.only if name not in names]:
        return _refused(f"--only {unknown[0]}: no such figure; there are {', '.join(names)}.")
    if given.long < 0:
        return _refused(f"--long {given.long}: give a number of requests above 0.")
    try:
        server_core, client_core = cores(given.cores)
        programs = build()
    except (ValueError, NoServer) as error:
        return _refused(str(error))
    bench = Bench(programs=programs, server_core=server_core, client_core=client_core, realtime=given.priority == "rt",
                  quick=given.quick, tries=1 if given.quick else 2, long_requests=given.long,
                  tell=_progress)  # fmt: skip
    machine = described(server_core, client_core, given.priority)
    for name, value in machine.items():
        print(f"{name:13} {value}")
    if server_core == client_core:
        print("Server and client share one core: every figure is suspect.")
    lines, failed = _measure(bench, given.only, quick=given.quick)
    _progress("")
    classes = sorted({result.scheduling for result in bench.results.values() if result.scheduling})
    print(f"\nthe client ran as: {', '.join(classes) or '–'}; this process: {scheduling()}")
    for name in dict.fromkeys(name for result in bench.results.values() for name in result.disturbance.shares):
        most = max(result.disturbance.shares[name] for result in bench.results.values())
        print(f"{name} {most:.1%} of a run at most")
    if given.json:
        write_json(given.json, {
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine, "quick": given.quick,
            "scheduling": classes, "lines": [_as_row(name, line) for name, line in lines],
            "runs": [result.as_row() for result in bench.results.values()],
        })  # fmt: skip
    wrong = failed + [result.wrong for result in bench.results.values() if result.wrong]
    for text in wrong:
        print(f"WRONG: {text}", file=sys.stderr)
    return 1 if wrong else 0


def _measure(bench: Bench, only: list[str], *, quick: bool) -> tuple[list[tuple[str, Line]], list[str]]:
    """Print the lines of the figures as they come; return them, and why some figures could not be measured."""
    lines: list[tuple[str, Line]] = []
    failed: list[str] = []
    for figure in FIGURES:
        if figure.name not in only if only else quick and not figure.quick:
            continue
        _progress("")
        print(f"\n{figure.name}: {figure.says}", flush=True)
        try:
            for line in figure.lines(bench):
                _progress("")
                print(_text(line), flush=True)
                lines.append((figure.name, line))
        except (RunFailed, NoServer) as error:
            failed.append(f"{figure.name}: {error}")
    return lines, failed


def _text(line: Line) -> str:
    target = f"   target {line.target}: {line.verdict}" if line.target else ""
    remark = f"\n      SUSPECT: {line.remark}" if line.remark else ""
    return f"  {line.name:88} {line.ours}{target}{remark}"


def _as_row(figure: str, line: Line) -> dict[str, object]:
    return {"figure": figure, "name": line.name, "ours": line.ours, "target": line.target, "met": line.met,
            "remark": line.remark}  # fmt: skip


def _progress(text: str) -> None:
    """Say on a terminal what runs now."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)


def _refused(text: str) -> int:
    print(text, file=sys.stderr)
    return 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the run under way is ended too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
