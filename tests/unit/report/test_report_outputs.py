"""The comparison of answers as the page and a terminal show it, apart from the verdict on speed."""

from __future__ import annotations

from dataclasses import replace

from report_example import judgement as example
from report_example import run as run_header

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.output_results import OutputComparison, OutputTest, OutputVerdict
from loadtest.report.outputs import summary, table
from loadtest.report.page import page

FOUND = OutputComparison(
    verdict=OutputVerdict.DIFFERS,
    exit_code=3,
    headline="The candidate's greedy answers differ beyond the baseline's own.",
    greedy=True,
    prompts=39,
    left_out=1,
    margin=0.1,
    identical=Estimate(value=0.8, low=0.65, high=0.9, n=39),
    identical_itself=Estimate(value=1.0, low=0.91, high=1.0, n=39),
    excess=Estimate(value=0.2, low=0.08, high=0.35, n=39),
    first_token=Estimate(value=7.0, low=2.0, high=20.0, n=8),
    length_ratio=Estimate(value=1.0, low=0.99, high=1.01, n=39),
    text_coefficient=Estimate(value=0.1, low=0.05, high=0.15, n=39),
    tests=(OutputTest(name="answers", label="identical answers", p_value=0.0004, adjusted=0.0012, rejected=True),),
)


def test_the_table_says_what_is_kept_of_the_answers() -> None:
    rows = {row[0]: row[1:] for row in table(FOUND).rows}
    assert rows["identical"] == ("80 % [65, 90]", "100 % [91, 100]")
    assert rows["first difference, token (median)"] == ("8 [3, 21]", "–")
    assert rows["different beyond that"][0] == "+20.0 points [+8.0, +35.0]"
    assert rows["test: identical answers"][0] == "p = 0.0012, rejected"


def test_the_summary_names_verdict_exit_code_and_what_was_left_out() -> None:
    text = summary(FOUND)
    assert text.startswith("## Answers: different\n\nThe candidate's greedy answers differ beyond the baseline's own.")
    assert "39 prompts (greedy, temperature 0); 1 left out for want of an answer. Exit code 3 (" in text


def test_an_invalid_comparison_has_no_figures() -> None:
    invalid = OutputComparison(verdict=OutputVerdict.INVALID, exit_code=5, headline="No.", greedy=True, prompts=0,
                               left_out=4)  # fmt: skip
    assert table(invalid).rows == ()
    assert table(None).rows == ()
    assert summary(invalid).startswith("## Answers: invalid\n\nNo.\n\n0 prompts")


def test_the_page_has_a_section_only_where_answers_were_compared() -> None:
    run, judgement = run_header(), example()
    assert 'id="outputs"' not in page(run, judgement)
    shown = page(run, replace(judgement, outputs=FOUND))
    assert 'id="outputs"' in shown
    assert "no part of the verdict on speed" in shown
