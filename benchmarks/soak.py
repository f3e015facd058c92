"""Does memory stay flat? One long cell against a simulated server, and the resident memory of every process over time.

    PYTHONPATH=. python benchmarks/soak.py --requests 100000 --users 1024 --tokens 100

It starts a simulated server (20 ms a step, whatever the load) and `loadtest run` with one cell whose window lasts until
so many requests were due, and prints one line of JSON every few seconds, then what each process grew by per request
after the first fifth of them. The records go to a temporary folder, about 1.3 KB for a request of 100 chunks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTLED = 0.2  # share of the requests after which nothing should grow any more


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in task.read_text().split()]
    return [*found, *(inner for child in found for inner in children(child))]


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB, 0 for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
    return int(line.split()[1]) * 1024 / 1e6


def role(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    for word, name in (("loadtest.drive.driver", "driver"), ("--world null --arm", "null server")):
        if word in line:
            return name
    return ""


def completed(server: str) -> int:
    """Return how many requests the server has answered, from its own counter."""
    import httpx

    text = httpx.get(f"{server}/metrics", timeout=30.0).text
    lines = [line for line in text.splitlines() if line.startswith("vllm:request_success_total")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


def start_server() -> tuple[subprocess.Popen[str], str]:
    words = ["--world", "null", "--arm", "baseline", "--port", "0", "--watch-stdin"]
    server = subprocess.Popen([sys.executable, "-m", "loadtest.simulate", *words], cwd=ROOT, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert server.stdout is not None
    return server, f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"


def start_run(given: argparse.Namespace, url: str, out: Path) -> subprocess.Popen[str]:
    settings = {
        "window.min_s": 1, "window.max_s": 1_000_000, "window.min_requests": given.requests,
        "window.warmup_requests": 0.5, "load.think_time": 0, "generation.max_tokens": given.tokens,
        "generation.ignore_eos": "true", "servers.token_counts": "all",
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "loadtest", "run", str(ROOT / "scenarios" / "chat.py"), "--out", str(out),
               "--server", url, "--levels", str(given.users), "--blocks", "1", *words]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)


def watch(given: argparse.Namespace, run: subprocess.Popen[str], server: subprocess.Popen[str], url: str) -> (
    list[dict[str, float]]
):  # fmt: skip
    """Print a line every few seconds while the run goes on, and return them."""
    rows: list[dict[str, float]] = []
    began = time.monotonic()
    while run.poll() is None:
        row: dict[str, float] = {"t_s": round(time.monotonic() - began, 1), "requests": completed(url)}
        row["loadtest"] = round(resident_mb(run.pid), 1)
        for pid in children(run.pid):
            if name := role(pid):
                row[name] = round(resident_mb(pid), 1)
        row["server"] = round(resident_mb(server.pid), 1)
        rows.append(row)
        print(json.dumps(row), flush=True)
        time.sleep(given.every)
    return rows


def growth(rows: list[dict[str, float]], name: str) -> dict[str, object]:
    """Return how a process grew from the first fifth of its requests to the last line that has it."""
    own = [row for row in rows if row.get(name)]
    last = own[-1]["requests"] if own else 0
    settled = [row for row in own if row["requests"] >= SETTLED * last > 0]
    if len(settled) < 2 or settled[-1]["requests"] == settled[0]["requests"]:
        return {"process": name, "most_mb": max((row[name] for row in own), default=0.0), "bytes_per_request": None}
    requests = settled[-1]["requests"] - settled[0]["requests"]
    grown = 1e6 * (settled[-1][name] - settled[0][name]) / requests
    return {"process": name, "most_mb": max(row[name] for row in own), "bytes_per_request": round(grown, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="due in the window, at least")
    parser.add_argument("--users", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=100, help="of an answer, a chunk each")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two lines")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    server, url = start_server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = start_run(given, url, Path(folder))
            rows = watch(given, run, server, url)
            for name in ("driver", "loadtest", "server"):
                print(json.dumps(growth(rows, name)))
            return run.returncode
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    sys.exit(main())
