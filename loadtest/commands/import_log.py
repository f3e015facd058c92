"""`loadtest import`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from loadtest.checks import shown
from loadtest.commands.options import PATH
from loadtest.errors import UsageError
from loadtest.settings import Trace

SETTINGS = {"start": "start_s", "length": "length_s", "keep": "keep_ratio", "speed": "speed", "jitter": "jitter_s",
            "max_input_tokens": "max_input_tokens"}  # fmt: skip


@click.command("import")
@click.argument("log", type=PATH)
@click.option("-o", "--out", type=PATH, required=True, metavar="NAME", help="Writes NAME.jsonl, NAME.py and NAME.toml.")
@click.option("--map", "mapped", multiple=True, metavar="FIELD=NAME", help="Where a field stands, as ts=request.time.")
@click.option("--start", metavar="TIME", help="Leave out what arrived before this time after the first row.")
@click.option("--length", metavar="TIME", help="Take this much time from there on, or from the first row.")
@click.option("--keep", metavar="SHARE", help="Keep this share of the sessions.")
@click.option("--speed", metavar="FACTOR", help="Divide all times by this factor.")
@click.option("--jitter", metavar="TIME", help="Spread arrivals over this time; default: if the clock is coarse.")
@click.option("--max-input-tokens", metavar="N", help="Leave out longer prompts.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
def import_log(log: Path, out: Path, mapped: tuple[str, ...], seed: int, **given: str | None) -> None:
    """Make a scenario of a log or a published trace: what was asked, and when.

    LOG is JSONL with a request per line (`ts`, `messages` or `prompt`, and if known `session`, `output_tokens`,
    `class`), or CSV or JSONL with times and lengths alone (Azure, BurstGPT, Mooncake, …), plain or gzip. The files are
    readable by you alone; no text of a log comes into records or reports.
    """
    from loadtest.workload import import_log as importing
    from loadtest.workload.seen import seen_in_words

    done = importing.import_log(log, out, _settings(given), seed, importing.parse_map(mapped))
    for note in done.notes:
        click.echo(note)
    for line in seen_in_words(done.seen):
        click.echo(f"  {line}")
    click.echo(f"Wrote {', '.join(str(path) for path in done.files)}.")
    click.echo(f"Next: loadtest plan {done.files[1]}")


def _settings(given: dict[str, str | None]) -> Trace:
    """Return the options as settings of [trace]. Raises UsageError."""
    checks = {field.name: field.metadata["check"] for field in fields(Trace)}
    found: dict[str, Any] = {}
    for option, word in given.items():
        if word is not None:
            try:
                found[SETTINGS[option]] = checks[SETTINGS[option]](_number(word))
            except ValueError as allowed:
                raise UsageError(f"--{option.replace('_', '-')} is {shown(word)}; it must be {allowed}.") from None
    return Trace(**found)


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
