"""Write the golden run folders again: python tests/data/golden/make.py (only when the format of records changes)."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "unit" / "analyse"))

from gate_facts import failing  # noqa: E402
from made_run import BASE, SPEC, Made, header  # noqa: E402

from loadtest.experiment import as_document, from_toml  # noqa: E402
from loadtest.json_files import LineWriter, write_json  # noqa: E402
from loadtest.record import Request  # noqa: E402
from loadtest.record_writer import RequestWriter  # noqa: E402
from loadtest.run_folder import finish_requests  # noqa: E402

MADE = Made(levels=(4.0, 16.0), blocks=3, requests=48, chunks=6, noise=0.01)
ARMS = [
    {"name": BASE, "role": "baseline", "model": "m", "version": "0.32"},
    {"name": SPEC, "role": "candidate", "model": "m", "version": "0.32", "speculative": {"method": "eagle3"}},
]


def rounded(row: Request) -> Request:
    """Keep times to 10 µs, so that the files stay small."""
    times = {name: round(getattr(row, name), 5) for name in ("due_s", "sent_s", "headers_s", "first_visible_s", "end_s")
             if not math.isnan(getattr(row, name))}  # fmt: skip
    return replace(row, **times, chunk_s=[round(t, 5) for t in row.chunk_s])


def idle(values: dict[str, float]) -> dict[str, float]:
    return {name: 0.0 if "spec_decode" in name else value for name, value in values.items()}


def write(name: str, made: Made, *, drafting: bool = True, **run: Any) -> None:
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    experiment = as_document(from_toml("[load]\nthink_time = 0\n", "golden"))
    made = made.having(run=header(experiment=experiment, arms=ARMS, scenario={"name": name}, **run))
    document, cells, scrapes, table = made.build()
    write_json(folder / "run.json", document)
    for file in ("cells.jsonl", "server.jsonl"):
        (folder / file).unlink(missing_ok=True)
    lines = LineWriter(folder / "cells.jsonl")
    for cell in cells:
        lines.write(cell)
    lines.close()
    lines = LineWriter(folder / "server.jsonl")
    for scrape in scrapes:
        lines.write(scrape if drafting else replace(scrape, values=idle(scrape.values), per_position=[]))
    lines.close()
    writer = RequestWriter(folder / "requests.arrows")
    for row in table.to_pylist():
        writer.add(Request(**row))
    writer.close()
    finish_requests(folder)


def main() -> None:
    good = MADE.having(edit_request=rounded)
    write("good", good)
    write("failing", MADE.having(edit_request=lambda row: failing(rounded(row), 8)))
    write("survivors", MADE.having(edit_request=lambda row: rounded(row) if row.session % 16 == 3 else failing(row, 1)))
    write("inactive", good, drafting=False)
    write("simulated", good, simulated={"world": "default", "late_ratio": {}})
    write("interrupted", good, status="interrupted")
    write("slower", MADE.having(edit_request=rounded, speedup=lambda level: 0.8, seed=8))
    write("alone", MADE.having(edit_request=rounded, arms=(BASE,)), candidate=None)


if __name__ == "__main__":
    main()
