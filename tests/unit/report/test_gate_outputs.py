"""The gate's answer in every form: terminal, markdown, JUnit, GitHub; foreign text acts on none of them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from report_example import judgement as example
from report_example import run as run_header
from rich.console import Console

from loadtest.analyse.estimates import Crossing, Estimate
from loadtest.analyse.gate_results import Capacity, Gate, GateOutcome, Regression, SloAt, SloResult
from loadtest.report import gate as gate_report
from loadtest.report import github, markdown, terminal
from loadtest.report.junit import junit, write_junit
from loadtest.report.page import page

NASTY = "</testcase>::error::x]]>\r\n::set-env name=A::b\x1b[31m<img onerror=1> %0A@all |"


def result(outcome: GateOutcome, **changes: Any) -> SloResult:
    at = SloAt(level=16.0, outcome=outcome, observed=Estimate(value=0.612, low=0.58, high=0.65, n=400))
    given: dict[str, Any] = {
        "sentence": "ttft p99 ≤ 500 ms at 16 users", "metric": "ttft", "statistic": "p99", "ask": "absolute",
        "unit": "s", "limit": 0.5, "lower": True, "outcome": outcome, "at": at, "levels": (at,),
    }  # fmt: skip
    return SloResult(**{**given, **changes})


def gate(*outcomes: GateOutcome, **changes: Any) -> Gate:
    given: dict[str, Any] = {
        "outcome": outcomes[0], "exit_code": 3, "headline": "Gate: failed.",
        "objectives": tuple(result(outcome) for outcome in outcomes),
        "capacities": (Capacity(arm="speculative", form=Crossing.PAYS_UP_TO, at=Estimate(value=41.0)),),
        "capacity_sentence": "Capacity: speculative meets them up to 41 users.",
    }  # fmt: skip
    return Gate(**{**given, **changes})


ALL = gate(*GateOutcome)


def judged(found: Gate | None) -> Any:
    judgement = example()
    code = found.exit_code if found else judgement.decision.exit_code
    return replace(judgement, gate=found, decision=replace(judgement.decision, exit_code=code))


def shown(found: Gate | None) -> str:
    text = io.StringIO()
    Console(file=text, width=100, highlight=False).print(terminal.summary(run_header(), judged(found)))
    return text.getvalue()


@pytest.mark.parametrize(("outcome", "tone"), [
    (GateOutcome.PASS, "good"), (GateOutcome.FAIL, "bad"), (GateOutcome.INVALID, "bad"),
    (GateOutcome.INCONCLUSIVE, "warn"), (GateOutcome.NO_DATA, "warn"),
])  # fmt: skip
def test_the_gates_outcome_stands_at_the_top_of_the_page(outcome: GateOutcome, tone: str) -> None:
    top = page(run_header(), judged(gate(outcome))).partition("</header>")[0]
    assert f'<span class="word {tone}">gate</span> failed.' in top
    assert '<a href="#objectives">' in top
    assert ">gate</span>" not in page(run_header(), judged(None)).partition("</header>")[0]


def cases(text: str) -> list[ET.Element]:
    return list(ET.fromstring(text).iter("testcase"))


def test_junit_has_a_case_per_objective_and_counts_them() -> None:
    text = junit(run_header(), judged(ALL))
    suite = next(ET.fromstring(text).iter("testsuite"))
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "3", "skipped": "0",
    }  # fmt: skip
    kinds = [case[0].tag for case in cases(text)]
    assert kinds == ["system-out", "failure", "error", "error", "error"]
    assert "observed 612 ms [580, 650], limit ≤ 500 ms" in str(cases(text)[1][0].get("message"))


@pytest.mark.parametrize(("choice", "tag"), [("", "error"), ("fail", "failure"), ("warn", "skipped")])
def test_junit_shows_what_was_chosen_for_the_inconclusive(choice: str, tag: str) -> None:
    found = gate(GateOutcome.INCONCLUSIVE, inconclusive=choice)
    assert [case[0].tag for case in cases(junit(run_header(), judged(found)))] == [tag]


def test_without_objectives_the_decision_is_the_case() -> None:
    (case,) = cases(junit(run_header(), judged(None)))
    assert case.get("name") == "speculation pays"
    never = replace(example(), decision=replace(example().decision, exit_code=3))
    assert cases(junit(run_header(), never))[0][0].tag == "failure"
    interrupted = cases(junit({**run_header(), "status": "interrupted"}, never))[0]
    assert interrupted[0].tag == "error"


def test_junit_is_written_whole_and_foreign_text_stays_text(tmp_path: Path) -> None:
    nasty = gate(GateOutcome.FAIL, objectives=(result(GateOutcome.FAIL, sentence=NASTY, says=NASTY),))
    path = write_junit(tmp_path, run_header(), judged(nasty))
    (case,) = ET.parse(path).getroot().iter("testcase")
    assert "</testcase>" in str(case.get("name"))
    assert "\x1b" not in path.read_text()


def test_regressions_are_cases_where_they_are_judged() -> None:
    found = gate(GateOutcome.PASS, regressions=(
        Regression(metric="e2e", level=16.0, ratio=Estimate(value=0.9), outcome=GateOutcome.FAIL, of_ratios=True),
        Regression(metric="ttft", level=16.0, ratio=Estimate(value=0.9), outcome=GateOutcome.FAIL, of_ratios=True,
                   judged=False),
    ))  # fmt: skip
    assert [case[0].tag for case in cases(junit(run_header(), judged(found)))] == ["system-out", "failure"]
    assert len(list(github.annotated(judged(found)))) == 1
    rows = gate_report.table(found).rows
    assert [row[0] for row in rows] == ["pass", "fail", "(fail)"]
    assert "speed-up over the baseline" in rows[1][1]


def test_annotations_name_every_objective_that_is_not_met() -> None:
    lines = list(github.annotated(judged(ALL)))
    assert len(lines) == 4
    assert all(line.startswith("::error title=loadtest gate::") for line in lines)
    warned = list(github.annotated(judged(gate(GateOutcome.INCONCLUSIVE, inconclusive="warn"))))
    assert warned[0].startswith("::warning ")
    many = gate(*[GateOutcome.FAIL] * 30)
    assert len(list(github.annotated(judged(many)))) == 10
    assert list(github.annotated(judged(gate(GateOutcome.PASS, exit_code=0)))) == []
    assert len(list(github.annotated(replace(judged(None), decision=replace(example().decision, exit_code=3))))) == 1


def test_a_workflow_command_cannot_be_forged() -> None:
    line = github.command("error", f"a,b: {NASTY}", NASTY)
    assert "\n" not in line
    assert "\r" not in line
    assert "\x1b" not in line
    assert "%250A@all" in line  # a written %0A does not become a line end
    head, _, _ = line.removeprefix("::error ").partition("::")
    assert head.startswith("title=a%2Cb%3A ")
    assert ":" not in head
    assert "," not in head


def test_foreign_output_is_fenced_by_a_token_that_nobody_can_guess() -> None:
    before, after = github.quiet_commands()
    token = before.removeprefix("::stop-commands::")
    assert after == f"::{token}::"
    assert len(token) == 32
    assert github.quiet_commands() != (before, after)


def test_the_job_summary_is_appended_to_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_text("before\n")
    assert github.add_summary({"GITHUB_STEP_SUMMARY": str(path)}, "answer") == ""
    assert path.read_text() == "before\nanswer\n"
    assert github.add_summary({}, "answer") == ""
    assert "cannot be written" in github.add_summary({"GITHUB_STEP_SUMMARY": str(tmp_path)}, "answer")
    assert github.in_actions({"GITHUB_ACTIONS": "true"})
    assert not github.in_actions({})


def test_capacity_stands_second_and_every_objective_on_its_line() -> None:
    text = shown(ALL)
    lines = text.splitlines()
    answer = next(i for i, line in enumerate(lines) if line.startswith(example().decision.headline[:40]))
    capacity = next(i for i, line in enumerate(lines) if line.startswith("Capacity:"))
    later = next(i for i, line in enumerate(lines) if line.startswith("Recommendation"))
    assert answer < capacity < later
    for outcome in ("pass", "fail", "inconclusive", "no data", "invalid"):
        assert f"- {outcome}: ttft p99 ≤ 500 ms at 16 users: 612 ms [580, 650] at 16." in text
    assert "Gate: failed." in text
    assert "Gate" not in shown(None)


def test_the_summary_has_the_objectives_as_a_table_and_fits_a_comment() -> None:
    text = markdown.summary(run_header(), judged(ALL))
    head, capacity = text.index("## "), text.index("Capacity: speculative")
    assert head < capacity < text.index("**Recommendation:**")
    assert "| fail | ttft p99 ≤ 500 ms at 16 users | 612 ms [580, 650] | ≤ 500 ms | 16 |" in text
    many = gate(*[GateOutcome.FAIL] * 500, objectives=tuple(
        result(GateOutcome.FAIL, sentence="x" * 290, says="y" * 390) for _ in range(500)))  # fmt: skip
    long = markdown.summary(run_header(), judged(many))
    assert len(long) < 65_536
    assert "440 more objectives stand in verdict.json" in long
    notes = gate(GateOutcome.PASS, notes=tuple("n" * 600 for _ in range(500)))
    assert len(markdown.summary(run_header(), judged(notes))) < 65_536


def test_a_summary_that_is_too_long_is_cut_and_says_so() -> None:
    cut = markdown._fitting("line\n" * 20_000)
    assert len(cut) < 60_000
    assert cut.endswith("… cut here; the rest stands in report.html and verdict.json.\n")


def test_markdown_shows_foreign_text_as_it_is() -> None:
    nasty = gate(GateOutcome.FAIL, objectives=(result(GateOutcome.FAIL, sentence=NASTY),))
    text = markdown.summary(run_header(), judged(nasty))
    assert "<img" not in text
    assert "@all" not in text


def test_a_refused_gate_shows_no_capacity() -> None:
    assert gate_report.second(gate(GateOutcome.INVALID, refused="simulated")) == ()
    assert gate_report.second(None) == ()
    assert gate_report.table(None).rows == ()


def test_the_page_has_capacity_in_the_answer_and_a_section_of_objectives() -> None:
    text = page(run_header(), judged(ALL))
    answer = text[text.index('id="answer"') : text.index("</header>")]
    assert "Capacity: speculative meets them up to 41\u00a0users." in answer
    section = text[text.index('<section aria-labelledby="objectives"') :]
    section = section[: section.index("</section>")]
    assert section.count("ttft p99 ≤ 500\u00a0ms at 16\u00a0users") == 5
    assert '<b class="bad">fail</b>' in section
    assert '<section aria-labelledby="objectives"' not in page(run_header(), judged(None))
    nasty = gate(GateOutcome.FAIL, objectives=(result(GateOutcome.FAIL, sentence=NASTY),))
    assert "<img onerror" not in page(run_header(), judged(nasty))
