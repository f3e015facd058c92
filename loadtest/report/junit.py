"""junit.xml: one test case per objective, for whatever shows test results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET  # nosec B405  # writes XML, reads none

from loadtest.analyse.gate_results import Gate, GateOutcome, Regression, SloResult
from loadtest.analyse.results import Answer, Judgement
from loadtest.errors import ExitCode
from loadtest.report import gate as gate_report
from loadtest.report import header, vocabulary, words
from loadtest.report.view import View
from loadtest.report.writing import write_whole

NAME = "junit.xml"
# An objective that is not met is a failure; one that could not be judged is an error, and passes nowhere either.
ELEMENTS = {
    GateOutcome.FAIL: "failure",
    GateOutcome.INCONCLUSIVE: "error",
    GateOutcome.NO_DATA: "error",
    GateOutcome.INVALID: "error",
}
DECISION = {ExitCode.FAILED: "failure", ExitCode.INCONCLUSIVE: "error", ExitCode.INVALID: "error"}


def write_junit(folder: Path, run: Mapping[str, Any], judgement: Judgement) -> Path:
    """Write junit.xml into the run's folder, whole or not at all; return its path."""
    return write_whole(folder / NAME, junit(run, judgement))


def junit(run: Mapping[str, Any], judgement: Judgement) -> str:
    """Return the objectives as JUnit XML; without any, the decision is the one test case."""
    suite = ET.Element("testsuite", name=f"loadtest {header.scenario(run)}".strip())
    gate = judgement.gate
    if gate is None or not (gate.objectives or gate.regressions):
        _decision(suite, View(run=run, judgement=judgement))
        _candidates(suite, View(run=run, judgement=judgement))
    else:
        for result in gate.objectives:
            _case(suite, result.sentence, result.outcome, _message(result), gate)
        for against in gate.regressions:
            if against.judged:
                _case(suite, _name(against), against.outcome, "against the other run", gate)
        if gate.outcome not in gate.outcomes:  # such as another run that is not to be judged
            _case(suite, "the gate", gate.outcome, gate.headline, gate)
        if not gate.exit_code and header.exit_code(View(run=run, judgement=judgement)) == ExitCode.INTERRUPTED:
            _case(suite, "the run", GateOutcome.INVALID, "The last sitting of the run was interrupted.", gate)
    for name in ("failure", "error", "skipped"):
        suite.set({"failure": "failures", "error": "errors"}.get(name, name), str(len(suite.findall(f"*/{name}"))))
    suite.set("tests", str(len(suite)))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _name(against: Regression) -> str:
    return f"{against.metric} at {against.level:g} against the other run"


def _message(result: SloResult) -> str:
    row = dict(zip(gate_report.COLUMNS, gate_report.table(Gate(
        outcome=result.outcome, exit_code=0, headline="", objectives=(result,))).rows[0], strict=True))  # fmt: skip
    return f"observed {row['observed [95 %]']}, limit {row['limit']}. {row['in words']}".strip()


def _case(suite: ET.Element, name: str, outcome: GateOutcome, message: str, gate: Gate) -> None:
    case = ET.SubElement(suite, "testcase", classname="loadtest.slo", name=words.plain(name, 300))
    element = ELEMENTS.get(outcome)
    if outcome is GateOutcome.INCONCLUSIVE and gate.inconclusive == "warn":
        element = "skipped"  # the scenario says that it is to pass with a warning
    elif outcome is GateOutcome.INCONCLUSIVE and gate.inconclusive == "fail":
        element = "failure"
    said = words.plain(message, 600)
    if element is None:
        ET.SubElement(case, "system-out").text = said
        return
    found = ET.SubElement(case, element, message=said)
    if element != "skipped":
        found.set("type", outcome.value)


def _candidates(suite: ET.Element, view: View) -> None:
    """Add a test case for each of several candidates; one that does not pay is no failure where another does."""
    for name, own in view.pairs.items():
        case = ET.SubElement(suite, "testcase", classname="loadtest.candidate", name=words.plain(name, 100))
        said = words.plain(own.judgement.decision.headline, 600)
        if own.judgement.decision.exit_code == ExitCode.PASS and own.judgement.decision.answer is not Answer.MEASURED:
            ET.SubElement(case, "system-out").text = said
        else:
            ET.SubElement(case, "skipped", message=said)


def _decision(suite: ET.Element, view: View) -> None:
    case = ET.SubElement(suite, "testcase", classname="loadtest.decision", name="speculation pays")
    code = header.exit_code(view)
    gate, decision = view.judgement.gate, view.judgement.decision
    said = words.plain((gate or decision).headline, 600)
    element = DECISION.get(ExitCode(code)) if code in list(ExitCode) else "error"
    if code == ExitCode.INTERRUPTED:
        element = "error"
    if element is None and decision.answer is Answer.MEASURED:
        ET.SubElement(case, "skipped", message=said)  # no one asked whether it pays: nothing that passes
        return
    if element is None:
        ET.SubElement(case, "system-out").text = said
        return
    why = vocabulary.ANSWERS[decision.answer] if gate is None else gate.outcome.value
    ET.SubElement(case, element, message=said, type=why)
