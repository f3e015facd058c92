"""The comparability table on a terminal: the gravest first, and very many rows are counted."""

from __future__ import annotations

from loadtest.report.comparability import MOST, comparison_lines


def test_very_many_differences_are_counted_unless_all_are_asked_for() -> None:
    rows = [{"item": f"s{at}", "baseline": "1", "candidate": "2", "kind": "violation", "source": "verified"}
            for at in range(1000 + MOST)]  # fmt: skip
    lines = comparison_lines(rows)
    assert lines[0] == f"Comparable? {1000 + MOST} a violation."
    assert lines[-1] == "  violation    1,000 more (`check --all` shows them)"
    assert len(lines) == MOST + 2
    assert len(comparison_lines(rows, every=True)) == 1001 + MOST
