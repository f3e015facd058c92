"""Whether both arms answer alike, as a table and as lines of text; apart from everything on speed."""

from __future__ import annotations

from loadtest.analyse.output_results import OutputComparison, OutputVerdict
from loadtest.report import vocabulary, words
from loadtest.report.tables import Row, Table

COLUMNS = ("answers", "candidate against baseline", "baseline against itself")
VERDICTS = {
    OutputVerdict.SAME: "alike",
    OutputVerdict.DIFFERS: "different",
    OutputVerdict.CANNOT_TELL: "cannot tell",
    OutputVerdict.INVALID: "invalid",
}


def table(found: OutputComparison | None) -> Table:
    """Return the comparison of answers, or a table without rows where there is none."""
    rows: tuple[Row, ...] = ()
    if found is not None and found.verdict is not OutputVerdict.INVALID:
        rows = (
            ("identical", words.interval(found.identical, words.share),
             words.interval(found.identical_itself, words.share)),
            ("first difference, token (median)", _place(found, "first_token"), _place(found, "first_token_itself")),
            ("first difference, character (median)", _place(found, "first_character"),
             _place(found, "first_character_itself")),
            ("different beyond that", words.interval(found.excess, words.points), words.MISSING),
            ("length", words.interval(found.length_ratio, words.ratio), words.MISSING),
            ("text apart, 0 to 1", words.interval(found.text_coefficient), words.MISSING),
            *((f"test: {test.label}", f"p = {test.adjusted:.2g}{', rejected' if test.rejected else ''}", words.MISSING)
              for test in found.tests),
        )  # fmt: skip
    return Table(name="Do both servers answer alike?", columns=COLUMNS, rows=rows)


def _place(found: OutputComparison, name: str) -> str:
    return words.interval(getattr(found, name), lambda value: words.count(value + 1))  # a reader counts from 1


def summary(found: OutputComparison) -> str:
    """Return the answer and the table as GitHub-flavoured markdown, which a terminal shows as well."""
    shown = table(found)
    parts = [f"## Answers: {VERDICTS[found.verdict]}", words.plain(found.headline, 600)]
    if shown.rows:
        lines = ["| " + " | ".join(row) + " |" for row in (shown.columns, ("---",) * len(shown.columns), *shown.rows)]
        parts.append("\n".join(lines))
    kind = "greedy, temperature 0" if found.greedy else "sampled, each prompt answered twice by both"
    parts.append(f"{found.prompts} prompts ({kind}); {found.left_out} left out for want of an answer."
                 f" Exit code {vocabulary.exit_words(found.exit_code)}.")  # fmt: skip
    return "\n\n".join(parts) + "\n"
