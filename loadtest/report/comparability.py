"""The comparability table as lines of text: `check` and the first step of `run` print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.report import words

ORDER = ("violation", "unknown", "consequence", "expected", "equal")
NOUNS = {"equal": "equal", "expected": "expected", "consequence": "a consequence", "unknown": "unknown",
         "violation": "a violation"}  # fmt: skip
MOST = 30  # of one kind of difference that are shown one by one
FEW = 8  # settings of speculation itself that are shown one by one
WIDEST = 60  # characters of one value


def comparison_lines(rows: Sequence[Mapping[str, Any]], *, every: bool = False) -> list[str]:
    """Return the table's lines: a count of each kind of difference, then what differs, the gravest first.

    What speculation itself sets is counted where it is much, and equal items are, unless `every` row is asked for.
    Of several candidates (rows that name an `arm`) each has a table under its name.
    """
    arms = list(dict.fromkeys(str(row["arm"]) for row in rows if row.get("arm")))
    if not arms:
        return _table(rows, every=every)
    own = {arm: _table([row for row in rows if row.get("arm") == arm], every=every) for arm in arms}
    return [line for arm, lines in own.items() for line in (f"{words.plain(arm, 64)} against the baseline:", *lines)]


def _table(rows: Sequence[Mapping[str, Any]], *, every: bool) -> list[str]:
    counts = Counter(str(row["kind"]) for row in rows)
    waived = sum(bool(row.get("waived")) for row in rows)
    told = ", ".join(f"{counts[kind]} {NOUNS[kind]}" for kind in reversed(ORDER) if counts[kind])
    lines = [f"Comparable? {told}{f' ({waived} waived)' if waived else ''}."]
    settings = [row for row in rows if row["kind"] == "expected" and "." in str(row["item"])]
    hidden = settings if len(settings) > FEW and not every else []
    for kind in ORDER:
        shown = [row for row in rows if row["kind"] == kind and row not in hidden]
        lines += [_line(row) for row in (shown if every else shown[:MOST]) if every or kind != "equal"]
        if len(shown) > MOST and not every and kind != "equal":
            lines.append(f"  {kind:<12} {len(shown) - MOST:,} more (`check --all` shows them)")
    return [*lines, f"  expected     {len(hidden)} settings of speculation itself"] if hidden else lines


def _line(row: Mapping[str, Any]) -> str:
    kind = "waived" if row.get("waived") else str(row["kind"])
    mine, other = (words.plain(row.get(side, ""), WIDEST) or words.MISSING for side in ("baseline", "candidate"))
    values = mine if row["kind"] == "equal" else f"{mine} | {other}"
    more = row.get("note") or ""
    return (f"  {kind:<12} {words.plain(row['item'], 120)}: {values} ({words.plain(row.get('source', ''), 20)})"
            + (f": {words.plain(more, 200)}" if more else ""))  # fmt: skip
