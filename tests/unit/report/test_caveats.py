"""What could overturn the answer stands under How sure, in every form of the report."""

import dataclasses
import io

import pytest
import report_example as example
from parsed import Parsed
from rich.console import Console

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.findings import Trend
from loadtest.analyse.results import Answer, Finding, Guard, Speedup
from loadtest.report import header, why_words
from loadtest.report.caveats import caveats, marginal
from loadtest.report.markdown import summary
from loadtest.report.page import page
from loadtest.report.terminal import print_summary
from loadtest.report.view import View


def view(judgement):
    return View(run=example.run(), judgement=judgement)


def with_ratio(value, low, high):
    """Return the run with this speed-up at its 8 users."""
    full = example.full()
    given = Speedup(metric="e2e", level=8.0, ratio=Estimate(value=value, low=low, high=high, n=6))
    kept = tuple(s for s in full.speedups if (s.metric, s.level) != ("e2e", 8.0))
    return dataclasses.replace(full, speedups=(*kept, given))


def trending(**trends):
    full = example.full()
    acceptance = dataclasses.replace(full.findings.acceptance, **trends)
    return dataclasses.replace(full, findings=dataclasses.replace(full.findings, acceptance=acceptance))


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        ((1.034, 0.61, 1.76), "at 8 users the estimate itself is 1.03 [0.61, 1.76]"),
        ((1.10, 1.031, 1.17), "at 8 users the interval begins at 1.031"),
        ((1.02, 1.004, 1.027), "at 8 users the interval ends at 1.027"),
        ((1.10, 1.04, 1.17), ""),
        ((1.05, 0.98, 1.12), ""),
    ],
)
def test_what_is_the_least_gain_but_for_its_last_digits_is_marginal(ratio, said):
    found = marginal(view(with_ratio(*ratio)))
    assert found.startswith(f"Marginal against the least gain, 1.03×: {said or 'at 32 users'}")
    assert ("at 8 users" in found) is bool(said)


def test_guards_that_nothing_proves_are_named_with_their_loads():
    full = example.full()
    given = (
        Guard(name="ttft", level=4.0, finding=Finding.UNPROVEN, statistic="p90"),
        Guard(name="ttft", level=8.0, finding=Finding.UNPROVEN, statistic="p90"),
        Guard(name="ttft", level=16.0, finding=Finding.HOLDS, statistic="p90"),
        Guard(name="on_time", level=8.0, finding=Finding.UNPROVEN),
        Guard(name="error_ratio", level=8.0, finding=Finding.BROKEN),
    )
    found = dataclasses.replace(full, decision=dataclasses.replace(full.decision, guards=given))
    said = "Guards neither broken nor proven to hold: p90 of the time to first token at 4 and 8 users; tokens"
    assert f"{said} on time at 8 users." in caveats(view(found))


def test_acceptance_that_drifts_stands_in_every_form_and_is_not_said_to_be_the_same():
    found = trending(drift=Trend(per="hour", p_value=0.018, change=-0.32))
    said = "The acceptance of drafts fell by 32 % over the run (p = 0.018)"
    out = io.StringIO()
    print_summary(Console(file=out, width=400), example.run(), found)
    for text in (out.getvalue(), summary(example.run(), found), Parsed(page(example.run(), found)).text("answer")):
        shown = text.replace("\u00a0", " ")
        assert said in shown
        assert "not the acceptance of drafts" not in shown
    assert "not the acceptance of drafts" in " ".join(why_words.why_sentences(view(example.full())))


@pytest.mark.parametrize(("p", "change"), [(0.018, -0.04), (0.06, -0.32), (None, None)])
def test_a_trend_that_is_small_or_like_chance_is_no_caveat(p, change):
    found = trending(drift=Trend(per="hour", p_value=p, change=change), flat=None)
    assert not any("acceptance" in said for said in caveats(view(found)))


def test_a_run_that_judged_nothing_has_no_caveats():
    full = example.full()
    for answer in (Answer.INVALID, Answer.MEASURED):
        decision = dataclasses.replace(full.decision, answer=answer)
        assert caveats(view(dataclasses.replace(full, decision=decision))) == ()


@pytest.mark.parametrize(
    ("devices", "warned"), [(("cpu", "cpu"), True), (("cpu", "cuda"), False), ((None, None), False)]
)
def test_servers_on_a_cpu_are_said_to_predict_nothing_before_the_answer(devices, warned):
    arms = [
        {"name": name, "identity": {"config": {"device_config.device": device} if device else {}}}
        for name, device in zip(example.ARMS, devices, strict=True)
    ]
    found = header.banners(View(run=example.run(arms=arms, starts=4), judgement=example.full()))
    assert [b.text for b in found if b.word == "CPU servers"] == (
        ["They predict nothing of a deployment on accelerators, or of another model."] if warned else []
    )
